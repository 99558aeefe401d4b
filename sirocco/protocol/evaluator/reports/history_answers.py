"""The answers of a slot's stored objects: to queries that ask for the past, and at steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.kinds import KIND_KNN, KIND_RANGE
from sirocco.index.base.query_rows import NEVER_MS, QueryRows
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.range_index import RangeIndex
from sirocco.index.store.gathering import gather_rows
from sirocco.index.store.sliding_term_counts import NOTHING_FORGOTTEN, ForgottenSlices
from sirocco.index.store.store import ArrivalTimes, StoreView
from sirocco.index.store.store_condition import Bounds, Condition
from sirocco.index.store.store_search import scan_range, search_knn
from sirocco.index.store.term_names import TermNames
from sirocco.index.store.terms_search import (
    NO_COUNTS,
    TermCounts,
    count_terms,
    named_counts,
    top_terms,
)
from sirocco.index.store.window_term_counts import WindowTermCounts
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.model.objects import ObjectColumns
from sirocco.model.term_hashing import WIRE_TERMS
from sirocco.protocol.contract.columns import NO_EVENTS, EventColumns
from sirocco.protocol.contract.messages import NO_OBJECTS
from sirocco.protocol.evaluator.limits import LIMITS
from sirocco.protocol.evaluator.reports.step_records import RankedEntries, StepResult, TermEntries
from sirocco.protocol.evaluator.standing.hits import Hits
from sirocco.protocol.evaluator.standing.query_families import KNN, RANGE
from sirocco.protocol.evaluator.standing.standing_queries import StandingQueries
from sirocco.protocol.evaluator.standing.step_schedule import StepQuery

if TYPE_CHECKING:
    from sirocco.index.store.ranked_search import RankedPart

# Objects of one report of the past, gathered together.
_ROWS_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """A new query that asks for the past.

    Attributes:
        kind: of `index.base.kinds`.
        row: in its family.
        condition: region, text, filter.
        start_ms: begin of its lifetime.
        past_ms: how far back it asks from there.
        wire: the query by the hashes of the wire, where the words of its terms are not known: a
            range query sent by a router of an older version. Only this has its text.
    """

    kind: int
    row: int
    condition: Condition
    start_ms: int
    past_ms: int
    wire: QueryRows | None = None


@dataclass(frozen=True, slots=True)
class PastMatches:
    """Objects of the past with their hits."""

    objects: ObjectColumns
    events: EventColumns
    hits: Hits


def history_reports(
    standing: StandingQueries, view: StoreView, requests: Iterable[HistoryRequest]
) -> Iterator[PastMatches | None]:
    """Yields the past objects of new range and knn queries; None after each of the queries.

    Steps include the past themselves.
    """
    for one in requests:
        bounds = Bounds(arrival_from_ms=max(one.start_ms - one.past_ms, -(1 << 62)))
        if one.kind == KIND_RANGE:
            yield from _past_ranges(standing, view, one, bounds)
        elif one.kind == KIND_KNN:
            yield from _past_nearest(standing, view, one, bounds)
        yield None


def _past_ranges(
    standing: StandingQueries, view: StoreView, one: HistoryRequest, bounds: Bounds
) -> Iterator[PastMatches]:
    found = list(scan_range(view, one.condition, bounds))
    if not found:
        return
    sources = [each.source for each in found]
    numbers = np.repeat(np.arange(len(found)), [len(each) for each in found])
    rows = np.concatenate([each.rows for each in found])
    seqs = np.concatenate([each.seqs() for each in found])
    # In the order of the log, and split by it alone: a successor may have other slices, and
    # continues where its predecessor stopped.
    order = np.argsort(seqs)
    for begin in range(0, len(order), _ROWS_MAX):
        some = order[begin : begin + _ROWS_MAX]
        stored = gather_rows(sources, numbers[some], rows[some])
        if one.wire is not None:
            stored = stored.take(_met_by_wire(one.wire, stored))
        hits = Hits(
            standing.families[RANGE].table,
            np.arange(len(stored), dtype=np.int32),
            np.full(len(stored), one.row, np.int32),
        )
        yield PastMatches(stored.objects, events_of(stored), hits)


def _met_by_wire(query: QueryRows, stored: StoredRows) -> NDArray[np.int32]:
    """Returns the rows of objects that meet a query by the hashes of their words."""
    objects, index = stored.objects, RangeIndex()
    index.insert(replace(query, expires_ms=np.full(1, NEVER_MS)), 0)
    terms = WIRE_TERMS.tokens(objects.text, objects.text_offsets)
    columns = objects.lon, objects.lat, terms.offsets, terms.terms
    matches = index.match(*columns, stored.arrivals_ms, np.zeros(len(stored), np.int64))
    return sorted_distinct(matches.object_rows)


def _past_nearest(
    standing: StandingQueries, view: StoreView, one: HistoryRequest, bounds: Bounds
) -> Iterator[PastMatches]:
    lon, lat, k = standing.knn_point(one.row)
    nearest = search_knn(view, lon, lat, k, one.condition, bounds)
    stored = nearest.gather()
    if stored is None:
        return
    standing.knn.seed(one.row, nearest.ids, nearest.sessions, nearest.numbers, nearest.distances_m)
    count = len(stored)
    hits = Hits(
        standing.families[KNN].table,
        np.arange(count, dtype=np.int32),
        np.full(count, one.row, np.int32),
        None,
        nearest.distances_m,
    )
    yield PastMatches(stored.objects, events_of(stored), hits)


def step_results(
    view: StoreView,
    due: list[tuple[int, int, StepQuery]],
    names: TermNames,
    forgotten: ForgottenSlices = NOTHING_FORGOTTEN,
    gap_ms: int = LIMITS.gap_ms,
) -> Iterator[tuple[StepResult | None, bool]]:
    """Evaluates steps, (row of all queries, at, query), one each time that it is asked.

    Yields the result of each, in order, None where there is nothing to report; and whether that
    took a search.

    Args:
        view: of the store.
        due: the steps.
        names: of terms.
        forgotten: what left the store so far.
        gap_ms: see `EvaluatorLimits`.
    """
    newest_ms = view.newest_ms
    # The object that ends a gap is in the store already.
    times = ArrivalTimes(view) if due and newest_ms - due[0][1] >= gap_ms else None
    for row, at_ms, entry in due:
        bounds, reporters = Bounds(entry.from_ms(at_ms), at_ms), entry.reporters(at_ms)
        # After a gap of days most steps count nothing: they need no search, and most no record.
        is_empty = bounds.arrival_from_ms > newest_ms or (
            times is not None and not times.may_hold(bounds.arrival_from_ms, at_ms)
        )
        if is_empty and not (entry.is_home or reporters):
            yield None, False
            continue
        if entry.ranked is not None:
            part = entry.ranked.nothing if is_empty else entry.ranked.search(view, at_ms, bounds)
            if part.objects_total or entry.is_home or reporters:
                ranked = ranked_entries(part)
                result = StepResult(query_row=row, at_ms=at_ms, ranked=ranked, reporters=reporters)
                yield result, not is_empty
            else:
                yield None, not is_empty
            continue
        k = entry.query.k if entry.is_sole else None
        is_search = entry.kept is None and not is_empty
        if is_empty:
            counts = NO_COUNTS
        elif entry.kept is None:
            counts = count_terms(view, entry.condition, bounds, k=k)
        else:
            counts = entry.kept.count(view, entry.condition, bounds, forgotten)
        if len(counts) or entry.is_home or reporters:
            if isinstance(entry.kept, WindowTermCounts) and not is_empty:
                texts = entry.kept.texts(counts, names)
                terms = TermEntries(*texts, counts.counts.astype(np.uint64))
            else:
                terms = term_entries(counts, k, names)
            result = StepResult(query_row=row, at_ms=at_ms, terms=terms, reporters=reporters)
            yield result, is_search
        else:
            yield None, is_search


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


def events_of(stored: StoredRows) -> EventColumns:
    """Returns the event keys of stored objects."""
    return EventColumns(stored.sessions, stored.numbers, stored.arrivals_ms)
