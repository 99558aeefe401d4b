"""Keywords → the slots that need objects with them (Tornado's textual summary).

Tornado (section 3.1) keeps a hash table of keywords per evaluator in every routing unit. Here one
table serves all slots, with a set of slots per keyword.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.faults import required
from sirocco.kernels.base.hash_placement import secret
from sirocco.kernels.routing.keyword_filter import add_keywords, keep_wanted

# Means no keyword: the slot wants every object. A term with this hash makes its slots receive more
# than they need, which is harmless.
ANY_TERM = 0

# At most half of a table is filled; a smaller table saves nothing.
_PLACES_MIN = 64

# Bytes of a keyword at half load: term, set and hints, twice.
_WORD_BYTES = 8


def words_of(slots: int) -> int:
    """Returns the number of words in a keyword's set of slots."""
    return (slots + 63) // 64


def set_of(slots: Iterable[int], words: int) -> NDArray[np.uint64]:
    """Returns u8[words], a set of slots."""
    bits = np.zeros(words, np.uint64)
    for slot in slots:
        bits[slot >> 6] |= np.uint64(1) << np.uint64(slot & 63)
    return bits


def joined(
    terms: NDArray[np.uint64], sets: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Returns each keyword once, ascending, with all of its slots."""
    if not len(terms):
        return terms, sets
    order = np.argsort(terms, kind="stable")
    ordered = terms[order]
    firsts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return ordered[firsts], np.bitwise_or.reduceat(sets[order], firsts, axis=0)


def keywords_max(bytes_max: int, words: int) -> int:
    """Returns how many keywords fit into an amount of memory."""
    return max(1, bytes_max // (2 * (_WORD_BYTES * (1 + words) + 1)))


class KeywordSlots:
    """A set of slots for each keyword; grows only.

    Args:
        words: of each set, see `words_of`.
        count_max: maximum number of keywords; slots of further keywords want every object.

    Attributes:
        open_set: u8[words], slots that want every object.
    """

    __slots__ = ("_count", "_count_max", "_hints", "_secret", "_sets", "_terms", "open_set")

    def __init__(self, words: int, count_max: int) -> None:
        self.open_set = np.zeros(words, np.uint64)
        self._count_max = count_max
        self._count = 0
        self._secret = secret()
        self._allocate(_PLACES_MIN)

    def __len__(self) -> int:
        """Number of keywords."""
        return self._count

    @property
    def bytes_total(self) -> int:
        """Memory of the table, bytes."""
        return int(self._terms.nbytes + self._sets.nbytes + self._hints.nbytes)

    def items(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Returns all keywords u8[k], ascending, and their slots u8[k, words].

        Slots that want every object are last, under `ANY_TERM`.
        """
        order = np.argsort(self._terms)[len(self._terms) - self._count :]
        terms, sets = self._terms[order], self._sets[order]
        if not self.open_set.any():
            return terms, sets
        return np.append(terms, np.uint64(ANY_TERM)), np.vstack([sets, self.open_set])

    def add(self, terms: NDArray[np.uint64], sets: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Adds slots to keywords.

        Args:
            terms: u8[k], `ANY_TERM` for every object.
            sets: u8[k, words], the slots of each.

        Returns:
            bool[k], whether any of them was new.
        """
        self._reserve(min(self._count + len(terms), self._count_max))
        is_fresh = np.empty(len(terms), np.bool_)
        self._count = add_keywords(
            *(terms, sets, self._count, self._count_max),
            *(self._terms, self._sets, self._hints, self.open_set, is_fresh, *self._secret),
        )
        return is_fresh

    def mark_wanted(
        self,
        term_offsets: NDArray[np.int64],
        terms: NDArray[np.uint64],
        rows: NDArray[np.int32],
        slots: NDArray[np.int32],
        keep: NDArray[np.bool_],
    ) -> None:
        """Marks the objects that have a keyword of their destination slot, or whose slot is open.

        Args:
            term_offsets: i8[n + 1], into `terms`.
            terms: u8, of each object.
            rows: i4[m], which object is sent to ...
            slots: i4[m], ... which slot.
            keep: bool[m], overwritten.
        """
        keep_wanted(
            *(term_offsets, terms, rows, slots),
            *(self._terms, self._sets, self._hints, self.open_set, keep, *self._secret),
        )

    def _reserve(self, count: int) -> None:
        places = len(self._terms)
        while 2 * count > places:
            places *= 2
        if places == len(self._terms):
            return
        taken = self._terms != 0
        terms, sets = self._terms[taken], self._sets[taken]
        self._allocate(places)
        is_fresh = np.empty(len(terms), np.bool_)
        moved = add_keywords(
            *(terms, sets, 0, len(terms)),
            *(self._terms, self._sets, self._hints, self.open_set, is_fresh, *self._secret),
        )
        required(moved - len(terms), "add_keywords: no room")

    def _allocate(self, places: int) -> None:
        self._terms = np.zeros(places, np.uint64)
        self._sets = np.zeros((places, len(self.open_set)), np.uint64)
        self._hints = np.zeros(places, np.uint8)
