"""The one decorator that turns a Python function into a native kernel.

Compiled code is cached (`sirocco.kernels.jit.cache`). Small functions without signatures are
cached once for each combination of types that kernels call them with.

Environment (read once, at import):
    SIROCCO_JIT: `0` leaves kernels as plain Python, so that coverage and a debugger see them.
    SIROCCO_BOUNDS: `1` makes kernels raise IndexError where an index is outside its array, at a
        tenth of the speed: for tests (`make test-bounds`).
    SIROCCO_KERNEL_CACHE: see `sirocco.kernels.jit.cache`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast, overload

import numba
import numpy as np
from numba.core.caching import UserProvidedCacheLocator
from numba.core.typing.templates import Signature

from sirocco.kernels.jit.cache import BOUNDS_CHECKED, PACKAGE, cache_directory, only_writer

__all__ = ["JIT_ENABLED", "kernel"]

P = ParamSpec("P")
R = TypeVar("R")

JIT_ENABLED = os.environ.get("SIROCCO_JIT", "1") != "0"


class ByContents(UserProvidedCacheLocator):  # type: ignore[misc]
    """Keeps compiled code in `numba.config.CACHE_DIR` itself, wherever its sources lie.

    Numba would add a directory for each path of the sources. Ours is named after their contents:
    checkouts of one revision, and a package that is installed again, share compiled kernels.
    """

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """Returns the empty path."""
        return ""

    def get_source_stamp(self) -> str:
        """Returns the same for all: sources that differ have directories that differ."""
        return ""


_BY_CONTENTS = f"{ByContents.__module__}.{ByContents.__qualname__}"


def _compile(function: Callable[P, R], signatures: list[Any], inline: bool) -> Callable[P, R]:
    # Numba's settings hold this directory only while this kernel's cache is set up: other users of
    # Numba in the same process keep theirs.
    settings: Any = numba.config
    previous = settings.CACHE_DIR, settings.CACHE_LOCATOR_CLASSES
    settings.CACHE_DIR = str(cache_directory(function.__module__.removeprefix(f"{PACKAGE}.")))
    if function.__module__.startswith(f"{PACKAGE}."):
        settings.CACHE_LOCATOR_CLASSES = _BY_CONTENTS
    try:
        compiled: Any = numba.jit(
            nopython=True,
            nogil=True,
            cache=True,
            # Kernels are not called through C pointers; with a wrapper each is compiled twice.
            no_cfunc_wrapper=True,
            boundscheck=BOUNDS_CHECKED,
            error_model="numpy",
            forceinline=inline,
        )(function)
    finally:
        settings.CACHE_DIR, settings.CACHE_LOCATOR_CLASSES = previous
    _save_alone(compiled)
    for signature in signatures:
        compiled.compile(signature)
    if signatures:
        compiled.disable_compile()
    return cast("Callable[P, R]", compiled)


def _save_alone(compiled: Any) -> None:
    """Lets one process at a time add code to a kernel's cache index.

    Numba gives new code the first free number. Two processes that start on an empty cache would
    use one number for code of different types, and a later process would run the wrong code.
    """
    file = compiled._cache._cache_file
    save = file.save

    def save_alone(key: Any, code: Any) -> None:
        with only_writer():
            save(key, code)

    file.save = save_alone


def _interpret(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def interpreted(*args: P.args, **kwargs: P.kwargs) -> R:
        # Hash arithmetic wraps by design; NumPy scalars would warn where native code does not.
        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return interpreted


@overload
def kernel(first: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def kernel(
    *signatures: str | Signature, inline: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def kernel(*signatures: Any, inline: bool = False) -> Any:
    """Compiles a function to native code: nopython, without the GIL, cached, unchecked bounds.

    Used as `@kernel`, `@kernel()` or `@kernel("i8[::1](u1[::1], i8)", ...)`. With signatures
    the kernel is compiled (or loaded) when its module is imported and accepts no other types, so
    that no call waits for a compilation. Read-only and writable arrays are different types to
    Numba: declare inputs that may be read-only as
    `numba.types.Array(dtype, 1, "C", readonly=True)`; such a parameter takes both.

    Args:
        *signatures: Numba signatures; none for small functions that kernels call.
        inline: Makes LLVM inline the function into every caller; for small inner functions.

    Returns:
        The compiled function; with SIROCCO_JIT=0 the Python function itself, with the warnings
        of wrapping NumPy scalars silenced.
    """
    if len(signatures) == 1 and not inline and callable(signatures[0]):
        candidate = signatures[0]
        if not isinstance(candidate, Signature):
            return _compile(candidate, [], False) if JIT_ENABLED else _interpret(candidate)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if not JIT_ENABLED:
            return _interpret(function)
        return _compile(function, list(signatures), inline)

    return decorate
