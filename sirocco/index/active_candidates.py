"""Which rows of an active slice a search for the nearest has to look at.

They stand as they came, without postings. Looking for a word in one row after the other takes
some 30 ns a row, comparing its tag with those of all terms of all rows at once about 3. So where
many rows lie near enough, only those are looked at that hold a term which the text needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sirocco.index.active_slice import ActiveView
from sirocco.index.store_condition import Condition

Value = TypeVar("Value", bound=np.generic)

__all__ = ["ActiveRows", "candidates"]

# Fewer rows near enough than this share of all are looked at one by one.
_NEAR_SHARE = 0.125
_SAMPLE = 512
# Each further term is one more comparison with all terms.
_TERMS_MAX = 4


@dataclass(frozen=True, slots=True, eq=False)
class ActiveRows:
    """m rows of an active slice, as kernels look at them.

    Attributes:
        count: m.
        rows: i8[m], ascending; None: the first m.
        words: the condition's; without its text where that is known to hold.
        term_offsets: i8[m + 1], terms: u8, wire hashes; not to be read without a text.
    """

    count: int
    rows: NDArray[np.int64] | None
    words: NDArray[np.int64]
    term_offsets: NDArray[np.int64]
    terms: NDArray[np.uint64]

    def of(self, column: NDArray[Value]) -> NDArray[Value]:
        """Returns a column of the slice for the rows; it may be longer."""
        return column if self.rows is None else column[self.rows]

    def named(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the rows of the slice that stand at some places."""
        return places if self.rows is None else self.rows[places]


def candidates(
    active: ActiveView,
    count: int,
    condition: Condition,
    box: tuple[float, float, float, float],
) -> ActiveRows:
    """Returns the rows that may satisfy a condition.

    Args:
        active: the slice.
        count: how many of its first rows count.
        condition: its text is looked at.
        box: (west, south, east, north), degrees; about where rows lie that satisfy it. It
            decides how they are looked for, not which.
    """
    words = condition.words
    if not 0 < condition.conjunctions <= _TERMS_MAX or not _are_many_near(active, count, box):
        return ActiveRows(count, None, words, active.term_offsets, active.terms)
    first = int(words[4])
    needed = condition.hashes[words[first : first + 2 * condition.conjunctions : 2]]
    rows = _holding(active, count, needed)
    if len(condition.hashes) == 1:
        anything = words.copy()
        anything[3] = 0
        return ActiveRows(len(rows), rows, anything, active.term_offsets, active.terms)
    begins = active.term_offsets[rows]
    lengths = active.term_offsets[rows + 1] - begins
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], lengths)
    return ActiveRows(len(rows), rows, words, offsets, active.terms[places])


def _are_many_near(active: ActiveView, count: int, box: tuple[float, float, float, float]) -> bool:
    """Whether a good share of the rows lies in a box, judged by some: they come in any order."""
    some = slice(max(0, count - _SAMPLE), count)
    lon, lat = active.lon[some], active.lat[some]
    west, south, east, north = box
    near = np.count_nonzero((lat >= south) & (lat <= north) & (lon >= west) & (lon <= east))
    return bool(near > _NEAR_SHARE * len(lat))


def _holding(active: ActiveView, count: int, needed: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Returns the rows that hold one of some terms, ascending."""
    offsets = active.term_offsets[: count + 1]
    tags = active.tags[: offsets[-1]]
    places = []
    for term, tag in zip(needed, needed.astype(np.uint16), strict=True):
        alike = np.flatnonzero(tags == tag)
        places.append(alike[active.terms[alike] == term])
    rows = np.searchsorted(offsets, np.concatenate(places), "right") - 1
    return rows if len(places) == 1 else np.unique(rows)
