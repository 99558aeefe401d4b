"""Queries in the public JSON form, as used in files and on command lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sirocco_client.base.durations import read_duration_ms
from sirocco_client.base.members import (
    read_integer,
    read_mapping,
    read_number,
    read_string,
    read_strings,
    refuse_unknown,
    required,
    shown,
)
from sirocco_client.errors import InvalidArgument
from sirocco_client.queries.query import (
    KnnQuery,
    Query,
    RangeQuery,
    RankedQuery,
    TermsQuery,
    Weights,
)
from sirocco_client.queries.region_json import region_from_json

_SHARED = frozenset({"id", "kind", "mode", "where", "ttl", "window", "events"})
_MEMBERS = {
    "range": _SHARED | {"region", "text", "fold", "highlight", "track", "dwell", "leave_after"},
    "knn": _SHARED | {"point", "k", "text", "fold", "highlight"},
    "terms": _SHARED | {"region", "text", "fold", "k", "step"},
    "ranked": _SHARED
    | {"point", "radius_m", "k", "keywords", "weights", "half_life", "step", "highlight"},
}
_POINT = ("lon", "lat")
_WEIGHTS = ("text", "space", "time")


def query_from_json(members: Mapping[str, Any], subscriber: str) -> Query:
    """Returns the query of the public JSON form.

    Only types are checked here; the server checks the values.

    Raises:
        InvalidArgument: A member is unknown, missing or of the wrong type; `field` is its path.
    """
    read_mapping(members, "query")
    kind = _choice(required(members, "kind", "kind"), "kind", tuple(_MEMBERS))
    refuse_unknown(members, _MEMBERS[kind], "")
    mode = _choice(required(members, "mode", "mode"), "mode", ("continuous", "snapshot"))
    for name in ("ttl", "window", "step", "half_life", "dwell", "leave_after"):
        if name in members:
            read_duration_ms(members[name], name)
    events = read_strings(members.get("events", ()), "events")
    if "events" in members and not events:
        raise InvalidArgument("must not be empty", field="events")
    shared: dict[str, Any] = {
        "id": read_string(required(members, "id", "id"), "id"),
        "subscriber": subscriber,
        "mode": mode,
        "where": read_mapping(members["where"], "where") if "where" in members else None,
        "ttl": members.get("ttl"),
        "window": members.get("window"),
        "events": events,
    }
    if kind != "ranked":
        shared["text"] = _expression(members["text"]) if "text" in members else None
        shared["fold"] = members.get("fold", False)
    if kind != "terms":
        shared["highlight"] = members.get("highlight", False)
    if kind == "range":
        return _range(members, shared)
    shared["k"] = read_integer(required(members, "k", "k"), "k")
    if kind == "terms":
        return TermsQuery(region=_region(members), step=members.get("step"), **shared)
    shared |= _numbers(required(members, "point", "point"), "point", _POINT)
    return KnnQuery(**shared) if kind == "knn" else _ranked(members, shared)


def _range(members: Mapping[str, Any], shared: dict[str, Any]) -> RangeQuery:
    return RangeQuery(
        region=_region(members),
        track=read_string(members["track"], "track") if "track" in members else None,
        dwell=members.get("dwell"),
        leave_after=members.get("leave_after"),
        **shared,
    )


def _ranked(members: Mapping[str, Any], shared: dict[str, Any]) -> RankedQuery:
    weights = None
    if "weights" in members:
        weights = Weights(**_numbers(members["weights"], "weights", _WEIGHTS))
    return RankedQuery(
        radius_m=read_number(required(members, "radius_m", "radius_m"), "radius_m"),
        keywords=read_strings(required(members, "keywords", "keywords"), "keywords"),
        weights=weights,
        half_life=members.get("half_life"),
        step=members.get("step"),
        **shared,
    )


def _region(members: Mapping[str, Any]) -> Any:
    return region_from_json(members["region"]) if "region" in members else None


def _numbers(value: object, field: str, names: tuple[str, ...]) -> dict[str, float]:
    members = read_mapping(value, field)
    refuse_unknown(members, frozenset(names), f"{field}.")
    return {
        name: read_number(required(members, name, f"{field}.{name}"), f"{field}.{name}")
        for name in names
    }


def _choice(value: object, field: str, names: tuple[str, ...]) -> str:
    if value not in names:
        raise InvalidArgument(f"{shown(value)} is none of {', '.join(names)}", field=field)
    return str(value)


def _expression(value: object) -> str:
    if value == "":
        raise InvalidArgument("the expression is empty", field="text")
    return read_string(value, "text")
