"""What a search has to know of a slice to leave it out: where its objects are, and which words.

A summary says of some conditions that no object of the slice satisfies them; of all others it says
nothing. It takes some kilobytes where the slice takes megabytes, and is made of columns that the
slice has anyway: its places, and its vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store_condition import Condition
from sirocco.kernels.store.slice_region import SHAPE_WORLD

# Cells of a summary on each axis, over the box of all objects: leaves of a slot that lie apart, and
# what is between them, are distinguished.
CELLS = 64

_SIDE_MIN = 1e-9

# Bits for each term, of which two are set: about one of a hundred other terms seems to be there.
BITS_PER_TERM = 16

# A text of ever new words would otherwise make a summary as large as its slice. 64 kB hold the
# vocabulary of a million short texts.
BITS_MAX = 1 << 19
_BITS_MIN = 64


@dataclass(frozen=True, slots=True, eq=False)
class SliceSummary:
    """Cells that hold objects of a slice, and bits of their terms.

    Attributes:
        box: f8[4], west, south, east, north of all objects.
        cells: bool[CELLS, CELLS], row after row from the south: which of the box's cells hold an
            object.
        bits: u1, bits of the terms, eight a byte.
    """

    box: NDArray[np.float64]
    cells: NDArray[np.bool_]
    bits: NDArray[np.uint8]

    @classmethod
    def of(cls, slice_: SealedSlice, bits_max: int = BITS_MAX) -> SliceSummary:
        """Returns the summary of a slice, with at most so many bits for its words."""
        lon, lat = slice_.lon, slice_.lat
        box = np.array([lon.min(), lat.min(), lon.max(), lat.max()])
        cells = np.zeros((CELLS, CELLS), np.bool_)
        cells[_cells(lat, box[1], box[3]), _cells(lon, box[0], box[2])] = True
        return cls(box, cells, _bits_of(slice_.vocabulary, bits_max))

    @property
    def bytes_total(self) -> int:
        """Memory, bytes."""
        return self.cells.nbytes + self.bits.nbytes

    def may_hold(self, condition: Condition, boxes: NDArray[np.float64] | None = None) -> bool:
        """Whether an object of the slice may satisfy a condition.

        Args:
            condition: region and text; a filter is ignored.
            boxes: f8[b, 4], rows (west, south, east, north), degrees: only objects inside one of
                these closed boxes count; None: all.
        """
        if boxes is not None and not self._meets(boxes):
            return False
        is_world = condition.words[0] == SHAPE_WORLD
        own = condition.values[: 4 * int(condition.words[1])].reshape(-1, 4)
        return (is_world or self._meets(own)) and self._may_have_words(condition)

    def _meets(self, boxes: NDArray[np.float64]) -> bool:
        """Whether an object may be in one of some closed boxes."""
        west, south, east, north = self.box
        near = boxes[
            (boxes[:, 0] <= east)
            & (boxes[:, 2] >= west)
            & (boxes[:, 1] <= north)
            & (boxes[:, 3] >= south)
        ]
        columns, rows = _cells(near[:, ::2], west, east), _cells(near[:, 1::2], south, north)
        ranges = zip(columns.tolist(), rows.tolist(), strict=True)
        return any(
            self.cells[bottom : top + 1, left : right + 1].any()
            for (left, right), (bottom, top) in ranges
        )

    def _may_have_words(self, condition: Condition) -> bool:
        if not condition.conjunctions:
            return True
        heads = condition.words[condition.words[4] :].tolist()
        first, second = _places(condition.hashes, 8 * len(self.bits))
        has_both = _are_set(self.bits, first) & _are_set(self.bits, second)
        return any(
            has_both[heads[2 * number] : heads[2 * number + 1]].all()
            for number in range(condition.conjunctions)
        )


def _cells(values: NDArray[np.float64], low: float, high: float) -> NDArray[np.int64]:
    """Returns the cell of each coordinate, which never decreases as the coordinate grows."""
    # Places that hardly differ are one cell: their scale would be infinite.
    scale = CELLS / (high - low) if high - low > _SIDE_MIN else 0.0
    return np.clip((values - low) * scale, 0, CELLS - 1).astype(np.int64)


def _bits_of(vocabulary: NDArray[np.uint64], bits_max: int) -> NDArray[np.uint8]:
    size = _BITS_MIN
    while size < min(BITS_PER_TERM * len(vocabulary), bits_max):
        size *= 2
    is_set = np.zeros(size, np.bool_)
    for places in _places(vocabulary, size):
        is_set[places] = True
    return np.packbits(is_set)


def _places(terms: NDArray[np.uint64], size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns two bits for each term, by the halves of its number."""
    mask = np.uint64(size - 1)
    low, high = terms & mask, (terms >> np.uint64(32)) & mask
    return low.astype(np.int64), high.astype(np.int64)


def _are_set(bits: NDArray[np.uint8], places: NDArray[np.int64]) -> NDArray[np.bool_]:
    is_set: NDArray[np.bool_] = (bits[places >> 3] >> (7 - (places & 7)).astype(np.uint8)) & 1 == 1
    return is_set
