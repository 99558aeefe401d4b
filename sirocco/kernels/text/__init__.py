"""Kernels for the analysis of texts."""
