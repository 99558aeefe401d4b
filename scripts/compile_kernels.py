"""Compiles every kernel into the cache, so that no test pays for it and none times out on it."""

from __future__ import annotations

import importlib
import pkgutil

import sirocco.kernels

for module in pkgutil.iter_modules(sirocco.kernels.__path__, "sirocco.kernels."):
    # Kernels declare their signatures, so importing is compiling.
    importlib.import_module(module.name)
