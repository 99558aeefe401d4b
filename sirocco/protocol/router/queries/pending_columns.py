"""Pending changes that are columns: which batch and which of its rows each handle belongs to."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.handle_table import HandleTable
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.protocol.router.queries.pending_changes import ColumnBatch

# A number of the table is a batch's place and, in so many low bits, a row of it. A request of a
# client has 10,000 rows at most.
ROW_BITS = 14
ROWS_MAX = 1 << ROW_BITS

# Places of batches that fit the rest of a number.
_PLACES_MAX = 1 << (31 - ROW_BITS)

Rows = NDArray[np.int32]


class PendingColumns:
    """Handle → batch and row of the change that is under way for it, of many batches."""

    def __init__(self) -> None:
        self._table = HandleTable()
        self._batches: list[ColumnBatch | None] = []
        # Handles of each batch.
        self._counts: list[int] = []
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._table)

    def has_room(self, count: int) -> bool:
        """Whether a batch of so many rows can be added."""
        return count <= ROWS_MAX and (bool(self._free) or len(self._batches) < _PLACES_MAX)

    def put(self, batch: ColumnBatch, handles: NDArray[np.uint64], rows: NDArray[np.intp]) -> None:
        """Adds rows of a batch, whose handles are not here yet; there must be room."""
        if self._free:
            place = self._free.pop()
            self._batches[place], self._counts[place] = batch, len(rows)
        else:
            place = len(self._batches)
            self._batches.append(batch)
            self._counts.append(len(rows))
        self._table.put(handles, (place << ROW_BITS | rows).astype(np.int32))

    def find(self, handles: NDArray[np.uint64]) -> Rows:
        """Returns i4[n], the number of each handle, -1 if it is not here."""
        if not len(self._table):
            return np.full(len(handles), -1, np.int32)
        return self._table.get(handles)

    def by_batch(self, numbers: Rows) -> Iterator[tuple[ColumnBatch, NDArray[np.intp], Rows]]:
        """Yields the batches of numbers that `find` returned: batch, places in `numbers`, rows."""
        places = np.where(numbers >= 0, numbers >> ROW_BITS, np.int32(-1))
        for place in sorted_distinct(places).tolist():
            batch = self._batches[place] if place >= 0 else None
            if batch is not None:
                shown = np.flatnonzero(places == place)
                yield batch, shown, numbers[shown] & np.int32(ROWS_MAX - 1)

    def drop(self, handles: NDArray[np.uint64], numbers: Rows) -> None:
        """Removes handles, with their numbers."""
        self._table.drop(handles)
        places, counts = np.unique(numbers >> ROW_BITS, return_counts=True)
        for place, count in zip(places.tolist(), counts.tolist(), strict=True):
            self._counts[place] -= count
            if not self._counts[place]:
                self._batches[place] = None
                self._free.append(place)

    def take(self, handle: int) -> tuple[ColumnBatch, int] | None:
        """Removes a handle; returns its batch and row, None if it is not here."""
        if not len(self._table):
            return None
        handles = np.array([handle], np.uint64)
        numbers = self._table.get(handles)
        for batch, _, rows in self.by_batch(numbers):
            self.drop(handles, numbers)
            return batch, int(rows[0])
        return None

    def handles(self) -> list[int]:
        """Returns all handles."""
        found: list[int] = self._table.items()[0].tolist()
        return found
