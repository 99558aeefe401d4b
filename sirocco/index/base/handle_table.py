"""Handles (64-bit hashes of query ids, session numbers) → dense rows, 16 to 32 bytes per entry."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base import handle_table as kernels
from sirocco.kernels.base.faults import required
from sirocco.kernels.base.hash_placement import secret
from sirocco.kernels.base.sorting import sorted_distinct

# A smaller table is not worth shrinking, and growth from here takes few doublings.
_SIZE_MIN = 64


class HandleTable:
    """A map from u8 handles to i4 rows, for whole columns at a time.

    Rows are the caller's; the table never invents or reuses one. One thread writes; others may read
    meanwhile: a larger table is filled before readers see it, and they read again if entries have
    moved.
    """

    __slots__ = ("_count", "_moves", "_secret", "_table")

    def __init__(self, expected: int = 0) -> None:
        size = _SIZE_MIN
        while size * 5 < expected * 8:
            size *= 2
        self._table = _empty(size)
        self._secret = secret()
        self._count = 0
        # Odd while entries move.
        self._moves = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes_total(self) -> int:
        """Memory of the table, bytes."""
        return sum(column.nbytes for column in self._table)

    def get(self, handles: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Returns i4[n], the row of each handle, -1 if it is unknown."""
        out = np.empty(len(handles), np.int32)
        while True:
            moves = self._moves
            kernels.get(*self._table, handles, out, *self._secret)
            if moves == self._moves and moves % 2 == 0:
                return out

    def put(self, handles: NDArray[np.uint64], rows: NDArray[np.int32]) -> None:
        """Adds pairs; a known handle gets the new row.

        Args:
            handles: u8[n]; of equal handles the last one counts.
            rows: i4[n], not negative.
        """
        fresh = sorted_distinct(handles[self.get(handles) < 0])
        self._reserve(self._count + len(fresh))
        entered = kernels.put(*self._table, handles, rows, *self._secret)
        self._count += required(entered, "handle_table.put: no room")

    def drop(self, handles: NDArray[np.uint64]) -> None:
        """Removes handles; unknown ones are ignored."""
        self._moves += 1
        self._count -= kernels.drop(*self._table, handles, *self._secret)
        self._moves += 1

    def items(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """Returns all handles u8[n], ascending, and their rows i4[n]."""
        handles, rows = self._taken()
        order = np.argsort(handles)
        return handles[order], rows[order]

    def _taken(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """Returns all handles and rows in the order of their places."""
        keys, rows = self._table
        taken = rows > 0
        return keys[taken], rows[taken] - np.int32(1)

    def _reserve(self, count: int) -> None:
        size = held = len(self._table[0])
        # Linear probing at a load above 5/8 creates long runs.
        while count * 8 > size * 5:
            size *= 2
        if size == held:
            return
        larger = _empty(size)
        entered = kernels.put(*larger, *self._taken(), *self._secret)
        required(entered, "handle_table.put: no room")
        self._table = larger


def _empty(size: int) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
    return np.zeros(size, np.uint64), np.zeros(size, np.int32)
