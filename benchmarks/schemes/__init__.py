"""The comparison of all schemes: `make bench-schemes` writes `docs/results/schemes.md`."""
