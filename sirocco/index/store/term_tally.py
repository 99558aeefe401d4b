"""How many objects hold each term, of any rows of any slices.

Most terms are rare. The k-th greatest count of a slice is at most the k-th greatest sum, so shares
of it bound the counts that slices may leave out: a term that every slice leaves out is none of the
k most frequent (Cao, Wang 2004; `search.term_lists` does the same between evaluators). Only the
other terms are added up, in a hash table.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.active_slice import ActiveView
from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store_search import Hits
from sirocco.kernels.base.hash_placement import secret
from sirocco.kernels.store.terms_count import (
    COUNTED_BY_BIN,
    add_between,
    add_counts_below,
    add_row_terms,
    count_between,
    count_row_terms,
    kth_count,
    kth_sum,
    look_up,
    move_counts,
    take_all_counts,
    take_counts,
)

__all__ = ["Counts", "TermTally"]

# Of the table at the start; it grows by itself.
_PLACES = 1 << 12
# To sort the numbers of found terms takes as long as to scan this many times more counters.
_SORT_FACTOR = 20
# Above every count.
_ANY = 1 << 31

Counts = tuple[NDArray[np.uint64], NDArray[np.int64]]


class TermTally:
    """Counts of terms; one thread at a time.

    Attributes:
        hits: the counted rows.
        added: number of terms in the table.
    """

    def __init__(self) -> None:
        self.hits: list[Hits] = []
        self.added = 0
        self._secret = secret()
        self._keys = np.empty(_PLACES, np.uint64)
        self._sums = np.zeros(_PLACES, np.int64)
        self._slices: list[_OfSlice] = []
        # Scratch: the counts of one slice by the numbers of its terms, zeros, and these numbers.
        self._counts = np.zeros(0, np.int32)
        self._found = np.empty(0, np.uint32)

    def add(self, hits: Iterable[Hits]) -> None:
        """Counts the terms of some more rows, each row once for each of its terms."""
        for one in hits:
            self.hits.append(one)
            if isinstance(one.source, ActiveView):
                self._add_active(one.source, one.rows)
            else:
                self._slices.append(self._of_slice(one.source, one.rows))

    def most_frequent(self, k: int) -> tuple[Counts, bool]:
        """Returns the k most frequent terms and all ties with the last of them.

        Returns:
            u8[t], hashes, ascending, and i8[t]; and whether there are no others.
        """
        self._release()
        kths = [one.kth(k) for one in self._slices]
        most, total = max(kths, default=1), max(1, sum(kths))
        for one, kth in zip(self._slices, kths, strict=True):
            # Together the bounds of what is left out stay below the greatest k-th count.
            self._add_from(one, 1 + kth * (most - 1) // total)
        left_out = sum(one.below - 1 for one in self._slices)
        least = kth_sum(self._sums, k, _bins())
        places = np.flatnonzero(self._sums >= max(1, least - left_out))
        hashes, sums = self._keys[places], self._sums[places]
        self._add_left_out(hashes, sums)
        if len(sums) > k:
            is_kept = sums >= np.partition(sums, len(sums) - k)[len(sums) - k]
            hashes, sums = hashes[is_kept], sums[is_kept]
        return _ascending(hashes, sums), not left_out and len(hashes) == self.added

    def all(self) -> Counts:
        """Returns all terms: u8[t], hashes, ascending, and i8[t]."""
        self._release()
        for one in self._slices:
            self._add_from(one, 1)
        places = np.flatnonzero(self._sums)
        return _ascending(self._keys[places], self._sums[places])

    def count_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Returns i8[m], how many objects hold each of some terms (u8[m])."""
        sums = np.empty(len(hashes), np.int64)
        look_up(hashes, self._keys, self._sums, *self._secret, sums)
        self._add_left_out(hashes, sums)
        return sums

    def _release(self) -> None:
        """Drops the scratch: a tally may be kept for a while."""
        self._counts, self._found = np.zeros(0, np.int32), np.empty(0, np.uint32)

    def _add_active(self, source: ActiveView, rows: NDArray[np.int64]) -> None:
        offsets = source.term_offsets
        self._make_room(int((offsets[rows + 1] - offsets[rows]).sum()))
        self.added += add_row_terms(
            offsets, source.terms, rows, self._keys, self._sums, *self._secret
        )

    def _of_slice(self, source: SealedSlice, rows: NDArray[np.int64]) -> _OfSlice:
        size = len(source.vocabulary)
        if len(self._counts) < size:
            # Untouched memory costs nothing.
            self._counts = np.zeros(size, np.int32)
            self._found = np.empty(size + 1, np.uint32)
        counts = self._counts
        total = count_row_terms(source.term_offsets, source.terms, rows, counts, self._found)
        # One more is written.
        taken = np.empty(total + 1, np.int32)
        if total * _SORT_FACTOR < size:
            numbers = np.sort(self._found[:total])
            take_counts(counts, numbers, taken[:total])
        else:
            numbers = np.empty(total + 1, np.uint32)
            take_all_counts(counts[:size], numbers, taken)
        return _OfSlice(source.vocabulary, numbers[:total], taken[:total])

    def _add_from(self, one: _OfSlice, least: int) -> None:
        """Adds the terms of a slice that have at least so many objects, unless that is done."""
        if least >= one.below:
            return
        self._make_room(count_between(one.counts, least, one.below))
        self.added += add_between(
            one.vocabulary, one.numbers, one.counts, least, one.below, self._keys, self._sums,
            *self._secret,
        )  # fmt: skip
        one.below = least

    def _add_left_out(self, hashes: NDArray[np.uint64], sums: NDArray[np.int64]) -> None:
        """Adds to the sums of some terms what slices have left out of the table."""
        for one in self._slices:
            if one.below > 1:
                add_counts_below(hashes, one.vocabulary, one.numbers, one.counts, one.below, sums)

    def _make_room(self, terms: int) -> None:
        """Makes room for so many further terms: at most half of the table is filled."""
        wanted = 2 * (self.added + terms)
        if wanted <= len(self._sums):
            return
        places = 1 << (wanted - 1).bit_length()
        keys, sums = np.empty(places, np.uint64), np.zeros(places, np.int64)
        move_counts(self._keys, self._sums, keys, sums, *self._secret)
        self._keys, self._sums = keys, sums


class _OfSlice:
    """The counted terms of a slice.

    Attributes:
        vocabulary: u8[v], its terms.
        numbers: u4[f], those found, ascending.
        counts: i4[f], how many objects hold each.
        below: only counts below this are not in the table yet.
    """

    __slots__ = ("below", "counts", "numbers", "vocabulary")

    def __init__(
        self,
        vocabulary: NDArray[np.uint64],
        numbers: NDArray[np.uint32],
        counts: NDArray[np.int32],
    ) -> None:
        self.vocabulary = vocabulary
        self.numbers = numbers
        self.counts = counts
        self.below = _ANY

    def kth(self, k: int) -> int:
        """Returns a value that the counts of at least k terms reach, 1 if there are fewer."""
        return int(kth_count(self.counts, k, _bins()))


def _bins() -> NDArray[np.int64]:
    return np.zeros(COUNTED_BY_BIN + 1, np.int64)


def _ascending(hashes: NDArray[np.uint64], counts: NDArray[np.int64]) -> Counts:
    order = np.argsort(hashes)
    return hashes[order], counts[order]
