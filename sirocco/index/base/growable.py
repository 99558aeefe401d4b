"""Arrays that grow in place: anonymous memory whose mapping the operating system extends.

Growing a NumPy array copies it and holds both copies for a while. Here the pages move to a longer
mapping (mremap), nothing is copied, and untouched pages take no memory, so that reserves are free.
"""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["GrowableArray"]

# Below this size huge pages would take more memory than the array; above it random access without
# them spends much of its time on address translation. A mapping of a multiple of huge pages is
# placed, and moved, on their boundary; otherwise they could not be used.
HUGE_PAGES_BYTES_MIN = 16 << 20
_HUGE_PAGE_BYTES = 2 << 20


def _anonymous(size: int) -> mmap.mmap:
    # Private: a shared mapping is internally a file, which does not grow with it.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


class GrowableArray:
    """A one-dimensional array of zeros that can grow.

    Attributes:
        array: the elements; `reserve` changes the view, so never keep it across a call.
    """

    __slots__ = ("_dtype", "_map", "array")

    def __init__(self, dtype: npt.DTypeLike, length: int) -> None:
        """Creates an array of `length` zeros.

        Args:
            dtype: a plain NumPy dtype.
            length: elements.
        """
        self._dtype: np.dtype[Any] = np.dtype(dtype)
        self._map = _anonymous(self._bytes_for(length))
        self.array: npt.NDArray[Any] = np.empty(0, self._dtype)
        self._view()

    def _bytes_for(self, length: int) -> int:
        needed = max(1, length * self._dtype.itemsize)
        page = mmap.PAGESIZE if needed < HUGE_PAGES_BYTES_MIN else _HUGE_PAGE_BYTES
        return -(-needed // page) * page

    def _view(self) -> None:
        if len(self._map) >= HUGE_PAGES_BYTES_MIN and hasattr(mmap, "MADV_HUGEPAGE"):
            self._map.madvise(mmap.MADV_HUGEPAGE)
        self.array = np.frombuffer(self._map, self._dtype)

    def reserve(self, length: int) -> bool:
        """Makes the array at least `length` long; new elements are zero.

        It grows by at least a quarter, so that many small calls stay cheap.

        Returns:
            True if the array moved and earlier views are stale.

        Raises:
            BufferError: A view of the array still exists.
        """
        if length <= len(self.array):
            return False
        wanted = self._bytes_for(max(length, len(self.array) * 5 // 4))
        self.array = np.empty(0, self._dtype)
        try:
            self._map.resize(wanted)
        except (SystemError, OSError):  # a system without mremap
            larger = _anonymous(wanted)
            larger[: len(self._map)] = self._map[:]
            self._map.close()
            self._map = larger
        self._view()
        return True

    @property
    def bytes_total(self) -> int:
        """Bytes mapped, touched or not."""
        return len(self._map)
