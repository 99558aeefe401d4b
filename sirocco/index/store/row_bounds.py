"""Bounds of the scores of a sealed slice's rows in a ranked search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.slices import SealedSlice, address_of
from sirocco.kernels.store.ranked_scan import summarise_rows

__all__ = ["RowBounds", "row_bounds"]

_NAME = "row_bounds"


@dataclass(frozen=True, slots=True, eq=False)
class RowBounds:
    """Bounds of the n rows of a slice.

    Attributes:
        summaries: u4[n], see `summarise_rows`.
        addresses: addresses of the slice's `block_lengths` and of `summaries`, for kernels.
    """

    summaries: NDArray[np.uint32]
    addresses: tuple[int, int]

    @property
    def bytes_total(self) -> int:
        """Bytes of memory."""
        return self.summaries.nbytes


def row_bounds(slice_: SealedSlice) -> RowBounds:
    """Returns the bounds of a slice, computed at the first request (5 ms per million rows)."""
    found: RowBounds | None = slice_.derived.get(_NAME)
    if found is None:
        summaries = np.empty(len(slice_), np.uint32)
        summarise_rows(
            slice_.arrivals_ms, slice_.lengths, slice_.term_offsets, slice_.terms,
            slice_.vocabulary, slice_.arrival_first_ms, slice_.arrival_last_ms, summaries,
        )  # fmt: skip
        addresses = address_of(slice_.block_lengths), address_of(summaries)
        found = RowBounds(summaries, addresses)
        slice_.derived[_NAME] = found
    return found
