"""Runs one seed under one profile, in any process: a spawned one does not know a `__main__`."""

from __future__ import annotations

import gc
import traceback
from dataclasses import dataclass

from tests.simulation.cluster import Report, simulate
from tests.simulation.ledger import BrokenPromiseError


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one seed under one profile.

    Attributes:
        report: None if a promise was broken.
        failure: the broken promise; empty for none.
        trace: the traceback.
    """

    seed: int
    profile: str
    report: Report | None
    failure: str = ""
    trace: str = ""


def settle() -> None:
    """Prepares a process for many worlds.

    Loaded modules stay, and worlds are small: garbage collections in the middle of worlds
    took a seventh of the time.
    """
    simulate(0, "calm")
    gc.collect()
    gc.freeze()
    gc.disable()


def run(wanted: tuple[int, str]) -> Run:
    """Runs a seed under a profile."""
    seed, profile = wanted
    try:
        return Run(seed, profile, simulate(seed, profile))
    except BrokenPromiseError as failure:
        trace = "".join(traceback.format_exception(failure))
        return Run(seed, profile, None, str(failure), trace)
    finally:
        # Objects that outlive worlds are in growing caches: no need to scan those.
        gc.collect(0)
