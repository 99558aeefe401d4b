"""Where compiled kernels are kept, and how anyone can tell that all of them are there.

Numba keeps compiled code in a cache that notices an edit of the file a kernel stands in, but
not of the files whose kernels it calls. Each module therefore has a cache directory of its own,
named after a hash of its source and of those that it imports, directly or not: after an edit the
old directory is simply not found, and what does not depend on the file stays compiled.

Numba is not imported here: to see that nothing is to be done takes no second.

Environment:
    SIROCCO_KERNEL_CACHE: where compiled kernels are kept; default `sirocco/kernels` below the
        user's cache directory (`$XDG_CACHE_HOME`, else `~/.cache`). It has to be writable:
        Numba would otherwise compile anew in every process without a word.
    SIROCCO_BOUNDS: `1` has kernels check their indices; kept apart from those that do not.
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

# The directory over all sources: of the marks, and of kernels outside of the package.
ALL = "all"

BOUNDS_CHECKED = os.environ.get("SIROCCO_BOUNDS", "0") not in {"", "0"}

# One directory per module and state of its sources. A developer leaves some behind with every edit;
# without a bound the cache would grow by some megabytes each time. Two checkouts and a few branches
# fit.
CACHE_DIRECTORIES_KEPT = 16

_IMPORT = re.compile(
    rf"^\s*from {re.escape(PACKAGE)}((?:\.\w+)*) import (\([^)]*\)|[^\n]*)"
    rf"|^\s*import {re.escape(PACKAGE)}((?:\.\w+)+)",
    re.MULTILINE,
)


@functools.cache
def _sources() -> dict[str, bytes]:
    """Name of each module of kernels, by folders and dots below the package → its source."""
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
    """Returns 16 hex digits over what the compiled kernels of a module are made of.

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
    # A process that still uses a removed one makes it again when it next compiles.
    with suppress(OSError):
        others = [p for p in root.glob(f"{module}-*") if p.is_dir() and p != keep]
        others.sort(key=lambda p: p.stat().st_mtime, reverse=True)
        for old in others[CACHE_DIRECTORIES_KEPT - 1 :]:
            shutil.rmtree(old, ignore_errors=True)


@functools.cache
def cache_directory(module: str = ALL) -> Path:
    """Returns the directory of the compiled kernels of a module, made if need be.

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
    """Keeps other processes from writing to the cache meanwhile."""
    # Beside the directories: one that comes out of an image holds files that nobody may write.
    with (cache_directory().parent / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def completion_mark(what: str) -> Path:
    """Returns the file that says that kernels are there, for this interpreter and this Numba.

    Args:
        what: "all" of them, or those that processes import at their "start".

    Raises:
        RuntimeError: The directory cannot be made or written.
        PackageNotFoundError: Numba is not installed.
    """
    # What Numba looks at, but for the CPU where none is named: a home that several kinds of CPU
    # share is rare, and there kernels are compiled by the first import, as without the mark.
    parts = [
        str(Path(__file__).resolve().parents[1]),
        sys.version,
        version("numba"),
        version("llvmlite"),
        os.environ.get("NUMBA_CPU_NAME", ""),
        os.environ.get("NUMBA_CPU_FEATURES", "host"),
    ]
    return cache_directory() / f"{what}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"
