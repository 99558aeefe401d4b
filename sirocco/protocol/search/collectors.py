"""Adds up the answers of slots to the answer of a search.

Orders and ties are those of the public contract. Distances are compared as rounded to 1 mm, scores
as rounded to 1e-9, then ids as unsigned numbers, then the objects' event keys; counts descending,
then terms by code point.
"""

from __future__ import annotations

from heapq import nsmallest
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.term_sums import add_counts
from sirocco.model.errors import InvalidArgument
from sirocco.model.objects import ObjectColumns, concat, pack_bytes
from sirocco.model.query import KnnQuery, Query, RangeQuery, RankedQuery, TermsQuery
from sirocco.protocol.contract.columns import NO_EVENTS, EventColumns
from sirocco.protocol.contract.messages import NO_OBJECTS
from sirocco.protocol.search.limits import LIMITS
from sirocco.protocol.search.messages import NO_ANSWER, AnswerRows, Part
from sirocco.protocol.search.ranked_merge import Candidates, best, joined
from sirocco.protocol.search.term_merge import TermCounts


class Collector(Protocol):
    """Adds up the answers of slots."""

    def add(self, parts: list[Part]) -> None:
        """Takes all parts of the answer to one question.

        Raises:
            InvalidArgument: more would have to be kept than is allowed.
        """

    def clear(self) -> None:
        """Forgets all answers: others will replace them."""

    def bound_m(self) -> float | None:
        """Returns a bound on the distance of answers from the query's point; None if not known."""

    def answer(self) -> AnswerRows:
        """Returns what was found so far, in order."""


def collector_of(
    query: Query, now_ms: int, kept_bytes_max: int = LIMITS.kept_bytes_max
) -> Collector | None:
    """Returns the collector for a query; None when parts need no adding up.

    Args:
        query: of mode snapshot.
        now_ms: the moment that is asked about.
        kept_bytes_max: see `SearchLimits`.
    """
    match query:
        case RangeQuery():
            return None
        case KnnQuery():
            return NearestCollector(query.k, kept_bytes_max)
        case TermsQuery():
            return TermsCollector(query.k, kept_bytes_max)
        case RankedQuery():
            return RankedCollector(query, now_ms, kept_bytes_max)


class NearestCollector:
    """The k nearest objects."""

    def __init__(self, k: int, kept_bytes_max: int = LIMITS.kept_bytes_max) -> None:
        self._k = k
        self._kept_bytes_max = kept_bytes_max
        self.clear()

    def clear(self) -> None:
        """See `Collector`."""
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
            check_kept(self._objects, self._kept_bytes_max)
            return
        objects = concat([self._objects, *(part.objects for part in parts)])
        events = EventColumns.concat([self._events, *(part.events for part in parts)])
        distances_m = np.concatenate([self._distances_m, *(part.distances_m for part in parts)])
        order = np.lexsort((events.numbers, events.sessions, objects.ids, distances_m))
        order = order[_firsts(events, order)][: self._k]
        self._objects, self._events = objects.take(order), events.take(order)
        check_kept(self._objects, self._kept_bytes_max)
        self._distances_m = distances_m[order]

    def bound_m(self) -> float | None:
        """Returns the k-th distance, once there are k."""
        return float(self._distances_m[-1]) if len(self._distances_m) == self._k else None

    def answer(self) -> AnswerRows:
        """See `Collector`."""
        return AnswerRows(self._objects, self._events, self._distances_m)


class TermsCollector:
    """The k most frequent terms."""

    def __init__(self, k: int, kept_bytes_max: int = LIMITS.kept_bytes_max) -> None:
        self._k = k
        self._kept_bytes_max = kept_bytes_max
        self.clear()

    def clear(self) -> None:
        """See `Collector`."""
        self._hashes = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.uint64)
        self._texts: dict[int, bytes] = {}

    def add(self, parts: list[Part], among: NDArray[np.uint64] | None = None) -> None:
        """See `Collector`.

        Args:
            parts: of the answer to one question.
            among: u8[c], the only terms that are counted; None for all.
        """
        sums = [part.terms for part in parts]
        counts = [(one.hashes, one.counts) for one in sums]
        if among is not None:
            kept = [np.isin(hashes, among) for hashes, _ in counts]
            counts = [
                (each[0][keep], each[1][keep]) for each, keep in zip(counts, kept, strict=True)
            ]
        self._hashes, self._counts = add_counts([(self._hashes, self._counts), *counts])
        for one in sums:
            data, bounds = one.texts.tobytes(), one.text_offsets.tolist()
            texts = [data[begin:end] for begin, end in pairwise(bounds)]
            self._texts |= zip(one.hashes[: len(texts)].tolist(), texts, strict=True)
        if 16 * len(self._hashes) > self._kept_bytes_max:
            raise InvalidArgument(
                f"{len(self._hashes)} terms have to be counted, more than fit into "
                f"{self._kept_bytes_max >> 20} MiB; ask for less of the world",
                field="region",
            )

    def bound_m(self) -> float | None:
        """Returns None: counts have no distance."""
        return None

    def answer(self) -> AnswerRows:
        """See `Collector`."""
        rows = at_least_kth(self._counts, self._k)
        # Every term that could be among the first arrived with its text. If answers are missing,
        # others may be among them too, but cannot be named.
        named = [
            (count, self._texts[term])
            for term, count in zip(
                self._hashes[rows].tolist(), self._counts[rows].tolist(), strict=True
            )
            if term in self._texts
        ]
        # The order of UTF-8 is that of code points.
        best = nsmallest(self._k, named, key=lambda pair: (-pair[0], pair[1]))
        texts, offsets = pack_bytes([text for _, text in best])
        return AnswerRows(
            terms=TermCounts(texts, offsets, np.array([count for count, _ in best], np.uint64))
        )


def at_least_kth(counts: NDArray[np.uint64], k: int, answers: int = 1) -> NDArray[np.int64]:
    """Returns the rows of terms that can be among the k most frequent, all ties included.

    Args:
        counts: u8[t].
        k: at least 1.
        answers: how many such counts are added up: a term among the first of the sum has at least
            that share of the k-th count in one of them.
    """
    if len(counts) <= k:
        return np.arange(len(counts))
    kth = int(np.partition(counts, len(counts) - k)[len(counts) - k])
    return np.flatnonzero(counts >= -(-kth // answers))


class RankedCollector:
    """The k best objects by text, distance and age; scored when all parts are there."""

    def __init__(
        self, query: RankedQuery, now_ms: int, kept_bytes_max: int = LIMITS.kept_bytes_max
    ) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._query = query
        self._now_ms = now_ms
        self.clear()

    def clear(self) -> None:
        """See `Collector`."""
        self._found: list[Candidates] = []
        self._kept_bytes = 0

    def add(self, parts: list[Part]) -> None:
        """See `Collector`."""
        for part in parts:
            ranking = part.ranking
            if ranking is None:
                continue
            self._kept_bytes += part.objects.bytes_total
            if self._kept_bytes > self._kept_bytes_max:
                raise InvalidArgument(
                    f"what may be among the {self._query.k} best has more than "
                    f"{self._kept_bytes_max >> 20} MiB; ask for fewer",
                    field="k",
                )
            self._found.append(
                Candidates(
                    # Parts of one slot are from different slices: each has totals of its own.
                    slot=len(self._found),
                    total=ranking.objects,
                    tokens=ranking.tokens,
                    holders=ranking.holders,
                    objects=part.objects,
                    events=part.events,
                    lengths=ranking.lengths,
                    distances_m=part.distances_m,
                    frequencies=ranking.frequencies,
                )
            )

    def bound_m(self) -> float | None:
        """Returns None: the radius is the query's own."""
        return None

    def answer(self) -> AnswerRows:
        """See `Collector`."""
        if not self._found:
            return NO_ANSWER
        found = joined(self._found)
        rows, scores = best(self._query, self._now_ms, found)
        return AnswerRows(found.objects.take(rows), found.events.take(rows), scores)


def _firsts(events: EventColumns, order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """bool[n], which of the ordered objects do not repeat the one before."""
    sessions, numbers = events.sessions[order], events.numbers[order]
    keep = np.ones(len(order), np.bool_)
    keep[1:] = (sessions[1:] != sessions[:-1]) | (numbers[1:] != numbers[:-1])
    return keep


def check_kept(objects: ObjectColumns, kept_bytes_max: int) -> None:
    """Refuses a list whose objects are too large to be kept.

    Raises:
        InvalidArgument: they are.
    """
    if objects.bytes_total > kept_bytes_max:
        raise InvalidArgument(
            f"{len(objects)} objects have more than {kept_bytes_max >> 20} MiB; ask for fewer",
            field="k",
        )
