"""Reports of load by services: arrivals, loads and samples of leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.balance.base.view import LeafLoads
from sirocco.schemes.workload.sample import Sample


@dataclass(frozen=True, slots=True, eq=False)
class LoadReport:
    """The report of one evaluator at the end of a round.

    Attributes:
        version: of the map of the leaves.
        slots: owned and up to date.
        leaves: i4[l], ids of the leaves in those slots.
        loads: of these leaves.
    """

    version: int
    slots: tuple[int, ...]
    leaves: NDArray[np.int32]
    loads: LeafLoads


@dataclass(frozen=True, slots=True, eq=False)
class SampleReport:
    """Some objects and queries, and from how many they were drawn.

    Attributes:
        draws: u8[q], ascending, of the queries, see `TermHashing.draws`: all up to the last one, or
            all that there are. A query in several slots is reported by each evaluator that has one
            of these; it counts twice if evaluators have two keys or are of two versions.
        objects: from how many the objects were drawn.
        queries: likewise; an estimate where some slots do not sample all of theirs.
    """

    sample: Sample
    draws: NDArray[np.uint64]
    objects: float
    queries: float


@dataclass(frozen=True, slots=True, eq=False)
class ArrivalReport:
    """The objects that one router has sent.

    Attributes:
        version: of the map in force there.
        leaves: i4[l], their ids; those that are missing got nothing.
        objects: f8[l], since that map was in force there, or the router began.
    """

    version: int
    leaves: NDArray[np.int32]
    objects: NDArray[np.float64]
