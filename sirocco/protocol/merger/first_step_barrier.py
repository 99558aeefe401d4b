"""Waits until all slots have reported the first step of a query that asks for the past.

Such a step looks back. When the query is created, the time of every slot may already have passed
it, so time does not show whether all slots have reported it. Therefore the first step carries the
number of slots that report it, and nothing of the query is sent until they have. A slot has
reported the step once it sends its time in the record of that step or a later one: one position may
take several records. A slot whose log ends the query reports nothing more of it.

A slot may never report it, if a change of the map moved the query while its owner died. Then the
reports of the others are sent after a while.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sirocco.protocol.contract.effects import State
from sirocco.protocol.merger.state_pieces import Piece, in_pieces, weighed_pieces, weight_of_rows

# Longer than a take-over of a registry partition, whose successor sends the missing changes to
# slots (some 10 s); shorter than anybody waits for an answer that never arrives.
WAIT_MS = 60_000


@dataclass(slots=True)
class _Awaited:
    """One version of a query.

    Attributes:
        count: number of slots that report its first step.
        until_ms: once the time of all slots has passed it, the wait ends.
        reported: slots that have reported it.
    """

    count: int
    until_ms: int
    reported: set[int] = field(default_factory=set)


@dataclass(slots=True)
class FirstStepBarrier:
    """All versions whose first step has not been reported by all slots, by key."""

    _awaited: dict[int, _Awaited] = field(default_factory=dict)
    # Slot → versions whose first step it is reporting, until it sends its time.
    _reporting: dict[int, set[int]] = field(default_factory=dict)
    # (until_ms, key), the earliest first; some no longer wait.
    _due: list[tuple[int, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._awaited)

    def __contains__(self, key: int) -> bool:
        return key in self._awaited

    def __iter__(self) -> Iterator[int]:
        return iter(self._awaited)

    def begin(self, key: int, count: int, now_ms: int) -> None:
        """Starts to wait for a version that is seen for the first time.

        Args:
            key: of the version.
            count: number of slots that report its first step.
            now_ms: the time of the slot that is farthest ahead.
        """
        self._awaited[key] = _Awaited(count, now_ms + WAIT_MS)
        heapq.heappush(self._due, (now_ms + WAIT_MS, key))

    def note_report(self, key: int, slot: int) -> None:
        """Notes that a slot reports the first step, or a part of it."""
        if key in self._awaited:
            self._reporting.setdefault(slot, set()).add(key)

    def pause(self, slot: int) -> list[int]:
        """Takes a slot's new time; returns the versions that all slots have reported now."""
        return sorted(key for key in self._reporting.pop(slot, ()) if self.end(key, slot))

    def end(self, key: int, slot: int) -> bool:
        """Ends a slot's report of the first step; returns whether it was the last to report."""
        awaited = self._awaited.get(key)
        if awaited is None:
            return False
        awaited.reported.add(slot)
        return len(awaited.reported) >= awaited.count

    def expire(self, time_ms: int) -> Iterator[int]:
        """Yields the versions that have waited long enough, now that all slots are at a time."""
        while self._due and self._due[0][0] < time_ms:
            until_ms, key = heapq.heappop(self._due)
            if key in self._awaited and self._awaited[key].until_ms == until_ms:
                yield key

    def drop(self, key: int) -> None:
        """Stops waiting for a version."""
        self._awaited.pop(key, None)

    # --- as a checkpoint

    def pieces(self, rows_max: int) -> Iterator[Piece]:
        """Yields versions and the slots that have reported, or are reporting, as columns."""
        versions = ((1 + len(each.reported), (key, each)) for key, each in self._awaited.items())
        for count, awaited in weighed_pieces(versions, rows_max):
            reported = [(key, slot) for key, each in awaited for slot in sorted(each.reported)]
            yield (
                weight_of_rows(count),
                {
                    "awaited.keys": np.array([key for key, _ in awaited], np.uint64),
                    "awaited.counts": np.array([each.count for _, each in awaited], np.int64),
                    "awaited.until_ms": np.array([each.until_ms for _, each in awaited], np.int64),
                    "awaited.said": np.array(reported, np.uint64).reshape(-1, 2),
                },
            )
        pairs = ((key, slot) for slot, keys in self._reporting.items() for key in keys)
        for reporting in in_pieces(pairs, rows_max):
            speaking = np.array(reporting, np.uint64).reshape(-1, 2)
            yield weight_of_rows(len(reporting)), {"awaited.speaking": speaking}

    def restore(self, state: State) -> None:
        """Takes the columns of a checkpoint, into an empty object."""
        if "awaited.keys" not in state:
            return
        names = ("awaited.keys", "awaited.counts", "awaited.until_ms")
        for key, count, until_ms in zip(*(state[name].tolist() for name in names), strict=True):
            self._awaited[key] = _Awaited(count, until_ms)
            heapq.heappush(self._due, (until_ms, key))
        for key, slot in state["awaited.said"].tolist():
            self._awaited[key].reported.add(slot)
        for key, slot in state["awaited.speaking"].tolist():
            self.note_report(key, slot)
