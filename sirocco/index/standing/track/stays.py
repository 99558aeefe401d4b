"""What was reported of values inside queries that wait, and when the next thing is due.

A query with `dwell` or `leave_after` has a stay for each value that is inside: a row of the table
of `kernels.standing.track_sets`, to which the value's entry refers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sirocco.kernels.standing.track_sets import (
    DUE,
    LAST,
    NEVER_DUE,
    STAY_COLUMNS,
    STAY_WORDS,
    STAYS_END,
    STAYS_FREE,
    STAYS_USED,
)

__all__ = ["Stays"]


class Stays:
    """The table, and its earliest due time.

    Attributes:
        table: i8[s, 5], see DUE to ROW of the kernels; stale after `reserve`.
        state: i8[3], see STAYS_END to STAYS_USED.
    """

    __slots__ = ("_next_ms", "state", "table")

    def __init__(self) -> None:
        self.table = np.empty((0, STAY_COLUMNS), np.int64)
        self.state = np.zeros(STAY_WORDS, np.int64)
        self.state[STAYS_FREE] = -1
        self._next_ms: int | None = NEVER_DUE

    def __len__(self) -> int:
        """Returns how many are in use."""
        return int(self.state[STAYS_USED])

    @property
    def end(self) -> int:
        """Rows that are in use or free."""
        return int(self.state[STAYS_END])

    @property
    def bytes_total(self) -> int:
        """Bytes of memory in use."""
        return self.table.nbytes

    def reserve(self, added: int) -> None:
        """Makes room for more of them."""
        needed = self.end + added
        if added and needed > len(self.table):
            larger = np.empty((max(64, 2 * needed), STAY_COLUMNS), np.int64)
            larger[: self.end] = self.table[: self.end]
            self.table = larger

    def changed(self) -> None:
        """Notes that kernels have written into the table."""
        self._next_ms = None if self.end else NEVER_DUE

    @property
    def next_ms(self) -> int:
        """The earliest due time; `NEVER_DUE` without any."""
        if self._next_ms is None:
            self._next_ms = int(self.table[: self.end, DUE].min(initial=NEVER_DUE))
        return self._next_ms

    def due_before(self, time_ms: int) -> npt.NDArray[np.int64]:
        """Returns i8[k], the stays that are due before a time."""
        found: npt.NDArray[np.int64] = np.flatnonzero(self.table[: self.end, DUE] < time_ms)
        return found

    def renumber(self, number_of: npt.NDArray[np.int32]) -> None:
        """Renumbers the objects: `number_of[n]` replaces n."""
        used = self.table[: self.end]
        known = np.flatnonzero((used[:, LAST] >= 0) & (used[:, LAST] < len(number_of)))
        used[known, LAST] = number_of[used[known, LAST]]

    def kept(self, stays: npt.NDArray[np.int64]) -> Stays:
        """Returns a table of these alone, numbered in this order."""
        found = Stays()
        found.reserve(len(stays))
        found.table[: len(stays)] = self.table[stays]
        found.state[STAYS_END] = found.state[STAYS_USED] = len(stays)
        found.changed()
        return found
