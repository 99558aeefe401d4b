"""Slices of past objects ⇄ Parquet, as in the archive.

One row per object, in the order of the slice, so that any reader of Parquet can use it. Derived
data is not stored: terms are extracted from the text again (0.3 us an object; writing them took 0.7
us and nearly half of the file), and sealing builds the tables for searches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.gathering import slice_rows
from sirocco.index.store.sealing import seal
from sirocco.index.store.slices import SealedSlice
from sirocco.model.attributes import unreadable_rows
from sirocco.model.errors import Internal
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.objects import MISSING_TS, ObjectColumns, pack_bytes
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import ANALYSIS

FORM = b"sirocco.slice"
# The analysis of texts whose terms the writer held; readers analyse the texts anew.
MADE_BY = b"sirocco.analysis"
VERSION = b"2"

# The first version also held terms, their counts and the number of tokens.
READABLE = frozenset({b"1", VERSION})

# A search that needs few of a slice's rows may skip the other groups by their statistics.
ROW_GROUP_ROWS = 65_536
BOUNDED = ["lon", "lat", "ts_ms", "arrival_ms"]

# Columns with repeating values. A dictionary of any other column is useless: with all columns
# writing took nearly twice as long, for larger files.
REPEATING = ["session"]

# Types of columns in our files, and in those of other Parquet writers.
_STRING = (pa.string(), pa.large_string())
TYPES = {
    "id": (pa.uint64(),),
    "name": _STRING,
    "lon": (pa.float64(),),
    "lat": (pa.float64(),),
    "ts_ms": (pa.int64(),),
    "arrival_ms": (pa.int64(),),
    "text": _STRING,
    "attributes": _STRING,
    "session": (pa.uint64(),),
    "number": (pa.uint64(),),
    "seq": (pa.int64(),),
}

# Rows that a file may claim: our slices have at most some million rows.
ROWS_MAX = 1 << 27
BYTES_MAX = 8 << 30
SEQ_MAX = 1 << 62

COLUMNS = [
    *("id", "name", "lon", "lat", "ts_ms", "arrival_ms", "text", "attributes"),
    *("session", "number", "seq"),
]


class CorruptSlice(Internal):
    """The bytes of a slice are not those that were written."""


def write_slice(slice_: SealedSlice) -> memoryview:
    """Returns a slice as a Parquet file; equal slices give equal bytes."""
    rows = slice_rows(slice_)
    objects = rows.objects
    columns = {
        "id": _plain(objects.ids),
        "name": _strings(objects.names, objects.name_offsets),
        "lon": _plain(objects.lon),
        "lat": _plain(objects.lat),
        "ts_ms": _plain(objects.ts, present=objects.ts != MISSING_TS),
        "arrival_ms": _plain(rows.arrivals_ms),
        "text": _strings(objects.text, objects.text_offsets),
        "attributes": _attributes(objects),
        "session": _plain(rows.sessions),
        "number": _plain(rows.numbers),
        "seq": _plain(rows.seqs),
    }
    table = pa.table(columns).replace_schema_metadata({FORM: VERSION, MADE_BY: b"%d" % ANALYSIS})
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        row_group_size=ROW_GROUP_ROWS,
        use_dictionary=REPEATING,
        write_statistics=BOUNDED,
    )
    return memoryview(sink.getvalue()).cast("B")


def read_slice(contents: bytes | memoryview, hashing: TermHashing = WIRE_TERMS) -> SealedSlice:
    """Returns the slice of a Parquet file from `write_slice`, its terms numbered by `hashing`.

    Raises:
        CorruptSlice: It is damaged, or of a format unknown to this version.
    """
    try:
        return seal(read_rows(contents, hashing))
    except ValueError as error:
        raise CorruptSlice(str(error)) from error


def read_rows(contents: bytes | memoryview, hashing: TermHashing = WIRE_TERMS) -> StoredRows:
    """Returns the rows of such a file in their order, for readers that need no slice.

    Everything that kernels do not check is checked here: types, lengths, ranges, offsets and UTF-8.

    Raises:
        CorruptSlice: See `read_slice`.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(contents))
        check_form(file.schema_arrow)
        _check_size(file.metadata)
        table = file.read(COLUMNS).combine_chunks()
        _check_types(table)
        # Decreasing or out-of-range offsets, and bytes that are not UTF-8.
        table.validate(full=True)
        _check_values(table)
        return _rows(table, hashing)
    except (pa.ArrowException, KeyError, ValueError, OSError, OverflowError) as error:
        raise CorruptSlice(str(error)) from error


def _check_size(metadata: Any) -> None:
    size = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    if not 0 <= metadata.num_rows <= ROWS_MAX or not 0 <= size <= BYTES_MAX:
        raise CorruptSlice(f"has {metadata.num_rows} rows and {size} bytes")


def _check_types(table: pa.Table) -> None:
    for name, allowed in TYPES.items():
        column = table.column(name)
        if column.type not in allowed:
            raise CorruptSlice(f"{name}: is of type {column.type}")
        if name != "ts_ms" and column.null_count:
            raise CorruptSlice(f"{name}: has empty values")


def _check_values(table: pa.Table) -> None:
    times = DEFAULT_LIMITS.ts_ms
    for name, least, most in (
        ("lon", -180.0, 180.0),
        ("lat", -90.0, 90.0),
        ("arrival_ms", -times, times),
        ("seq", 0, SEQ_MAX),
    ):
        values = _values(_one(table, name))
        # Also false for NaN.
        if not ((values >= least) & (values <= most)).all():
            raise CorruptSlice(f"{name}: is not within {least} … {most}")
    own = _filled(_one(table, "ts_ms"), MISSING_TS)
    if (np.abs(own[own != MISSING_TS]) > times).any():
        raise CorruptSlice("ts_ms: is out of range")
    seqs = np.sort(_values(_one(table, "seq")))
    if (seqs[1:] == seqs[:-1]).any():
        raise CorruptSlice("seq: a place is taken twice")


def check_form(schema: pa.Schema) -> None:
    """Refuses a file that is not a slice.

    Raises:
        CorruptSlice: It is not a slice, or of a format unknown to this version.
    """
    if (schema.metadata or {}).get(FORM) not in READABLE:
        raise CorruptSlice("is no slice, or of a later version")


def _rows(table: pa.Table, hashing: TermHashing) -> StoredRows:
    names, name_offsets = _bytes(table, "name")
    text, text_offsets = _bytes(table, "text")
    attributes, attribute_offsets = _bytes(table, "attributes")
    if rows := unreadable_rows(attributes, attribute_offsets):
        raise CorruptSlice(f"attributes: hold no JSON object in row {rows[0]}")
    terms = hashing.analyse(text, text_offsets)
    return StoredRows(
        objects=ObjectColumns(
            ids=_values(_one(table, "id")),
            names=names,
            name_offsets=name_offsets,
            lon=_values(_one(table, "lon")),
            lat=_values(_one(table, "lat")),
            ts=_filled(_one(table, "ts_ms"), MISSING_TS),
            text=text,
            text_offsets=text_offsets,
            attributes=attributes,
            attribute_offsets=attribute_offsets,
        ),
        sessions=_values(_one(table, "session")),
        numbers=_values(_one(table, "number")),
        arrivals_ms=_values(_one(table, "arrival_ms")),
        seqs=_values(_one(table, "seq")),
        lengths=terms.lengths,
        term_offsets=terms.offsets,
        terms=terms.terms,
        counts=terms.counts,
    )


def _strings(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> pa.Array:
    # Texts were validated as UTF-8 at the edge.
    buffers = [None, pa.py_buffer(np.ascontiguousarray(offsets)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_utf8(), len(offsets) - 1, buffers)


def _attributes(objects: ObjectColumns) -> pa.Array:
    data, offsets = objects.attributes, objects.attribute_offsets
    rows = unreadable_rows(data, offsets)
    if rows:
        # Written by a broken writer to a topic. They count as none here too, and must not make a
        # slice look damaged.
        lengths = np.diff(offsets)
        lengths[rows] = 0
        kept = [bytes(data[offsets[i] : offsets[i] + n]) for i, n in enumerate(lengths.tolist())]
        data, offsets = pack_bytes(kept)
    return _strings(data, offsets)


def _plain(values: NDArray[Any], present: NDArray[np.bool_] | None = None) -> pa.Array:
    # `pa.array` would import pandas if installed: seconds for which all threads wait.
    valid = None
    if present is not None and not present.all():
        valid = pa.py_buffer(np.packbits(present, bitorder="little"))
    buffers = [valid, pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), buffers)


def _bytes(table: pa.Table, name: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    column = _one(table, name).cast(pa.large_utf8())
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    whole = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return whole[bounds[0] : bounds[-1]].copy(), bounds - bounds[0]


def _values(array: pa.Array) -> NDArray[Any]:
    # `to_numpy` would import pandas, like `pa.array`.
    *_, data = array.buffers()
    if data is None:
        return np.empty(0, array.type.to_pandas_dtype())
    values = np.frombuffer(data, array.type.to_pandas_dtype())
    return values[array.offset : array.offset + len(array)]


def _filled(array: pa.Array, missing: int) -> NDArray[np.int64]:
    values = np.asarray(_values(array), np.int64)
    valid, *_ = array.buffers()
    if valid is None:
        return values
    end = array.offset + len(array)
    present = np.unpackbits(np.frombuffer(valid, np.uint8), count=end, bitorder="little")
    return np.where(present[array.offset :] != 0, values, missing)


def _one(table: pa.Table, name: str) -> Any:
    chunks = table.column(name).chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)
