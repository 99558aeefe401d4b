"""Where compiled kernels are kept, and how anyone can tell that all of them are there.

Numba keeps compiled code in a cache that notices an edit of the file a kernel stands in, but
not of the files whose kernels it calls. The cache directory is therefore named after a hash
of all sources of `sirocco.kernels`: after any edit the old directory is simply not found.

Numba is not imported here: to see that nothing is to be done takes no second.

Environment:
    SIROCCO_KERNEL_CACHE: where compiled kernels are kept; default `sirocco/kernels` below the
        user's cache directory (`$XDG_CACHE_HOME`, else `~/.cache`). It has to be writable:
        Numba would otherwise compile anew in every process without a word.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

__all__ = ["cache_directory", "completion_mark", "only_writer", "sources_digest"]

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
        str(Path(__file__).resolve().parent),
        sys.version,
        version("numba"),
        version("llvmlite"),
        os.environ.get("NUMBA_CPU_NAME", ""),
        os.environ.get("NUMBA_CPU_FEATURES", "host"),
    ]
    return cache_directory() / f"{what}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"
