"""Parquet and GeoParquet."""

from __future__ import annotations

import datetime as dt
import io
import json
import random
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from sirocco.formats.column_map import read_map
from sirocco.formats.parquet import read_parquet
from sirocco.formats.parquet_pages import Chunk, column_pages
from sirocco.model.errors import InvalidArgument
from tests.support.seeds import drawn_seed

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
NOON_MS = 1_767_268_800_000


def rows(columns: dict[str, Any], geo: Any = None, chosen: str = "") -> list[Any]:
    table = pa.table(columns)
    if geo is not None:
        table = table.replace_schema_metadata({b"geo": json.dumps(geo).encode()})
    out = io.BytesIO()
    pq.write_table(table, out)
    found = read_parquet(out, read_map(chosen) if chosen else {}, 2)
    return [
        (number, str(row) if isinstance(row, InvalidArgument) else row) for number, row in found
    ]


def test_columns_become_members() -> None:
    found = rows(
        {
            "id": [1, 2, 3],
            "lon": [1.5, 2.5, None],
            "lat": pa.array([1, 2, 3], pa.float32()),
            "title": ["a", None, ""],
            "body": ["b", "c", None],
            "when": pa.array([NOON, None, NOON], pa.timestamp("ns", "Europe/Paris")),
            "day": [dt.date(2026, 1, 1)] * 3,
            "price": pa.array([Decimal("1.50")] * 3),
            "tags": [["x"], None, []],
            "raw": [b"x"] * 3,
            "gap": [1.0, float("nan"), None],
            "kind": pa.array(["k", "l", "k"]).dictionary_encode(),
        },
        chosen="text=title+body,ts=when",
    )
    shared = {"day": "2026-01-01", "price": 1.5}
    assert found == [
        (1, shared | {"id": 1, "lon": 1.5, "lat": 1.0, "text": "a b", "ts": NOON_MS, "tags": ["x"],
                      "gap": 1.0, "kind": "k"}),
        (2, shared | {"id": 2, "lon": 2.5, "lat": 2.0, "text": "c", "kind": "l"}),
        (3, shared | {"id": 3, "lat": 3.0, "text": "", "ts": NOON_MS, "tags": [], "kind": "k"}),
    ]  # fmt: skip


def geo(encoding: str = "WKB", **others: Any) -> dict[str, Any]:
    return {"primary_column": "place", "columns": {"place": {"encoding": encoding, **others}}}


def test_points_of_geoparquet() -> None:
    points = [
        struct.pack("<BIdd", 1, 1, 2.5, 48.5),
        struct.pack(">BIddd", 0, 1001, 2.5, 48.5, 9.0),
        struct.pack("<BIIdd", 1, 0x20000001, 4326, 2.5, 48.5),
        struct.pack("<BIdd", 1, 1, float("nan"), float("nan")),
        struct.pack("<BII", 1, 2, 0),
        b"\x01\x01",
        b"",
        None,
    ]
    found = rows({"id": list(range(8)), "place": points}, geo())
    assert [row for _, row in found[:3]] == [{"id": i, "lon": 2.5, "lat": 48.5} for i in range(3)]
    assert [str(row) for _, row in found[3:]] == [
        "geometry: is an empty point",
        "geometry: is not a Point",
        "geometry: is no WKB",
        "geometry: is no WKB",
        "geometry: is missing",
    ]
    pairs = pa.array([{"x": 2.5, "y": 48.5}])
    crs = {"id": {"authority": "EPSG", "code": 4326}}
    assert rows({"id": ["a"], "place": pairs}, geo("point", crs=crs)) == [
        (1, {"id": "a", "lon": 2.5, "lat": 48.5})
    ]


@pytest.mark.parametrize(
    ("columns", "metadata", "field", "message"),
    [
        ({"id": [1], "lon": [1.0]}, None, "header", "no column for lat"),
        ({"id": [1], "lon": [1.0], "lat": [1.0], "ts": pa.array([dt.datetime(2026, 1, 1)])}, None,
         "ts", "has no time zone"),
        ({"id": [1], "place": [b""]}, geo(crs={"id": {"authority": "EPSG", "code": 3857}}),
         "place", "not in WGS 84"),
        ({"id": [1], "place": [b""]}, geo(crs={"name": "mine"}), "place", "not in WGS 84"),
        ({"id": [1], "place": [b""]}, geo("polygon"), "place", "'polygon' is not read"),
        ({"id": [1], "place": [b""]}, {"columns": 5}, "file", "damaged metadata"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused(
    columns: dict[str, Any], metadata: Any, field: str, message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        rows(columns, metadata)
    assert caught.value.field == field


def test_what_is_no_parquet_is_refused() -> None:
    for content in (b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"):
        with pytest.raises(InvalidArgument, match="cannot be read as Parquet"):
            list(read_parquet(io.BytesIO(content), {}, 10))


def read_file(table: Any, batch_rows: int = 4_096, **written: Any) -> Iterator[Any]:
    out = io.BytesIO()
    pq.write_table(table, out, **written)
    return read_parquet(out, {}, batch_rows)


def places(count: int, **columns: Any) -> Any:
    zeros = pa.array(np.zeros(count))
    return pa.table({"id": pa.array(range(count)), "lon": zeros, "lat": zeros, **columns})


def peak_bytes(rows: Iterator[Any]) -> tuple[int, int]:
    """Returns the greatest growth of Arrow's and Python's memory, and the number of rows."""
    tracemalloc.start()
    before = pa.total_allocated_bytes()
    most = count = 0
    try:
        for _ in rows:
            count += 1
            if count % 64 == 1:
                most = max(most, pa.total_allocated_bytes() - before)
        return most + tracemalloc.get_traced_memory()[1], count
    finally:
        tracemalloc.stop()


def test_a_value_that_repeats_is_kept_once() -> None:
    """A file of some kilobytes stands for gigabytes."""
    count = 20_000
    text = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["x" * 60_000])
    peak, seen = peak_bytes(read_file(places(count, text=text)))
    assert seen == count
    assert peak < 64 << 20 < count * 60_000 // 4


def test_values_of_one_long_row_group_are_read_in_slices() -> None:
    count = 4_000
    texts = [f"{number:08d}" * 5_000 for number in range(count)]
    table = places(count, text=pa.array(texts))
    written: dict[str, Any] = {"use_dictionary": False, "compression": "zstd"}
    for encoding in ("PLAIN", "DELTA_BYTE_ARRAY"):
        peak, seen = peak_bytes(
            read_file(table, **written, column_encoding={"text": encoding}, row_group_size=count)
        )
        assert seen == count
        # All of them are 160 MB.
        assert peak < 80 << 20, encoding


def test_columns_of_bytes_are_not_read() -> None:
    count = 2_000
    photos = pa.array([bytes([number % 256]) * 50_000 for number in range(count)])
    found = read_file(places(count, photo=photos), use_dictionary=False)
    peak, seen = peak_bytes(found)
    assert seen == count
    assert peak < 40 << 20


def test_a_row_that_no_object_can_be_is_refused_alone() -> None:
    texts = ["a", "x" * 2_000_000, "b"]
    found = [row for _, row in read_file(places(3, text=pa.array(texts)))]
    assert [row["text"] for row in (found[0], found[2])] == ["a", "b"]
    assert isinstance(found[1], InvalidArgument)
    many = pa.array([[1], list(range(100_000)), None])
    found = [row for _, row in read_file(places(3, numbers=many))]
    assert [isinstance(row, InvalidArgument) for row in found] == [False, True, False]


def test_a_page_that_unpacks_to_a_vast_one_is_not_unpacked() -> None:
    found = read_file(places(1, text=pa.array(["x" * 40_000_000])), compression="zstd")
    before = pa.total_allocated_bytes()
    with pytest.raises(InvalidArgument, match="rows of"):
        next(found)
    assert pa.total_allocated_bytes() - before < 8 << 20


def without_pages(data: bytes) -> bytes:
    """Returns a file whose metadata says nothing of what the pages of `text` unpack to."""
    (length,) = struct.unpack("<I", data[-8:-4])
    footer = data[-8 - length : -8]
    texts = pq.read_metadata(io.BytesIO(data)).row_group(0).column(3)
    said = thrift_integer(texts.total_uncompressed_size)
    assert footer.count(said) == 1
    # As long as before: a number may have zeros at its end.
    footer = footer.replace(said, b"\x80" * (len(said) - 1) + b"\0")
    return data[: -8 - length] + footer + data[-8:]


def thrift_integer(number: int) -> bytes:
    number *= 2
    found = b""
    while number >= 128:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def page_header(unpacked: int, packed: int, values: int) -> bytes:
    """Returns a `PageHeader` of data; each byte before a number says its field, as an i32."""
    sizes = b"\x15\0\x15" + thrift_integer(unpacked) + b"\x15" + thrift_integer(packed)
    return sizes + b"\x2c\x15" + thrift_integer(values) + b"\x15\0\0\0"


def test_a_page_has_its_sizes() -> None:
    header = page_header(12, 3, 4)
    chunk = Chunk("text", False, 8, 0, 2 * len(header) + 6, False)
    pages = column_pages(io.BytesIO(2 * (header + b"...")), chunk)
    assert pages.sizes.tolist() == [12, 12]
    assert pages.values.tolist() == [4, 4]


@pytest.mark.parametrize("number", [1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, 1 << 69])
@pytest.mark.parametrize("field", ["unpacked", "packed", "values"])
def test_a_page_of_numbers_that_cannot_be_is_damaged(field: str, number: int) -> None:
    header = page_header(**{"unpacked": 12, "packed": 3, "values": 4, field: number})
    chunk = Chunk("text", False, 1 << 62, 0, len(header), False)
    with pytest.raises(InvalidArgument, match="damaged"):
        column_pages(io.BytesIO(header), chunk)


@pytest.mark.parametrize("compression", ["snappy", "gzip", "zstd", "brotli", "lz4"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_page_unpacks_to_what_its_header_says_whatever_the_metadata_says(
    compression: str, version: str
) -> None:
    texts = pa.array(["x" * 100_000] * 60)
    out = io.BytesIO()
    pq.write_table(
        places(60, text=texts), out, use_dictionary=False, compression=compression,
        data_page_version=version,
    )  # fmt: skip
    data = without_pages(out.getvalue())
    before = pa.total_allocated_bytes()
    with pytest.raises(InvalidArgument, match="has pages of") as caught:
        next(read_parquet(io.BytesIO(data), {}, 4_096, pages_bytes_max=5 << 20))
    assert caught.value.field == "text"
    assert pa.total_allocated_bytes() - before < 1 << 20
    assert len(list(read_parquet(io.BytesIO(data), {}, 4_096, pages_bytes_max=7 << 20))) == 60


def test_a_row_of_very_many_missing_values_is_refused() -> None:
    """Some bytes say how often nothing is repeated."""
    many = pa.ListArray.from_arrays([0, 20_000_000], pa.nulls(20_000_000, pa.int8()))
    out = io.BytesIO()
    pq.write_table(places(1, numbers=many), out)
    assert len(out.getvalue()) < 5_000
    before = pa.total_allocated_bytes()
    with pytest.raises(InvalidArgument, match="values in a row group"):
        next(read_parquet(out, {}, 4_096))
    assert pa.total_allocated_bytes() - before < 8 << 20


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def with_footer(footer: bytes) -> io.BytesIO:
    return io.BytesIO(b"PAR1" + footer + struct.pack("<I", len(footer)) + b"PAR1")


def schema_of(elements: int, claimed: int) -> bytes:
    """The version of a footer, and its schema: a list of a root and integers named `a`."""
    root = b"\x48\x01s\x15" + varint(2 * (elements - 1)) + b"\x00"
    return (
        b"\x15\x02\x19\xfc"
        + varint(claimed)
        + root
        + b"\x15\x02\x25\x00\x18\x01a\x00" * (elements - 1)
    )


# A row group whose list of columns claims a million of them.
WIDE_GROUP = b"\x16\x00\x19\x1c\x19\xfc" + varint(1_000_000)


def fields_beside() -> io.BytesIO:
    out = io.BytesIO()
    pq.write_table(places(1).replace_schema_metadata({b"notes": b"-" * 400_000}), out)
    return out


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (with_footer(schema_of(2, 1_000_000)), "damaged metadata"),
        (with_footer(schema_of(2, 2) + WIDE_GROUP), "damaged metadata"),
        (with_footer(schema_of(20_000, 20_000) + b"\x16\x00\x19\x0c\x00"), "has 20000 columns"),
        (with_footer(schema_of(200_000, 200_000) + b"\x16\x00\x19\x0c\x00"), "of metadata"),
        (fields_beside(), "of `ARROW:schema`, the limit is 524288"),
        (io.BytesIO(b"id,lon,lat,text\n"), "does not end as such a file"),
        (io.BytesIO(b"PAR1"), "does not end|damaged metadata"),
    ],
)
def test_metadata_are_bounded_before_arrow_reads_them(
    source: io.BytesIO, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow makes room for what they claim: 42 bytes took 680 MiB, 12 MB of columns 1.2 GiB."""

    def fail(*_: Any) -> None:
        raise AssertionError("too late")

    monkeypatch.setattr(pq, "read_metadata", fail)
    with pytest.raises(InvalidArgument, match=message):
        next(read_parquet(source, {}, 100))


def test_metadata_that_contradict_themselves_end_no_process() -> None:
    """Arrow ends the process where a column that Python asks for has such statistics."""
    out = io.BytesIO()
    pq.write_table(places(70, kinds=pa.array([["a", "bb"]] * 70)), out)
    whole = out.getvalue()
    (length,) = struct.unpack("<I", whole[-8:-4])
    begin = len(whole) - 8 - length
    program = (
        "import io, sys\n"
        "from sirocco.formats.parquet import read_parquet\n"
        "from sirocco.model.errors import InvalidArgument\n"
        "whole = sys.stdin.buffer.read()\n"
        f"for at in range({begin}, len(whole) - 8, 5):\n"
        "    for byte in (0, 0x15, 0x29, 0xff):\n"
        "        data = bytearray(whole)\n"
        "        data[at] = byte\n"
        "        try:\n"
        "            list(read_parquet(io.BytesIO(data), {}, 100))\n"
        "        except InvalidArgument:\n"
        "            pass\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], input=whole, capture_output=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-1_000:]


def test_a_value_that_its_dictionary_lacks_is_no_value() -> None:
    """Arrow does not look: the value would be whatever is in memory there."""
    texts = pa.array(["one", "two", "three", "four"] * 16)
    out = io.BytesIO()
    pq.write_table(places(64, text=texts), out, compression="none")
    data = bytearray(out.getvalue())
    # One value less in the dictionary's header, which has its number as the first field.
    column = pq.read_metadata(out).row_group(0).column(3)
    header = data[column.dictionary_page_offset : column.data_page_offset]
    at = column.dictionary_page_offset + header.index(bytes([0x15, 8]))
    data[at + 1] = 6
    with pytest.raises(InvalidArgument, match="dictionary lacks"):
        list(read_parquet(io.BytesIO(data), {}, 100))


def test_damaged_pages_end_in_a_typed_error() -> None:
    """Whatever bytes a file has between its metadata and its begin."""
    rng = random.Random(seed := drawn_seed())
    out = io.BytesIO()
    texts = pa.array([None if number % 7 == 0 else f"text {number % 50}" for number in range(400)])
    lists = pa.array([[1, 2]] * 400)
    pq.write_table(places(400, text=texts, numbers=lists), out, data_page_size=500)
    whole = out.getvalue()
    (length,) = struct.unpack("<I", whole[-8:-4])
    for turn in range(150):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(4, len(data) - length - 8)] = rng.choice([0, 1, 127, 255])
        try:
            assert len(list(read_parquet(io.BytesIO(data), {}, 100))) <= 400
        except InvalidArgument:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}, turn {turn}") from error


@pytest.mark.parametrize(
    "column",
    [
        pa.array([0, 1 << 45], pa.timestamp("s", "UTC")),
        pa.array([0, 1 << 61], pa.timestamp("us", "UTC")),
        pa.array([0, 1 << 30], pa.date32()),
        pa.array([0, 0], pa.timestamp("us", "Mars/Olympus")),
        pa.StringArray.from_buffers(
            2, pa.py_buffer(struct.pack("<iii", 0, 1, 3)), pa.py_buffer(b"a\xff\xfe")
        ),
    ],
    ids=["seconds", "microseconds", "day", "zone", "text"],
)
@pytest.mark.parametrize("name", ["text", "when"])
def test_a_value_without_a_form_is_a_bad_row(column: Any, name: str) -> None:
    found = [row for _, row in read_file(places(2, **{name: column}))]
    bad = found[1]
    assert isinstance(bad, InvalidArgument)
    assert bad.field == name


def test_damaged_metadata_of_places() -> None:
    identity = {"id": {"authority": ["EPSG"], "code": {}}}
    with pytest.raises(InvalidArgument, match="WGS 84"):
        rows({"id": [1], "place": [b""]}, geo(crs=identity))
