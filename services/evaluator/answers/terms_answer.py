"""Answers to terms queries: counts of the terms of all slots here."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.codec.search import sum_chunks
from sirocco.index.store.term_tally import TermTally
from sirocco.model.objects import pack_bytes
from sirocco.model.query import TermsQuery
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.protocol.search.collectors import at_least_kth
from sirocco.protocol.search.messages import MOVED, Part, TermSums
from sirocco.services.evaluator.answers.slot_interface import Counted, SlotSearch, Wanted
from sirocco.services.evaluator.answers.slot_states import with_slot_states
from sirocco.services.evaluator.answers.turns import Turns


class _NothingCounted:
    """The terms of no slot."""

    hashes = np.empty(0, np.uint64)
    counts = np.empty(0, np.int64)

    def texts(self, hashes: NDArray[np.uint64]) -> list[str]:
        """See `Counted`."""
        return []

    def count_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """See `Counted`."""
        return np.zeros(len(hashes), np.int64)


_NOTHING_COUNTED = _NothingCounted()


# The terms whose counts are wanted after a list of terms, u8[m]; None for all.
TermsWanted: TypeAlias = "Callable[[], NDArray[np.uint64] | None]"


class TermsAnswer:
    """The answer to a terms query, as parts.

    Args:
        wanted: the query.
        slots: the slots that are here.
        moved: the others.
        turns: gives the thread away at intervals.
        answers: into how many answers the search is split; if so, a term that is rare here may be
            frequent in the sum.
    """

    def __init__(
        self,
        wanted: Wanted,
        slots: list[tuple[int, SlotSearch]],
        moved: list[int],
        turns: Turns,
        answers: int,
    ) -> None:
        assert isinstance(wanted.query, TermsQuery)
        self._wanted, self._slots, self._moved = wanted, slots, moved
        self._turns, self._answers = turns, answers
        self._k = wanted.query.k
        self._counted: list[Counted] = []
        self._tally = TermTally()
        self._untallied = [search for _, search in reversed(slots)]

    def parts(
        self, listed: int, output_hashing: TermHashing | None, terms_wanted: TermsWanted
    ) -> Iterator[Part | None]:
        """Yields the parts.

        Args:
            listed: how many terms will do at first; 0 for all.
            output_hashing: numbers the terms; None for the wire's hashes.
            terms_wanted: see `slot_search.answer`.
        """
        if output_hashing is None:
            hashes, counts = yield from self._all()
            yield from _spelled(self._slots, self._moved, hashes, counts, self._counted)
            return
        most = self._k if self._answers == 1 else listed
        found = self._frequent(most) if most else None
        is_whole = False
        if found is None:
            found, is_whole = yield from self._tallied(most)
        hashes, counts = found.hashes, found.counts.astype(np.uint64)
        if self._answers > 1 and listed:
            rows, rest = _cut(counts, listed, is_whole=is_whole)
            if rest:
                yield self._list(hashes[rows], counts[rows], rest, output_hashing)
                self._turns.restart()
                terms = terms_wanted()
                if terms is not None:
                    sums = found.count_of(terms).astype(np.uint64)
                    yield from self._closed(terms, sums, 0, output_hashing)
                    return
                hashes, counts = yield from self._all()
        first = at_least_kth(counts, self._k, self._answers)
        # Alone, only the first terms count; otherwise all may, and only the first are named.
        rows = first
        if self._answers > 1:
            rows = np.concatenate([first, _others(first, len(hashes))])
        yield from self._closed(hashes[rows], counts[rows], len(first), output_hashing)

    def _frequent(self, k: int) -> Counted | None:
        if not self._slots:
            return None
        first, *others = (search for _, search in self._slots)
        found = first.frequent_terms(self._wanted, k, others)
        if found is not None:
            self._counted = [found]
        return found

    def _all(self) -> Generator[None, None, tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
        """Counts all terms; returns u8[t], ascending, and u8[t]."""
        found, _ = yield from self._tallied(0)
        return found.hashes, found.counts.astype(np.uint64)

    def _tallied(self, most: int) -> Generator[None, None, tuple[Counted, bool]]:
        """Counts terms one by one.

        Returns:
            The most frequent terms and their ties, all if `most` is 0; and whether these are all.
        """
        tally = self._tally
        while self._untallied:
            self._untallied.pop().tally_terms(self._wanted, tally)
            yield from self._turns.pause()
        if not self._slots:
            return _NOTHING_COUNTED, True
        counts, is_whole = tally.most_frequent(most) if most else (tally.all(), True)
        found = self._slots[0][1].named(tally, counts)
        self._counted = [found]
        return found, is_whole

    def _list(
        self,
        hashes: NDArray[np.uint64],
        counts: NDArray[np.uint64],
        rest: int,
        output_hashing: TermHashing,
    ) -> Part:
        texts, offsets = self._named(hashes)
        return Part(
            slots=np.array(self._moved, np.uint32),
            states=np.full(len(self._moved), MOVED, np.uint8),
            terms=TermSums(hashes, counts, texts, offsets, output_hashing.id),
            rest=rest,
        )

    def _closed(
        self,
        hashes: NDArray[np.uint64],
        counts: NDArray[np.uint64],
        named: int,
        output_hashing: TermHashing,
    ) -> Iterator[Part]:
        """Yields the last parts; the first terms have their texts."""
        texts, offsets = self._named(hashes[:named])
        sums = TermSums(hashes, counts, texts, offsets, output_hashing.id)
        parts = [Part(terms=chunk) for chunk in sum_chunks(sums)]
        yield from with_slot_states([number for number, _ in self._slots], self._moved, parts)

    def _named(self, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        return pack_bytes([text.encode() for text in _texts(hashes, self._counted)])


def _cut(
    counts: NDArray[np.uint64], listed: int, *, is_whole: bool
) -> tuple[NDArray[np.int64], int]:
    """Returns the rows of a list of the most frequent terms, and a bound on the counts of others.

    Args:
        counts: u8[t], at least of the most frequent terms and their ties.
        listed: how many terms are wanted.
        is_whole: whether there are no others.
    """
    rows = at_least_kth(counts, listed)
    if len(rows) < listed or (is_whole and len(rows) == len(counts)):
        return rows, 0
    least = int(counts[rows].min())
    if len(rows) <= 2 * listed:
        return rows, least - 1
    # Of rare terms many have the same count: to list them all would take longer than to count.
    return np.flatnonzero(counts > least), least


def _spelled(
    slots: list[tuple[int, SlotSearch]],
    moved: list[int],
    hashes: NDArray[np.uint64],
    counts: NDArray[np.uint64],
    counted: list[Counted],
) -> Iterator[Part | None]:
    """Yields all terms by their wire hashes, with texts: slow, only while versions or keys mix."""
    words = _texts(hashes, counted)
    texts, offsets = pack_bytes([word.encode() for word in words])
    sums = TermSums(WIRE_TERMS.numbers(words), counts, texts, offsets)
    parts = [Part(terms=chunk) for chunk in sum_chunks(sums)]
    yield from with_slot_states([number for number, _ in slots], moved, parts)


def _texts(hashes: NDArray[np.uint64], counted: list[Counted]) -> list[str]:
    """Returns the texts of terms, each from the first slot that holds it."""
    found: dict[int, str] = {}
    for one in counted:
        missing = np.array([term for term in hashes.tolist() if term not in found], np.uint64)
        if not len(missing) or not len(one.hashes):
            continue
        places = np.searchsorted(one.hashes, missing)
        held = missing[one.hashes[np.minimum(places, len(one.hashes) - 1)] == missing]
        found |= zip(held.tolist(), one.texts(held), strict=True)
    return [found[term] for term in hashes.tolist()]


def _others(rows: NDArray[np.int64], total: int) -> NDArray[np.int64]:
    keep = np.ones(total, np.bool_)
    keep[rows] = False
    return np.flatnonzero(keep)
