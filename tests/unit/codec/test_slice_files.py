"""Slices as Parquet files: what is written is read again, and no thread waits for it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadgen.clusters import ClusteredWorkload
from sirocco.codec.slices import FORM, CorruptSlice, read_rows, read_slice, write_slice
from sirocco.index.gathering import slice_rows
from sirocco.index.sealing import seal
from sirocco.index.stored_rows import StoredRows
from sirocco.model.objects import MISSING_TS
from sirocco.model.text import analyse_batch

WITHOUT_PANDAS = """
import sys
from tests.unit.codec.test_slice_files import made
from sirocco.codec.slices import read_slice, write_slice
from sirocco.index.sealing import seal
read_slice(write_slice(seal(made())))
assert "pandas" not in sys.modules, "pandas was imported"
"""


def made(missing: str = "some") -> StoredRows:
    """A few hundred rows, of which some, none or all have no time of their own."""
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
    """It held what is found in the text, too; archives outlive releases."""
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


def test_pandas_stays_out() -> None:
    """Its import takes seconds in which no other thread of a service can do anything."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
