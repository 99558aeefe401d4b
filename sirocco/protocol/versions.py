"""Versions of standing queries: which slot speaks of which, and when nothing more comes of one.

A version is known by its text (`specs`), and ends in each slot at a place of that slot's log. The
first slot that says so ends it. Others may lag behind: until they say so too, what they report is
of the version that has ended. Behind its own word a slot speaks of a later version, which may ask
the very same.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np

from sirocco.protocol.effects import State
from sirocco.protocol.positions import NO_TIME_MS

# It is remembered who has said that a version ended until the time of the slowest slot is so far
# behind that of the first word. By then it has come to its own: an end stands in the logs of all
# slots at about the same time. A slot that has not would be believed to speak of a later version.
ENDS_KEPT_MS = 60_000

# A lifetime begins before the first report of it; clocks of routers differ by less than this.
LIFETIME_GRACE_MS = 60_000


@dataclass(slots=True)
class _End:
    """How often a version ended.

    Attributes:
        counts: slot → how often it has said so.
        most: the greatest of them: who has said so less often speaks of what is gone.
        until_ms: when all slots have come so far, nobody lags behind any more.
    """

    counts: dict[int, int] = field(default_factory=dict)
    most: int = 0
    until_ms: int = NO_TIME_MS


@dataclass(slots=True)
class Versions:
    """What is known of the ends of versions, by key."""

    _ends: dict[int, _End] = field(default_factory=dict)
    # Key → when its lifetime is over for sure.
    _expiries: dict[int, int] = field(default_factory=dict)
    # (time, key) of ends and of expiries, the earliest first; some are out of date.
    _due: list[tuple[int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        """How many versions something is known of."""
        return len(self._ends) + len(self._expiries)

    @property
    def is_waiting(self) -> bool:
        """Whether time changes anything."""
        return bool(self._due)

    @property
    def has_ends(self) -> bool:
        """Whether any slot may lag behind the end of a version."""
        return bool(self._ends)

    def is_current(self, key: int, slot: int) -> bool:
        """Whether a slot speaks of the present version, not of one that has ended."""
        end = self._ends.get(key)
        return end is None or end.counts.get(slot, 0) >= end.most

    def begin(self, key: int, now_ms: int, ttl_ms: int | None) -> None:
        """Something is reported of a version, at a time not before its begin."""
        if ttl_ms is not None and key not in self._expiries:
            self._expiries[key] = now_ms + ttl_ms + LIFETIME_GRACE_MS
            heapq.heappush(self._due, (self._expiries[key], key))

    def end(self, key: int, slot: int, now_ms: int) -> bool:
        """A slot says that a version has ended there; returns whether it is the first to do so."""
        end = self._ends.setdefault(key, _End())
        count = end.counts[slot] = end.counts.get(slot, 0) + 1
        if count <= end.most:
            return False
        end.most, end.until_ms = count, now_ms + ENDS_KEPT_MS
        heapq.heappush(self._due, (end.until_ms, key))
        self._expiries.pop(key, None)
        return True

    def expire(self, time_ms: int) -> list[int]:
        """All slots have come so far; returns the versions whose lifetime is over."""
        over: list[int] = []
        while self._due and self._due[0][0] < time_ms:
            at_ms, key = heapq.heappop(self._due)
            if self._expiries.get(key) == at_ms:
                del self._expiries[key]
                over.append(key)
            end = self._ends.get(key)
            if end is not None and end.until_ms == at_ms:
                del self._ends[key]
        return over

    # --- as a checkpoint

    def state(self) -> State:
        """The ends and the expiries as columns."""
        ends = sorted(self._ends.items())
        said = [
            (key, slot, count) for key, end in ends for slot, count in sorted(end.counts.items())
        ]
        expiries = sorted(self._expiries.items())
        return {
            "ends.keys": np.array([key for key, _ in ends], np.uint64),
            "ends.until_ms": np.array([end.until_ms for _, end in ends], np.int64),
            "ends.said_keys": np.array([key for key, _, _ in said], np.uint64),
            "ends.slots": np.array([slot for _, slot, _ in said], np.int64),
            "ends.counts": np.array([count for _, _, count in said], np.int64),
            "expiries.keys": np.array([key for key, _ in expiries], np.uint64),
            "expiries.at_ms": np.array([at_ms for _, at_ms in expiries], np.int64),
        }

    def restore(self, state: State) -> None:
        """Takes the columns of a checkpoint, where nothing was known before."""
        until_ms = state["ends.until_ms"].tolist()
        for key, at_ms in zip(state["ends.keys"].tolist(), until_ms, strict=True):
            self._ends[key] = _End(until_ms=at_ms)
        columns = (state[f"ends.{name}"].tolist() for name in ("said_keys", "slots", "counts"))
        for key, slot, count in zip(*columns, strict=True):
            end = self._ends[key]
            end.counts[slot], end.most = count, max(end.most, count)
        expiries_ms = state["expiries.at_ms"].tolist()
        self._expiries = dict(zip(state["expiries.keys"].tolist(), expiries_ms, strict=True))
        dues = [(end.until_ms, key) for key, end in self._ends.items()]
        self._due = dues + [(at_ms, key) for key, at_ms in self._expiries.items()]
        heapq.heapify(self._due)
