"""The report of `sirocco explain` as the members of one JSON object, without any calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sirocco_client import Balance, ClusterDescription

from sirocco.model.durations import format_duration
from sirocco.model.explanation import explain
from sirocco.model.geometry import Circle, Region
from sirocco.model.hints.warnings import warnings_of
from sirocco.model.objects import MISSING_TS, ObjectRow
from sirocco.model.query import (
    KnnQuery,
    Query,
    RangeQuery,
    RankedQuery,
    TermsQuery,
    canonical,
)
from sirocco.protocol.explain.routes import (
    QueryPlaces,
    conjunctions_of,
    object_places,
    query_places,
)
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.routing import RoutingArrays, compile_map

# Period of the count if the query has no window of its own.
RECENT_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class ExplainedQuery:
    """The explained query.

    Attributes:
        query: The query.
        subscriber: Its subscriber; empty if it is not registered.
        revision: Revision of a registered query, else None.
        start_ms: When its lifetime begins, None if it is not registered.
        is_start_given: Whether the registration named `start_ms`.
    """

    query: Query
    subscriber: str = ""
    revision: int | None = None
    start_ms: int | None = None
    is_start_given: bool = True


@dataclass(frozen=True, slots=True)
class Cluster:
    """Known state of the cluster.

    Attributes:
        described: Members and owners, and what a router sent to each leaf.
        map: The map in force; None if it is unknown.
        phase: Phase of a change of the map.
        balance: Loads; None if they are unknown.
        why: Why something is unknown.
    """

    described: ClusterDescription
    map: PartitionMap | None
    phase: str
    balance: Balance | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class RecentMatches:
    """Recent objects of the query.

    Attributes:
        window_ms: Length of the period.
        count: Number of objects that satisfied its conditions, None if unknown.
        is_more: Whether there were more.
        why: Why the number is unknown.
        has_store: Whether the cluster stores objects, None if unknown.
    """

    window_ms: int
    count: int | None = None
    is_more: bool = False
    why: str = ""
    has_store: bool | None = None


def report(
    explained: ExplainedQuery,
    cluster: Cluster,
    recent: RecentMatches,
    one: ObjectRow | None,
    *,
    now_ms: int,
    arrival_ms: int | None,
) -> dict[str, Any]:
    """Returns the complete report.

    Args:
        explained: The query.
        cluster: State of the cluster.
        recent: Its recent objects.
        one: An object to check, or None.
        now_ms: The time, epoch ms.
        arrival_ms: When the object arrives; None: now.
    """
    query = explained.query
    members: dict[str, Any] = {
        "query": canonical(query),
        "warnings": list(warnings_of(query)),
        "subscriber": explained.subscriber or None,
        "revision": explained.revision,
        "start_ms": explained.start_ms,
        "end_ms": _end_ms(explained),
    }
    routing = None if cluster.map is None else compile_map(cluster.map)
    places = None
    if routing is not None:
        has_changed = routing.version > 1 or cluster.phase != "none"
        places = query_places(query, routing, has_changed=has_changed)
    members["text"] = _text_members(query, places)
    members["region"] = _region_members(query)
    if places is None or cluster.map is None:
        members["places"] = {"unknown": cluster.why}
        members["load"] = {"unknown": cluster.why}
    else:
        members["places"] = _place_members(places, cluster.map, cluster)
        members["load"] = _load_members(places, cluster)
    members["cost"] = _cost_members(query, places, recent)
    members["matched"] = _match_members(recent)
    if one is not None:
        members["object"] = _object_members(
            explained,
            one,
            places,
            routing,
            now_ms=now_ms,
            arrival_ms=now_ms if arrival_ms is None else arrival_ms,
        )
    return members


def _object_members(
    explained: ExplainedQuery,
    one: ObjectRow,
    places: QueryPlaces | None,
    routing: RoutingArrays | None,
    *,
    now_ms: int,
    arrival_ms: int,
) -> dict[str, Any]:
    """Returns whether an object satisfies the query, why, and where both of them go."""
    query = explained.query
    begin_ms = now_ms if query.mode == "snapshot" else explained.start_ms
    verdict = explain(
        query,
        one,
        arrival_ms=arrival_ms,
        start_ms=begin_ms,
        is_start_given=explained.is_start_given,
    )
    found: dict[str, Any] = {
        "id": one.name or one.id,
        "lon": one.lon,
        "lat": one.lat,
        "ts": None if one.ts == MISSING_TS else one.ts,
        "arrival_ms": arrival_ms,
        "outcome": verdict.outcome,
        "holds": verdict.holds,
        "depends_on": verdict.depends_on or None,
        "conditions": [
            {"name": each.name, "holds": each.holds, "why": each.why, **each.details}
            for each in verdict.reasons
        ],
    }
    if places is not None and routing is not None:
        destinations = object_places(one, query, places, routing)
        found["goes_to"] = {
            "leaves": list(destinations.leaves),
            "slots": list(destinations.slots),
            "or_leaves": list(destinations.other_leaves),
            "or_slots": list(destinations.other_slots),
            "query_is_there": destinations.meets,
        }
    return found


def _end_ms(explained: ExplainedQuery) -> int | None:
    ttl_ms = explained.query.ttl_ms
    return None if explained.start_ms is None or ttl_ms is None else explained.start_ms + ttl_ms


# --- the query


def _text_members(query: Query, places: QueryPlaces | None) -> dict[str, Any]:
    if isinstance(query, RankedQuery):
        return {"keywords": list(query.keywords), "index": index_of(query)}
    alternatives = conjunctions_of(query)
    keywords = (None,) * len(alternatives) if places is None else places.keywords
    members: dict[str, Any] = {
        "conjunctions": [
            {"required": list(each.positive), "forbidden": list(each.negative), "keyword": keyword}
            for each, keyword in zip(alternatives, keywords, strict=True)
        ]
    }
    if not (isinstance(query, RangeQuery) and alternatives):
        members["index"] = index_of(query)
    return members


def index_of(query: Query) -> str:
    """Says which objects a slot checks for a query that no keyword finds."""
    match query:
        case KnnQuery():
            return "no keyword: every object nearer than the k-th is checked"
        case RankedQuery():
            return "no keyword: every object within its radius is checked"
        case RangeQuery() | TermsQuery():
            where = "every object" if query.region is None else "every object of its region"
            return f"no keyword: {where} is checked"


def _region_members(query: Query) -> dict[str, Any] | None:
    region = _region_of(query)
    if region is None:
        return None
    boxes = [
        dict(zip(("west", "south", "east", "north"), box, strict=True))
        for box in region.boxes().tolist()
    ]
    # A box without width is the other name of a meridian, not another side of the region.
    wide = [box for box in boxes if box["west"] < box["east"]]
    return {**region.canonical(), "boxes": boxes, "crosses_antimeridian": len(wide) > 1}


def _region_of(query: Query) -> Region | None:
    match query:
        case RankedQuery():
            return Circle(query.lon, query.lat, query.radius_m)
        case KnnQuery():
            return None
        case RangeQuery() | TermsQuery():
            return query.region


# --- the cluster


def _place_members(
    places: QueryPlaces, partition_map: PartitionMap, cluster: Cluster
) -> dict[str, Any]:
    owners = {
        each.partition: each.member
        for each in cluster.described.ownerships
        if each.topic == "slots"
    }
    return {
        "map_version": partition_map.version,
        "scheme": partition_map.scheme,
        "map_change": None if cluster.phase == "none" else cluster.phase,
        "leaves": list(places.leaves),
        "leaf_count": len(partition_map.leaves),
        "slots": [{"slot": slot, "owner": owners.get(slot)} for slot in places.slots],
        "slot_count": partition_map.slots,
        "why": places.why or None,
    }


def _load_members(places: QueryPlaces, cluster: Cluster) -> dict[str, Any]:
    leaves, slots = frozenset(places.leaves), frozenset(places.slots)
    sent = {leaf.id: leaf.objects for leaf in cluster.described.leaves}
    total = sum(sent.values())
    members: dict[str, Any] = {
        # Objects routed by the answering router since its start.
        "leaves_share": _share(sum(sent.get(leaf, 0) for leaf in leaves), total),
        "router_objects": total,
    }
    balance = cluster.balance
    if balance is None or not balance.is_on or not balance.at_ms:
        members["unknown"] = "loads are not balanced, or no round has ended yet"
        return members
    own = [each for each in balance.slots if each.slot in slots]
    total_per_s = sum(each.objects_per_s for each in balance.slots)
    own_per_s = sum(each.objects_per_s for each in own)
    members |= {
        "slots_objects_per_s": own_per_s,
        "slots_share": _share(own_per_s, total_per_s),
        "slots_load_share": sum(each.share for each in own),
        "round_ms": balance.round_ms,
    }
    reported_leaves = [each for each in balance.leaves if each.leaf in leaves]
    if len(reported_leaves) == len(leaves):
        members["leaves_objects_per_s"] = sum(each.objects_per_s for each in reported_leaves)
    return members


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _cost_members(
    query: Query, places: QueryPlaces | None, recent: RecentMatches
) -> dict[str, Any]:
    members: dict[str, Any] = {"has_store": recent.has_store}
    if places is None:
        return members
    if query.mode == "snapshot":
        return members | {"slots_asked": len(places.slots)}
    members |= {"leaf_copies": len(places.leaves), "slot_copies": len(places.slots)}
    # Routers only hold objects back if there is no store.
    forwarded = None if places.forwarded is None else list(places.forwarded)
    return members | {"keywords_forwarded": forwarded}


# --- its recent matches


def window_of(query: Query, requested_ms: int | None) -> int:
    """Returns the period of the count: as requested, the query's own window, or an hour."""
    own_ms = RECENT_MS if query.window_ms is None else query.window_ms
    return own_ms if requested_ms is None else requested_ms


def count_search(query: Query, window_ms: int) -> dict[str, Any]:
    """Returns the search for objects that satisfy a query's conditions."""
    form = canonical(query)
    members: dict[str, Any] = {"id": query.id, "kind": "range", "mode": "snapshot"}
    members |= {name: form[name] for name in ("text", "where") if name in form}
    region = _region_of(query)
    if region is not None:
        members |= {"region": region.canonical()}
    if isinstance(query, RankedQuery):
        members["text"] = f"ANY({' '.join(query.keywords)})"
    return members | {"window": format_duration(window_ms)}


def _match_members(recent: RecentMatches) -> dict[str, Any]:
    members: dict[str, Any] = {"window_ms": recent.window_ms, "count": recent.count}
    if recent.count is None:
        return members | {"unknown": recent.why}
    return members | {"is_more": recent.is_more}
