"""The one decorator that turns a Python function into a native kernel.

Compiled code is cached (`sirocco.kernels.jit.cache`). Small functions without signatures are
cached once for each combination of types that kernels call them with, as bitcode that becomes part
of the callers. Native code that Python can call is made for kernels with signatures alone; for the
others when Python first calls them, as tests do.

Environment (read once, at import):
    SIROCCO_JIT: `0` leaves kernels as plain Python, so that coverage and a debugger see them.
    SIROCCO_BOUNDS: `1` makes kernels raise IndexError where an index is outside its array, at a
        tenth of the speed: for tests (`make test-bounds`).
    SIROCCO_KERNEL_CACHE: see `sirocco.kernels.jit.cache`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast, overload

import numba
import numpy as np
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    UserProvidedCacheLocator,
)
from numba.core.compiler import CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import CPUDispatcher
from numba.core.runtime import rtsys
from numba.core.types.misc import unliteral
from numba.core.typing.templates import Signature

from sirocco.kernels.jit.cache import BOUNDS_CHECKED, PACKAGE, cache_directory, only_writer
from sirocco.kernels.jit.libraries import libraries_of_kernels, rebuilt, reduced

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

    def ensure_cache_path(self) -> None:
        """Creates the directory if it was removed; that it is writable is known already."""
        Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)

    def get_source_stamp(self) -> str:
        """Returns the same for all: sources that differ have directories that differ."""
        return ""


_BY_CONTENTS = f"{ByContents.__module__}.{ByContents.__qualname__}"

# For helpers, below the directory of a module: native code that Python calls.
_CALLED_BY_PYTHON = "called_by_python"


@contextmanager
def _cache_of(function: Callable[..., Any], folder: str) -> Iterator[None]:
    """Lets Numba's settings name the directory of a function; other users of Numba keep theirs."""
    settings: Any = numba.config
    former = settings.CACHE_DIR, settings.CACHE_LOCATOR_CLASSES
    directory = cache_directory(function.__module__.removeprefix(f"{PACKAGE}."))
    settings.CACHE_DIR = str(Path(directory, folder))
    if function.__module__.startswith(f"{PACKAGE}."):
        settings.CACHE_LOCATOR_CLASSES = _BY_CONTENTS
    try:
        yield
    finally:
        settings.CACHE_DIR, settings.CACHE_LOCATOR_CLASSES = former


class _SavedResults(CompileResultCacheImpl):  # type: ignore[misc]
    """What a cache keeps of compiled code."""

    def reduce(self, cres: CompileResult) -> tuple[Any, ...]:
        """Returns what is kept."""
        return reduced(cres)

    def rebuild(self, target_context: Any, payload: Any) -> CompileResult:
        """Returns the code out of what was kept."""
        return rebuilt(target_context, payload)


class _KernelCache(FunctionCache):  # type: ignore[misc]
    """The cache of one kernel.

    One process at a time adds code to its index: Numba gives new code the first free number. Two
    processes that start on an empty cache would use one number for code of different types, and a
    later process would run the wrong code.
    """

    _impl_class = _SavedResults

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        file = self._cache_file
        save = file.save

        def save_alone(key: Any, code: Any) -> None:
            with only_writer():
                save(key, code)

        file.save = save_alone

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """Loads the code for a signature, without the set-up of a compilation."""
        return cast("CompileResult | None", self._load_overload(sig, target_context))


class _Kernel(CPUDispatcher):  # type: ignore[misc]
    """A function that Numba compiles for the types that it is called with.

    Args:
        function: as written.
        inline: makes LLVM inline it into every caller.
        folder: of its code, below the directory of its module.
    """

    def __init__(self, function: Callable[..., Any], inline: bool, folder: str = "") -> None:
        super().__init__(
            function,
            targetoptions={
                "nopython": True,
                "nogil": True,
                # Kernels are not called through C pointers; with a wrapper each is compiled twice.
                "no_cfunc_wrapper": True,
                "boundscheck": BOUNDS_CHECKED,
                "error_model": "numpy",
                "forceinline": inline,
            },
        )
        self._folder = folder
        self._kernel_cache: _KernelCache | None = None

    def compile(self, sig: Any) -> Any:
        """Loads or compiles the code for a signature."""
        with global_compiler_lock:
            if self._kernel_cache is None:
                with _cache_of(self.py_func, self._folder):
                    self._kernel_cache = self._cache = _KernelCache(self.py_func)
            # What compiles asks for all of Numba's functions; native code calls these alone.
            rtsys.initialize(self.targetctx)
            with libraries_of_kernels(self.targetctx):
                return super().compile(sig)


class _Helper(_Kernel):
    """A function that kernels call."""

    def __init__(self, function: Callable[..., Any], inline: bool) -> None:
        super().__init__(function, inline)
        self._compiler._customize_flags = _without_native_code
        self._door: _Kernel | None = None

    def get_call_template(self, args: Sequence[Any], kws: Mapping[str, Any]) -> Any:
        """Compiles the function for the types of a call: once for all constants of a type.

        Where it pays LLVM includes the function with the constants. Numba would compile it for each
        constant that some kernel passes, and for those with which a loop only begins.
        """
        types = tuple(map(unliteral, args))
        return super().get_call_template(types, {name: unliteral(kws[name]) for name in kws})

    def add_overload(self, cres: CompileResult) -> None:
        """Lets kernels call the code; by its entry Numba tells it from that for other types."""
        known = cres._replace(entry_point=object())
        self.targetctx.insert_user_function(known.entry_point, known.fndesc, [known.library])
        self.overloads[tuple(known.signature.args)] = known

    def _compile_for_args(self, *args: Any, **kwargs: Any) -> Any:
        # Numba asks for what Python shall call, and finds nothing that it has been told before.
        if self._door is None:
            self._door = _Kernel(self.py_func, False, _CALLED_BY_PYTHON)
        return self._door._compile_for_args(*args, **kwargs)


def _without_native_code(flags: Any) -> Any:
    flags.no_compile = flags.no_cpython_wrapper = True
    return flags


def _compile(function: Callable[P, R], signatures: list[Any], inline: bool) -> Callable[P, R]:
    if not signatures:
        return cast("Callable[P, R]", _Helper(function, inline))
    compiled = _Kernel(function, inline)
    for signature in signatures:
        compiled.compile(signature)
    compiled.disable_compile()
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
