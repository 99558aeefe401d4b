"""Files and pipes of objects in any format, read in batches; bad rows are set apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from sirocco.formats.column_map import ChosenColumns
from sirocco.formats.delimited import RECORD_BYTES_MAX, read_delimited
from sirocco.formats.geojson import read_features
from sirocco.formats.recognition import HEAD_BYTES, format_of
from sirocco.formats.rows import Row
from sirocco.loadgen.lines import BadLine, ReadBatch, read_members, read_objects
from sirocco.loadgen.live_lines import CHUNK_BYTES_MAX, LivePipe, is_live
from sirocco.model.errors import InvalidArgument
from sirocco.model.objects import ObjectColumnsBuilder
from sirocco.runtime.process.gzip_files import DAMAGES, ENDLESS_BYTES, EndlessLineError, open_packed

_CHUNK_BYTES = 1 << 18

# More than a record may have.
_LINE_BYTES_MAX = RECORD_BYTES_MAX + 1


def read_object_file(
    path: Path,
    name: str,
    batch_rows: int = 4_096,
    *,
    form: str | None = None,
    chosen: ChosenColumns | None = None,
) -> Iterator[ReadBatch]:
    """Reads a file or a pipe of objects, plain or gzip, in batches.

    Args:
        path: The file.
        name: The file's name in errors.
        batch_rows: Greatest number of objects of a batch.
        form: One of `FORMATS`; None: by the name, else by how the file begins.
        chosen: Columns that the user named, for tables.

    Raises:
        InvalidArgument: The whole file cannot be used: it lacks a column, or is no such file.
        OSError: It cannot be read.
    """
    pipe = LivePipe(path) if is_live(path) else None
    if form is None:
        form = _recognised(path, name) if pipe is None else format_of("", pipe.head())
    if form == "ndjson":
        if chosen:
            raise InvalidArgument("is for tables: CSV, TSV and Parquet", field="map")
        yield from read_objects(path, name, batch_rows, pipe=pipe)
        return
    if form == "parquet":
        if pipe is not None:
            raise InvalidArgument("is read from a file, not from a pipe", field="file")
        # Imported here: the library takes a quarter of a second.
        from sirocco.formats.parquet import read_parquet  # noqa: PLC0415

        with path.open("rb") as source:
            yield from _batches(read_parquet(source, chosen or {}, batch_rows), name, batch_rows)
        return
    chunks = _chunks(path) if pipe is None else pipe.pieces()
    if form == "geojson":
        rows = read_features(chunks)
    else:
        delimiter = "\t" if form == "tsv" else None
        rows = read_delimited(_lines(chunks), chosen or {}, delimiter)
    yield from _batches(rows, name, batch_rows)


def is_lines(path: Path, name: str) -> bool:
    """Returns whether a file has lines of JSON."""
    return _recognised(path, name) == "ndjson"


def _recognised(path: Path, name: str) -> str:
    with open_packed(path) as source:
        try:
            return format_of(name, source.read(HEAD_BYTES))
        except DAMAGES:
            # Its reader reports the damage.
            return format_of(name, b"")


def _chunks(path: Path) -> Iterator[bytes]:
    with open_packed(path) as source:
        while chunk := source.read(_CHUNK_BYTES):
            yield chunk


def _lines(chunks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields all lines with their ends; of one that is too long, as much as its reader refuses.

    Raises:
        EndlessLineError: A line seems to have no end.
    """
    number, rest, size = 0, b"", 0
    for chunk in chunks:
        *lines, last = chunk.split(b"\n")
        size = size + len(chunk) if not lines else len(last)
        if size > ENDLESS_BYTES:
            raise EndlessLineError
        for line in lines:
            number += 1
            yield number, rest + line + b"\n"
            rest = b""
        rest = (rest + last)[:_LINE_BYTES_MAX]
    if rest:
        yield number + 1, rest


def _batches(rows: Iterator[Row], name: str, batch_rows: int) -> Iterator[ReadBatch]:
    batch: list[Row] = []
    size = line = 0
    try:
        for line, row in rows:
            batch.append((line, row))
            if isinstance(row, dict):
                size += sum(len(each) for each in row.values() if isinstance(each, str))
            if len(batch) == batch_rows or size > CHUNK_BYTES_MAX:
                yield read_members(batch, name)
                batch, size = [], 0
    except DAMAGES as error:
        if batch:
            yield read_members(batch, name)
        damage = InvalidArgument(f"is damaged from here on: {error}", field="object")
        nothing = ObjectColumnsBuilder().build()
        yield ReadBatch(nothing, np.empty(0, np.int64), [BadLine(name, line + 1, damage)])
        return
    if batch:
        yield read_members(batch, name)
