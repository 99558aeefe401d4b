"""The one decorator that turns a Python function into a native kernel.

Numba keeps compiled code in a cache that notices an edit of the file a kernel stands in, but
not of the files whose kernels it calls. The cache directory is therefore named after a hash
of all sources of `sirocco.kernels`: after any edit the old directory is simply not found.

Environment (read once, at import):
    SIROCCO_JIT: `0` leaves kernels as plain Python, so that coverage and a debugger see them.
    SIROCCO_KERNEL_CACHE: where compiled kernels are kept; default `sirocco/kernels` below the
        user's cache directory (`$XDG_CACHE_HOME`, else `~/.cache`). It has to be writable:
        Numba would otherwise compile anew in every process without a word.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast, overload

import numba
import numpy as np
from numba.core.typing.templates import Signature

__all__ = ["JIT_ENABLED", "cache_directory", "kernel"]

P = ParamSpec("P")
R = TypeVar("R")

JIT_ENABLED = os.environ.get("SIROCCO_JIT", "1") != "0"

# One directory per state of the sources. A developer leaves one behind with every edit; without
# a bound the cache would grow by some megabytes each time. Two checkouts and a few branches fit.
CACHE_DIRECTORIES_KEPT = 16


def sources_digest() -> str:
    """Returns 16 hex digits over the names and contents of all kernel sources."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _cache_root() -> Path:
    chosen = os.environ.get("SIROCCO_KERNEL_CACHE")
    if chosen:
        return Path(chosen)
    user_cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(user_cache) if user_cache else Path.home() / ".cache") / "sirocco" / "kernels"


def _drop_old(root: Path, keep: Path) -> None:
    """Removes all but the most recently made cache directories."""
    # A process that still uses a removed one makes it again when it next compiles.
    with suppress(OSError):
        others = [p for p in root.iterdir() if p.is_dir() and p != keep]
        others.sort(key=lambda p: p.stat().st_mtime, reverse=True)
        for old in others[CACHE_DIRECTORIES_KEPT - 1 :]:
            shutil.rmtree(old, ignore_errors=True)


@functools.cache
def cache_directory() -> Path:
    """Returns the directory of the compiled kernels of these sources, made if need be.

    Raises:
        RuntimeError: The directory cannot be made or written.
    """
    root = _cache_root()
    directory = root / sources_digest()
    try:
        is_new = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise RuntimeError(
            f"kernel cache {directory} is not writable ({error.strerror}); "
            "name a writable directory in SIROCCO_KERNEL_CACHE"
        ) from error
    if is_new:
        _drop_old(root, directory)
    return directory


def _compile(function: Callable[P, R], signatures: list[Any], inline: bool) -> Callable[P, R]:
    # The directory is handed to Numba only while this kernel's cache is set up: other users of
    # Numba in the same process keep theirs.
    settings: Any = numba.config
    previous = settings.CACHE_DIR
    settings.CACHE_DIR = str(cache_directory())
    try:
        compiled = numba.jit(
            signatures or None,
            nopython=True,
            nogil=True,
            cache=True,
            boundscheck=False,
            error_model="numpy",
            forceinline=inline,
        )(function)
    finally:
        settings.CACHE_DIR = previous
    return cast("Callable[P, R]", compiled)


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
    the kernel is compiled (or loaded) when its module is imported and accepts nothing else, so
    that no caller pays for, or is surprised by, a compilation later. Read-only and writable
    arrays are different types to Numba: declare inputs that callers may hand over read-only as
    `numba.types.Array(dtype, 1, "C", readonly=True)`; such a parameter takes both.

    Args:
        *signatures: Numba signatures; none for small functions that kernels call.
        inline: Has LLVM inline the function into every caller; for small inner functions.

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
