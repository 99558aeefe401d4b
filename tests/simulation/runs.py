"""One seed under one profile, in whatever process: a spawned one does not know a `__main__`."""

from __future__ import annotations

import gc
import traceback
from dataclasses import dataclass

from tests.simulation.cluster import Report, simulate
from tests.simulation.ledger import BrokenPromiseError


@dataclass(frozen=True, slots=True)
class Run:
    """What became of one seed under one profile.

    Attributes:
        report: None where a promise was broken.
        failure: which one; empty where none was.
        trace: where.
    """

    seed: int
    profile: str
    report: Report | None
    failure: str = ""
    trace: str = ""


def settle() -> None:
    """Makes a process ready for many worlds.

    What is loaded stays, and worlds are small: collecting garbage now and then in the middle of one
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
        # What outlived former worlds is kept in caches, ever more of it: no need to look there.
        gc.collect(0)
