"""Bodies in streams of Arrow's IPC: read as tables are, and bounded by what they become."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from sirocco.formats.arrow_messages import LIMITS as STREAM
from sirocco.formats.arrow_messages import StreamLimits, _Dictionaries, _Size
from sirocco.formats.arrow_stream import read_arrow
from sirocco.model.errors import InvalidArgument, SiroccoError
from sirocco.services.gateway.object_formats import (
    ARROW,
    ReadBody,
    media_type_of,
    read_body,
    unpacked_bytes,
)
from sirocco.services.gateway.problems import PayloadTooLarge
from sirocco.services.gateway.settings import LIMITS, GatewayLimits
from tests.support.seeds import drawn_seed


def stream(
    table: pa.Table, rows: int | None = None, compression: str | None = None, **options: Any
) -> bytes:
    into = BytesIO()
    written = pa.ipc.IpcWriteOptions(compression=compression, **options)
    with pa.ipc.new_stream(into, table.schema, options=written) as writer:
        writer.write_table(table, rows)
    return into.getvalue()


def table(count: int = 1, **columns: Any) -> pa.Table:
    place = {"id": range(count), "lon": [1.0] * count, "lat": [2.0] * count}
    return pa.table({name: pa.array(values) for name, values in (place | columns).items()})


def read(body: bytes, limits: GatewayLimits = LIMITS, **chosen: Any) -> ReadBody:
    return read_body(body, media_type_of(ARROW), limits, chosen)


def refused(body: bytes, limits: StreamLimits = STREAM) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        list(read_arrow(body, {}, limits))
    return caught.value


def rows(body: bytes, **chosen: Any) -> list[Any]:
    return [row for _, row in read_arrow(body, chosen)]


# --- what is read


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_rows_are_objects_and_bad_ones_are_numbered(compression: str | None) -> None:
    count = 200
    lon = [float(row % 90) for row in range(count)]
    lon[150] = 500.0
    texts = pa.array([f"free {row % 3}" for row in range(count)]).dictionary_encode()
    body = stream(table(count, lon=lon, text=texts, size=[3] * count), 64, compression)
    found = read(body)
    assert len(found.objects) == count - 1
    assert found.lines == [*range(1, 151), *range(152, count + 1)]
    assert [(line, error.field) for line, error in found.bad] == [(151, "lon")]


def test_values_are_those_of_the_types() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    columns = {
        "text": pa.array(["words"], pa.string_view()),
        "large": pa.array(["more"], pa.large_string()),
        "ts": pa.array([noon], pa.timestamp("ns", "UTC")),
        "kinds": pa.array([["a", "b"]], pa.large_list(pa.string())),
        "pair": pa.array([[1, 2]], pa.list_(pa.int8(), 2)),
        "deep": pa.array([{"a": [1]}]),
        "nothing": pa.nulls(1),
        "bytes": pa.array([b"x"]),
        "dense": pa.array([2.5], pa.float32()),
        "unique": pa.array([b"0123456789abcdef"], pa.uuid()),
    }
    [row] = rows(stream(table(1, **columns)))
    assert row == {
        "id": 0, "lon": 1.0, "lat": 2.0, "text": "words", "large": "more",
        "ts": 1_767_268_800_000, "kinds": ["a", "b"], "pair": [1, 2], "deep": {"a": [1]},
        "dense": 2.5,
    }  # fmt: skip


def test_columns_can_be_named() -> None:
    named = pa.table({"x": [3.0], "y": [4.0], "title": ["a"], "body": ["b"]})
    chosen = {"id": ("title",), "lon": ("x",), "lat": ("y",), "text": ("title", "body")}
    [row] = rows(stream(named), **chosen)
    assert (row["lon"], row["lat"], row["text"]) == (3.0, 4.0, "a b")
    assert refused(stream(named)).field == "header"


POINT = struct.pack("<BIdd", 1, 1, 3.0, 4.0)


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("geoarrow.wkb", pa.array([POINT])),
        ("geoarrow.point", pa.array([{"x": 3.0, "y": 4.0}])),
        ("geoarrow.point", pa.array([[3.0, 4.0]], pa.list_(pa.float64(), 2))),
    ],
)
@pytest.mark.parametrize(
    ("metadata", "is_read"),
    [
        (b"", True),
        (b'{"crs": "OGC:CRS84"}', True),
        (b'{"crs": {"id": {"authority": "EPSG", "code": 4326}}}', True),
        (b'{"crs": "EPSG:3857"}', False),
        (b"[", False),
    ],
)
def test_points_of_geoarrow(name: str, points: pa.Array, metadata: bytes, is_read: bool) -> None:
    extension = {b"ARROW:extension:name": name.encode(), b"ARROW:extension:metadata": metadata}
    fields = [pa.field("id", pa.int64()), pa.field("here", points.type, metadata=extension)]
    body = stream(pa.table([pa.array([7]), points], schema=pa.schema(fields)))
    if is_read:
        assert rows(body) == [{"id": 7, "lon": 3.0, "lat": 4.0}]
    else:
        assert refused(body).field == "here"


def test_a_frame_of_geopandas_is_read() -> None:
    geopandas = pytest.importorskip("geopandas")
    pytest.importorskip("pandas")
    points = geopandas.points_from_xy([3.0], [4.0], crs="EPSG:4326")
    frame = geopandas.GeoDataFrame({"id": [7], "text": ["free"]}, geometry=points)
    for encoding in ("WKB", "geoarrow"):
        body = stream(pa.table(frame.to_arrow(index=False, geometry_encoding=encoding)))
        assert rows(body) == [{"id": 7, "text": "free", "lon": 3.0, "lat": 4.0}]


# --- what is bounded


def test_objects_are_counted() -> None:
    body = stream(table(70), 30)
    assert len(read(body, replace(LIMITS, objects=70)).objects) == 70
    with pytest.raises(PayloadTooLarge, match="more than 69 objects"):
        read(body, replace(LIMITS, objects=69))


def test_a_dictionary_that_repeats_much_text_is_refused() -> None:
    count = 20_000
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), ["x" * 10_000])
    body = stream(table(count, text=texts))
    assert len(body) < 700_000
    with pytest.raises(PayloadTooLarge, match="bytes of objects"):
        read(body)
    assert unpacked_bytes(ARROW, LIMITS) > 3 * LIMITS.body_bytes


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_what_unpacks_to_very_much_is_refused_before_it_is_unpacked(compression: str) -> None:
    body = stream(table(4, text=["x" * (30 << 20)] + [""] * 3), compression=compression)
    assert len(body) < 1 << 20
    error = refused(body, replace(STREAM, bytes_total=16 << 20))
    assert error.field == "body"
    assert "bytes unpacked, at most" in error.message
    # A row of it is refused alone where there is room.
    found = read(body)
    assert (len(found.lines), [line for line, _ in found.bad]) == (3, [1])


def test_what_a_packed_buffer_claims_is_not_made_room_for() -> None:
    body = bytearray(stream(table(100, text=["x" * 900] * 100), compression="zstd"))
    claim = body.index(struct.pack("<q", 90_000))
    body[claim : claim + 8] = struct.pack("<q", 1 << 40)
    assert "bytes unpacked" in refused(bytes(body)).message
    body[claim : claim + 8] = struct.pack("<q", -2)
    assert "damaged" in refused(bytes(body)).message


def test_rows_without_bytes_are_counted() -> None:
    count = STREAM.values + 1
    body = stream(pa.table({"lon": pa.nulls(count), "lat": pa.nulls(count), "id": pa.nulls(count)}))
    assert len(body) < 2_000
    assert "values, at most" in refused(body).message
    # A list of a fixed size has as many elements without a byte.
    wide = pa.FixedSizeListArray.from_arrays(pa.nulls(count), count)
    assert "values, at most" in refused(stream(table(1, wide=wide))).message


def test_batches_pay_for_their_dictionaries_each_time() -> None:
    texts = pa.array([f"{row:0100}" for row in range(2_000)]).dictionary_encode()
    body = stream(table(2_000, text=texts), 10)
    assert len(body) < 400_000
    assert "bytes unpacked" in refused(body, replace(STREAM, bytes_total=1 << 20)).message
    assert len(rows(body)) == 2_000


def test_columns_pay_for_a_dictionary_that_they_share() -> None:
    size = _Size(10, 1, 1)
    dictionaries = _Dictionaries({5: 3})
    dictionaries.put(5, size)
    dictionaries.put(6, size)
    assert dictionaries.size == _Size(40, 4, 4)
    dictionaries.put(5, _Size(1, 1, 1))
    assert dictionaries.size == _Size(13, 4, 4)


@pytest.mark.parametrize(
    "limits",
    [
        replace(STREAM, fields=4),
        replace(STREAM, text_bytes=50),
        replace(STREAM, messages=3),
        replace(STREAM, columns=29),
    ],
)
def test_schemas_and_messages_are_counted(limits: StreamLimits) -> None:
    inner = pa.array([{"a": 1, "b": datetime(2026, 1, 1, tzinfo=UTC)}])
    whole = table(5, deep=pa.concat_arrays([inner] * 5))
    body = stream(whole.replace_schema_metadata({"k": "v" * 60}), 1)
    assert len(rows(body)) == 5
    assert "at most" in refused(body, limits).message


def test_a_field_in_many_places_counts_in_each() -> None:
    # 12 levels, each with two references to the next one, are 4,095 fields in 600 bytes. A level is
    # a vtable of FlatBuffers, the table, and the vector of its children.
    def field(child: int) -> bytes:
        vtable = struct.pack("<8H", 16, 12, 0, 0, 4, 0, 0, 8)
        table = struct.pack("<iB3xI", len(vtable), 13, 4)
        places = (child - 16, child - 20) if child else ()
        return vtable + table + struct.pack(f"<I{len(places)}I", len(places), *places)

    size = len(field(40))
    levels = b"".join(field(0 if level == 11 else size) for level in range(12))
    schema = struct.pack("<8H", 8, 8, 0, 4, 0, 0, 0, 0) + struct.pack("<iI", 16, 4)
    schema += struct.pack("<II", 1, 4 + 16)
    message = struct.pack("<8H", 10, 12, 0, 4, 8, 0, 0, 0) + struct.pack("<iB3xI", 16, 1, 4 + 16)
    metadata = struct.pack("<I", 4 + 16) + message + schema + levels
    body = struct.pack("<Ii", 0xFFFFFFFF, len(metadata)) + metadata
    assert "fields, at most 4094" in refused(body, replace(STREAM, fields=4_094)).message
    assert "at most" not in refused(body, replace(STREAM, fields=4_095)).message


def test_deep_columns_are_refused() -> None:
    kind: Any = pa.int8()
    for _ in range(20):
        kind = pa.list_(kind)
    assert "nested too deeply" in refused(stream(table(1, deep=pa.array([None], kind)))).message


UNREAD = {
    "run-ends": lambda: pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), ["x"]),
    "union": lambda: pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]),
    "list view": lambda: pa.array([[1]], pa.list_view(pa.int8())),
    "interval": lambda: pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
}


@pytest.mark.parametrize("kind", UNREAD)
def test_types_that_repeat_or_have_no_form_are_refused_by_name(kind: str) -> None:
    error = refused(stream(table(1, odd=UNREAD[kind]())))
    assert (error.field, "type that is not read" in error.message) == ("odd", True)


def test_a_dictionary_in_parts_is_refused() -> None:
    into = BytesIO()
    batches = [
        pa.table({"lon": [1.0], "lat": [1.0], "text": pa.array(words).dictionary_encode()})
        for words in (["a"], ["a"])
    ]
    longer = pa.DictionaryArray.from_arrays(pa.array([1]), ["a", "b"])
    batches[1] = batches[1].set_column(2, "text", longer.cast(batches[0].schema.field(2).type))
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    with pa.ipc.new_stream(into, batches[0].schema, options=options) as writer:
        for each in batches:
            writer.write_table(each)
    assert "in several parts" in refused(into.getvalue()).message


# --- what is damaged


def test_what_is_no_stream_is_refused() -> None:
    whole = stream(table(3))
    file = BytesIO()
    with pa.ipc.new_file(file, table().schema) as writer:
        writer.write_table(table())
    for body, words in (
        (b"", "no stream"),
        (b"no Arrow at all", "no stream"),
        (file.getvalue(), "no stream"),
        (whole[:-12], "cut off"),
        (whole + whole, "more after the end"),
        (whole[:300], "cut off"),
    ):
        error = refused(body)
        assert words in error.message, body[:20]
        assert error.field == "body"


def test_indices_and_offsets_are_looked_at() -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0], pa.int32()), ["one", "two"])
    body = stream(table(3, text=texts))
    at = body.rindex(struct.pack("<3i", 0, 1, 0))
    assert refused(body[:at] + struct.pack("<i", 1 << 20) + body[at + 4 :]).field == "body"
    body = stream(table(3, text=["abc", "de", "f"]))
    at = body.index(struct.pack("<4i", 0, 3, 5, 6))
    assert refused(body[:at] + struct.pack("<4i", 0, 1 << 30, 5, 6) + body[at + 16 :]).field


def test_a_buffer_may_be_longer_than_its_strings() -> None:
    views = pa.array([None, *(f"text number {row}" for row in range(29))], pa.string_view())
    body = stream(table(30, text=views))
    at = body.rindex(struct.pack("<q", 30 * 16))
    longer = body[:at] + struct.pack("<q", 30 * 16 + 1) + body[at + 8 :]
    assert [row.get("text") for row in rows(longer)] == [row.get("text") for row in rows(body)]
    assert rows(stream(table(0, text=pa.array([], pa.string_view())))) == []


def test_a_batch_whose_buffers_lie_on_each_other_pays_for_each() -> None:
    count = 40
    body = stream(table(1, **{f"c{row}": ["x" * 100_000] for row in range(count)}))
    # All texts are the first one.
    whole = bytearray(body)
    sizes = [at for at in places(body, struct.pack("<q", 100_000)) if at > 8]
    (begin,) = struct.unpack_from("<q", body, sizes[0] - 8)
    for at in sizes:
        struct.pack_into("<q", whole, at - 8, begin)
    assert "bytes unpacked" in refused(bytes(whole), replace(STREAM, bytes_total=1 << 20)).message


def places(data: bytes, piece: bytes) -> Iterator[int]:
    at = data.find(piece)
    while at >= 0:
        yield at
        at = data.find(piece, at + 1)


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_damaged_streams_end_in_rows_or_a_typed_error(compression: str | None) -> None:
    dice = Random(drawn_seed())
    texts = pa.array(["a", None, "b" * 50] * 10).dictionary_encode()
    kinds = pa.array([["x"] * (row % 3) for row in range(30)])
    views = pa.array([f"text number {row}" for row in range(30)], pa.string_view())
    body = stream(table(30, text=texts, kinds=kinds, views=views), 16, compression)
    for _ in range(400):
        data = bytearray(body)
        for _ in range(dice.choice((1, 1, 3))):
            at = dice.randrange(len(data))
            if dice.random() < 0.3:
                at &= ~7
                data[at : at + 8] = struct.pack("<q", dice.choice((-1, 1, 1 << 31, 1 << 62)))
            else:
                data[at] = dice.choice((0, 1, 127, 255, dice.randrange(256)))
        try:
            found = read(bytes(data))
        except SiroccoError:
            continue
        assert len(found.lines) == len(found.objects)
