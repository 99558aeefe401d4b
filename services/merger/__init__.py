"""The merger."""
