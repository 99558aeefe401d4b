"""Workloads over time: groups of objects with changing shares, and queries that start and end.

A group is a pool of real objects with texts; in every tick objects of each group are drawn
according to its share. The matches of each object of a pool are computed once, by a real index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.schemes.loads import all_pairs
from benchmarks.schemes.queries import Queries
from benchmarks.schemes.streams import Stream

FOREVER = float("inf")
# The first minute of queries, in a paper.
MINUTE_S = 60.0

Shares = Callable[[float], NDArray[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class Crowd:
    """Queries that are registered within some time, and removed.

    Attributes:
        queries: In the order in which they are registered.
        begin_s, end_s: When the first one is registered, and when all are removed.
        within_s: Duration of the registrations; of the removals where all stand from the start.
    """

    queries: Queries
    begin_s: float = -FOREVER
    end_s: float = FOREVER
    within_s: float = 0.0

    def begins_s(self) -> NDArray[np.float64]:
        """Returns when each one is registered, f8[q]."""
        count = len(self.queries)
        if self.begin_s == -FOREVER:
            return np.full(count, -FOREVER)
        return self.begin_s + self._after_s()

    def ends_s(self) -> NDArray[np.float64]:
        """Returns when each one is removed, f8[q]."""
        ends_s = np.full(len(self.queries), self.end_s)
        return ends_s + self._after_s() if self.begin_s == -FOREVER else ends_s

    def _after_s(self) -> NDArray[np.float64]:
        count = len(self.queries)
        # By the look at which they take effect: more times would only be more work.
        return np.floor(self.within_s * np.arange(count) / max(count, 1))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Scene:
    """A workload that changes, m groups of objects and c crowds of queries.

    Attributes:
        name: Short name.
        pools: The objects of each group.
        queries: All queries, crowd after crowd.
        crowd_of: i8[q], the crowd of each query.
        begins_s, ends_s: f8[q], the life of each query.
        met: Of each pool f8[n, c], how many queries of each crowd an object meets.
        shares: Time → f8[m], the share of each group in the arrivals then; the sum is 1.
        seconds: Its duration.
        judged_s: The time over which figures are taken.
        shades: Times that plots shade.
        quiet_s: Up to when the rate is low.
    """

    name: str
    pools: tuple[Stream, ...]
    queries: Queries
    crowd_of: NDArray[np.int64]
    begins_s: NDArray[np.float64]
    ends_s: NDArray[np.float64]
    met: tuple[NDArray[np.float64], ...]
    shares: Shares
    seconds: float
    judged_s: tuple[float, float]
    shades: tuple[tuple[float, float], ...]
    quiet_s: float = 0.0

    @property
    def crowds(self) -> int:
        """Number of crowds."""
        return self.met[0].shape[1]

    def standing(self, at_s: float) -> NDArray[np.bool_]:
        """Returns the standing queries at a time, bool[q]."""
        return (self.begins_s <= at_s) & (at_s < self.ends_s)

    def present(self, standing: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Returns the standing share of each crowd, f8[c]."""
        return np.bincount(self.crowd_of, standing, self.crowds) / np.maximum(
            np.bincount(self.crowd_of, minlength=self.crowds), 1
        )

    def changes_s(self) -> NDArray[np.float64]:
        """Returns the times at which queries start or end, ascending."""
        times = np.unique(np.concatenate([self.begins_s, self.ends_s]))
        return times[np.isfinite(times)]


def scene(
    name: str,
    pools: Sequence[Stream],
    crowds: Sequence[Crowd],
    shares: Shares,
    seconds: float,
    judged_s: tuple[float, float],
    shades: Sequence[tuple[float, float]],
    quiet_s: float = 0.0,
) -> Scene:
    """Creates a scene; matches all pools with all crowds."""
    queries = joined([crowd.queries for crowd in crowds])
    sizes = [len(crowd.queries) for crowd in crowds]
    crowd_of = np.repeat(np.arange(len(crowds)), sizes)
    return Scene(
        name=name,
        pools=tuple(pools),
        queries=queries,
        crowd_of=crowd_of,
        begins_s=np.concatenate([crowd.begins_s() for crowd in crowds]),
        ends_s=np.concatenate([crowd.ends_s() for crowd in crowds]),
        met=tuple(_met(pool, queries, crowd_of, len(crowds)) for pool in pools),
        shares=shares,
        seconds=seconds,
        judged_s=judged_s,
        shades=tuple(shades),
        quiet_s=quiet_s,
    )


def _met(
    pool: Stream, queries: Queries, crowd_of: NDArray[np.int64], crowds: int
) -> NDArray[np.float64]:
    pairs = all_pairs(pool, queries)
    at = pairs // len(queries) * crowds + crowd_of[pairs % len(queries)]
    return np.bincount(at, minlength=len(pool) * crowds).reshape(-1, crowds).astype(np.float64)


def joined(parts: Sequence[Queries]) -> Queries:
    """Returns queries one after the other."""

    def offsets(name: str) -> NDArray[np.int64]:
        lengths = np.concatenate([np.diff(getattr(part, name)) for part in parts])
        return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    return Queries(
        np.concatenate([part.kinds for part in parts]),
        np.concatenate([part.boxes for part in parts]),
        offsets("conj_offsets"),
        offsets("term_offsets"),
        np.concatenate([part.terms for part in parts]),
    )


# --- shares over time


def bell(begin_s: float, end_s: float, greatest: float) -> Callable[[float], float]:
    """Returns an intensity that follows a normal distribution, six deviations wide."""
    middle, deviation = (begin_s + end_s) / 2, (end_s - begin_s) / 6

    def at(time_s: float) -> float:
        if not begin_s <= time_s < end_s:
            return 0.0
        return greatest * float(np.exp(-(((time_s - middle) / deviation) ** 2) / 2))

    return at


def step(begin_s: float, end_s: float, greatest: float) -> Callable[[float], float]:
    """Returns an intensity that is reached at once."""
    return lambda time_s: greatest if begin_s <= time_s < end_s else 0.0


def redirected(*intensities: Callable[[float], float]) -> Shares:
    """Returns the shares of a calm group and of the groups that reduce it."""

    def at(time_s: float) -> NDArray[np.float64]:
        taken = [each(time_s) for each in intensities]
        return np.array([1.0 - sum(taken), *taken])

    return at
