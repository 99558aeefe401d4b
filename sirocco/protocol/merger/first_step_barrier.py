"""Who has not yet said the first step of a query that asks for the past.

Such a step looks back, and may lie behind the time of every slot when the query comes to be: then
the time does not tell whether all have said it. So the first step says how many slots say it, and
nothing of the query is told until they have. A slot has when it tells its time in the record of
its first step or behind it: what it says at one place may take several records. The end of the
query in a slot is its last word.

Should one never say it (a change of the map took the query elsewhere, while its owner died), what
the others said is told after a while.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from sirocco.protocol.contract.effects import State

# Longer than the take-over of a part of the registry, whose successor tells the slots that have not
# been told (some 10 s); shorter than anybody waits for an answer that never comes.
WAIT_MS = 60_000


@dataclass(slots=True)
class _Awaited:
    """One version.

    Attributes:
        count: of the slots that say its first step.
        until_ms: when the time of all slots is behind it, nobody is waited for any more.
        said: slots that have said it.
    """

    count: int
    until_ms: int
    said: set[int] = field(default_factory=set)


@dataclass(slots=True)
class FirstWords:
    """All versions of which not all slots have said their first step, by key."""

    _awaited: dict[int, _Awaited] = field(default_factory=dict)
    # Slot → versions of which it says the first step, until it tells its time.
    _speaking: dict[int, set[int]] = field(default_factory=dict)
    # (until_ms, key), the earliest first; some are awaited no more.
    _due: list[tuple[int, int]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self._awaited)

    def __contains__(self, key: int) -> bool:
        return key in self._awaited

    def __iter__(self) -> Iterator[int]:
        return iter(self._awaited)

    def begin(self, key: int, count: int, now_ms: int) -> None:
        """A version is heard of for the first time.

        Args:
            key: of the version.
            count: of the slots that say its first step.
            now_ms: the time of the slot that is the farthest.
        """
        self._awaited[key] = _Awaited(count, now_ms + WAIT_MS)
        heapq.heappush(self._due, (now_ms + WAIT_MS, key))

    def hear(self, key: int, slot: int) -> None:
        """A slot says the first step, or a part of it."""
        if key in self._awaited:
            self._speaking.setdefault(slot, set()).add(key)

    def pause(self, slot: int) -> list[int]:
        """A slot has told its time; returns versions of which all have said the first step now."""
        return sorted(key for key in self._speaking.pop(slot, ()) if self.end(key, slot))

    def end(self, key: int, slot: int) -> bool:
        """A slot says no more of the first step; returns whether it was the last to do so."""
        awaited = self._awaited.get(key)
        if awaited is None:
            return False
        awaited.said.add(slot)
        return len(awaited.said) >= awaited.count

    def expire(self, time_ms: int) -> list[int]:
        """All slots have come so far; returns the versions that have waited long enough."""
        over = []
        while self._due and self._due[0][0] < time_ms:
            until_ms, key = heapq.heappop(self._due)
            if key in self._awaited and self._awaited[key].until_ms == until_ms:
                over.append(key)
        return over

    def drop(self, key: int) -> None:
        """Nothing is awaited of a version any more."""
        self._awaited.pop(key, None)

    # --- as a checkpoint

    def state(self) -> State:
        """Versions, who has said their first step, and who is at it, as columns."""
        awaited = sorted(self._awaited.items())
        said = [(key, slot) for key, each in awaited for slot in sorted(each.said)]
        speaking = [(key, slot) for slot, keys in sorted(self._speaking.items()) for key in keys]
        return {
            "awaited.keys": np.array([key for key, _ in awaited], np.uint64),
            "awaited.counts": np.array([each.count for _, each in awaited], np.int64),
            "awaited.until_ms": np.array([each.until_ms for _, each in awaited], np.int64),
            "awaited.said": np.array(said, np.uint64).reshape(-1, 2),
            "awaited.speaking": np.array(sorted(speaking), np.uint64).reshape(-1, 2),
        }

    def restore(self, state: State) -> None:
        """Takes the columns of a checkpoint, where nothing was known before."""
        if "awaited.keys" not in state:
            return
        names = ("awaited.keys", "awaited.counts", "awaited.until_ms")
        for key, count, until_ms in zip(*(state[name].tolist() for name in names), strict=True):
            self._awaited[key] = _Awaited(count, until_ms)
            heapq.heappush(self._due, (until_ms, key))
        for key, slot in state["awaited.said"].tolist():
            self._awaited[key].said.add(slot)
        for key, slot in state["awaited.speaking"].tolist():
            self.hear(key, slot)
