"""Compares this checkout with another one: `make bench-against BEFORE=path`."""
