"""Queries of the public contract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sirocco_api.v1 import query_pb2 as pb

from sirocco.codec import queries as codec_queries
from sirocco.codec.queries import read_query, write_query
from sirocco.model.errors import InvalidArgument
from sirocco.model.query import canonical, parse_query
from tests.support.random_messages import random_query


@pytest.mark.parametrize("seed", range(200))
def test_queries_travel_unchanged(seed: int) -> None:
    query = random_query(np.random.default_rng(seed))
    message = write_query(query, "sub")
    again, subscriber = read_query(pb.Query.FromString(message.SerializeToString()))
    assert (again, subscriber) == (query, "sub"), f"seed={seed}"
    assert canonical(again) == canonical(query), f"seed={seed}"


ODD_SIDES = (0.0, -0.0, 12.5, 90.0, 90.5, -180.0, 180.5, float("inf"), float("nan"))
ODD_TEXTS = ("", "a", "b a B", "a AND b", "a OR b", "AND", "a  b", "é", "a" * 5_000, "NOT a", "a.b")
ODD_IDS = ("", "q", "ü" * 200, "i" * 256, "i" * 257)
ODD_MEMBERS: dict[str, object] = {
    "where": '{"a": 1}',
    "ttl_ms": 0,
    "window_ms": 5,
    "range.track": "v",
    "mode": pb.QUERY_MODE_SNAPSHOT,
}


@pytest.mark.parametrize("seed", range(300))
def test_a_rectangle_with_words_is_read_as_its_members_would_be(seed: int) -> None:
    random = np.random.default_rng(seed)

    def one_of(usual: Any, odd: Any) -> Any:
        return usual if random.random() < 0.8 else odd[random.integers(len(odd))]

    message = pb.Query(mode=pb.QUERY_MODE_CONTINUOUS, subscriber="sub")
    message.id = one_of("q", ODD_IDS)
    message.range.text = one_of("wifi coffee", ODD_TEXTS)
    rect = message.range.region.rect
    rect.west, rect.south = one_of(-1.5, ODD_SIDES), one_of(-0.0, ODD_SIDES)
    rect.east, rect.north = one_of(-2.5, ODD_SIDES), one_of(3.0, ODD_SIDES)
    for path, value in ODD_MEMBERS.items():
        if random.random() < 0.05:
            put(path, value)(message)
    if random.random() < 0.05:
        message.range.events.append("ended")

    def outcome(read: Callable[[], object]) -> object:
        try:
            return repr(read())
        except InvalidArgument as error:
            return error.field, str(error)

    wanted = outcome(lambda: parse_query(codec_queries._members(message)))
    assert outcome(lambda: read_query(message)[0]) == wanted, f"seed={seed}"


def test_what_nearly_all_queries_are_is_read_without_a_detour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    message = write_query(
        parse_query(
            {
                "id": "q",
                "kind": "range",
                "mode": "continuous",
                "region": {"rect": {"west": 0, "south": 0, "east": 1, "north": 1}},
                "text": "coffee wifi",
            }
        ),
        "sub",
    )
    monkeypatch.setattr(codec_queries, "parse_query", None)
    assert read_query(message)[0].id == "q"


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


POINT = {"lon": 2.35, "lat": 48.85}
SOUND: dict[str, dict[str, Any]] = {
    "knn": {"point": POINT, "k": 10, "text": "light"},
    "terms": {
        "k": 10,
        "window": "1h",
        "step": "10m",
        "region": {"circle": POINT | {"radius_m": 5}},
    },
    "ranked": {"point": POINT, "radius_m": 5, "k": 10, "keywords": ["a"], "window": "1h"},
}


def sound_of(kind: str) -> pb.Query:
    members = {"id": "q", "kind": kind, "mode": "continuous"} | SOUND[kind]
    return write_query(parse_query(members), "sub")


def clear(*names: str) -> Callable[[pb.Query], None]:
    def cleared(message: pb.Query) -> None:
        for name in names:
            message.ClearField(name)

    return cleared


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


def snapshot(*names: str) -> Callable[[pb.Query], None]:
    def change(message: pb.Query) -> None:
        clear(*names)(message)
        message.mode = pb.QUERY_MODE_SNAPSHOT

    return change


@pytest.mark.parametrize(
    ("kind", "change", "field"),
    [
        ("knn", put("knn.k", 0), "k"),
        ("knn", put("knn.k", -1), "k"),
        ("knn", put("knn.k", 10_001), "k"),
        ("knn", put("knn.k", (1 << 63) - 1), "k"),
        ("knn", put("knn.lon", 181.0), "point.lon"),
        ("knn", put("knn.lat", float("nan")), "point.lat"),
        ("knn", put("knn.text", "NOT a"), "text"),
        ("knn", put("window_ms", 5), "window"),
        ("knn", put("where", '{"a": null}'), "where.a"),
        ("terms", put("terms.k", 0), "k"),
        ("terms", put("terms.step_ms", 0), "step"),
        ("terms", put("terms.step_ms", -1), "step"),
        ("terms", put("terms.step_ms", 3_600_001), "step"),
        ("terms", lambda m: m.terms.ClearField("step_ms"), "step"),
        ("terms", snapshot(), "step"),
        ("terms", put("terms.text", "("), "text"),
        ("terms", put("terms.region.circle.radius_m", -1.0), "region.circle.radius_m"),
        ("terms", put("terms.region.circle.lat", 91.0), "region.circle.lat"),
        ("ranked", put("ranked.k", 0), "k"),
        ("ranked", put("ranked.radius_m", -5.0), "radius_m"),
        ("ranked", put("ranked.radius_m", 0.0), "radius_m"),
        ("ranked", put("ranked.radius_m", float("inf")), "radius_m"),
        ("ranked", put("ranked.lat", -91.0), "point.lat"),
        ("ranked", put("ranked.weights.text", 0.9), "weights"),
        ("ranked", put("ranked.weights.space", -0.1), "weights.space"),
        ("ranked", put("ranked.weights.time", float("nan")), "weights.time"),
        ("ranked", lambda m: m.ranked.weights.Clear(), "weights"),
        ("ranked", put("ranked.half_life_ms", 0), "half_life"),
        ("ranked", put("ranked.half_life_ms", -1), "half_life"),
        ("ranked", put("ranked.step_ms", 0), "step"),
        ("ranked", put("ranked.step_ms", 3_600_001), "step"),
        ("ranked", lambda m: m.ranked.ClearField("keywords"), "keywords"),
        ("ranked", lambda m: m.ranked.keywords.append("--"), "keywords[1]"),
        ("ranked", lambda m: m.ranked.keywords.extend(map(str, range(64))), "keywords"),
        ("ranked", snapshot(), "step"),
        ("ranked", lambda m: (snapshot()(m), put("ttl_ms", 5)(m), m.ranked.ClearField("step_ms")),
         "ttl"),
    ],
)  # fmt: skip
def test_bad_queries_of_the_other_kinds_name_the_field(
    kind: str, change: Callable[[pb.Query], object], field: str
) -> None:
    message = sound_of(kind)
    assert read_query(message)[0].id == "q"
    change(message)
    with pytest.raises(InvalidArgument) as caught:
        read_query(message)
    assert caught.value.field == field


def test_what_a_ranked_query_leaves_out_is_the_default_of_the_contract() -> None:
    message = sound_of("ranked")
    written = read_query(message)
    for name in ("weights", "half_life_ms", "step_ms"):
        message.ranked.ClearField(name)
    assert read_query(message) == written


def test_tracking_needs_known_events() -> None:
    message = sound()
    message.range.track = "vehicle"
    message.range.events.append("leave")
    with pytest.raises(InvalidArgument) as caught:
        read_query(message)
    assert caught.value.field == "events[0]"
