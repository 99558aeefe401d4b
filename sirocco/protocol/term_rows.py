"""Rows of term columns: those of some objects, or of a stretch of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.index.ragged import take_ragged
from sirocco.model.text import TermColumns


def take_terms(terms: TermColumns, rows: NDArray[np.integer]) -> TermColumns:
    """The terms of some objects, in the given order."""
    offsets, places = take_ragged(terms.offsets, rows)
    return TermColumns(terms.terms[places], offsets, terms.lengths[rows], terms.counts[places])


def slice_terms(terms: TermColumns, begin: int, end: int) -> TermColumns:
    """The terms of objects [begin, end)."""
    first, last = terms.offsets[begin], terms.offsets[end]
    return TermColumns(
        terms.terms[first:last],
        terms.offsets[begin : end + 1] - first,
        terms.lengths[begin:end],
        terms.counts[first:last],
    )
