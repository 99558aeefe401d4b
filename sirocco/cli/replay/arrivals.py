"""Limits on the times of a file's objects that set their arrival (`--arrival event`).

Time never goes back: an object arrives no earlier than those before it. So one object of a far
year would set the time of all that follow, and every step of every standing query until then would
be evaluated and written, though it is empty. A first object of a far past does the same harm when
the second one arrives. So the steps between two arrivals are bounded. Services also refuse objects
too far ahead of the clock (`SIROCCO_ARRIVAL_SKEW_MAX`). A replay does so only where it is asked to,
because a file may be of any time.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import InvalidArgument
from sirocco.model.objects import MISSING_TS
from sirocco.model.query import Query, RankedQuery, TermsQuery

# Steps of all standing queries between two arrivals. Some thousand are evaluated a second, so this
# is more than an hour in which no object is published.
STEPS_MAX = 10_000_000

_NEVER_MS = np.iinfo(np.int64).max

OPTION = "--arrival-skew-max"


class Arrivals:
    """The arrivals of the objects of one file, in order.

    Args:
        skew_max_ms: How far an object's own time may be ahead of the clock; None: any time.
        steps_max: Steps of all standing queries between two arrivals.
    """

    def __init__(self, skew_max_ms: int | None, steps_max: int = STEPS_MAX) -> None:
        self._steps_max = steps_max
        self._skew_max_ms = skew_max_ms
        self._last_ms: int | None = None
        self._starts_ms = 0
        self._steps_ms: list[int] = []
        self._ttls_ms: list[int] = []
        # Steps a millisecond while all queries live.
        self._rate = 0.0
        # A time that is too many steps after an arrival: to count them takes a look at all queries.
        self._too_late = (0, _NEVER_MS)

    def expect(self, query: Query) -> None:
        """Takes a standing query, before the first object."""
        if isinstance(query, TermsQuery | RankedQuery) and query.step_ms:
            self._steps_ms.append(query.step_ms)
            self._ttls_ms.append(_NEVER_MS if query.ttl_ms is None else query.ttl_ms)
            self._rate += 1 / query.step_ms

    def too_far(self, ts: NDArray[np.int64], now_ms: int) -> Iterable[tuple[int, InvalidArgument]]:
        """Yields the rows of objects that are too far ahead of the clock, with the reason.

        Args:
            ts: i8[n], epoch ms, `MISSING_TS` where absent.
            now_ms: The clock.
        """
        if self._skew_max_ms is None:
            return
        for row in np.flatnonzero(ts > now_ms + self._skew_max_ms).tolist():
            yield (
                row,
                InvalidArgument(
                    f"is more than {self._skew_max_ms} ms ahead of the clock ({OPTION})", field="ts"
                ),
            )

    def jumps(self, ts: NDArray[np.int64]) -> Iterable[tuple[int, InvalidArgument]]:
        """Yields the rows of objects too many steps after the arrival before, with the reason.

        All others have arrived. Objects must be given in the order of the file, each once.
        """
        known = ts[ts != MISSING_TS]
        if not len(known):
            return
        if self._last_ms is None:
            self._last_ms = self._starts_ms = int(known[0])
        latest_ms = max(self._last_ms, int(known.max()))
        if self._may_jump(latest_ms):
            self._last_ms = latest_ms
            return
        for row, time_ms in enumerate(ts.tolist()):
            if time_ms <= self._last_ms:
                continue
            if self._is_near(time_ms):
                self._last_ms = time_ms
                continue
            yield (
                row,
                InvalidArgument(
                    f"is {time_ms - self._last_ms} ms after the arrival before it: more than "
                    f"{self._steps_max:,} steps of standing queries are between; give them longer "
                    "steps, or split the file",
                    field="ts",
                ),
            )

    def _is_near(self, time_ms: int) -> bool:
        """Whether a time is not too many steps after the last arrival."""
        if self._may_jump(time_ms):
            return True
        last_ms, too_late_ms = self._too_late
        if last_ms == self._last_ms and time_ms >= too_late_ms:
            return False
        if self._steps_until(time_ms) <= self._steps_max:
            return True
        assert self._last_ms is not None
        self._too_late = self._last_ms, time_ms
        return False

    def _may_jump(self, time_ms: int) -> bool:
        """Whether there are surely few enough steps up to a time."""
        assert self._last_ms is not None
        return (time_ms - self._last_ms) * self._rate + len(self._steps_ms) <= self._steps_max

    def _steps_until(self, time_ms: int) -> int:
        """Returns the number of steps between the last arrival and a time."""
        assert self._last_ms is not None
        steps_ms = np.array(self._steps_ms, np.int64)
        ttls_ms = np.array(self._ttls_ms, np.int64)
        ages_ms = (
            np.minimum(at_ms - self._starts_ms, ttls_ms) for at_ms in (time_ms, self._last_ms)
        )
        after, before = (age // steps_ms for age in ages_ms)
        return int((after - before).sum())
