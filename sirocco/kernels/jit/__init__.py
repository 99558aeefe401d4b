"""How kernels are compiled, cached and compiled before they are needed."""
