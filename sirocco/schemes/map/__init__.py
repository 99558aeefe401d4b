"""The partition map, its bytes, and the arrays for routing."""
