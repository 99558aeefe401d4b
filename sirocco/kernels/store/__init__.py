"""Kernels of the store of past objects."""
