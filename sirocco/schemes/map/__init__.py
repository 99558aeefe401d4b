"""The partition map, its bytes, and the arrays by which routers look things up."""
