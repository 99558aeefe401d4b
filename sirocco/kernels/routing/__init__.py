"""Kernels for routers and for the schemes that build their maps."""
