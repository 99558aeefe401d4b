"""Objects: JSON lines, columns and their checks."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import orjson
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import Limits
from sirocco.model.objects import (
    MISSING_TS,
    ObjectColumns,
    ObjectColumnsBuilder,
    ObjectRow,
    concat,
    pack_bytes,
    parse_object,
    split_valid,
    validate,
)
from tests.support.cpu_time import cpu_ratio

NAMES = st.one_of(st.just(""), st.text(min_size=1, max_size=6))


@st.composite
def object_rows(draw: st.DrawFn) -> ObjectRow:
    name = draw(NAMES)
    number = draw(st.integers(0, 2**64 - 1))
    return ObjectRow(
        id=xxhash.xxh3_64_intdigest(name.encode()) if name else number,
        name=name,
        lon=draw(st.floats(-180, 180)),
        lat=draw(st.floats(-90, 90)),
        ts=draw(st.one_of(st.just(MISSING_TS), st.integers(-(10**12), 10**13))),
        text=draw(st.text(max_size=12)),
        attributes=draw(st.sampled_from([b"", b'{"a":1}', b'{"b":[null,"x"]}'])),
    )


ROWS = st.lists(object_rows(), max_size=8)


def build(rows: list[ObjectRow]) -> ObjectColumns:
    builder = ObjectColumnsBuilder()
    for row in rows:
        builder.add(row)
    assert len(builder) == len(rows)
    return builder.build()


def rows_of(columns: ObjectColumns) -> list[ObjectRow]:
    return [columns.row(i) for i in range(len(columns))]


@given(ROWS)
def test_columns_hold_the_rows(rows: list[ObjectRow]) -> None:
    columns = build(rows)
    assert rows_of(columns) == rows
    validate(columns)


@given(ROWS, ROWS, st.data())
def test_take_slice_and_concat_are_those_of_lists(
    first: list[ObjectRow], second: list[ObjectRow], data: st.DataObject
) -> None:
    joined = concat([build(first), build([]), build(second)])
    rows = first + second
    assert rows_of(joined) == rows
    start, stop = data.draw(st.integers(-9, 17)), data.draw(st.integers(-9, 17))
    part = joined.slice(start, stop)
    assert rows_of(part) == rows[start:stop]
    validate(part)
    if rows:
        chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=10))
        taken = joined.take(np.array(chosen, np.int64))
        assert rows_of(taken) == [rows[i] for i in chosen]
        validate(taken)
    # Slices of slices share memory and begin anywhere in it.
    assert rows_of(concat([part, part.slice(1, 3)])) == rows[start:stop] + rows[start:stop][1:3]


def test_a_single_batch_is_joined_without_copying_unless_it_has_slack() -> None:
    batch = build(
        [
            ObjectRow(id=1, name="a", lon=1.0, lat=2.0, ts=3, text="text", attributes=b"{}"),
            ObjectRow(id=2, name="", lon=4, lat=5, ts=6, text="", attributes=b""),
        ]
    )
    assert concat([batch]) is batch
    loose = dataclasses.replace(
        batch,
        text=np.concatenate([batch.text[:2], batch.text, batch.text[:1]]),
        text_offsets=batch.text_offsets + 2,
    )
    packed = concat([loose])
    assert rows_of(packed) == rows_of(batch)
    assert (packed.text_offsets[0], len(packed.text)) == (0, 4)


def test_concat_of_nothing_is_empty() -> None:
    empty = concat([])
    assert len(empty) == 0
    validate(empty)
    assert rows_of(empty) == []


def test_bytes_total_counts_every_column() -> None:
    columns = build([parse_object({"id": "ab", "lon": 1, "lat": 2, "text": "xyz", "n": 1})])
    assert columns.bytes_total == 4 * 8 + 3 * 16 + 2 + 3 + len(b'{"n":1}')


def test_parse_line() -> None:
    line = b'{"id": 17, "ts": 1405123200000, "lon": -73.98, "lat": 40.75, "text": "free", "s": [1]}'
    row = parse_object(line)
    assert row == ObjectRow(
        id=17,
        name="",
        lon=-73.98,
        lat=40.75,
        ts=1405123200000,
        text="free",
        attributes=b'{"s":[1]}',
    )
    assert parse_object(line.decode()) == row
    assert parse_object(json.loads(line)) == row


def test_parse_optional_members() -> None:
    row = parse_object({"id": "a", "lon": 180, "lat": -90, "ts": None, "text": None})
    assert (row.ts, row.text, row.attributes) == (MISSING_TS, "", b"")
    assert (row.id, row.name) == (xxhash.xxh3_64_intdigest(b"a"), "a")
    assert parse_object({"id": 0, "lon": 0, "lat": 0, "ts": 5.0}).ts == 5
    assert parse_object({"id": 2**64 - 1, "lon": 0, "lat": 0}).id == 2**64 - 1


BASE: dict[str, Any] = {"id": 1, "lon": 0, "lat": 0}


@pytest.mark.parametrize(
    ("source", "field"),
    [
        (b"", "object"),
        (b"{", "object"),
        (b"[1]", "object"),
        (b'{"id": 1, "lon": 0, "lat": NaN}', "object"),
        (b'{"id": 1, "lon": 0, "lat": 0, "text": "\xff"}', "object"),
        ({"lon": 0, "lat": 0}, "id"),
        (BASE | {"id": 1.0}, "id"),
        (BASE | {"id": True}, "id"),
        (BASE | {"id": None}, "id"),
        (BASE | {"id": -1}, "id"),
        (BASE | {"id": 2**64}, "id"),
        (BASE | {"id": ""}, "id"),
        (BASE | {"id": "x" * 257}, "id"),
        (BASE | {"id": "\ud800"}, "id"),
        ({"id": 1, "lat": 0}, "lon"),
        (BASE | {"lon": "0"}, "lon"),
        (BASE | {"lon": True}, "lon"),
        (BASE | {"lon": 180.1}, "lon"),
        (BASE | {"lat": -90.1}, "lat"),
        (BASE | {"lat": float("nan")}, "lat"),
        (BASE | {"lat": None}, "lat"),
        (BASE | {"ts": 1.5}, "ts"),
        (BASE | {"ts": "1"}, "ts"),
        (BASE | {"ts": True}, "ts"),
        (BASE | {"ts": 10**17}, "ts"),
        (BASE | {"ts": 1e300}, "ts"),
        (BASE | {"text": 5}, "text"),
        (BASE | {"text": "é" * 32_769}, "text"),
        (BASE | {"a": "x" * 20_000}, "attributes"),
        (BASE | {"a": {1, 2}}, "attributes"),
    ],
)
def test_refusals_name_the_member(source: Any, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_object(source)
    assert caught.value.field == field


def three() -> ObjectColumns:
    return build([parse_object(BASE | {"id": i, "text": f"t{i}"}) for i in range(3)])


def with_bytes(name: str, offsets_name: str, rows: list[bytes]) -> ObjectColumns:
    data, offsets = pack_bytes(rows)
    changed: dict[str, Any] = {name: data, offsets_name: offsets}
    return dataclasses.replace(three(), **changed)


@pytest.mark.parametrize(
    ("columns", "field"),
    [
        (dataclasses.replace(three(), lon=np.array([0, np.nan, 0])), "objects[1].lon"),
        (dataclasses.replace(three(), lon=np.array([0, 0, np.inf])), "objects[2].lon"),
        (dataclasses.replace(three(), lat=np.array([-90.5, 0, 0])), "objects[0].lat"),
        (dataclasses.replace(three(), ts=np.array([0, 10**17, 0])), "objects[1].ts"),
        (dataclasses.replace(three(), ts=np.array([0, MISSING_TS + 1, 0])), "objects[1].ts"),
        (with_bytes("text", "text_offsets", [b"", b"ok", b"\xc3"]), "objects[2].text"),
        (with_bytes("text", "text_offsets", [b"", b"x" * 65_537, b""]), "objects[1].text"),
        # Valid as a whole, but not row by row.
        (with_bytes("text", "text_offsets", [b"\xc3", b"\xa9", b""]), "objects[0].text"),
        (with_bytes("names", "name_offsets", [b"", b"wrong", b""]), "objects[1].id"),
        (
            with_bytes("attributes", "attribute_offsets", [b"{}", b"[1]", b""]),
            "objects[1].attributes",
        ),
        (
            with_bytes("attributes", "attribute_offsets", [b"", b"", b"{"]),
            "objects[2].attributes",
        ),
        (
            with_bytes("attributes", "attribute_offsets", [b"", b"x" * 20_000, b""]),
            "objects[1].attributes",
        ),
        (dataclasses.replace(three(), lon=np.zeros(2)), "lon"),
        (dataclasses.replace(three(), lat=np.zeros(3, np.float32)), "lat"),
        (dataclasses.replace(three(), ids=np.zeros((3, 1), np.uint64)), "ids"),
        (dataclasses.replace(three(), text_offsets=np.array([0, 2, 4])), "text_offsets"),
        (dataclasses.replace(three(), text_offsets=np.array([0, 4, 2, 6])), "text_offsets"),
        (dataclasses.replace(three(), text_offsets=np.array([0, 2, 4, 7])), "text_offsets"),
        (dataclasses.replace(three(), text_offsets=np.array([1, 2, 4, 6])), "text_offsets"),
        (dataclasses.replace(three(), text_offsets=np.array([-1, 2, 4, 6])), "text_offsets"),
    ],
)
def test_validate_names_row_and_field(columns: ObjectColumns, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        validate(columns)
    assert caught.value.field == field


def test_split_keeps_the_good_rows() -> None:
    columns = dataclasses.replace(
        three(), lon=np.array([0, np.nan, 0]), lat=np.array([0.0, 99.0, 99.0])
    )
    good, errors = split_valid(columns)
    assert good.tolist() == [0]
    assert [(row, error.field) for row, error in errors] == [(1, "lon"), (2, "lat")]
    validate(columns.take(good))


@given(ROWS, st.sets(st.integers(0, 7)))
def test_split_finds_exactly_the_bad_rows(rows: list[ObjectRow], bad: set[int]) -> None:
    bad = {row for row in bad if row < len(rows)}
    columns = build(rows)
    lon = columns.lon.copy()
    lon[list(bad)] = 181
    good, errors = split_valid(dataclasses.replace(columns, lon=lon))
    assert {row for row, _ in errors} == bad
    assert good.tolist() == [row for row in range(len(rows)) if row not in bad]


def test_limits_are_arguments() -> None:
    good, errors = split_valid(three(), Limits(text_bytes=1))
    assert good.size == 0
    assert len(errors) == 3


@given(st.dictionaries(st.text(max_size=3), st.one_of(st.none(), st.integers(0, 9), st.text())))
def test_attributes_are_the_other_members(attributes: dict[str, Any]) -> None:
    others = {k: v for k, v in attributes.items() if k not in ("id", "ts", "lon", "lat", "text")}
    row = parse_object(orjson.dumps(others | BASE))
    assert (orjson.loads(row.attributes) if row.attributes else {}) == others


HUGE = b"36893488147419103232"


def attribute_columns(attributes: bytes, rows: int) -> ObjectColumns:
    zeros = np.zeros(rows)
    empty, ends = np.empty(0, np.uint8), np.zeros(rows + 1, np.int64)
    return ObjectColumns(
        ids=np.arange(rows, dtype=np.uint64),
        names=empty,
        name_offsets=ends,
        lon=zeros,
        lat=zeros,
        ts=np.zeros(rows, np.int64),
        text=empty,
        text_offsets=ends,
        attributes=np.frombuffer(attributes * rows, np.uint8),
        attribute_offsets=np.arange(rows + 1) * len(attributes),
    )


def test_many_small_parts_of_attributes_are_read_about_as_fast_as_json() -> None:
    """A path was created for each: 3.3 s of a router's loop for one message of 7 MB."""
    attributes = b'{"a":[' + b",".join([b"{}"] * 5_000) + b"]}"
    columns = attribute_columns(attributes, 40)
    good, refused = split_valid(columns)
    assert (len(good), refused) == (40, [])

    def read_as_json() -> None:
        for _ in range(40):
            orjson.loads(attributes)

    assert cpu_ratio(lambda: split_valid(columns), read_as_json) < 8


@pytest.mark.parametrize(
    ("attributes", "path"),
    [
        (b'{"a":' + b"[" * 127 + b"]" * 127 + b"}", None),
        (b'{"a":' + b"[" * 128 + b"]" * 128 + b"}", "attributes"),
        (
            b'{"a":[1,' + b"[]," * 200 + b'{"b":[0,' + HUGE + b"]}]}",
            "attributes.a[201].b[1]",
        ),
        (
            b'{"a":' + b"[" * 9 + HUGE + b"]" * 9 + b"}",
            "attributes.a" + "[0]" * 9,
        ),
        (b'{"a":' + HUGE + b"}", "attributes.a"),
    ],
)
def test_what_attributes_cannot_keep_is_refused_by_its_path(
    attributes: bytes, path: str | None
) -> None:
    _, refused = split_valid(attribute_columns(attributes, 1))
    assert [error.field for _, error in refused] == ([] if path is None else [path])
