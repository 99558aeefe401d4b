"""This checkout against another one: `make bench-against BEFORE=path`."""
