"""Rows of term columns: those of some objects, or of a range of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.ragged import take_ragged
from sirocco.model.text import TermColumns


def take_terms(terms: TermColumns, rows: NDArray[np.integer]) -> TermColumns:
    """Returns the terms of some objects, in the given order."""
    offsets, places = take_ragged(terms.offsets, rows)
    return TermColumns(terms.terms[places], offsets, terms.lengths[rows], terms.counts[places])


def slice_terms(terms: TermColumns, begin: int, end: int) -> TermColumns:
    """Returns the terms of objects [begin, end)."""
    first, last = terms.offsets[begin], terms.offsets[end]
    return TermColumns(
        terms.terms[first:last],
        terms.offsets[begin : end + 1] - first,
        terms.lengths[begin:end],
        terms.counts[first:last],
    )


def concat_terms(parts: list[TermColumns]) -> TermColumns:
    """Joins the terms of objects, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    shifts = np.cumsum([0, *(part.offsets[-1] for part in parts[:-1])])
    offsets = [part.offsets[1:] + shift for part, shift in zip(parts, shifts, strict=True)]
    return TermColumns(
        np.concatenate([part.terms for part in parts]),
        np.concatenate([np.zeros(1, np.int64), *offsets]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.counts for part in parts]),
    )


class TermParts:
    """The terms of objects in parts, which are joined when they are read.

    Attributes:
        parts: one after the other, at least one.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: list[TermColumns]) -> None:
        self.parts = parts

    @property
    def joined(self) -> TermColumns:
        """The terms of all."""
        if len(self.parts) > 1:
            self.parts = [concat_terms(self.parts)]
        return self.parts[0]
