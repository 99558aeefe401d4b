"""All terms of a sliding window with their counts and texts, updated from step to step.

Where several slots hold a query, each reports the counts of all terms: none of them knows which are
the most frequent of all. A step then counts what entered the window and what left it, and looks for
the texts of the terms that are new in it, instead of all; and takes memory for each distinct term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.ragged import take_ragged
from sirocco.index.store.sliding_term_counts import NOTHING_FORGOTTEN, ForgottenSlices
from sirocco.index.store.store import StoreView
from sirocco.index.store.store_condition import ALL_TIME, Bounds, Condition
from sirocco.index.store.store_search import Hits
from sirocco.index.store.term_names import TermNames
from sirocco.index.store.term_sums import add_counts
from sirocco.index.store.terms_search import TermCounts, count_terms, named_counts, sources_of

__all__ = ["TermRoom", "Texts", "WindowTermCounts"]

# Texts as a column: u1[b], bytes, and i8[t + 1], offsets.
Texts: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64]]

# Distinct terms that the windows of a slot's queries keep together, some 32 bytes each. Thousands
# of queries over large regions would fill any memory; those without room are counted anew at each
# step.
_TERMS_MAX = 1 << 21

_NO_HASHES = np.empty(0, np.uint64)
_NO_TEXTS = np.empty(0, np.uint8), np.zeros(1, np.int64)


@dataclass(slots=True)
class TermRoom:
    """How many terms the windows of a slot may still keep."""

    left: int = _TERMS_MAX


class WindowTermCounts:
    """A standing query's counts of its window; of any region, text and filter.

    Attributes:
        is_slid: whether the last count looked at what entered and left the window alone.
    """

    __slots__ = (
        "_bounds",
        "_counts",
        "_forgotten",
        "_hashes",
        "_is_kept",
        "_named",
        "_room",
        "_texts",
        "is_slid",
    )

    def __init__(self, room: TermRoom | None = None) -> None:
        """Starts without counts; all queries of a slot share its room."""
        self._room = TermRoom() if room is None else room
        self.is_slid = False
        self._forgotten = NOTHING_FORGOTTEN
        self._bounds = ALL_TIME
        self._is_kept = False
        self._hashes: NDArray[np.uint64] = _NO_HASHES
        self._counts: NDArray[np.int64] = np.empty(0, np.int64)
        # Hashes, ascending, and their texts as a column of bytes.
        self._named: NDArray[np.uint64] = _NO_HASHES
        self._texts: Texts = _NO_TEXTS

    @property
    def bytes_total(self) -> int:
        """Memory of the counts."""
        texts = sum(each.nbytes for each in self._texts)
        return self._hashes.nbytes + self._counts.nbytes + texts

    def count(
        self, view: StoreView, condition: Condition, bounds: Bounds, forgotten: ForgottenSlices
    ) -> TermCounts:
        """Counts all terms of the window; arguments as of `SlidingTermCounts.count`."""
        self.is_slid = self._can_slide(bounds, forgotten)
        if self.is_slid:
            found = self._slide(view, condition, bounds)
        else:
            found = count_terms(view, condition, bounds)
        self._keep(found, bounds, forgotten)
        return found

    def texts(self, found: TermCounts, names: TermNames) -> Texts:
        """Returns the texts of the terms that were counted last, in their order."""
        places = np.searchsorted(self._named, found.hashes)
        is_new = np.ones(len(found), np.bool_)
        is_in = places < len(self._named)
        is_new[is_in] = self._named[places[is_in]] != found.hashes[is_in]
        new = TermCounts(found.hashes[is_new], found.counts[is_new], found.hits)
        data, offsets = _column([text.encode() for text in named_counts(new, names)])
        places[is_new] = len(self._named) + np.arange(len(new))
        former, former_offsets = self._texts
        offsets = np.concatenate([former_offsets, offsets[1:] + former_offsets[-1]])
        offsets, rows = take_ragged(offsets, places)
        texts = np.concatenate([former, data])[rows], offsets
        if self._is_kept:
            self._named, self._texts = self._hashes, texts
        return texts

    def forget(self) -> None:
        """Starts afresh with the next window, and releases the room."""
        self._release()
        self._named, self._texts = _NO_HASHES, _NO_TEXTS

    def _release(self) -> None:
        self._room.left += len(self._hashes)
        self._is_kept = False
        self._hashes = _NO_HASHES
        self._counts = np.empty(0, np.int64)

    def _can_slide(self, bounds: Bounds, forgotten: ForgottenSlices) -> bool:
        """Whether the window only moved forward, and all that it passed is still here."""
        last = self._bounds
        return (
            self._is_kept
            and last.arrival_from_ms <= bounds.arrival_from_ms <= last.arrival_to_ms
            and last.arrival_to_ms <= bounds.arrival_to_ms
            and (
                forgotten.slices == self._forgotten.slices
                or forgotten.latest_ms < last.arrival_from_ms
            )
        )

    def _slide(self, view: StoreView, condition: Condition, bounds: Bounds) -> TermCounts:
        last = self._bounds
        entered = Bounds(last.arrival_to_ms + 1, bounds.arrival_to_ms)
        left = Bounds(last.arrival_from_ms, bounds.arrival_from_ms - 1)
        parts = [(self._hashes, self._counts)]
        news: Callable[[], Iterable[Hits]] = tuple
        if entered.arrival_from_ms <= entered.arrival_to_ms:
            found = count_terms(view, condition, entered)
            parts.append((found.hashes, found.counts))
            news = found.hits
        if left.arrival_from_ms <= left.arrival_to_ms:
            found = count_terms(view, condition, left)
            parts.append((found.hashes, -found.counts))
        hashes, counts = add_counts(parts)
        is_here = counts > 0

        def hits() -> Iterable[Hits]:
            # Terms that are new in the window are in objects that have entered it.
            return chain(news(), sources_of((view,), condition, bounds))

        return TermCounts(hashes[is_here], counts[is_here], hits)

    def _keep(self, found: TermCounts, bounds: Bounds, forgotten: ForgottenSlices) -> None:
        self._release()
        if len(found) > self._room.left:
            self.forget()
            return
        self._room.left -= len(found)
        self._bounds, self._forgotten, self._is_kept = bounds, forgotten, True
        self._hashes, self._counts = found.hashes, found.counts


def _column(texts: list[bytes]) -> Texts:
    """Returns texts as a column of bytes, u1[b] and i8[t + 1]."""
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return np.frombuffer(b"".join(texts), np.uint8), offsets
