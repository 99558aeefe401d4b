"""Compiles kernels before they are needed, several at a time.

usage: python -m sirocco.kernels.jit.precompile [--all | --at-start]

Kernels declare their signatures, so the import of a module compiles it. A process that starts on
an empty cache would compile one module after another, without a message. Here a few processes
share the modules: each is compiled once its imports are in the cache, the longest chain first.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from sirocco.kernels.jit.cache import PACKAGE, completion_mark, imports_of_modules

__all__ = ["AT_FIRST_USE", "compile_ahead", "imports_of_kernels", "order"]

# Imported by the first ranked query; the longest chain of all. With `--at-start` a process does
# not wait for it.
AT_FIRST_USE = frozenset({f"store.ranked_{name}" for name in ("near", "prune", "scan", "state")})

# The longest chain of imports is a third of the whole work: more processes than this find nothing
# to do, and each takes some hundred megabytes.
PROCESSES_MAX = 4

# Short enough that no user takes the silence for a standstill.
REPORT_S = 10.0


def compile_ahead(report: Callable[[str], None], *, at_start: bool = False) -> None:
    """Compiles the kernels that are not in the cache yet; returns at once if all are.

    Args:
        report: called with lines of progress, if there is work to do.
        at_start: only the kernels that every process imports when it starts.

    Raises:
        RuntimeError: The cache cannot be written.
        BrokenProcessPool: A compiling process was killed, perhaps for lack of memory.
    """
    marks = [completion_mark("all"), *([completion_mark("start")] if at_start else [])]
    if os.environ.get("SIROCCO_JIT") == "0" or any(mark.exists() for mark in marks):
        return
    imports = imports_of_kernels()
    if at_start:
        imports = {name: needed for name, needed in imports.items() if name not in AT_FIRST_USE}
    processes = min(_cpus(), PROCESSES_MAX)
    report(
        f"kernels: compiling {len(imports)} modules, {processes} at a time; once after each edit"
    )
    started_s = time.monotonic()
    # Not forked: the caller may have threads.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        _share_out(imports, pool, report)
    marks[-1].touch()
    report(f"kernels: done after {time.monotonic() - started_s:.0f} s")


def _share_out(
    imports: Mapping[str, set[str]], pool: ProcessPoolExecutor, report: Callable[[str], None]
) -> None:
    waiting = order(imports, _sizes(imports))
    running: dict[Future[None], str] = {}
    done: set[str] = set()
    reported_s = time.monotonic()
    while waiting or running:
        for name in [name for name in waiting if imports[name] <= done]:
            waiting.remove(name)
            running[pool.submit(_import, name)] = name
        for future in wait(running, REPORT_S, FIRST_COMPLETED).done:
            future.result()
            done.add(running.pop(future))
        if time.monotonic() - reported_s >= REPORT_S:
            reported_s = time.monotonic()
            report(f"kernels: {len(done)} of {len(imports)} modules compiled")


def _sizes(names: Iterable[str]) -> dict[str, int]:
    """Returns the bytes of source of each module: the best estimate of its compile time."""
    folder = Path(__file__).parents[1]
    return {name: folder.joinpath(f"{name.replace('.', '/')}.py").stat().st_size for name in names}


def order(imports: Mapping[str, set[str]], costs: Mapping[str, int]) -> list[str]:
    """Returns the modules in order: first those with the most expensive chain of importers.

    Args:
        imports: which of the others each module imports; without cycles.
        costs: cost of each module, in any unit.
    """
    importers: dict[str, set[str]] = {name: set() for name in imports}
    for name, needed in imports.items():
        for each in needed:
            importers[each].add(name)
    chains: dict[str, int] = {}

    def chain(name: str) -> int:
        if name not in chains:
            chains[name] = costs[name] + max(map(chain, importers[name]), default=0)
        return chains[name]

    return sorted(imports, key=lambda name: (-chain(name), name))


def imports_of_kernels() -> dict[str, set[str]]:
    """Returns, for each module of kernels but this one, which others of them it imports."""
    imports = imports_of_modules()
    return {name: set(needed) for name, needed in imports.items() if name != "jit.precompile"}


def _import(name: str) -> None:
    # Modules cannot be sent between processes.
    importlib.import_module(f"{PACKAGE}.{name}")


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    compile_ahead(
        lambda line: print(f"== {line}", file=sys.stderr, flush=True),
        at_start="--at-start" in sys.argv[1:],
    )
