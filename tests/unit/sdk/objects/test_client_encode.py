"""The client's messages are read by the engine, and by the client itself."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import numpy as np
import pytest
from sirocco_api.v1.columns_pb2 import ObjectColumns
from sirocco_api.v1.receive_service_pb2 import ReceiveResponse
from sirocco_client import InvalidArgument, Object
from sirocco_client.notifications.decode import NotificationBatch
from sirocco_client.objects.columns import (
    MEMBER_BYTES_MAX,
    check_columns,
    columns_bytes,
    slice_columns,
    split_columns,
)
from sirocco_client.objects.encode import ObjectEncoder

from sirocco.codec.columns import read_objects
from tests.support.seeds import drawn_seed

WORDS = ("coffee", "kaffee", "café", "咖啡", "", "\u0000", "😀 x")


def random_object(rng: random.Random, plain: bool) -> dict[str, Any]:
    members: dict[str, Any] = {
        "id": rng.choice([0, 1 << 63, (1 << 64) - 1, rng.getrandbits(64)]),
        "lon": rng.choice([rng.uniform(-180, 180), 7]),
        "lat": rng.uniform(-90, 90),
    }
    if rng.random() < 0.8:
        members["text"] = " ".join(rng.choices(WORDS, k=3))
    if rng.random() < 0.5:
        members["ts"] = rng.choice([0, -5, 1_405_123_200_000])
    if rng.random() < 0.3:
        members["size"] = rng.choice([1, 2.5, "größer", None, [1, {"x": True}]])
    if not plain and rng.random() < 0.3:
        members["id"] = "näme " + str(rng.random())
    if not plain and rng.random() < 0.2:
        members["ts"] = members["text"] = None
    return members


def encode(sources: list[Any], many: bool, rng: random.Random) -> ObjectColumns:
    encoder, message = ObjectEncoder(), ObjectColumns()
    if many:
        cut = rng.randrange(len(sources) + 1)
        encoder.add_many(sources[:cut])
        encoder.add_many(sources[cut:])
    else:
        for source in sources:
            encoder.add(source)
    expected_bytes = encoder.bytes_total
    encoder.take(message)
    assert len(encoder) == 0
    assert columns_bytes(message) == expected_bytes
    return message


def expected(members: dict[str, Any]) -> Object:
    fixed = ("id", "lon", "lat", "ts", "text")
    others = {name: value for name, value in members.items() if name not in fixed}
    return Object(
        members["id"],
        members["lon"],
        members["lat"],
        members.get("text") or "",
        members.get("ts"),
        others,
    )


def decoded(message: ObjectColumns) -> list[Object]:
    return NotificationBatch(ReceiveResponse(objects=message), "").objects


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_objects_come_back(many: bool, plain: bool) -> None:
    for count in (0, 1, 2, 50):
        seed = drawn_seed()
        rng = random.Random(seed)
        sources = [random_object(rng, plain) for _ in range(count)]
        message = encode(sources, many, rng)
        check_columns(message)
        wanted = [expected(each) for each in sources]
        assert decoded(message) == wanted, f"seed {seed}"
        # The other form of the same.
        assert encode(wanted, many, rng) == message, f"seed {seed}"


@pytest.mark.parametrize("many", [False, True])
def test_the_engine_reads_them(many: bool) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    sources = [random_object(rng, plain=False) for _ in range(40)]
    columns = read_objects(encode(sources, many, rng))
    for i, members in enumerate(sources):
        row, wanted = columns.row(i), expected(members)
        assert (row.name or row.id) == wanted.id, f"seed {seed}"
        assert (row.lon, row.lat, row.text) == (wanted.lon, wanted.lat, wanted.text)
        assert row.ts == (-(2**63) if wanted.ts_ms is None else wanted.ts_ms)
        assert json.loads(row.attributes or b"{}") == wanted.attributes


def test_cutting_and_splitting() -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    whole = encode([random_object(rng, plain=False) for _ in range(60)], True, rng)
    objects = decoded(whole)
    for _ in range(30):
        begin, end = sorted((rng.randrange(61), rng.randrange(61)))
        assert decoded(slice_columns(whole, begin, end)) == objects[begin:end], f"seed {seed}"
        parts = list(split_columns(whole, rng.randrange(1, 70), rng.randrange(1, 8_000)))
        assert [each for part in parts for each in decoded(part)] == objects, f"seed {seed}"
        assert all(part.count for part in parts)
    for objects_max, bytes_max in ((7, 1 << 20), (100, 500)):
        for part in split_columns(whole, objects_max, bytes_max):
            check_columns(part)
            assert part.count <= objects_max
            assert part.count == 1 or columns_bytes(part) <= bytes_max
    assert list(split_columns(ObjectColumns(), 5, 5)) == []


GOOD = {"id": 1, "lon": 2.0, "lat": 3.0, "text": "x", "ts": 4}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"id": None}, "id"),
        ({"id": True}, "id"),
        ({"id": 1.0}, "id"),
        ({"id": -1}, "id"),
        ({"id": 1 << 64}, "id"),
        ({"id": ""}, "id"),
        ({"id": "\ud800"}, "id"),
        ({"lon": "2"}, "lon"),
        ({"lon": True}, "lon"),
        ({"lon": None}, "lon"),
        ({"lat": [1]}, "lat"),
        ({"lat": 10**400}, "lat"),
        ({"text": 5}, "text"),
        ({"text": b"x"}, "text"),
        ({"text": "\udfff"}, "text"),
        ({"text": "x" * (MEMBER_BYTES_MAX + 1)}, "text"),
        ({"ts": "now"}, "ts"),
        ({"ts": 1.5}, "ts"),
        ({"ts": True}, "ts"),
        ({"ts": 1 << 63}, "ts"),
        ({"size": math.nan}, "attributes"),
        ({"size": {1, 2}}, "attributes"),
        ({"size": "\ud800"}, "attributes"),
    ],
)
def test_what_columns_cannot_hold_is_refused(change: dict[str, Any], field: str) -> None:
    encoder = ObjectEncoder()
    with pytest.raises(InvalidArgument) as caught:
        encoder.add(GOOD | change)
    assert caught.value.field == field
    assert len(encoder) == 0
    with pytest.raises(InvalidArgument) as caught:
        encoder.add_many([GOOD, GOOD, GOOD | change, GOOD], first=10)
    assert caught.value.field == f"objects[12].{field}"
    assert len(encoder) == 2
    message = ObjectColumns()
    encoder.take(message)
    check_columns(message)


@pytest.mark.parametrize("name", ["id", "lon", "lat"])
def test_missing_members_are_named(name: str) -> None:
    members = {key: value for key, value in GOOD.items() if key != name}
    with pytest.raises(InvalidArgument) as caught:
        ObjectEncoder().add(members)
    assert (caught.value.field, caught.value.message) == (name, "is missing")
    with pytest.raises(InvalidArgument, match="no mapping"):
        ObjectEncoder().add([1, 2])  # type: ignore[arg-type]


def test_numbers_of_other_kinds_are_taken() -> None:
    encoder, message = ObjectEncoder(), ObjectColumns()
    encoder.add({"id": np.uint64(7), "lon": np.float32(1.5), "lat": np.int8(2), "ts": 5.0})
    encoder.take(message)
    assert decoded(message) == [Object(7, 1.5, 2.0, "", 5)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ids", b"1234567"),
        ("lat", b""),
        ("ts_ms", bytes(16)),
        ("text_offsets", b""),
        ("text_offsets", bytes(4)),
        ("text_offsets", bytes(8)),
        ("name_offsets", bytes(4)),
        ("attribute_offsets", np.array([1, 0], np.uint32).tobytes()),
    ],
)
def test_columns_that_do_not_fit_are_refused(name: str, value: bytes) -> None:
    message = encode([GOOD], False, random.Random(1))
    setattr(message, name, value)
    with pytest.raises(InvalidArgument) as caught:
        check_columns(message)
    assert caught.value.field == name
