"""The comparison of all schemes: `make bench-schemes` writes `docs/schemes.md`."""
