"""Term counts of the nodes of a sealed slice's tree, for lists of frequent terms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.slices import SealedSlice, address_of
from sirocco.kernels.store.terms_nodes import NODE_ROWS, STRETCH_ROWS, find_peaks, sum_frequent

__all__ = ["FREQUENT", "NodeCounts", "node_counts"]

_NAME = "node_counts"
# Smaller slices are counted row by row, in the time of a few lists.
ROWS_MIN = 1 << 16
# 8 bytes per object. The top terms of all languages and places of a slice, enough for a list of
# ten.
FREQUENT = 1_024


@dataclass(frozen=True, slots=True, eq=False)
class NodeCounts:
    """Counts of a slice of n rows with f frequent terms, see `kernels.store.terms_nodes`.

    Attributes:
        frequent: i8[f], ascending, numbers of terms in the slice's vocabulary.
        sums: u4[⌈n / STRETCH_ROWS⌉ + 1, f]
        rest: u4[⌈n / NODE_ROWS⌉]
        row: (f, addresses of the three), for kernels.
    """

    frequent: NDArray[np.int64]
    sums: NDArray[np.uint32]
    rest: NDArray[np.uint32]
    row: tuple[int, int, int, int]

    @property
    def bytes_total(self) -> int:
        """Bytes of memory."""
        return self.frequent.nbytes + self.sums.nbytes + self.rest.nbytes


def node_counts(slice_: SealedSlice, rows_min: int = ROWS_MIN) -> NodeCounts | None:
    """Returns the counts of a slice, None if it has fewer rows and none were made before.

    They are computed at the first request: 70 ms per million rows.
    """
    found: NodeCounts | None = slice_.derived.get(_NAME)
    if found is not None or len(slice_) < rows_min:
        return found
    peaks = np.zeros(len(slice_.vocabulary), np.uint32)
    find_peaks(slice_.term_offsets, slice_.terms, peaks)
    f = min(FREQUENT, len(peaks))
    frequent = np.sort(np.argpartition(peaks, len(peaks) - f)[len(peaks) - f :])
    places = np.full(len(peaks), -1, np.int16)
    places[frequent] = np.arange(f)
    sums = np.empty((-(-len(slice_) // STRETCH_ROWS) + 1, f), np.uint32)
    rest = np.empty(-(-len(slice_) // NODE_ROWS), np.uint32)
    sum_frequent(slice_.term_offsets, slice_.terms, places, sums, rest)
    row = f, address_of(frequent), address_of(sums), address_of(rest)
    found = slice_.derived[_NAME] = NodeCounts(frequent, sums, rest, row)
    return found
