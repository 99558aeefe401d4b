"""The answers of a slot's stored objects to new queries that ask for the past."""

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
from sirocco.index.store.store import StoreView
from sirocco.index.store.store_condition import Bounds, Condition
from sirocco.index.store.store_search import scan_range, search_knn
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.model.objects import ObjectColumns
from sirocco.model.term_hashing import WIRE_TERMS
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.evaluator.standing.hits import Hits
from sirocco.protocol.evaluator.standing.query_families import KNN, RANGE
from sirocco.protocol.evaluator.standing.standing_queries import StandingQueries

if TYPE_CHECKING:
    pass

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


def events_of(stored: StoredRows) -> EventColumns:
    """Returns the event keys of stored objects."""
    return EventColumns(stored.sessions, stored.numbers, stored.arrivals_ms)
