"""Compiles kernels to native code, caches them, and compiles them before they are needed."""
