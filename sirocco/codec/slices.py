"""Slices of past objects ⇄ Parquet, as they lie in the archive.

One row an object, in the order of the slice, so that whoever reads Parquet can work on it: strings
are strings, terms are lists of hashes. Reading seals the rows again; the tables that searches use
are not stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sirocco.index.gathering import slice_rows
from sirocco.index.sealing import seal
from sirocco.index.slices import SealedSlice
from sirocco.index.stored_rows import StoredRows
from sirocco.model.errors import Internal
from sirocco.model.objects import MISSING_TS, ObjectColumns

FORM = b"sirocco.slice"
VERSION = b"1"

# A search that needs few of a slice's rows may skip the others by their statistics.
ROW_GROUP_ROWS = 65_536
BOUNDED = ["lon", "lat", "ts_ms", "arrival_ms"]

# Columns whose values come again and again. A dictionary of any other one is made in vain: with
# all columns writing took nearly twice as long, for larger files.
REPEATING = ["session", "tokens", "terms.list.element", "term_counts.list.element"]


class CorruptSlice(Internal):
    """The bytes of a slice are not those that were written."""


def write_slice(slice_: SealedSlice) -> bytes:
    """Returns a slice as a Parquet file; equal slices give equal bytes."""
    rows = slice_rows(slice_)
    objects = rows.objects
    missing = objects.ts == MISSING_TS
    columns = {
        "id": pa.array(objects.ids),
        "name": _strings(objects.names, objects.name_offsets),
        "lon": pa.array(objects.lon),
        "lat": pa.array(objects.lat),
        "ts_ms": pa.array(objects.ts, mask=missing),
        "arrival_ms": pa.array(rows.arrivals_ms),
        "text": _strings(objects.text, objects.text_offsets),
        "attributes": _strings(objects.attributes, objects.attribute_offsets),
        "session": pa.array(rows.sessions),
        "number": pa.array(rows.numbers),
        "seq": pa.array(rows.seqs),
        "tokens": pa.array(rows.lengths),
        "terms": _lists(rows.terms, rows.term_offsets),
        "term_counts": _lists(rows.counts, rows.term_offsets),
    }
    table = pa.table(columns).replace_schema_metadata({FORM: VERSION})
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        row_group_size=ROW_GROUP_ROWS,
        use_dictionary=REPEATING,
        write_statistics=BOUNDED,
    )
    contents: bytes = sink.getvalue().to_pybytes()
    return contents


def read_slice(contents: bytes) -> SealedSlice:
    """Returns the slice of a Parquet file that `write_slice` made.

    Raises:
        CorruptSlice: It is damaged, or of a form that this version does not know.
    """
    try:
        return seal(read_rows(contents))
    except ValueError as error:
        raise CorruptSlice(str(error)) from error


def read_rows(contents: bytes) -> StoredRows:
    """Returns the rows of such a file as they lie there, for readers that need no slice.

    Raises:
        CorruptSlice: See `read_slice`.
    """
    try:
        table = pq.read_table(pa.BufferReader(contents))
        if (table.schema.metadata or {}).get(FORM) != VERSION:
            raise CorruptSlice("is no slice, or of a later version")
        return _rows(table.combine_chunks())
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise CorruptSlice(str(error)) from error


def _rows(table: pa.Table) -> StoredRows:
    names, name_offsets = _bytes(table, "name")
    text, text_offsets = _bytes(table, "text")
    attributes, attribute_offsets = _bytes(table, "attributes")
    terms, term_offsets = _flat(table, "terms")
    counts, _ = _flat(table, "term_counts")
    ts = table.column("ts_ms").fill_null(MISSING_TS).to_numpy()
    return StoredRows(
        objects=ObjectColumns(
            ids=table.column("id").to_numpy(),
            names=names,
            name_offsets=name_offsets,
            lon=table.column("lon").to_numpy(),
            lat=table.column("lat").to_numpy(),
            ts=np.asarray(ts, np.int64),
            text=text,
            text_offsets=text_offsets,
            attributes=attributes,
            attribute_offsets=attribute_offsets,
        ),
        sessions=table.column("session").to_numpy(),
        numbers=table.column("number").to_numpy(),
        arrivals_ms=table.column("arrival_ms").to_numpy(),
        seqs=table.column("seq").to_numpy(),
        lengths=table.column("tokens").to_numpy(),
        term_offsets=term_offsets,
        terms=np.asarray(terms, np.uint64),
        counts=np.asarray(counts, np.uint16),
    )


def _strings(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> pa.Array:
    # Text is valid UTF-8 from the edge on.
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_utf8(), len(offsets) - 1, buffers)


def _lists(values: NDArray[Any], offsets: NDArray[np.int64]) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))


def _bytes(table: pa.Table, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    column = _one(table, name).cast(pa.large_utf8())
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    whole = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return whole[bounds[0] : bounds[-1]].copy(), bounds - bounds[0]


def _flat(table: pa.Table, name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    column = _one(table, name)
    offsets = np.asarray(column.offsets.to_numpy(), np.int64)
    return column.flatten().to_numpy(zero_copy_only=False), offsets - offsets[0]


def _one(table: pa.Table, name: str) -> Any:
    chunks = table.column(name).chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
