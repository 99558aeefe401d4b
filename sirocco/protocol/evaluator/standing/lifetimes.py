"""The ends of lifetimes in a slot, for queries that report something at their end.

An end is due when the slot's time is past it, like a step. Its report has the position in the
slot's log where the time passed it, in every process and on every reading.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from sirocco.protocol.contract.messages import NEVER_MS
from sirocco.protocol.evaluator.standing.due_heap import push_due


@dataclass(frozen=True, slots=True, order=True)
class Lifetime:
    """The lifetime of one query: it ends when the time is past `expires_ms`."""

    expires_ms: int
    handle: int
    revision: int


@dataclass(slots=True)
class Lifetimes:
    """The lifetimes of a slot, of the newest version of each query there."""

    _known: dict[int, Lifetime] = field(default_factory=dict)
    # The earliest first; some are obsolete.
    _due: list[Lifetime] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self._known)

    def put(self, handle: int, revision: int, expires_ms: int) -> None:
        """Notes a version of a query."""
        if expires_ms == NEVER_MS:
            self.drop(handle)
            return
        self._known[handle] = Lifetime(expires_ms, handle, revision)
        push_due(self._due, self._known[handle], len(self._known), self._is_current)

    def _is_current(self, due: Lifetime) -> bool:
        return self._known.get(due.handle) == due

    def drop(self, handle: int) -> None:
        """Drops a query that has ended or was replaced."""
        self._known.pop(handle, None)

    @property
    def next_ms(self) -> int:
        """The earliest end; `NEVER_MS` without any."""
        while self._due and not self._is_current(self._due[0]):
            heapq.heappop(self._due)
        return self._due[0].expires_ms if self._due else NEVER_MS

    def take_due(self, time_ms: int, at_most: int) -> list[Lifetime]:
        """Takes those that ended before a time, in the same order in all evaluators."""
        due: list[Lifetime] = []
        while self.next_ms < time_ms and len(due) < at_most:
            over = heapq.heappop(self._due)
            due.append(over)
            self.drop(over.handle)
        return due
