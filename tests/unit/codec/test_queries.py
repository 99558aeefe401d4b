"""Queries of the public contract."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from sirocco_api.v1 import query_pb2 as pb

from sirocco.codec.queries import read_query, write_query
from sirocco.model.errors import InvalidArgument
from sirocco.model.query import canonical, parse_query
from tests.unit.codec.random_messages import random_query


@pytest.mark.parametrize("seed", range(200))
def test_queries_travel_unchanged(seed: int) -> None:
    query = random_query(np.random.default_rng(seed))
    message = write_query(query, "sub")
    again, subscriber = read_query(pb.Query.FromString(message.SerializeToString()))
    assert (again, subscriber) == (query, "sub"), f"seed={seed}"
    assert canonical(again) == canonical(query), f"seed={seed}"


def test_a_query_without_any_restriction_keeps_its_kind() -> None:
    query = parse_query({"id": "all", "kind": "range", "mode": "snapshot"})
    assert read_query(write_query(query, "")) == (query, "")


def sound() -> pb.Query:
    query = parse_query(
        {
            "id": "q",
            "kind": "range",
            "mode": "continuous",
            "region": {"polygon": [[[0, 0], [1, 0], [1, 1]]]},
            "text": "a",
            "where": {"size": {"gte": 3}},
            "ttl": "1h",
        }
    )
    return write_query(query, "sub")


def clear(*names: str) -> Callable[[pb.Query], None]:
    return lambda message: [message.ClearField(name) for name in names] and None


def put(path: str, value: object) -> Callable[[pb.Query], None]:
    def change(message: pb.Query) -> None:
        *holders, name = path.split(".")
        target: object = message
        for holder in holders:
            target = getattr(target, holder)
        setattr(target, name, value)

    return change


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (clear("range"), "kind"),
        (clear("mode"), "mode"),
        (put("mode", 9), "mode"),
        (clear("id"), "id"),
        (put("id", "x" * 257), "id"),
        (clear("subscriber"), "subscriber"),
        (put("subscriber", "x" * 257), "subscriber"),
        (put("ttl_ms", -5), "ttl"),
        (put("ttl_ms", 0), "ttl"),
        (put("ttl_ms", (1 << 63) - 1), "ttl"),
        (put("window_ms", -1), "window"),
        (put("range.text", "a AND"), "text"),
        (put("range.text", "   "), "text"),
        (put("where", "{"), "where"),
        (put("where", "[1]"), "where"),
        (put("where", '{"size": {"near": 3}}'), "where.size.near"),
        (lambda m: m.range.events.append("enter"), "events"),
        (lambda m: m.range.region.ClearField("shape"), "region"),
        (lambda m: m.range.region.rect.SetInParent() or put("range.region.rect.south", 95.0)(m),
         "region.rect.south"),
        (put("range.region.circle.radius_m", float("nan")), "region.circle.radius_m"),
        (put("range.region.circle.radius_m", -1.0), "region.circle.radius_m"),
        (lambda m: m.range.region.polygon.rings[0].coordinates.append(1), "region.polygon[0]"),
        (lambda m: m.range.region.polygon.rings[0].coordinates.pop(), "region.polygon[0]"),
        (lambda m: m.range.region.polygon.rings.add(), "region.polygon[1]"),
        (lambda m: m.range.region.polygon.rings[0].coordinates.extend([0.0] * 20_002),
         "region.polygon"),
    ],
)  # fmt: skip
def test_bad_queries_name_the_field(change: Callable[[pb.Query], object], field: str) -> None:
    message = sound()
    change(message)
    with pytest.raises(InvalidArgument) as caught:
        read_query(message)
    assert caught.value.field == field


def test_tracking_needs_known_events() -> None:
    message = sound()
    message.range.track = "vehicle"
    message.range.events.append("leave")
    with pytest.raises(InvalidArgument) as caught:
        read_query(message)
    assert caught.value.field == "events[0]"
