"""Handles → rows of a table that has a column of handles: 6 to 13 bytes per entry."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base import row_table as kernels
from sirocco.kernels.base.faults import required
from sirocco.kernels.base.hash_placement import secret

# Initial places; growth from here takes few doublings.
_PLACES_MIN = 64


class RowTable:
    """Finds rows by handle, for whole columns at a time.

    The handles are in the caller's column, which is passed with each call: a row's handle must stay
    there while the row is in the table, and be there before it is.

    One thread writes; others may read meanwhile, as from a `HandleTable`.
    """

    __slots__ = ("_count", "_moves", "_places", "_secret")

    def __init__(self) -> None:
        self._places = np.zeros(_PLACES_MIN, np.int32)
        self._secret = secret()
        self._count = 0
        # Odd while entries move.
        self._moves = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes_total(self) -> int:
        """Memory of the table, bytes."""
        return int(self._places.nbytes)

    def get(self, handles: NDArray[np.uint64], wanted: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Returns i4[n], the row of each wanted handle, -1 if it is unknown."""
        out, wanted = np.empty(len(wanted), np.int32), np.ascontiguousarray(wanted)
        while True:
            moves = self._moves
            kernels.get(self._places, handles, wanted, out, *self._secret)
            if moves == self._moves and moves % 2 == 0:
                return out

    def put(self, handles: NDArray[np.uint64], rows: NDArray[np.int32]) -> None:
        """Adds rows; a known handle gets the new row, of equal handles the last."""
        self._reserve(handles, self._count + len(rows))
        entered = kernels.put(self._places, handles, np.ascontiguousarray(rows), *self._secret)
        self._count += required(entered, "row_table.put: no room")

    def drop(self, handles: NDArray[np.uint64], unwanted: NDArray[np.uint64]) -> None:
        """Removes handles; unknown ones are ignored."""
        unwanted = np.ascontiguousarray(unwanted)
        self._moves += 1
        self._count -= kernels.drop(self._places, handles, unwanted, *self._secret)
        self._moves += 1

    def rows(self) -> NDArray[np.int32]:
        """Returns i4[n], all rows, ascending."""
        return np.sort(self._taken())

    def _taken(self) -> NDArray[np.int32]:
        """Returns all rows in the order of their places."""
        found: NDArray[np.int32] = self._places[self._places > 0] - np.int32(1)
        return found

    def _reserve(self, handles: NDArray[np.uint64], count: int) -> None:
        size = len(self._places)
        # Linear probing at a load above 5/8 creates long runs.
        while count * 8 > size * 5:
            size *= 2
        if size == len(self._places):
            return
        rows, larger = self._taken(), np.zeros(size, np.int32)
        entered = required(
            kernels.put(larger, handles, rows, *self._secret), "row_table.put: no room"
        )
        required(entered - len(rows), "row_table.put: rows share a handle")
        self._places = larger
