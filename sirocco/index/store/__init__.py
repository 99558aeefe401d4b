"""The store of past objects: slices, and searches over them."""
