"""Answers to kNN queries: the nearest objects of all slots here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain

from sirocco.codec.search import row_chunks
from sirocco.index.store.store import StoreView
from sirocco.index.store.store_search import search_knn_of
from sirocco.model.query import KnnQuery
from sirocco.protocol.evaluator.reports.history_answers import events_of
from sirocco.protocol.search.collectors import NearestCollector
from sirocco.protocol.search.messages import Part
from sirocco.services.evaluator.answers.slot_groups import grouped
from sirocco.services.evaluator.answers.slot_interface import SlotSearch, Wanted
from sirocco.services.evaluator.answers.slot_states import with_slot_states
from sirocco.services.evaluator.answers.turns import Turns


def nearest_parts(
    wanted: Wanted,
    slots: list[tuple[int, SlotSearch]],
    nearby: list[tuple[int, SlotSearch]],
    moved: list[int],
    turns: Turns,
    radius_m: float | None,
) -> Iterator[Part | None]:
    """Yields the k nearest objects, then the states of the slots.

    Args:
        wanted: a kNN query.
        slots: the slots that are here.
        nearby: others that are searched as well, because the answer may come from them.
        moved: slots that are not here.
        turns: gives the thread away at intervals.
        radius_m: no object of the answer is farther away; None while that is not known.
    """
    assert isinstance(wanted.query, KnnQuery)
    nearest = NearestCollector(wanted.query.k, wanted.limits.kept_bytes_max)
    asked, others = ([search for _, search in some] for some in (slots, nearby))

    def within_m() -> float | None:
        """Returns the radius found so far, which limits the other searches."""
        return _lesser(radius_m, nearest.bound_m())

    outside = _outside_memory(wanted, asked, within_m)
    for views in chain(_in_memory(wanted, [*asked, *others]), outside):
        found = _nearest_of(wanted, views, within_m())
        if found is not None:
            nearest.add([found])
        yield from turns.pause()
    best = nearest.answer()
    yield from with_slot_states(
        [number for number, _ in (*slots, *nearby)],
        moved,
        [
            Part(
                objects=best.objects.slice(begin, end),
                events=best.events.slice(begin, end),
                distances_m=best.values[begin:end],
            )
            for begin, end in row_chunks(best.objects)
        ],
    )


def _in_memory(wanted: Wanted, searches: list[SlotSearch]) -> Iterator[list[StoreView]]:
    """Yields the views to search for the nearest, one group at a time."""
    for group in grouped(wanted, searches):
        yield [search.view for search in group]


def _outside_memory(
    wanted: Wanted, searches: list[SlotSearch], within_m: Callable[[], float | None]
) -> Iterator[list[StoreView]]:
    for search in searches:
        # One slot at a time: the slices are loaded only for this.
        if (view_outside := search.outside(wanted, within_m())) is not None:
            yield [view_outside]


def _nearest_of(wanted: Wanted, views: list[StoreView], radius_m: float | None) -> Part | None:
    query = wanted.query
    assert isinstance(query, KnnQuery)
    found = search_knn_of(
        views,
        query.lon,
        query.lat,
        query.k,
        wanted.condition,
        wanted.bounds,
        math.inf if radius_m is None else radius_m,
    )
    rows = found.gather(terms=False)
    if rows is None:
        return None
    return Part(objects=rows.objects, events=events_of(rows), distances_m=found.distances_m)


def _lesser(one_m: float | None, other_m: float | None) -> float | None:
    known = [radius_m for radius_m in (one_m, other_m) if radius_m is not None]
    return min(known, default=None)
