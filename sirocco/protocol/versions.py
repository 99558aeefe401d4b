"""Versions of standing queries: when they end, and when nothing more comes of them.

A version is known by its text (`specs`), and ends in each slot at a place of that slot's log. The
first slot that says so ends it: what others report of it, which lag behind, is told no more. Only
steps that all slots passed while they held it are. A lifetime that is over ends it likewise, by the
registry's word: no time that is known here says when that is, since slots may be far behind.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from sirocco.protocol.effects import State
from sirocco.protocol.positions import NO_TIME_MS

# It is remembered that a version ended until the time of the slowest slot is so far behind that of
# the first word. By then it has come to the end itself, which stands in the logs of all slots at
# about the same time; what it reported later would be taken for a version that nobody knows.
ENDS_KEPT_MS = 60_000


@dataclass(slots=True)
class Versions:
    """What is known of the ends of versions, by key."""

    # Key → until when it is remembered that it has ended; `NO_TIME_MS`: that is not known yet.
    _ends: dict[int, int] = field(default_factory=dict)
    # (time, key) of ends, the earliest first; some are out of date.
    _due: list[tuple[int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        """How many versions are known to have ended."""
        return len(self._ends)

    @property
    def is_waiting(self) -> bool:
        """Whether time changes anything."""
        return bool(self._due)

    @property
    def has_ends(self) -> bool:
        """Whether any slot may lag behind the end of a version."""
        return bool(self._ends)

    def has_ended(self, key: int) -> bool:
        """Whether any slot has said so of a version."""
        return key in self._ends

    def end(self, key: int, now_ms: int) -> bool:
        """A slot says that a version has ended there; returns whether it is the first to do so.

        Args:
            key: of the version.
            now_ms: the time of the slot that is the farthest; `NO_TIME_MS` while none told one.
        """
        if key in self._ends:
            return False
        self._remember(key, now_ms)
        return True

    def expire(self, time_ms: int) -> list[int]:
        """All slots have come so far; returns versions of which nothing more comes."""
        over: list[int] = []
        while self._due and self._due[0][0] < time_ms:
            at_ms, key = heapq.heappop(self._due)
            if self._ends.get(key) == NO_TIME_MS == at_ms:
                self._remember(key, time_ms)
            elif self._ends.get(key) == at_ms:
                del self._ends[key]
                over.append(key)
        return over

    def _remember(self, key: int, now_ms: int) -> None:
        self._ends[key] = NO_TIME_MS if now_ms == NO_TIME_MS else now_ms + ENDS_KEPT_MS
        heapq.heappush(self._due, (self._ends[key], key))

    # --- as a checkpoint

    def state(self) -> State:
        """The ends as columns."""
        ends = sorted(self._ends.items())
        return {
            "ends.keys": np.array([key for key, _ in ends], np.uint64),
            "ends.until_ms": np.array([until_ms for _, until_ms in ends], np.int64),
        }

    def restore(self, state: State) -> None:
        """Takes the columns of a checkpoint, where nothing was known before."""
        until_ms = state["ends.until_ms"].tolist()
        self._ends = dict(zip(state["ends.keys"].tolist(), until_ms, strict=True))
        self._due = [(at_ms, key) for key, at_ms in self._ends.items()]
        heapq.heapify(self._due)
