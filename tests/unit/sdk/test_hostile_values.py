"""Each member of queries and objects with absurd values, by every way of input.

All ways agree: the same value, or an error that names the member. No way raises a Python error, and
none changes a value.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest
from sirocco_api.v1 import query_pb2 as pb
from sirocco_api.v1.columns_pb2 import ObjectColumns as ObjectColumnsMessage
from sirocco_client import InvalidArgument as RefusedByClient
from sirocco_client import Object, query_from_json
from sirocco_client.errors import Internal
from sirocco_client.objects.encode import ObjectEncoder
from sirocco_client.queries.query import read_query, write_query

from sirocco.codec import queries as engine
from sirocco.codec.columns import read_objects
from sirocco.loadgen.lines import read_chunk
from sirocco.model.errors import InvalidArgument
from sirocco.model.json_text import load_json
from sirocco.model.objects import FIXED_MEMBERS, ObjectRow, parse_object, split_valid
from sirocco.model.query import parse_query
from sirocco.model.text import hash_rows

Members: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str | int, ...]


def nested(depth: int, wrap: Callable[[Any], Any]) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = wrap(value)
    return value


INTEGERS = [
    0, 1, -1, 10**18, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1,
    10**39, 10**40, 10**400, -(10**400),
]  # fmt: skip
FLOATS = [math.nan, math.inf, -math.inf, -0.0, 1.0, 1.5, 5e-324, 1e308, 2.0**63, 1.5e3]
TEXTS = [
    "", "0", "5", "-0", "1e3", "NaN", "inf", "\ud800", "\0", "x" * 300, "1" * 300, "1" * 30 + "ms",
    "9" * 18 + "d", "-1s", "0ms", "1.5h", "1 h", "\u0661ms", "x" * 70_000,
    "(" * 2_000 + "a" + ")" * 2_000, "NOT " * 2_000 + "a",
]  # fmt: skip
SHAPES = [
    True, False, None, [], {}, [1], [[]], [None], [True], ["9"], {"a": 1}, {"": 1}, {5: 1},
    *(nested(n, lambda v: [v]) for n in (100, 127, 128, 200, 300, 2_000)),
    *(nested(n, lambda v: {"a": v}) for n in (100, 127, 128, 200, 300, 2_000)),
    {"x": math.nan}, {"x": {"y": 2**70}}, [10**5000],
]  # fmt: skip
HOSTILE = [*INTEGERS, 10**5000, -(10**5000), *FLOATS, *TEXTS, *SHAPES]

RECT = {"west": -74.1, "south": 40.6, "east": -73.7, "north": 40.9}
POINT = {"lon": -0.12, "lat": 51.5}
RANGE = {"id": "q", "kind": "range", "mode": "continuous", "region": {"rect": RECT}}
KNN = {"id": "q", "kind": "knn", "mode": "continuous", "point": POINT, "k": 10}
STEPS = {"window": "1h", "step": "10m", "ttl": "1d", "k": 10}
QUERIES: list[Members] = [
    RANGE
    | {"text": "a OR b", "ttl": "1h", "window": "2h", "track": "v", "events": ["enter", "exit"]}
    | {"where": {"n": {"gte": 3, "in": [1, 2]}, "s": "x"}},
    RANGE | {"mode": "snapshot", "region": {"circle": {"lon": 1.0, "lat": 2.0, "radius_m": 5.0}}},
    RANGE | {"region": {"polygon": [[[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]]}},
    KNN | {"text": "a", "ttl": "1h", "where": {"n": 1}},
    KNN | {"mode": "snapshot", "window": "1h"},
    {"id": "q", "kind": "terms", "mode": "continuous", "region": {"rect": RECT}} | STEPS,
    {"id": "q", "kind": "ranked", "mode": "continuous", "point": POINT, "radius_m": 1e5}
    | {"keywords": ["light"], "weights": {"text": 0.4, "space": 0.3, "time": 0.3}}
    | {"half_life": "30d"}
    | STEPS,
]
OBJECT: Members = {
    "id": 1, "ts": 1405123200000, "lon": -73.98, "lat": 40.75, "text": "free", "n": 5,
    "deep": {"a": [1]},
}  # fmt: skip


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Yields the places of a JSON value and of all values within it."""
    if at:
        yield at
    parts = value.items() if isinstance(value, dict) else ()
    for name, part in [*parts, *(enumerate(value) if isinstance(value, list) else ())]:
        yield from places(part, (*at, name))


def put(members: Members, at: Place, value: Any) -> Members:
    changed = copy.deepcopy(members)
    target: Any = changed
    for name in at[:-1]:
        target = target[name]
    target[at[-1]] = value
    return changed


def text_of(members: Members, value: Any) -> str | None:
    """Returns the members as JSON, None for values that JSON or Python's writer lacks."""
    if value in ("\ud800", {5: 1}):
        # The text of the first is not JSON at all: its reader cannot name a member.
        return None
    try:
        return json.dumps(members, allow_nan=False)
    except (ValueError, RecursionError):
        return None


def outcome(read: Callable[..., Any], *given: Any) -> tuple[Any, str]:
    """Returns the resulting value, and the outermost member that an error names."""
    try:
        return read(*given), ""
    except (InvalidArgument, RefusedByClient) as error:
        field, message = str(error.field), str(error)
    # Errors are shown: whatever was sent, they are short.
    return None, field.split(".", maxsplit=1)[0].split("[", maxsplit=1)[0] if len(
        message
    ) < 2_000 else message


def by_wire(members: Members) -> Any:
    message = pb.Query.FromString(write_query(query_from_json(members, "ops")).SerializeToString())
    query, _ = engine.read_query(message)
    # A query that is listed and registered again is the same.
    again = write_query(read_query(engine.write_query(query, "ops")))
    assert engine.read_query(again)[0] == query
    return query


def by_text(text: str) -> Any:
    return parse_query(load_json(text, "query"))


@pytest.mark.parametrize("members", QUERIES, ids=lambda m: f"{m['kind']}, {m['mode']}")
def test_all_ways_of_a_query_agree(members: Members) -> None:
    for at in places(members):
        for value in HOSTILE:
            hostile = put(members, at, value)
            found = outcome(parse_query, hostile)
            assert outcome(by_wire, hostile) == found, (at, value)
            if (text := text_of(hostile, value)) is not None:
                assert outcome(by_text, text) == found, (at, value)


def row_of(members: Members, row: ObjectRow) -> tuple[Any, ...]:
    attributes = json.loads(row.attributes) if row.attributes else {}
    assert attributes == {k: v for k, v in members.items() if k not in FIXED_MEMBERS}
    return replace(row, attributes=b""), repr(attributes)


def by_line(members: Members, line: str) -> Any:
    batch = read_chunk([(1, line.encode())], "objects")
    for bad in batch.bad:
        raise bad.error
    return row_of(members, batch.objects.row(0))


def by_members(members: Members) -> Any:
    return row_of(members, parse_object(members))


def by_text_of_object(members: Members, text: str) -> Any:
    return row_of(members, parse_object(text))


def by_client(members: Members, *sources: Members | Object) -> Any:
    encoder, message = ObjectEncoder(), ObjectColumnsMessage()
    if len(sources) == 1:
        encoder.add(*sources)
    else:
        try:
            encoder.add_many(sources)
        except RefusedByClient as error:
            # In a batch the error first names the row.
            field = str(error.field).removeprefix("objects[0].")
            raise RefusedByClient(error.message, field=field) from None
    encoder.take(message)
    columns = read_objects(ObjectColumnsMessage.FromString(message.SerializeToString()))
    named = np.diff(columns.name_offsets) > 0
    # As the front does: a name's number is its hash.
    hashes = hash_rows(columns.names, columns.name_offsets)
    columns = replace(columns, ids=np.where(named, hashes, columns.ids))
    _, errors = split_valid(columns)
    for _, error in errors:
        raise error
    return row_of(members, columns.row(0))


def as_object(members: Members) -> Object:
    others = {k: v for k, v in members.items() if k not in FIXED_MEMBERS}
    fixed = [members[name] for name in ("id", "lon", "lat", "text", "ts")]
    return Object(*fixed, others)  # type: ignore[call-arg]


@pytest.mark.parametrize("at", [*places(OBJECT)], ids=str)
def test_all_ways_of_an_object_agree(at: Place) -> None:
    for value in HOSTILE:
        hostile = put(OBJECT, at, value)
        if value == {5: 1} and at[0] in ("n", "deep"):
            # JSON has no such names; Python's writer, which the client uses, turns them into
            # strings.
            continue
        found = outcome(by_members, hostile)
        typed = as_object(hostile)
        for sources in ((hostile,), (typed,), (hostile, hostile), (typed, typed)):
            assert outcome(by_client, hostile, *sources) == found, (at, value)
        if (text := text_of(hostile, value)) is not None:
            for read in (by_text_of_object, by_line):
                assert outcome(read, hostile, text) == found, (at, value)


def test_what_a_damaged_answer_holds_is_a_typed_error() -> None:
    good = write_query(query_from_json(QUERIES[0], "ops"))
    for name, value in (("ttl_ms", 2**63 - 1), ("window_ms", -(2**63)), ("where", "{")):
        message = pb.Query.FromString(good.SerializeToString())
        setattr(message, name, value)
        with pytest.raises(Internal):
            read_query(message)


@pytest.mark.parametrize(
    "value", [nested(2_000, lambda v: [v]), 10**5000, [[]]], ids=["deep", "long", "unhashable"]
)
def test_members_of_typed_queries_are_refused_by_name(value: Any) -> None:
    query = query_from_json(RANGE, "ops")
    for name in ("mode", "id", "subscriber", "text", "ttl", "window", "events", "where"):
        with pytest.raises(RefusedByClient) as caught:
            write_query(replace(query, **{name: value}))
        assert caught.value.field == name
