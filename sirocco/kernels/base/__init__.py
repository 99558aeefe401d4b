"""Kernels that all others stand on: memory, geometry, text, hashing, hash tables."""
