"""Look-ups of a router for each object."""
