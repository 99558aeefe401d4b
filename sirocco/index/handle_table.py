"""Handles (64-bit hashes of query ids, session numbers) → dense rows, 16 to 32 bytes an entry."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels import handle_table as kernels

# Below this the table is not worth shrinking, and growth from it is a handful of doublings.
_SIZE_MIN = 64


class HandleTable:
    """A map from u8 handles to i4 rows, for whole columns at a time.

    Rows are the caller's; the table never invents or reuses one.
    """

    __slots__ = ("_count", "_keys", "_rows")

    def __init__(self, expected: int = 0) -> None:
        size = _SIZE_MIN
        while size * 5 < expected * 8:
            size *= 2
        self._keys = np.zeros(size, np.uint64)
        self._rows = np.zeros(size, np.int32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes_total(self) -> int:
        """Memory of the table, bytes."""
        return int(self._keys.nbytes + self._rows.nbytes)

    def get(self, handles: NDArray[np.uint64]) -> NDArray[np.int32]:
        """Returns i4[n], the row of each handle, -1 where it is not known."""
        out = np.empty(len(handles), np.int32)
        kernels.get(self._keys, self._rows, handles, out)
        return out

    def put(self, handles: NDArray[np.uint64], rows: NDArray[np.int32]) -> None:
        """Enters pairs; a known handle gets the new row.

        Args:
            handles: u8[n]; of an equal pair the last one counts.
            rows: i4[n], not negative.
        """
        fresh = np.unique(handles[self.get(handles) < 0])
        self._reserve(self._count + len(fresh))
        kernels.put(self._keys, self._rows, handles, rows)
        self._count += len(fresh)

    def drop(self, handles: NDArray[np.uint64]) -> None:
        """Removes handles; unknown ones are passed over."""
        self._count -= kernels.drop(self._keys, self._rows, handles)

    def items(self) -> tuple[NDArray[np.uint64], NDArray[np.int32]]:
        """Returns all handles u8[n] and their rows i4[n], in no particular order."""
        taken = self._rows > 0
        return self._keys[taken], self._rows[taken] - 1

    def _reserve(self, count: int) -> None:
        size = len(self._keys)
        # Linear probing at a load above 5/8 grows long runs.
        while count * 8 > size * 5:
            size *= 2
        if size == len(self._keys):
            return
        handles, rows = self.items()
        self._keys = np.zeros(size, np.uint64)
        self._rows = np.zeros(size, np.int32)
        kernels.put(self._keys, self._rows, handles, rows.astype(np.int32))
