"""Changes of standing queries: read, checked, within limits, and applied by their owners."""
