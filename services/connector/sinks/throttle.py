"""At most n notifications of a query a period; the rest is one digest at the period's end.

State and time in, rows out: no clock of its own. The period of a query begins with its first
notification. What is held is bounded: queries beyond the limit share one allowance.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sirocco.services.connector.sinks.rows import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottleLimit:
    """How much passes.

    Attributes:
        count: Notifications of one query in one period.
        period_ms: Length of a period.
        queries: Queries with a period of their own at a time; all others share one.
    """

    count: int
    period_ms: int
    queries: int = 1_000


class Window(NamedTuple):
    """The period of one query.

    Attributes:
        begin_ms: Of the period, epoch ms.
        passed: Notifications that passed.
        held: Notifications that did not.
        first: Id of the first of these.
        last: Id of the last of these.
        first_ms: Arrival of the first.
        last_ms: Arrival of the last.
    """

    begin_ms: int
    passed: int = 0
    held: int = 0
    first: str = ""
    last: str = ""
    first_ms: int = 0
    last_ms: int = 0


class Digest(NamedTuple):
    """What is written in place of the notifications that did not pass.

    Attributes:
        query: Empty where queries beyond the limit share a period.
        window: Their count, their first and last.
    """

    query: str
    window: Window

    @property
    def id(self) -> str:
        """The same on every repeat, since the first of them is."""
        return f"{self.window.first}-digest"


class Throttle:
    """The periods of all queries of a sink.

    Args:
        limit: how much passes.
        windows: by query, as `snapshot` returned them.
    """

    def __init__(self, limit: ThrottleLimit, windows: dict[str, Window] | None = None) -> None:
        self._limit = limit
        # In the order of their begin, so that the first ones end first.
        self._windows = dict(windows or {})
        self._holding = sum(1 for window in self._windows.values() if window.held)

    def admits(self, row: Row, now_ms: int) -> bool:
        """Whether a notification passes; counts it if not. Ended periods are taken out before."""
        query = row.query
        window = self._windows.get(query)
        if window is None and len(self._windows) >= self._limit.queries:
            query = ""
            window = self._windows.get(query)
        if window is None:
            window = Window(now_ms)
        if window.passed < self._limit.count:
            self._windows[query] = window._replace(passed=window.passed + 1)
            return True
        is_first = window.held == 0
        self._holding += is_first
        self._windows[query] = window._replace(
            held=window.held + 1,
            first=row.id if is_first else window.first,
            first_ms=row.arrival_ms if is_first else window.first_ms,
            last=row.id,
            last_ms=row.arrival_ms,
        )
        return False

    def ended(self, now_ms: int) -> Iterator[Digest]:
        """Takes out the periods that are over; yields the digests of those that held some."""
        while self._windows:
            query = next(iter(self._windows))
            window = self._windows[query]
            # A clock set back by more than a period ends it, too: it would last for ever.
            if abs(now_ms - window.begin_ms) < self._limit.period_ms:
                return
            del self._windows[query]
            if window.held:
                self._holding -= 1
                yield Digest(query, window)

    def due_ms(self) -> int | None:
        """When to ask for ended periods, epoch ms; None: there is nothing to report."""
        if not self._holding:
            return None
        return next(iter(self._windows.values())).begin_ms + self._limit.period_ms

    def snapshot(self) -> dict[str, Window]:
        """Returns the periods as they are now."""
        return dict(self._windows)
