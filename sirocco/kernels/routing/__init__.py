"""Kernels of routers and of the schemes that build their maps."""
