"""Names the directories of compiled kernels, and marks the cache when it is complete.

Numba's cache notices an edit of the file that defines a kernel, but not of the files whose
kernels it calls. Each module therefore has its own cache directory, named after a hash of its
source and of every module that it imports, directly or not. After an edit the old directory is no
longer found, and modules that do not depend on the edited file stay compiled.

Numba is not imported here, so that a check of a complete cache takes less than a second.

Environment:
    SIROCCO_KERNEL_CACHE: where compiled kernels are kept; default `sirocco/kernels` below the
        user's cache directory (`$XDG_CACHE_HOME`, else `~/.cache`). It has to be writable:
        otherwise Numba would compile again in every process, without a message.
    SIROCCO_BOUNDS: `1` makes kernels check their indices; these have a directory of their own.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

__all__ = [
    "ALL",
    "BOUNDS_CHECKED",
    "cache_directory",
    "completion_mark",
    "digest_of",
    "imports_of_modules",
    "only_writer",
]

PACKAGE = "sirocco.kernels"

# Its directory depends on all sources; it holds the marks and kernels from outside the package.
ALL = "all"

BOUNDS_CHECKED = os.environ.get("SIROCCO_BOUNDS", "0") not in {"", "0"}

# One directory for each module and state of its sources. Every edit leaves old ones; without a
# bound the cache would grow by some megabytes each time. Two checkouts and a few branches fit.
CACHE_DIRECTORIES_KEPT = 16

_IMPORT = re.compile(
    rf"^\s*from {re.escape(PACKAGE)}((?:\.\w+)*) import (\([^)]*\)|[^\n]*)"
    rf"|^\s*import {re.escape(PACKAGE)}((?:\.\w+)+)",
    re.MULTILINE,
)


@functools.cache
def _sources() -> dict[str, bytes]:
    """Returns the source of each module of kernels, by its dotted name below the package."""
    folder = Path(__file__).parents[1]
    return {
        ".".join(path.relative_to(folder).with_suffix("").parts): path.read_bytes()
        for path in sorted(folder.rglob("*.py"))
        if path.name != "__init__.py"
    }


@functools.cache
def imports_of_modules() -> dict[str, frozenset[str]]:
    """Returns, for each module of kernels, which others of them it imports."""
    modules = _sources()
    found: dict[str, set[str]] = {name: set() for name in modules}
    for name, source in modules.items():
        for package, names, module in _IMPORT.findall(source.decode()):
            base = (package or module)[1:]
            imported = re.findall(r"\w+", re.sub(r"\bas\s+\w+|#.*", "", names))
            wanted = [base, *(f"{base}.{each}" if base else each for each in imported)]
            found[name].update(one for one in wanted if one in modules and one != name)
    return {name: frozenset(needed) for name, needed in found.items()}


@functools.cache
def digest_of(module: str) -> str:
    """Returns 16 hex digits of a hash over all sources that a module's compiled kernels depend on.

    Args:
        module: its name below the package; ALL, or any other: all modules of the package.
    """
    imports = imports_of_modules()
    needed = {module} if module in imports else set(imports)
    waiting = list(needed)
    while waiting:
        fresh = imports[waiting.pop()] - needed
        needed |= fresh
        waiting += fresh
    digest = hashlib.sha256()
    for name in sorted(needed):
        digest.update(name.encode() + b"\0" + _sources()[name] + b"\0")
    return digest.hexdigest()[:16]


def _cache_root() -> Path:
    chosen = os.environ.get("SIROCCO_KERNEL_CACHE")
    user_cache = os.environ.get("XDG_CACHE_HOME")
    root = (Path(user_cache) if user_cache else Path.home() / ".cache") / "sirocco" / "kernels"
    if chosen:
        root = Path(chosen)
    return root / "bounds" if BOUNDS_CHECKED else root


def _drop_old(root: Path, module: str, keep: Path) -> None:
    """Removes all but the most recently made cache directories of a module."""
    # A process that still uses a removed directory creates it again when it next compiles.
    with suppress(OSError):
        others = [p for p in root.glob(f"{module}-*") if p.is_dir() and p != keep]
        others.sort(key=lambda p: p.stat().st_mtime, reverse=True)
        for old in others[CACHE_DIRECTORIES_KEPT - 1 :]:
            shutil.rmtree(old, ignore_errors=True)


@functools.cache
def cache_directory(module: str = ALL) -> Path:
    """Returns the directory of the compiled kernels of a module; creates it if it is missing.

    Args:
        module: its name below the package; any other name counts as ALL.

    Raises:
        RuntimeError: The directory cannot be made or written.
    """
    root = _cache_root()
    if module not in _sources():
        module = ALL
    directory = root / f"{module}-{digest_of(module)}"
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
        _drop_old(root, module, directory)
    return directory


@contextmanager
def only_writer() -> Iterator[None]:
    """Keeps other processes from writing to the cache while the context is open."""
    # Beside the directories: the files of a directory that is part of an image are read-only.
    with (cache_directory().parent / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def completion_mark(what: str) -> Path:
    """Returns the file whose presence means that kernels are compiled for this Python and Numba.

    Args:
        what: "all" kernels, or those that processes import at their "start".

    Raises:
        RuntimeError: The directory cannot be made or written.
        PackageNotFoundError: Numba is not installed.
    """
    # The keys of Numba's cache, except the CPU where none is named: a home that several kinds of
    # CPU share is rare, and there the first import compiles, as it does without the mark.
    parts = [
        sys.version,
        version("numba"),
        version("llvmlite"),
        os.environ.get("NUMBA_CPU_NAME", ""),
        os.environ.get("NUMBA_CPU_FEATURES", "host"),
    ]
    return cache_directory() / f"{what}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"
