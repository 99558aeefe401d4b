"""Lets a process in an image find the kernels that were compiled into it.

An image should not compile at its start, its root is read-only, and it runs on other CPUs than its
build machine. So the image holds kernels for a named CPU level (`x86-64-v3` runs on every server of
the last ten years) below `/opt/sirocco/kernels`. Before anything else is imported, `use` has
Numba look for that level, and fills the writable directory that the kernel cache needs with
links to the image's files: nothing is copied, and all pods of a node read the same pages.

On a CPU that supports none of the levels, Numba compiles for that CPU, into the writable directory.

The image calls this at every start of Python, from a `.pth` file beside the packages. If
`NUMBA_CPU_NAME` is set, it applies unchanged. Nothing heavy may be imported here.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
from collections.abc import Iterable, MutableMapping
from pathlib import Path

__all__ = ["LEVELS", "supported", "use"]

IMAGE_KERNELS = Path("/opt/sirocco/kernels")

# LLVM's names of levels, best first, with the instructions in /proc/cpuinfo's names that each level
# adds to those below (x86-64 psABI, "Micro-architecture levels").
_V2 = frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}
LEVELS: dict[str, frozenset[str]] = {
    "x86-64-v4": _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": _V3,
    "x86-64-v2": _V2,
    "x86-64": frozenset(),
}
"""Level of CPU → instructions that it wants."""

GENERIC = "generic"
"""Every CPU of the architecture that the image was built for."""


def cpu_flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """Returns the CPU's features; empty if the system does not list them."""
    with contextlib.suppress(OSError):
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "flags":
                return frozenset(value.split())
    return frozenset()


def supported(levels: Iterable[str], flags: frozenset[str], machine: str) -> str | None:
    """Returns the first of the levels that the CPU can run, None if there is none."""
    for level in levels:
        if level == GENERIC or (machine == "x86_64" and LEVELS.get(level, {""}) <= flags):
            return level
    return None


def use(image: Path = IMAGE_KERNELS, environment: MutableMapping[str, str] = os.environ) -> None:
    """Sets up this process for the kernels of an image; does nothing outside of one."""
    if "NUMBA_CPU_NAME" in environment:
        return
    try:
        levels = (image / "levels").read_text().split()
    except OSError:
        return
    level = supported(levels, cpu_flags(), platform.machine())
    if level is None:
        return
    environment["NUMBA_CPU_NAME"] = level
    # Otherwise Numba adds the features of the present CPU, and looks for kernels for those.
    environment["NUMBA_CPU_FEATURES"] = ""
    if "SIROCCO_KERNEL_CACHE" in environment:
        # If this fails, the cache itself reports it.
        with contextlib.suppress(OSError):
            _link(image, Path(environment["SIROCCO_KERNEL_CACHE"]))


def _link(image: Path, root: Path) -> None:
    """Fills the cache's missing directories with links."""
    for source in image.iterdir():
        target = root / source.name
        if not source.is_dir() or target.exists():
            continue
        # Written under another name and renamed: another process may start in the same directory.
        aside = root / f".{source.name}-{os.getpid()}"
        for file in source.rglob("*"):
            if file.is_file():
                link = aside / file.relative_to(source)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file)
        try:
            aside.rename(target)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            if not target.exists():
                raise
