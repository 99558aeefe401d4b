"""Versions of standing queries: when they end, and when no more reports of them can arrive.

A version is identified by its text (`query_specs`), and ends in each slot at a position of its log.
The first slot that reports the end ends it: reports of slower slots are not sent, except steps that
all slots passed while they held the version. An expired lifetime ends it in the same way, by a
record of the registry: no time known here shows the expiry, since slots may be far behind.

An end is remembered until all slots have reached it. No time shows that either: routers may be away
for long while objects arrive, and replayed events make a year pass in minutes. Offsets do show it.
Once a checkpoint of the registry is in force that is later than the change that ended the version,
the logs of all slots hold the end. All of that has been taken once the reports of every slot are
past the ends of those logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.contract.query_specs import ENDED_SOMEWHERE
from sirocco.protocol.merger.limits import LIMITS
from sirocco.protocol.merger.state_pieces import Piece, in_pieces, weight_of_rows

# (registry partition, offset) of a change in it.
Place = tuple[int, int]


@dataclass(slots=True)
class _End:
    """The end of a version.

    Attributes:
        place: of the change that ended it.
        time_ms: the latest time of the slots that have reported it.
        before: i8[slots], positions before which it is in their logs; None: not known yet.
    """

    place: Place
    time_ms: int
    before: NDArray[np.int64] | None = None


@dataclass(slots=True)
class Versions:
    """The ends of versions, by key.

    Attributes:
        early: how many were forgotten because there were too many. Reports of slow slots about such
            a version are taken for a new one.
        ends_max: see `MergerLimits.ended_versions_max`.
    """

    ends_max: int = LIMITS.ended_versions_max
    early: int = 0
    # In the order in which they ended.
    _ends: dict[int, _End] = field(default_factory=dict)

    def __len__(self) -> int:
        """Returns how many versions are known to have ended."""
        return len(self._ends)

    @property
    def has_ends(self) -> bool:
        """Whether any slot may not yet have reached the end of a version."""
        return bool(self._ends)

    def has_ended(self, key: int) -> bool:
        """Whether any slot has reported that a version has ended."""
        return key in self._ends

    def end(self, key: int, place: Place, time_ms: int) -> bool:
        """Takes a slot's report that a version has ended; returns whether it is the first one.

        Args:
            key: of the version.
            place: of the change of the registry that ended it.
            time_ms: the slot's time.
        """
        known = self._ends.get(key)
        if known is not None:
            known.time_ms = max(known.time_ms, time_ms)
            return False
        self._ends[key] = _End(place, time_ms)
        return True

    def may_settle(self, floors: Mapping[int, int]) -> bool:
        """Whether `settle` would have an effect."""
        return any(_is_below(end, floors) for end in self._ends.values())

    def settle(self, floors: Mapping[int, int], positions: NDArray[np.int64]) -> None:
        """Notes positions before which the logs of slots hold certain ends.

        Args:
            floors: registry partition → offset: ends by changes below it are held.
            positions: i8[slots].
        """
        for end in self._ends.values():
            if _is_below(end, floors):
                end.before = positions

    def forget(self, positions: NDArray[np.int64], time_ms: int) -> list[int]:
        """Forgets, and returns, versions of which no report can arrive any more.

        Args:
            positions: i8[slots], up to which the slots have been taken.
            time_ms: the least time of all slots. A slot that has sent a position may not have sent
                its time yet, and until then repeats steps.
        """
        # Many ends share one array.
        arrays = {id(end.before): end.before for end in self._ends.values()}
        passed = {
            at
            for at, before in arrays.items()
            if before is not None and (before <= positions).all()
        }
        forgotten = [
            key
            for key, end in self._ends.items()
            if id(end.before) in passed and end.time_ms <= time_ms
        ]
        for key in forgotten:
            del self._ends[key]
        return forgotten

    def forget_early(self) -> list[int]:
        """Forgets, and returns, those that ended first when there are too many."""
        if len(self._ends) <= self.ends_max:
            return []
        # Several at once: finding the first of a long dict takes long.
        kept = self.ends_max - (self.ends_max >> 3)
        forgotten = list(islice(self._ends, len(self._ends) - kept))
        for key in forgotten:
            del self._ends[key]
        self.early += len(forgotten)
        return forgotten

    # --- as a checkpoint

    def pieces(self, rows_max: int) -> Iterator[Piece]:
        """Yields the ends as columns; `before` is not saved and is found anew."""
        for ends in in_pieces(self._ends.items(), rows_max):
            yield (
                weight_of_rows(len(ends)),
                {
                    "ends.keys": np.array([key for key, _ in ends], np.uint64),
                    "ends.partitions": np.array([end.place[0] for _, end in ends], np.int64),
                    "ends.offsets": np.array([end.place[1] for _, end in ends], np.int64),
                    "ends.times_ms": np.array([end.time_ms for _, end in ends], np.int64),
                },
            )

    def restore(self, state: State) -> None:
        """Takes the columns of a checkpoint, into an empty object."""
        keys = state["ends.keys"].tolist()
        unknown = np.array([(*ENDED_SOMEWHERE, NO_TIME_MS)] * len(keys), np.int64).reshape(-1, 3)
        names = ("ends.partitions", "ends.offsets", "ends.times_ms")
        columns = [state.get(name, unknown[:, i]).tolist() for i, name in enumerate(names)]
        for key, partition, offset, time_ms in zip(keys, *columns, strict=True):
            self.end(key, (partition, offset), time_ms)


def _is_below(end: _End, floors: Mapping[int, int]) -> bool:
    """Whether an end is not settled, and is by a change below the floor of its partition."""
    partition, offset = end.place
    return end.before is None and offset < floors.get(partition, 0)
