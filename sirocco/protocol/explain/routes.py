"""Finds where a query is placed and where an object is sent by a map, as routers decide it.

A client can know this without asking the services: routing is a pure function of the map in force.
Two things are decided elsewhere and stay open here: which of several equally good children an
object is sent to (by its event key), and which keyword a slot takes for its own index (by how often
it has seen each).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.kinds import KIND_KNN, KIND_TRACKED, kind_number
from sirocco.index.routing.keyword_slots import ANY_TERM
from sirocco.model.attributes import members_of
from sirocco.model.expression import Conjunction
from sirocco.model.geometry import Circle
from sirocco.model.objects import ObjectColumnsBuilder, ObjectRow
from sirocco.model.query import KnnQuery, Query, RangeQuery, RankedQuery, query_handle
from sirocco.model.text import term_hash, tokens_of_batch
from sirocco.protocol.contract.columns import EventColumns, event_keys
from sirocco.protocol.contract.messages import NO_REVISION, Change
from sirocco.protocol.contract.track_values import hash_of, track_value
from sirocco.protocol.router.queries.install_records import routed_queries
from sirocco.protocol.router.queries.keyword_summary import keys_of_queries
from sirocco.protocol.router.queries.report_locators import Locators, alternatives_of, keys_of
from sirocco.protocol.search.leftovers import Former
from sirocco.protocol.search.plan import plan_search
from sirocco.schemes.map.routing import RoutingArrays

# Event keys that are tried where a key decides: each of the sixteen children of a keyword node is
# then missed once in ten million times.
_EVENTS = 256


@dataclass(frozen=True, slots=True)
class QueryPlaces:
    """Where a query is placed, or where a snapshot is searched.

    Attributes:
        leaves: Ids, ascending.
        slots: Ascending.
        why: The reason, if not the region alone; else empty.
        keywords: For each conjunction the term that leads to it, None where that is not known.
        forwarded: A slot of the query is sent all objects that hold one of these terms, where
            routers hold back what no query needs; None: it needs every object of its slots.
    """

    leaves: tuple[int, ...]
    slots: tuple[int, ...]
    why: str
    keywords: tuple[str | None, ...]
    forwarded: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class ObjectPlaces:
    """Where an object is sent.

    Attributes:
        leaves, slots: Where it is sent whatever its event key, ascending.
        other_leaves, other_slots: It is sent to some of these too, by its event key.
        meets: Whether one of its slots has the query; None: that depends on its event key.
    """

    leaves: tuple[int, ...]
    slots: tuple[int, ...]
    other_leaves: tuple[int, ...]
    other_slots: tuple[int, ...]
    meets: bool | None


def conjunctions_of(query: Query) -> tuple[Conjunction, ...]:
    """Returns the alternatives of a query's text; none where any text will do."""
    if isinstance(query, RankedQuery) or query.expression is None:
        return ()
    return query.expression.conjunctions


def query_places(query: Query, routing: RoutingArrays, *, has_changed: bool = False) -> QueryPlaces:
    """Finds where a query is placed.

    A query that was registered under another map, or whose text has changed since, keeps its former
    keywords: on maps that split the vocabulary it may also be placed elsewhere.

    Args:
        query: Of either mode.
        routing: The map in force.
        has_changed: Whether another map was in force before.
    """
    change = Change(
        handle=query_handle(query.id),
        query=query,
        subscriber="",
        start_ms=0,
        expected_revision=NO_REVISION,
        digest=0,
    )
    change = replace(change, locator=Locators().choose(change, routing))
    rows, (slots,) = routed_queries([change], routing)
    keywords = _keywords(query, change, routing)
    (forwarded,) = keys_of_queries([change], rows, routing)
    names = {term_hash(term): term for one in conjunctions_of(query) for term in one.positive}
    kept = None if ANY_TERM in forwarded else tuple(sorted(names[key] for key in forwarded))
    if query.mode == "snapshot":
        plan = plan_search(routing, query, Former(is_everywhere=True) if has_changed else None)
        boxes = rows.boxes
        if isinstance(query, KnnQuery):
            boxes = Circle(query.lon, query.lat, 0.0).boxes()
        leaves = _leaves(routing, boxes, None)
        why = _search_reason(query, routing, has_changed=has_changed)
        return QueryPlaces(leaves, plan.first, why, keywords, None)
    kind = kind_number(query)
    if kind in {KIND_KNN, KIND_TRACKED}:
        why = (
            "the nearest may lie anywhere"
            if kind == KIND_KNN
            else "objects are sent to it by the value of the tracked attribute, wherever they are"
        )
        return QueryPlaces(_all_leaves(routing), slots, why, keywords, kept)
    keys = keys_of(change) if routing.is_by_keyword else None
    why = "by its keywords: the map splits the vocabulary" if keys else ""
    return QueryPlaces(_leaves(routing, rows.boxes, keys), slots, why, keywords, kept)


def _search_reason(query: Query, routing: RoutingArrays, *, has_changed: bool) -> str:
    if isinstance(query, KnnQuery):
        return "first those at its point, then others as far as the nearest objects found require"
    if has_changed and routing.slots > 1:
        return "all at first; later those that this or a former map gave objects of the region"
    return ""


def _all_leaves(routing: RoutingArrays) -> tuple[int, ...]:
    return tuple(sorted(routing.leaf_ids.tolist()))


def _leaves(
    routing: RoutingArrays, boxes: NDArray[np.float64], keys: Sequence[int] | None
) -> tuple[int, ...]:
    keywords: tuple[NDArray[np.int64], NDArray[np.uint64]] | tuple[()] = ()
    if keys is not None:
        keywords = np.array([0, len(keys)], np.int64), np.array(keys, np.uint64)
    routes = routing.route_boxes(boxes, np.array([0, len(boxes)], np.int64), *keywords)
    return tuple(sorted(routes.leaves.tolist()))


def _keywords(query: Query, change: Change, routing: RoutingArrays) -> tuple[str | None, ...]:
    """Returns the keyword of each conjunction, as far as it is known outside the slots."""
    if not isinstance(query, RangeQuery):
        return tuple(None for _ in conjunctions_of(query))
    chosen: dict[tuple[int, ...], int] = {}
    if routing.is_by_keyword and query.mode == "continuous":
        chosen = {one.positive: one.key for one in alternatives_of(change)}
    found: list[str | None] = []
    for one in conjunctions_of(query):
        hashes = tuple(map(term_hash, one.positive))
        names = dict(zip(hashes, one.positive, strict=True))
        if len(hashes) == 1:
            found.append(one.positive[0])
        elif hashes in chosen:
            found.append(names[chosen[hashes]])
        elif len(routing.frequent_terms):
            keys = routing.choose_keys(np.array([0, len(hashes)]), np.array(hashes, np.uint64))
            found.append(names[int(keys[0])])
        else:
            found.append(None)
    return tuple(found)


def object_places(
    one: ObjectRow, query: Query, places: QueryPlaces, routing: RoutingArrays
) -> ObjectPlaces:
    """Finds where an object is sent, and whether the query is there.

    Args:
        one: A valid object.
        query: The explained query.
        places: Where the query is placed.
        routing: The map in force.
    """
    if isinstance(query, RangeQuery) and query.track is not None:
        value = track_value(members_of(one.attributes).get(query.track))
        if value is not None:
            slot = hash_of(query.track, value) % routing.slots
            return ObjectPlaces((), (slot,), (), (), slot in places.slots)
    leaves, slots = _routes(one, routing)
    sure_leaves, sure_slots = frozenset.intersection(*leaves), frozenset.intersection(*slots)
    outcomes = {not each.isdisjoint(places.slots) for each in slots}
    return ObjectPlaces(
        tuple(sorted(sure_leaves)),
        tuple(sorted(sure_slots)),
        tuple(sorted(frozenset.union(*leaves) - sure_leaves)),
        tuple(sorted(frozenset.union(*slots) - sure_slots)),
        outcomes.pop() if len(outcomes) == 1 else None,
    )


def _routes(
    one: ObjectRow, routing: RoutingArrays
) -> tuple[list[frozenset[int]], list[frozenset[int]]]:
    """Returns the leaves and the slots of the object, for each of some event keys."""
    is_plain = not len(routing.text_ints) and not routing.is_by_keyword
    count = 1 if is_plain else _EVENTS
    builder = ObjectColumnsBuilder()
    for _ in range(count):
        builder.add(one)
    objects = builder.build()
    numbers = np.arange(1, count + 1, dtype=np.uint64)
    events = EventColumns(np.ones(count, np.uint64), numbers, np.zeros(count, np.int64))
    terms = tokens_of_batch(objects.text, objects.text_offsets)
    routes = routing.route_objects(
        objects.lon, objects.lat, terms.offsets, terms.terms, event_keys(events)
    )
    bounds = np.searchsorted(routes.row, np.arange(count + 1)).tolist()
    parts = list(pairwise(bounds))
    return (
        [frozenset(routes.leaf[begin:end].tolist()) for begin, end in parts],
        [frozenset(routes.slot[begin:end].tolist()) for begin, end in parts],
    )
