"""Kernels of the index of standing queries."""
