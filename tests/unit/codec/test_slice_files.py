"""Slices as Parquet files: they are read back unchanged, and block no other thread."""

from __future__ import annotations

import functools
import random
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sirocco.codec import slices
from sirocco.codec.slices import FORM, CorruptSlice, read_rows, read_slice, write_slice
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.gathering import slice_rows
from sirocco.index.store.sealing import seal
from sirocco.loadgen.clusters import ClusteredWorkload
from sirocco.model.objects import MISSING_TS, pack_bytes
from sirocco.model.text import analyse_batch
from tests.support.seeds import drawn_seed

WITHOUT_PANDAS = """
import sys
from tests.unit.codec.test_slice_files import made
from sirocco.codec.slices import read_slice, write_slice
from sirocco.index.store.sealing import seal
read_slice(write_slice(seal(made())))
assert "pandas" not in sys.modules, "pandas was imported"
"""


def made(missing: str = "some") -> StoredRows:
    """Returns a few hundred rows, of which some, none or all have no time of their own."""
    objects = next(iter(ClusteredWorkload(7).objects(300)))
    ts = np.arange(len(objects), dtype=np.int64) * 1_000
    ts[{"some": slice(None, None, 3), "none": slice(0, 0), "all": slice(None)}[missing]] = (
        MISSING_TS
    )
    objects = replace(objects, ts=ts)
    terms = analyse_batch(objects.text, objects.text_offsets)
    count = np.arange(len(objects))
    return StoredRows(
        objects=objects,
        sessions=np.full(len(objects), 9, np.uint64),
        numbers=(count + 1).astype(np.uint64),
        arrivals_ms=count.astype(np.int64),
        seqs=count.astype(np.int64),
        lengths=terms.lengths,
        term_offsets=terms.offsets,
        terms=terms.terms,
        counts=terms.counts,
    )


@pytest.mark.parametrize("missing", ["some", "none", "all"])
def test_what_was_written_is_read(missing: str) -> None:
    slice_ = seal(made(missing))
    before, after = slice_rows(slice_), slice_rows(read_slice(write_slice(slice_)))
    for member in fields(before.objects):
        column = getattr(before.objects, member.name)
        np.testing.assert_array_equal(getattr(after.objects, member.name), column, member.name)
    for name in ("sessions", "numbers", "arrivals_ms", "seqs", "lengths", "terms", "counts"):
        column = getattr(before, name)
        np.testing.assert_array_equal(getattr(after, name), column, name)
        assert getattr(after, name).dtype == column.dtype, name


def test_the_first_version_is_read() -> None:
    """It also stored what can be derived from the text; archives outlive releases."""
    contents = write_slice(seal(made()))
    table = pq.read_table(pa.BufferReader(contents))
    terms = pa.array([[1, 2]] * len(table), pa.large_list(pa.uint64()))
    older = table.append_column("terms", terms).append_column("term_counts", terms)
    sink = pa.BufferOutputStream()
    pq.write_table(older.replace_schema_metadata({FORM: b"1"}), sink)
    before, after = read_rows(contents), read_rows(memoryview(sink.getvalue()).cast("B"))
    np.testing.assert_array_equal(after.terms, before.terms)
    np.testing.assert_array_equal(after.objects.text, before.objects.text)


def test_a_later_version_is_refused() -> None:
    table = pq.read_table(pa.BufferReader(write_slice(seal(made()))))
    sink = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata({FORM: b"3"}), sink)
    with pytest.raises(CorruptSlice, match="later version"):
        read_rows(memoryview(sink.getvalue()).cast("B"))


def test_damage_is_noticed() -> None:
    contents = write_slice(seal(made()))
    for damaged in (b"", contents[:100], contents[:-9], b"x" * 1_000):
        with pytest.raises(CorruptSlice):
            read_rows(damaged)


@pytest.mark.parametrize("bound", ["ROWS_MAX", "BYTES_MAX"])
def test_a_file_that_says_it_is_too_large_is_not_read(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_slice(seal(made()))
    monkeypatch.setattr(slices, bound, 299)
    with pytest.raises(CorruptSlice, match="has 300 rows and"):
        read_rows(data)


def test_pandas_stays_out() -> None:
    """Its import takes seconds in which no other thread of a service can run."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@functools.cache
def _table() -> pa.Table:
    return pq.read_table(pa.BufferReader(write_slice(seal(made()))))


def _with(name: str, values: pa.Array) -> pa.Table:
    table = _table()
    return table.set_column(table.schema.get_field_index(name), name, values)


def _numbers(name: str, row: int, value: float) -> pa.Table:
    values = _table().column(name).to_pylist()
    values[row] = value
    return _with(name, pa.array(values, _table().schema.field(name).type))


def _bytes_column(name: str, row: int, value: bytes) -> pa.Table:
    """Returns a column of strings with one invalid string: Parquet does not check."""
    rows = [(each or "").encode() for each in _table().column(name).to_pylist()]
    rows[row] = value
    data = b"".join(rows)
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(each) for each in rows], out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return _with(name, pa.Array.from_buffers(pa.large_utf8(), len(rows), buffers))


HOSTILE = {
    "text is no UTF-8": lambda: _bytes_column("text", 3, b"caf\xc3"),
    "text has a surrogate": lambda: _bytes_column("text", 3, b"\xed\xa0\x80"),
    "text is over long": lambda: _bytes_column("text", 299, b"\xf0\x80\x80\xaf"),
    "a name is no UTF-8": lambda: _bytes_column("name", 3, b"\xff"),
    "attributes are no UTF-8": lambda: _bytes_column("attributes", 3, b'{"a":"\xfe"}'),
    "attributes are no JSON": lambda: _bytes_column("attributes", 3, b'{"a":'),
    "attributes are no object": lambda: _bytes_column("attributes", 299, b"[1]"),
    "attributes are nested": lambda: _bytes_column("attributes", 3, b'{"a":' + b"[" * 5_000),
    "a longitude is no number": lambda: _numbers("lon", 0, float("nan")),
    "a longitude is infinite": lambda: _numbers("lon", 0, float("inf")),
    "a latitude is out of range": lambda: _numbers("lat", 7, 90.1),
    "an arrival is out of range": lambda: _numbers("arrival_ms", 7, 1 << 62),
    "a time is out of range": lambda: _numbers("ts_ms", 7, -(1 << 62)),
    "a place is negative": lambda: _numbers("seq", 7, -1),
    "a place is taken twice": lambda: _numbers("seq", 7, 8),
    "ids are signed": lambda: _with("id", pa.array(range(300), pa.int64())),
    "ids are narrow": lambda: _with("id", pa.array(range(300), pa.uint32())),
    "longitudes are floats": lambda: _with("lon", pa.array([1.0] * 300, pa.float32())),
    "texts are bytes": lambda: _with("text", pa.array([b"a"] * 300, pa.binary())),
    "texts are numbers": lambda: _with("text", pa.array(range(300), pa.int64())),
    "texts are lists": lambda: _with("text", pa.array([["a"]] * 300)),
    "a text is empty": lambda: _with("text", pa.array(["a"] * 299 + [None])),
    "a session is empty": lambda: _with("session", pa.array([1] * 299 + [None], pa.uint64())),
    "a column is missing": lambda: _table().drop_columns(["seq"]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_kernels_would_read_without_looking_is_refused(name: str) -> None:
    table = HOSTILE[name]().replace_schema_metadata({FORM: b"2"})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    with pytest.raises(CorruptSlice):
        read_slice(sink.getvalue().to_pybytes())


def test_attributes_of_a_broken_writer_to_a_topic_do_not_make_a_slice_unusable() -> None:
    rows = made()
    texts = [b"", b'{"a":1}', b"[1]", b"{", b'{"b":2}'] + [b""] * (len(rows.objects) - 5)
    data, offsets = pack_bytes(texts)
    objects = replace(rows.objects, attributes=data, attribute_offsets=offsets)
    read = read_rows(write_slice(seal(replace(rows, objects=objects)))).objects
    kept = {int(each): read.row(row).attributes for row, each in enumerate(read.ids)}
    wanted = [b"", b'{"a":1}', b"", b"", b'{"b":2}']
    assert [kept[int(each)] for each in objects.ids[:5]] == wanted


def test_a_file_of_another_writer_of_the_same_rows_is_read() -> None:
    table = _table()
    text = table.column("text").cast(pa.string())
    table = table.set_column(table.schema.get_field_index("text"), "text", text)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="snappy", row_group_size=37)
    rows, as_written = read_rows(sink.getvalue().to_pybytes()), read_rows(write_slice(seal(made())))
    assert rows.objects.text.tobytes() == as_written.objects.text.tobytes()
    assert rows.terms.tolist() == as_written.terms.tolist()


def test_no_mutant_of_a_slice_does_more_than_raise() -> None:
    seed = drawn_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    sound = bytes(write_slice(seal(made())))
    for _ in range(150):
        broken = bytearray(sound)
        for _ in range(rng.choice([1, 1, 3, 20])):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        with suppress(CorruptSlice):
            read_slice(bytes(broken))
