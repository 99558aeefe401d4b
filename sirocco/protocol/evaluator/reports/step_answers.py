"""The results of steps of terms and ranked queries over a slot's stored objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sirocco.index.store.sliding_term_counts import NOTHING_FORGOTTEN, ForgottenSlices
from sirocco.index.store.store import ArrivalTimes, StoreView
from sirocco.index.store.store_condition import Bounds
from sirocco.index.store.term_names import TermNames
from sirocco.index.store.terms_search import (
    NO_COUNTS,
    TermCounts,
    count_terms,
    named_counts,
    top_terms,
)
from sirocco.index.store.window_term_counts import WindowTermCounts
from sirocco.protocol.contract.columns import NO_EVENTS
from sirocco.protocol.contract.messages import NO_OBJECTS
from sirocco.protocol.evaluator.limits import LIMITS
from sirocco.protocol.evaluator.reports.history_answers import events_of
from sirocco.protocol.evaluator.reports.step_records import RankedEntries, StepResult, TermEntries
from sirocco.protocol.evaluator.standing.step_schedule import StepQuery

if TYPE_CHECKING:
    from sirocco.index.store.ranked_search import RankedPart


# Reading a condition takes up to 25 ms, like a search over so many objects.
_READ_WORK = 1 << 14


@dataclass(frozen=True, slots=True)
class StepSearches:
    """Evaluates steps of terms and ranked queries over a view of a slot's store.

    Attributes:
        view: of the store.
        names: of terms.
        complete: reads the condition of a query if need be, see `StepIndex.complete`.
        forgotten: what left the store so far.
        gap_ms: see `EvaluatorLimits`.
    """

    view: StoreView
    names: TermNames
    complete: Callable[[StepQuery], bool]
    forgotten: ForgottenSlices = NOTHING_FORGOTTEN
    gap_ms: int = LIMITS.gap_ms

    def results(
        self, due: list[tuple[int, int, StepQuery]]
    ) -> Iterator[tuple[StepResult | None, int]]:
        """Evaluates steps, (row of all queries, at, query), one each time that it is asked.

        Yields the result of each, in order, None where there is nothing to report; and the work, as
        a number of objects that were looked at; 0 if no condition was read and no window searched.
        """
        newest_ms = self.view.newest_ms
        # The object that ends a gap is in the store already.
        has_gap = bool(due) and newest_ms - due[0][1] >= self.gap_ms
        times = ArrivalTimes(self.view) if has_gap else None
        for row, at_ms, entry in due:
            bounds, reporters = Bounds(entry.from_ms(at_ms), at_ms), entry.reporters(at_ms)
            # After a gap of days most steps count nothing: they need no search, and most no record.
            is_empty = bounds.arrival_from_ms > newest_ms or (
                times is not None and not times.may_hold(bounds.arrival_from_ms, at_ms)
            )
            is_reported = entry.is_home or reporters > 0
            if is_empty and not is_reported:
                yield None, 0
                continue
            work = _READ_WORK * self.complete(entry)
            terms: TermEntries | None = None
            ranked: RankedEntries | None = None
            if entry.is_ranked:
                ranked, is_search = self._ranked(entry, at_ms, bounds, is_empty)
                is_reported = is_reported or bool(ranked.totals[0])
            else:
                terms, is_search = self._terms(entry, bounds, is_empty)
                is_reported = is_reported or len(terms.counts) > 0
            result = None
            if is_reported:
                result = StepResult(
                    query_row=row, at_ms=at_ms, terms=terms, ranked=ranked, reporters=reporters
                )
            yield result, work + is_search * max(1, self.view.objects_total)

    def _ranked(
        self, entry: StepQuery, at_ms: int, bounds: Bounds, is_empty: bool
    ) -> tuple[RankedEntries, bool]:
        """Returns the part of a ranked step, and whether that took a search."""
        assert entry.ranked is not None
        if is_empty:
            return ranked_entries(entry.ranked.nothing), False
        return ranked_entries(entry.ranked.search(self.view, at_ms, bounds)), True

    def _terms(self, entry: StepQuery, bounds: Bounds, is_empty: bool) -> tuple[TermEntries, bool]:
        """Returns the terms of a step, and whether the window was searched for them."""
        k = entry.query.k if entry.is_sole else None
        if is_empty:
            return term_entries(NO_COUNTS, k, self.names), False
        assert entry.condition is not None
        if entry.kept is None:
            counts = count_terms(self.view, entry.condition, bounds, k=k)
            return term_entries(counts, k, self.names), True
        counts = entry.kept.count(self.view, entry.condition, bounds, self.forgotten)
        is_search = not entry.kept.is_slid
        if not isinstance(entry.kept, WindowTermCounts):
            return term_entries(counts, k, self.names), is_search
        texts = entry.kept.texts(counts, self.names)
        return TermEntries(*texts, counts.counts.astype(np.uint64)), is_search


def term_entries(counts: TermCounts, k: int | None, names: TermNames) -> TermEntries:
    """Returns the k most frequent terms, or all, as columns."""
    if k is None:
        pairs = list(zip(named_counts(counts, names), counts.counts.tolist(), strict=True))
    else:
        pairs = top_terms(counts, k, names)
    texts = [term.encode() for term, _ in pairs]
    offsets = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=offsets[1:])
    return TermEntries(
        np.frombuffer(b"".join(texts), np.uint8),
        offsets,
        np.array([count for _, count in pairs], np.uint64),
    )


def ranked_entries(part: RankedPart) -> RankedEntries:
    """Returns the part of a ranked search as columns."""
    stored = part.candidates
    return RankedEntries(
        totals=np.array([part.objects_total, part.tokens_total], np.uint64),
        holders=part.holders.astype(np.uint64),
        objects=NO_OBJECTS if stored is None else stored.objects,
        events=NO_EVENTS if stored is None else events_of(stored),
        token_counts=np.empty(0, np.uint32) if stored is None else stored.lengths.astype(np.uint32),
        distances_m=part.distances_m,
        frequencies=part.frequencies.reshape(-1),
    )
