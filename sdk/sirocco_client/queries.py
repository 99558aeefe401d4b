"""Queries as typed values, and their two other forms: the message and the public JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, TypeAlias

from sirocco_api.v1 import query_pb2 as pb
from sirocco_api.v1.query_service_pb2 import RegisteredQuery as RegisteredQueryMessage

from sirocco_client.durations import read_duration_ms
from sirocco_client.errors import InvalidArgument, SiroccoError

Mode = Literal["continuous", "snapshot"]
Duration: TypeAlias = "str | timedelta"

_MODES: dict[str, pb.QueryMode] = {
    "continuous": pb.QUERY_MODE_CONTINUOUS,
    "snapshot": pb.QUERY_MODE_SNAPSHOT,
}
_MODE_NAMES: dict[int, Mode] = {
    pb.QUERY_MODE_CONTINUOUS: "continuous",
    pb.QUERY_MODE_SNAPSHOT: "snapshot",
}


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Closed; degrees. `west` may be greater than `east`: then it crosses the antimeridian."""

    west: float
    south: float
    east: float
    north: float


@dataclass(frozen=True, slots=True)
class Circle:
    """Everything within a great-circle distance of a point."""

    lon: float
    lat: float
    radius_m: float


@dataclass(frozen=True, slots=True)
class Polygon:
    """Rings of (lon, lat), even-odd: the outer one and its holes, closed or not."""

    rings: tuple[tuple[tuple[float, float], ...], ...]


Region: TypeAlias = Rectangle | Circle | Polygon


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeQuery:
    """All objects of a region whose text and attributes satisfy conditions.

    Attributes:
        id: Name of the query.
        subscriber: Who is told. One subscriber may have many queries.
        region: None is the whole world.
        text: Boolean expression such as `(coffee AND free) OR pizza`; None is any text.
        where: Attribute filters such as `{"status": "open", "size": {"gte": 3}}`.
        ttl: Lifetime such as "72h" or a timedelta; None is without end.
        mode: Continuous: each new matching object is notified.
        window: Age of objects, for snapshots; None is any age.
        track: Attribute by whose value objects are followed, None for none.
        events: What is told of a followed value: "enter", "inside", "exit".
    """

    id: str
    subscriber: str
    region: Region | None = None
    text: str | None = None
    where: Mapping[str, Any] | None = None
    ttl: Duration | None = None
    mode: Mode = "continuous"
    window: Duration | None = None
    track: str | None = None
    events: tuple[str, ...] = ()


Query: TypeAlias = RangeQuery


@dataclass(frozen=True, slots=True)
class RegisteredQuery:
    """A query as the cluster keeps it.

    Attributes:
        query: The query.
        revision: Grows with each change to it.
        start_ms: When its lifetime began, epoch ms.
    """

    query: Query
    revision: int
    start_ms: int


@dataclass(frozen=True, slots=True)
class RegistrationResult:
    """What became of one query of a bulk registration.

    Attributes:
        id: The query's.
        revision: As in `RegisteredQuery`; 0 if it was refused.
        error: Why it was refused, None if all is well.
    """

    id: str
    revision: int
    error: SiroccoError | None


def write_query(query: Query) -> pb.Query:
    """Returns the message of a query.

    Raises:
        InvalidArgument: A member cannot be what it says; `field` names it.
    """
    if not isinstance(query, RangeQuery):
        raise InvalidArgument(f"{type(query).__name__} is no query", field="query")
    if query.mode not in _MODES:
        raise InvalidArgument(f"{query.mode!r:.60} is none of {', '.join(_MODES)}", field="mode")
    message = pb.Query(mode=_MODES[query.mode])
    # Marks the kind also of a query without any condition.
    message.range.SetInParent()
    _set(message, "id", query.id)
    _set(message, "subscriber", query.subscriber)
    if query.text is not None:
        _set_some(message.range, "text", query.text)
    if query.region is not None:
        _write_region(message.range.region, query.region)
    if query.track is not None:
        _set_some(message.range, "track", query.track)
    message.range.events.extend(query.events)
    if query.where is not None:
        try:
            message.where = json.dumps(dict(query.where), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"cannot be written as JSON: {error}", field="where") from None
    if query.ttl is not None:
        message.ttl_ms = read_duration_ms(query.ttl, "ttl")
    if query.window is not None:
        message.window_ms = read_duration_ms(query.window, "window")
    return message


def _set(message: Any, name: str, value: object) -> None:
    try:
        setattr(message, name, value)
    except (TypeError, ValueError):
        # ValueError: a string with lone surrogates is no Unicode text.
        raise InvalidArgument(f"{value!r:.60} is no valid string", field=name) from None


def _set_some(message: Any, name: str, value: object) -> None:
    if value == "":
        # On the wire it would mean that there is none, which is another query.
        raise InvalidArgument("must not be empty", field=name)
    _set(message, name, value)


def _write_region(message: pb.Region, region: Region) -> None:
    if isinstance(region, Rectangle):
        names: tuple[str, ...] = ("west", "south", "east", "north")
        for name in names:
            value = _number(getattr(region, name), f"region.rect.{name}")
            setattr(message.rect, name, value)
    elif isinstance(region, Circle):
        for name in ("lon", "lat", "radius_m"):
            value = _number(getattr(region, name), f"region.circle.{name}")
            setattr(message.circle, name, value)
    elif isinstance(region, Polygon):
        message.polygon.SetInParent()
        for i, ring in enumerate(region.rings):
            coordinates = message.polygon.rings.add().coordinates
            for j, vertex in enumerate(ring):
                field = f"region.polygon[{i}][{j}]"
                if not isinstance(vertex, Sequence) or len(vertex) != 2:
                    raise InvalidArgument("must be a pair of lon and lat", field=field)
                coordinates.extend(_number(part, field) for part in vertex)
    else:
        raise InvalidArgument(f"{type(region).__name__} is no region", field="region")


def read_query(message: pb.Query) -> Query:
    """Returns the query of a message; its durations are `timedelta`.

    Raises:
        InvalidArgument: Its kind is one that this client does not know.
    """
    if message.WhichOneof("kind") != "range":
        raise InvalidArgument(f"query {message.id!r:.60} is of an unknown kind", field="kind")
    found = message.range
    return RangeQuery(
        id=message.id,
        subscriber=message.subscriber,
        region=_read_region(found.region) if found.HasField("region") else None,
        text=found.text or None,
        where=json.loads(message.where) if message.where else None,
        ttl=timedelta(milliseconds=message.ttl_ms) if message.HasField("ttl_ms") else None,
        mode=_MODE_NAMES.get(message.mode, "continuous"),
        window=timedelta(milliseconds=message.window_ms) if message.HasField("window_ms") else None,
        track=found.track or None,
        events=tuple(found.events),
    )


def read_registered(message: RegisteredQueryMessage) -> RegisteredQuery:
    """Returns the registered query of a message; raises as `read_query`."""
    return RegisteredQuery(read_query(message.query), message.revision, message.start_ms)


def _read_region(message: pb.Region) -> Region | None:
    shape = message.WhichOneof("shape")
    if shape == "rect":
        rect = message.rect
        return Rectangle(rect.west, rect.south, rect.east, rect.north)
    if shape == "circle":
        return Circle(message.circle.lon, message.circle.lat, message.circle.radius_m)
    if shape == "polygon":
        return Polygon(
            tuple(
                tuple(zip(ring.coordinates[::2], ring.coordinates[1::2], strict=True))
                for ring in message.polygon.rings
            )
        )
    return None


_MEMBERS = frozenset(
    ("id", "kind", "mode", "region", "text", "where", "ttl", "window", "track", "events")
)


def query_from_json(members: Mapping[str, Any], subscriber: str) -> Query:
    """Returns the query of the public JSON form.

    What the members say is judged by the server; here they need to be of the right type.

    Raises:
        InvalidArgument: A member is unknown, missing or of the wrong type; `field` is its path.
    """
    _mapping(members, "query")
    kind = _required(members, "kind", "kind")
    if kind != "range":
        raise InvalidArgument(f"{kind!r:.60} is no kind that can be asked: range", field="kind")
    _refuse_unknown(members, _MEMBERS, "")
    mode = _required(members, "mode", "mode")
    if mode not in ("continuous", "snapshot"):
        raise InvalidArgument(f"{mode!r:.60} is none of {', '.join(_MODES)}", field="mode")
    for name in ("ttl", "window"):
        if name in members:
            read_duration_ms(members[name], name)
    events = members.get("events", ())
    if not isinstance(events, list | tuple) or not all(isinstance(e, str) for e in events):
        raise InvalidArgument("must be an array of strings", field="events")
    if "events" in members and not events:
        raise InvalidArgument("must not be empty", field="events")
    return RangeQuery(
        id=_string(_required(members, "id", "id"), "id"),
        subscriber=subscriber,
        region=_region_from_json(members["region"]) if "region" in members else None,
        text=_expression(members["text"]) if "text" in members else None,
        where=_mapping(members["where"], "where") if "where" in members else None,
        ttl=members.get("ttl"),
        mode=mode,
        window=members.get("window"),
        track=_string(members["track"], "track") if "track" in members else None,
        events=tuple(events),
    )


def _region_from_json(value: object) -> Region:
    members = _mapping(value, "region")
    if len(members) != 1:
        raise InvalidArgument("must hold one of rect, circle, polygon", field="region")
    (shape,) = members
    if shape == "rect":
        return Rectangle(*_numbers(members[shape], "region.rect", "west south east north"))
    if shape == "circle":
        return Circle(*_numbers(members[shape], "region.circle", "lon lat radius_m"))
    if shape == "polygon":
        return Polygon(
            tuple(
                tuple(_vertex(vertex, f"region.polygon[{i}][{j}]") for j, vertex in enumerate(ring))
                for i, ring in enumerate(_rings(members[shape]))
            )
        )
    raise InvalidArgument("unknown member", field=f"region.{shape!s:.80}")


def _rings(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise InvalidArgument("must be an array of rings", field="region.polygon")
    for i, ring in enumerate(value):
        if not isinstance(ring, list | tuple):
            raise InvalidArgument("must be an array of points", field=f"region.polygon[{i}]")
    return list(value)


def _vertex(value: object, field: str) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InvalidArgument("must be [lon, lat]", field=field)
    return _number(value[0], field), _number(value[1], field)


def _numbers(value: object, field: str, names: str) -> list[float]:
    members = _mapping(value, field)
    _refuse_unknown(members, frozenset(names.split()), f"{field}.")
    return [
        _number(_required(members, name, f"{field}.{name}"), f"{field}.{name}")
        for name in names.split()
    ]


def _number(value: object, field: str) -> float:
    if isinstance(value, bool | str) or not hasattr(value, "__float__"):
        raise InvalidArgument(f"{value!r:.60} is no number", field=field)
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError):
        raise InvalidArgument(f"{value!r:.60} is no number", field=field) from None


def _string(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{value!r:.60} is no string", field=field)
    return value


def _expression(value: object) -> str:
    if value == "":
        raise InvalidArgument("the expression is empty", field="text")
    return _string(value, "text")


def _mapping(value: object, field: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{value!r:.60} is no object", field=field)
    return value


def _required(members: Mapping[str, Any], name: str, field: str) -> Any:
    if name not in members:
        raise InvalidArgument("is missing", field=field)
    return members[name]


def _refuse_unknown(members: Mapping[str, Any], known: frozenset[str], prefix: str) -> None:
    unknown = [str(name) for name in members if name not in known]
    if unknown:
        raise InvalidArgument("unknown member", field=f"{prefix}{min(unknown):.80}")
