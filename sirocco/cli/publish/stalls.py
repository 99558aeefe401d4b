"""Says when nothing is acknowledged for a while."""

from __future__ import annotations

import time
from collections.abc import Callable

from sirocco.cli.terminal.terminal import note

# Longer than a failover; the router may be reached while the log behind it is not.
STALL_S = 10.0


class Stalls:
    """Notes when acknowledgements stop, and when they come again.

    Args:
        name: of the file, for the lines.
        report: takes a line.
        clock_s: of a clock that only goes forward.
    """

    def __init__(
        self,
        name: str,
        report: Callable[[str], None] = note,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._report = report
        self._clock_s = clock_s
        self._known = 0
        self._since_s = clock_s()
        self._is_reported = False

    def look(self, known: int, count: int) -> None:
        """Looks at the numbers of objects that are acknowledged, and that were sent."""
        now_s = self._clock_s()
        if known != self._known or known >= count:
            self._known, self._since_s = known, now_s
            if self._is_reported:
                self._is_reported = False
                self._report(f"{self._name}: objects are acknowledged again")
        elif not self._is_reported and now_s - self._since_s >= STALL_S:
            self._is_reported = True
            self._report(
                f"{self._name}: nothing was acknowledged for {STALL_S:.0f} s; still waiting"
            )
