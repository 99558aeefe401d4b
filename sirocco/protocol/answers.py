"""How the answers of slots are added up to the answer of a search.

Orders and ties are those of the public contract: distances are compared as rounded to 1 mm, scores
as rounded to 1e-9, then ids as unsigned numbers, then the objects' event keys; counts downwards,
then terms by code point.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import Protocol

import numpy as np

from sirocco.model.errors import InvalidArgument
from sirocco.model.objects import ObjectColumns, concat, take_bytes
from sirocco.model.query import KnnQuery, Query, RangeQuery, RankedQuery, TermsQuery
from sirocco.model.text import hash_rows
from sirocco.protocol.messages import NO_EVENTS, NO_OBJECTS, EventColumns
from sirocco.protocol.ranked_lists import Candidates, best, joined
from sirocco.protocol.searched import NO_ANSWER, NO_TERM_COUNTS, Answer, Part
from sirocco.protocol.term_lists import TermCounts

# What one search may keep in a merger: a list of 10,000 objects with texts of some KB.
KEPT_BYTES_MAX = 64 << 20


class Collector(Protocol):
    """Adds up the answers of slots."""

    def add(self, parts: list[Part]) -> None:
        """Takes all parts of the answer to one question.

        Raises:
            InvalidArgument: there is more to keep than may be.
        """

    def bound_m(self) -> float | None:
        """No answer is farther from the query's point; None when that is not known."""

    def answer(self) -> Answer:
        """What was found so far, in order."""


def collector_of(query: Query, now_ms: int) -> Collector | None:
    """The collector for a query; None when parts need no adding up.

    Args:
        query: of mode snapshot.
        now_ms: the moment that is asked about.
    """
    match query:
        case RangeQuery():
            return None
        case KnnQuery():
            return NearestCollector(query.k)
        case TermsQuery():
            return TermsCollector(query.k)
        case RankedQuery():
            return RankedCollector(query, now_ms)


class NearestCollector:
    """The k nearest objects."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._objects = NO_OBJECTS
        self._events = NO_EVENTS
        self._distances_m = np.empty(0, np.float64)

    def add(self, parts: list[Part]) -> None:
        """See `Collector`."""
        if len(parts) == 1 and not len(self._objects):
            # The answer to one question is in order.
            (part,) = parts
            self._objects, self._events = part.objects, part.events
            self._distances_m = part.distances_m
            check_kept(self._objects)
            return
        objects = concat([self._objects, *(part.objects for part in parts)])
        events = EventColumns.concat([self._events, *(part.events for part in parts)])
        distances_m = np.concatenate([self._distances_m, *(part.distances_m for part in parts)])
        order = np.lexsort((events.numbers, events.sessions, objects.ids, distances_m))[: self._k]
        self._objects, self._events = objects.take(order), events.take(order)
        check_kept(self._objects)
        self._distances_m = distances_m[order]

    def bound_m(self) -> float | None:
        """The k-th distance, once there are k."""
        return float(self._distances_m[-1]) if len(self._distances_m) == self._k else None

    def answer(self) -> Answer:
        """See `Collector`."""
        return Answer(self._objects, self._events, self._distances_m)


class TermsCollector:
    """The k most frequent terms."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._counts = NO_TERM_COUNTS

    def add(self, parts: list[Part]) -> None:
        """See `Collector`."""
        self._counts = add_counts([self._counts, *(part.terms for part in parts)])
        kept = self._counts.terms.nbytes + 16 * len(self._counts)
        if kept > KEPT_BYTES_MAX:
            raise InvalidArgument(
                f"{len(self._counts)} terms have to be counted, more than fit into "
                f"{KEPT_BYTES_MAX >> 20} MiB; ask for less of the world",
                field="region",
            )

    def bound_m(self) -> float | None:
        """Counts have no distance."""
        return None

    def answer(self) -> Answer:
        """See `Collector`."""
        return Answer(terms=top_counts(self._counts, self._k))


class RankedCollector:
    """The k best objects by text, distance and age: scored when everything is known."""

    def __init__(self, query: RankedQuery, now_ms: int) -> None:
        self._query = query
        self._now_ms = now_ms
        self._found: list[Candidates] = []
        self._kept_bytes = 0

    def add(self, parts: list[Part]) -> None:
        """See `Collector`."""
        for part in parts:
            ranking = part.ranking
            if ranking is None:
                continue
            self._kept_bytes += part.objects.bytes_total
            if self._kept_bytes > KEPT_BYTES_MAX:
                raise InvalidArgument(
                    f"what may be among the {self._query.k} best has more than "
                    f"{KEPT_BYTES_MAX >> 20} MiB; ask for fewer",
                    field="k",
                )
            self._found.append(
                Candidates(
                    ranking.objects,
                    ranking.tokens,
                    ranking.holders,
                    part.objects,
                    part.events,
                    ranking.lengths,
                    part.distances_m,
                    ranking.frequencies,
                )
            )

    def bound_m(self) -> float | None:
        """The radius is the query's own."""
        return None

    def answer(self) -> Answer:
        """See `Collector`."""
        if not self._found:
            return NO_ANSWER
        found = joined(self._found)
        rows, scores = best(self._query, self._now_ms, found)
        return Answer(found.objects.take(rows), found.events.take(rows), scores)


def add_counts(parts: list[TermCounts]) -> TermCounts:
    """Adds up counts of terms; each part names a term at most once."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else NO_TERM_COUNTS
    terms = np.concatenate([part.terms for part in parts])
    shifts = np.cumsum([0, *(len(part.terms) for part in parts[:-1])])
    begins = [part.offsets[1:] + shift for part, shift in zip(parts, shifts, strict=True)]
    offsets = np.concatenate([np.zeros(1, np.int64), *begins])
    counts = np.concatenate([part.counts for part in parts])
    # Terms are their hashes everywhere inside.
    _, firsts, rows = np.unique(hash_rows(terms, offsets), return_index=True, return_inverse=True)
    sums = np.zeros(len(firsts), np.uint64)
    np.add.at(sums, rows, counts)
    kept, kept_offsets = take_bytes(terms, offsets, firsts)
    return TermCounts(kept, kept_offsets, sums)


def top_counts(counts: TermCounts, k: int) -> TermCounts:
    """The k most frequent terms, ties by code point, in that order."""
    rows = np.arange(len(counts))
    if len(counts) > k:
        least = np.partition(counts.counts, len(counts) - k)[len(counts) - k]
        rows = np.flatnonzero(counts.counts >= least)
    # The order of UTF-8 is that of code points.
    texts = {row: _bytes_of(counts, row) for row in rows.tolist()}
    numbers = dict(zip(texts, counts.counts[rows].tolist(), strict=True))
    order = nsmallest(k, texts, key=lambda row: (-numbers[row], texts[row]))
    chosen = np.array(order, np.int64)
    terms, offsets = take_bytes(counts.terms, counts.offsets, chosen)
    return TermCounts(terms, offsets, counts.counts[chosen])


def _bytes_of(counts: TermCounts, row: int) -> bytes:
    begin, end = counts.offsets[row : row + 2].tolist()
    return counts.terms[begin:end].tobytes()


def check_kept(objects: ObjectColumns) -> None:
    """Refuses a list whose objects are too large to be kept.

    Raises:
        InvalidArgument: they are.
    """
    if objects.bytes_total > KEPT_BYTES_MAX:
        raise InvalidArgument(
            f"{len(objects)} objects have more than {KEPT_BYTES_MAX >> 20} MiB; ask for fewer",
            field="k",
        )
