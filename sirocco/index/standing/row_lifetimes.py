"""Lifetimes of an index's rows: positions in the log, and expiry."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from sirocco.index.base.query_rows import NEVER_MS
from sirocco.index.standing.expiry import ExpiryQueue
from sirocco.index.standing.row_store import RowStore
from sirocco.kernels.base.sorting import sorted_distinct

__all__ = ["RowLifetimes"]

# So many lifetimes may be known before those of ended rows are looked for.
_EXPIRY_MIN = 4_096


class RowLifetimes:
    """Births, ends and lifetimes of the rows of one store, of an index of ranges or of knn queries.

    A row can match objects at positions in [born, dead) that arrive before its expiry. For most
    rows that holds for a whole batch: only the others are compared object by object.
    """

    __slots__ = (
        "_dead",
        "_due",
        "_expiry",
        "_expiry_max",
        "_horizon_ms",
        "_rows",
        "_settled",
        "_young",
    )

    def __init__(self, rows: RowStore) -> None:
        self._rows = rows
        self._expiry = ExpiryQueue()
        self._expiry_max = _EXPIRY_MIN
        self._due = np.empty(0, np.int32)
        self._dead: deque[tuple[int, npt.NDArray[np.int32]]] = deque()
        self._young: deque[tuple[int, npt.NDArray[np.int32]]] = deque()
        self._settled = np.iinfo(np.int64).min
        self._horizon_ms = np.iinfo(np.int64).min

    @property
    def dead_queries(self) -> int:
        """Rows that ended and were not returned by `take_dead`."""
        return sum(len(rows) for _, rows in self._dead)

    @property
    def bytes_total(self) -> int:
        """Bytes of the queue of lifetimes."""
        return self._expiry.bytes_total

    def begin(
        self,
        rows: npt.NDArray[np.int32],
        position: int,
        expires_ms: npt.NDArray[np.int64],
    ) -> None:
        """Records newly written rows: born at `position` or before, ending at `expires_ms`."""
        self._young.append((position, rows))
        mortal = expires_ms != NEVER_MS
        if mortal.any():
            self._expiry.add(rows[mortal], expires_ms[mortal])
            if len(self._expiry) > self._expiry_max:
                # Most may be of rows that ended long before their lifetimes.
                self._expiry.keep(self._rows.are_mortal)
                self._expiry_max = max(_EXPIRY_MIN, 2 * len(self._expiry))

    def end(self, rows: npt.NDArray[np.int32], position: int) -> None:
        """Ends live rows at a position, not below that of an earlier end."""
        rows = np.ascontiguousarray(rows, np.int32)
        self._rows.end(rows, position)
        self._dead.append((position, rows))

    def reach(self, position: int) -> None:
        """Takes that every object at a lower position was matched: also where no object comes."""
        while self._young and self._young[0][0] <= position:
            born, rows = self._young.popleft()
            self._rows.settle(rows, position, self._horizon_ms)
            self._settled = max(self._settled, born)

    def take_dead(self, position: int, rows_max: int) -> npt.NDArray[np.int32] | None:
        """Returns rows that ended at `position` or before, each once; None if there are none."""
        if not self._dead or self._dead[0][0] > position:
            return None
        dead_at, rows = self._dead.popleft()
        if len(rows) > rows_max:
            self._dead.appendleft((dead_at, rows[rows_max:]))
            rows = rows[:rows_max]
        return rows

    def take_expired(self, now_ms: int) -> npt.NDArray[np.int32]:
        """Returns i4[k], live rows with expires_ms ≤ now_ms, each once."""
        self._advance(now_ms)
        if len(self._due) == 0:
            return self._due
        ended, self._due = self._rows.split_expired(self._due, now_ms, self._horizon_ms)
        return ended

    def prepare(self, first_position: int, arrival_ms_max: int) -> bool:
        """Prepares the rows for a batch of objects.

        Args:
            first_position: the lowest position of the batch.
            arrival_ms_max: its latest arrival, epoch ms.

        Returns:
            Whether every row has to be compared, because the batch begins before some births.
        """
        self._advance(arrival_ms_max)
        if first_position < self._settled:
            return True
        self.reach(first_position)
        return False

    def settle(self, rows: npt.NDArray[np.int32], position: int) -> None:
        """Ends individual checks of rows that every object from a position on can match."""
        self._rows.settle(rows, position, self._horizon_ms)

    def _advance(self, arrival_ms_max: int) -> None:
        """Marks rows that end by this time for individual checks."""
        self._horizon_ms = max(self._horizon_ms, arrival_ms_max)
        due = self._expiry.take_until(self._horizon_ms)
        if len(due):
            self._rows.check(due, self._horizon_ms)
            self._due = sorted_distinct(np.concatenate([self._due, due]))
