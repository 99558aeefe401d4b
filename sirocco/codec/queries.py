"""The public proto `Query` ⇄ a query of the model and its subscriber.

Reading goes through the JSON members of `parse_query`, so that a query is checked in one place and
means the same in every form. Nearly all queries, a valid rectangle and some words, are read without
that detour.
"""

from __future__ import annotations

from typing import Any

import orjson
from sirocco_api.v1 import query_pb2 as pb

from sirocco.model.errors import InvalidArgument
from sirocco.model.expression import Conjunction, Expression, plain_terms
from sirocco.model.geometry import Circle, Polygon, Rectangle, Region, plain_rectangle
from sirocco.model.json_text import load_json
from sirocco.model.limits import DEFAULT_LIMITS, Limits
from sirocco.model.members import read_string
from sirocco.model.query import (
    KnnQuery,
    Mode,
    Query,
    RangeQuery,
    RankedQuery,
    TermsQuery,
    parse_query,
)
from sirocco.model.text import keywords_for

_MODES: dict[Mode, pb.QueryMode] = {
    "continuous": pb.QUERY_MODE_CONTINUOUS,
    "snapshot": pb.QUERY_MODE_SNAPSHOT,
}
_MODE_NAMES: dict[int, Mode] = {number: name for name, number in _MODES.items()}


def put_query(message: pb.Query, query: Query, subscriber: str) -> None:
    """Fills `message`."""
    message.id = query.id
    message.subscriber = subscriber
    message.mode = _MODES[query.mode]
    if isinstance(query, RangeQuery):
        _put_range(message.range, query)
    elif isinstance(query, KnnQuery):
        _put_knn(message.knn, query)
    elif isinstance(query, TermsQuery):
        _put_terms(message.terms, query)
    else:
        _put_ranked(message.ranked, query)
    if not isinstance(query, RankedQuery) and query.expression is not None:
        message.fold = query.expression.fold
    if query.where is not None:
        message.where = orjson.dumps(query.where.canonical()).decode()
    if query.ttl_ms is not None:
        message.ttl_ms = query.ttl_ms
    if query.window_ms is not None:
        message.window_ms = query.window_ms


def _put_range(kind: pb.RangeKind, query: RangeQuery) -> None:
    # Also sets the kind of a query without conditions.
    kind.SetInParent()
    if query.region is not None:
        _put_region(kind.region, query.region)
    if query.expression is not None:
        kind.text = query.expression.source
    if query.track is not None:
        kind.track = query.track
    if query.events:
        kind.events.extend(query.events)
    kind.highlight = query.highlight
    if query.dwell_ms is not None:
        kind.dwell_ms = query.dwell_ms
    if query.leave_after_ms is not None:
        kind.leave_after_ms = query.leave_after_ms


def _put_knn(kind: pb.KnnKind, query: KnnQuery) -> None:
    kind.lon, kind.lat, kind.k = query.lon, query.lat, query.k
    kind.events.extend(query.events)
    kind.highlight = query.highlight
    if query.expression is not None:
        kind.text = query.expression.source


def _put_terms(kind: pb.TermsKind, query: TermsQuery) -> None:
    kind.k = query.k
    kind.events.extend(query.events)
    if query.region is not None:
        _put_region(kind.region, query.region)
    if query.expression is not None:
        kind.text = query.expression.source
    if query.step_ms is not None:
        kind.step_ms = query.step_ms


def _put_ranked(kind: pb.RankedKind, query: RankedQuery) -> None:
    kind.lon, kind.lat, kind.radius_m, kind.k = query.lon, query.lat, query.radius_m, query.k
    kind.keywords.extend(keywords_for(query.keywords))
    kind.events.extend(query.events)
    kind.highlight = query.highlight
    weights = query.weights
    kind.weights.text, kind.weights.space, kind.weights.time = (
        weights.text,
        weights.space,
        weights.time,
    )
    kind.half_life_ms = query.half_life_ms
    if query.step_ms is not None:
        kind.step_ms = query.step_ms


def write_query(query: Query, subscriber: str) -> pb.Query:
    """Returns the message of a query."""
    message = pb.Query()
    put_query(message, query, subscriber)
    return message


# Queries of at most this size are read in the loop; a thread switch would cost more.
LIGHT_BYTES_MAX = 1_024


def is_light(message: pb.Query) -> bool:
    """Whether a query is read in a millisecond or two, whatever it holds."""
    if message.ByteSize() > LIGHT_BYTES_MAX:
        return False
    name = message.WhichOneof("kind")
    text = "" if name in (None, "ranked") else getattr(message, name).text
    # Alternatives are only multiplied within parentheses or negated ones.
    opened = text.count("(")
    return not opened or (opened == 1 and "NOT" not in text)


def read_query(message: pb.Query, limits: Limits = DEFAULT_LIMITS) -> tuple[Query, str]:
    """Returns the query of a message, and its subscriber.

    Raises:
        InvalidArgument: As `parse_query`; the field is, for example, `region.circle.radius_m`,
            `ttl` or `where.size.gte`, relative to the query.
    """
    if message.WhichOneof("kind") is None:
        raise InvalidArgument("is missing", field="kind")
    if message.mode not in _MODE_NAMES:
        raise InvalidArgument("is missing or unknown", field="mode")
    query = _plain_range(message, limits) or parse_query(_members(message), limits=limits)
    # Notifications of a standing query need a subscriber; a snapshot is answered to its caller.
    is_optional = query.mode == "snapshot"
    subscriber = read_string(
        message.subscriber, "subscriber", bytes_max=limits.id_bytes, empty=is_optional
    )
    return query, subscriber


def _plain_range(message: pb.Query, limits: Limits) -> RangeQuery | None:
    """Returns the query of a rectangle and plain words; None for all others.

    The result is that of `parse_query`, in half the time.
    """
    if not message.HasField("range") or message.where or message.fold:
        return None
    if len(message.id) * 4 > limits.id_bytes:
        return None
    kind = message.range
    if kind.track or kind.events or kind.highlight:
        return None
    if kind.HasField("dwell_ms") or kind.HasField("leave_after_ms"):
        return None
    if message.HasField("ttl_ms") or message.HasField("window_ms"):
        return None
    region = kind.region
    terms = plain_terms(kind.text, limits)
    if terms is None or not message.id or not region.HasField("rect"):
        return None
    rect = region.rect
    rectangle = plain_rectangle(rect.west, rect.south, rect.east, rect.north)
    if rectangle is None:
        return None
    expression = Expression(kind.text, (Conjunction(terms),))
    return RangeQuery(
        id=message.id, mode=_MODE_NAMES[message.mode], region=rectangle, expression=expression
    )


def _members(message: pb.Query) -> dict[str, Any]:
    name = message.WhichOneof("kind")
    members: dict[str, Any] = {"id": message.id, "kind": name, "mode": _MODE_NAMES[message.mode]}
    if name == "range":
        _add_range(members, message.range)
    elif name == "knn":
        _add_knn(members, message.knn)
    elif name == "terms":
        _add_terms(members, message.terms)
    else:
        _add_ranked(members, message.ranked)
    if name is not None and (events := getattr(message, name).events):
        members["events"] = list(events)
    if message.fold:
        members["fold"] = True
    if where := message.where:
        members["where"] = load_json(where, "where")
    if message.HasField("ttl_ms"):
        members["ttl"] = _duration(message.ttl_ms, "ttl")
    if message.HasField("window_ms"):
        members["window"] = _duration(message.window_ms, "window")
    return members


def _add_range(members: dict[str, Any], kind: pb.RangeKind) -> None:
    if kind.HasField("region"):
        members["region"] = _region_members(kind.region)
    if text := kind.text:
        members["text"] = text
    if track := kind.track:
        members["track"] = track
    if kind.highlight:
        members["highlight"] = True
    for name in ("dwell", "leave_after"):
        if kind.HasField(f"{name}_ms"):
            members[name] = _duration(getattr(kind, f"{name}_ms"), name)


def _add_knn(members: dict[str, Any], kind: pb.KnnKind) -> None:
    members |= {"point": {"lon": kind.lon, "lat": kind.lat}, "k": kind.k}
    if text := kind.text:
        members["text"] = text
    if kind.highlight:
        members["highlight"] = True


def _add_terms(members: dict[str, Any], kind: pb.TermsKind) -> None:
    members["k"] = kind.k
    if kind.HasField("region"):
        members["region"] = _region_members(kind.region)
    if text := kind.text:
        members["text"] = text
    if kind.HasField("step_ms"):
        members["step"] = _duration(kind.step_ms, "step")


def _add_ranked(members: dict[str, Any], kind: pb.RankedKind) -> None:
    members |= {
        "point": {"lon": kind.lon, "lat": kind.lat},
        "radius_m": kind.radius_m,
        "k": kind.k,
        "keywords": list(kind.keywords),
    }
    if kind.highlight:
        members["highlight"] = True
    if kind.HasField("weights"):
        weights = kind.weights
        members["weights"] = {"text": weights.text, "space": weights.space, "time": weights.time}
    if kind.HasField("half_life_ms"):
        members["half_life"] = _duration(kind.half_life_ms, "half_life")
    if kind.HasField("step_ms"):
        members["step"] = _duration(kind.step_ms, "step")


def _duration(duration_ms: int, field: str) -> str:
    if duration_ms < 0:
        raise InvalidArgument(f"{duration_ms} ms is negative", field=field)
    return f"{duration_ms}ms"


def _put_region(message: pb.Region, region: Region) -> None:
    match region:
        case Rectangle(west, south, east, north):
            rect = message.rect
            rect.west, rect.south, rect.east, rect.north = west, south, east, north
            # Also sets the shape if all values are zero.
            rect.SetInParent()
        case Circle(lon, lat, radius_m):
            circle = message.circle
            circle.lon, circle.lat, circle.radius_m = lon, lat, radius_m
            circle.SetInParent()
        case Polygon(rings):
            for ring in rings:
                message.polygon.rings.add().coordinates.extend(x for vertex in ring for x in vertex)


def _region_members(message: pb.Region) -> dict[str, Any]:
    shape = message.WhichOneof("shape")
    if shape == "rect":
        rect = message.rect
        sides = {"west": rect.west, "south": rect.south, "east": rect.east, "north": rect.north}
        return {"rect": sides}
    if shape == "circle":
        circle = message.circle
        return {"circle": {"lon": circle.lon, "lat": circle.lat, "radius_m": circle.radius_m}}
    if shape == "polygon":
        return {"polygon": [_vertices(r, ring) for r, ring in enumerate(message.polygon.rings)]}
    return {}


def _vertices(number: int, ring: pb.Ring) -> list[list[float]]:
    flat = list(ring.coordinates)
    if len(flat) % 2:
        raise InvalidArgument(
            "has a longitude without a latitude", field=f"region.polygon[{number}]"
        )
    return [flat[i : i + 2] for i in range(0, len(flat), 2)]
