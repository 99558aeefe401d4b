"""Versions of standing queries: when they end, and when nothing more comes of them.

A version is known by its text (`specs`), and ends in each slot at a place of that slot's log. The
first slot that says so ends it: what others report of it, which lag behind, is told no more. Only
steps that all slots passed while they held it are. A lifetime that is over ends it likewise, by the
registry's word: no time that is known here says when that is, since slots may be far behind.

That it ended is remembered until all slots have come to the end. No time says when that is, either:
routers may be away for long while objects go on, and events that are played again make a year pass
in minutes. Offsets do. When a checkpoint of the registry is in force that lies behind the change
which ended it, all slots' logs hold the end; and what these logs hold by then has been taken when
what slots report comes from behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.contract.query_specs import ENDED_SOMEWHERE

# Ends that one Kafka partition of `partials` remembers, some 260 bytes each. They are as many as
# have ended since the last checkpoint of the registry that all slots have passed: ten seconds' as a
# rule, more while the archive is full or a slot stands still.
ENDS_MAX = 1 << 18

# (registry partition, offset) of a change in it.
Place = tuple[int, int]


@dataclass(slots=True)
class _End:
    """The end of a version.

    Attributes:
        place: of the change that ended it.
        time_ms: of the slots that have said so, the latest.
        before: i8[slots], positions before which it stands in their logs; None: not known yet.
    """

    place: Place
    time_ms: int
    before: NDArray[np.int64] | None = None


@dataclass(slots=True)
class Versions:
    """What is known of the ends of versions, by key.

    Attributes:
        early: how many were forgotten since there were too many. What slots that lag behind still
            tell of such a version is taken for a new one.
    """

    early: int = 0
    # In the order in which they ended.
    _ends: dict[int, _End] = field(default_factory=dict)

    def __len__(self) -> int:
        """How many versions are known to have ended."""
        return len(self._ends)

    @property
    def has_ends(self) -> bool:
        """Whether any slot may lag behind the end of a version."""
        return bool(self._ends)

    def has_ended(self, key: int) -> bool:
        """Whether any slot has said so of a version."""
        return key in self._ends

    def end(self, key: int, place: Place, time_ms: int) -> bool:
        """A slot says that a version has ended there; returns whether it is the first to do so.

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
        """Some ends stand in slots' logs before certain positions.

        Args:
            floors: registry partition → offset: ends by changes below it do.
            positions: i8[slots].
        """
        for end in self._ends.values():
            if _is_below(end, floors):
                end.before = positions

    def forget(self, positions: NDArray[np.int64], time_ms: int) -> list[int]:
        """Forgets, and returns, versions of which nothing more comes.

        Args:
            positions: i8[slots], up to which the slots have been taken.
            time_ms: the least time of all slots. One that told its position has not always told
                the time of it yet, and until then says steps again.
        """
        # Many have the same array.
        arrays = {id(end.before): end.before for end in self._ends.values()}
        passed = {
            at
            for at, before in arrays.items()
            if before is not None and (before <= positions).all()
        }
        over = [
            key
            for key, end in self._ends.items()
            if id(end.before) in passed and end.time_ms <= time_ms
        ]
        for key in over:
            del self._ends[key]
        return over

    def forget_early(self) -> list[int]:
        """Forgets, and returns, those that ended first when there are too many."""
        if len(self._ends) <= ENDS_MAX:
            return []
        # Several at once, since the first of a long dict takes long to find.
        kept = ENDS_MAX - (ENDS_MAX >> 3)
        over = list(islice(self._ends, len(self._ends) - kept))
        for key in over:
            del self._ends[key]
        self.early += len(over)
        return over

    # --- as a checkpoint

    def state(self) -> State:
        """The ends as columns; whoever restores them finds out anew where they stand."""
        ends = self._ends.items()
        return {
            "ends.keys": np.array([key for key, _ in ends], np.uint64),
            "ends.partitions": np.array([end.place[0] for _, end in ends], np.int64),
            "ends.offsets": np.array([end.place[1] for _, end in ends], np.int64),
            "ends.times_ms": np.array([end.time_ms for _, end in ends], np.int64),
        }

    def restore(self, state: State) -> None:
        """Takes the columns of a checkpoint, where nothing was known before."""
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
