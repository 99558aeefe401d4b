"""The memory of the lists of standing kNN queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sirocco.index.base.growable import GrowableArray
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.standing.knn_list import ENTRY_WORDS

__all__ = ["ListStore"]


class ListStore:
    """Lists of given lengths, one after the other in one array (see `kernels.standing.knn_list`).

    Freed room is only reused for lists of the same length: queries of one workload share a few
    values of k, and no list ever moves. The unfilled part of a list is untouched, and takes no
    memory beyond its first page.
    """

    __slots__ = ("_end", "_free", "_words")

    def __init__(self) -> None:
        self._words = GrowableArray(np.uint64, ENTRY_WORDS * 1024)
        self._end = 0
        self._free: dict[int, list[npt.NDArray[np.int64]]] = {}

    @property
    def words(self) -> npt.NDArray[np.uint64]:
        """u8[4 · entries]; stale after `take`."""
        return self._words.array

    @property
    def bytes_total(self) -> int:
        """Bytes of all lists ever in use at the same time, filled or not."""
        return 8 * ENTRY_WORDS * self._end

    def take(self, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Returns i8[n], the first entry of a list for each of the lengths (i8[n], ≥ 1)."""
        begins = np.empty(len(lengths), np.int64)
        is_open = np.ones(len(lengths), np.bool_)
        if self._free:
            for length in sorted_distinct(lengths).tolist():
                places = np.flatnonzero(lengths == length)
                reused = self._take_free(length, len(places))
                begins[places[: len(reused)]] = reused
                is_open[places[: len(reused)]] = False
        fresh = lengths[is_open]
        begins[is_open] = self._end + np.cumsum(fresh) - fresh
        self._end += int(fresh.sum())
        self._words.reserve(ENTRY_WORDS * self._end)
        return begins

    def _take_free(self, length: int, wanted: int) -> npt.NDArray[Any]:
        stacks = self._free.get(length, [])
        taken: list[npt.NDArray[np.int64]] = []
        while stacks and wanted > 0:
            last = stacks.pop()
            taken.append(last[:wanted])
            if len(last) > wanted:
                stacks.append(last[wanted:])
            wanted -= len(taken[-1])
        if not stacks:
            self._free.pop(length, None)
        return np.concatenate(taken) if taken else np.empty(0, np.int64)

    def free(self, begins: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> None:
        """Frees lists; `begins` and `lengths` i8[n]."""
        for length in sorted_distinct(lengths).tolist():
            self._free.setdefault(length, []).append(begins[lengths == length])
