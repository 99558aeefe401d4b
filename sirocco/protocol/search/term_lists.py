"""The most frequent terms over several evaluators, from lists of the most frequent of each.

A threshold algorithm in two rounds, after TPUT (Cao and Wang, PODC 2004): each evaluator lists its
most frequent terms with their counts, and a bound on those of all others. The sums of what is known
give a threshold: the k-th greatest of them. A term whose known sum and bounds together stay below
it is not among the k most frequent. The counts of the others are asked of the evaluators that have
not listed them. So the answer is exact, ties included, unless the bounds together reach the
threshold: then any term may be among the first, and all have to be counted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.term_sums import add_counts
from sirocco.protocol.search.limits import SearchLimits
from sirocco.protocol.search.messages import Part

# With longer answers all terms are counted: the lists would not be much shorter.
K_MAX = 1_000

_NO_TERMS = np.empty(0, np.uint64)


def listed_for(k: int, limits: SearchLimits) -> int:
    """Returns how many terms each evaluator lists; 0 if all have to be counted."""
    return max(limits.listed_min, limits.listed_factor * k) if k <= K_MAX else 0


@dataclass(slots=True, eq=False)
class TermList:
    """What an evaluator has reported of its slots' terms.

    Attributes:
        parts: of its answer: the list, then the counts that were asked for.
        rest: no other term has more objects; 0 if all are here.
        slots: that it is about, once it has ended.
        is_asked: more counts are under way.
        has_ended: it can be asked for no more.
    """

    parts: list[Part]
    rest: int
    slots: tuple[int, ...] = ()
    is_asked: bool = False
    has_ended: bool = False

    @property
    def sums(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """u8[t] and u8[t], the known counts, in no order; each term once."""
        terms = [part.terms for part in self.parts]
        return (
            np.concatenate([_NO_TERMS, *(one.hashes for one in terms)]),
            np.concatenate([_NO_TERMS, *(one.counts for one in terms)]),
        )


def candidates(lists: list[TermList], k: int) -> NDArray[np.uint64] | None:
    """Returns the terms that may be among the k most frequent, u8[c], ascending.

    None if terms that no list names may be.
    """
    sums = [each.sums for each in lists]
    hashes, known = _added(sums)
    rest = sum(each.rest for each in lists)
    if len(hashes) < k:
        return None if rest else hashes
    threshold = int(np.partition(known, len(known) - k)[len(known) - k])
    if rest and rest >= threshold:
        return None
    # Of a list that names a term, nothing remains.
    _, named = _added(
        [
            (own, np.full(len(own), each.rest, np.uint64))
            for (own, _), each in zip(sums, lists, strict=True)
        ]
    )
    return hashes[known + (np.uint64(rest) - named) >= threshold]


def lacking(one: TermList, terms: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns the terms whose counts a list does not say."""
    return terms[~np.isin(terms, one.sums[0])] if one.rest else _NO_TERMS


def _added(
    parts: list[tuple[NDArray[np.uint64], NDArray[np.uint64]]],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Adds up counts by term; the terms ascend."""
    return add_counts([(_NO_TERMS, _NO_TERMS), *parts])
