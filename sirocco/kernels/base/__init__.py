"""Kernels that all others use: memory, geometry, text, hashing, hash tables."""
