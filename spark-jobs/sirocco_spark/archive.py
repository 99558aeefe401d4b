"""The archive of a running system as an input: the pieces that hold the objects, each once.

Slices are merged while the system runs, so for a while a large slice exists beside the small ones
of which it was built; objects newer than every slice are in the newest checkpoint of their slot.
The names alone show which objects a piece holds (docs/adr/0012), so a *cover* can be chosen that
holds every object of a slot once.

A file that was cut off while it was copied, or is not a slice, is left out and reported; the small
slices replace a damaged large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from sirocco.codec.checkpoint import read_state
from sirocco.codec.slices import CorruptSlice, check_form
from sirocco.index.base.stored_rows import StoredRows
from sirocco.model.errors import Internal, InvalidArgument, Unavailable
from sirocco.transport.errors import BlobNotFound
from sirocco_spark.blobs import Blobs, open_blobs
from sirocco_spark.columns import OBJECT_TYPES, arrow_schema, ddl_of, object_batch
from sirocco_spark.pieces import (
    CHECKPOINT,
    LOOKS_MAX,
    SLICE,
    Part,
    Piece,
    cover,
    has_heirs,
    held_now,
    item_of,
    piece_names,
    pieces_of,
    stored_rows,
)
from sirocco_spark.session import TASK_ROWS_MAX, in_tasks

_BATCH_ROWS = 65_536
_PIECE_TYPES = (
    "name string, slot int, first long, last long, rows long, bytes long, "
    "arrival_first long, arrival_last long, refusal string"
)
_PIECE_SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "slot": pa.int32(),
        **dict.fromkeys(("first", "last", "rows", "bytes"), pa.int64()),
        **dict.fromkeys(("arrival_first", "arrival_last"), pa.int64()),
        "refusal": pa.string(),
    }
)
# Replaced by another, or past its retention, since the names were listed.
_GONE = "has left the archive meanwhile"
# Column of objects → column of the archive's files.
_NAMES = {"ts": "ts_ms", "arrival": "arrival_ms"}


@dataclass(frozen=True, slots=True)
class Index:
    """The contents of an archive.

    Attributes:
        uri: Of the archive.
        pieces: The cover, by slot and first object.
        refused: (reason, count) of files that were left out.
    """

    uri: str
    pieces: tuple[Piece, ...]
    refused: tuple[tuple[str, int], ...]

    @property
    def rows(self) -> int:
        """Number of all objects."""
        return sum(piece.last - piece.first + 1 for piece in self.pieces)

    @property
    def arrivals_ms(self) -> tuple[int, int]:
        """The least and the greatest arrival."""
        return (
            min(piece.arrival_first for piece in self.pieces),
            max(piece.arrival_last for piece in self.pieces),
        )


def index_archive(session: SparkSession, uri: str) -> Index:
    """Reads all files of an archive to their ends.

    Files replaced meanwhile are looked up under their new names, until none is missing.

    Raises:
        InvalidArgument: It cannot be opened, or it holds no file of the system.
        Unavailable: It changes faster than it can be read.
    """
    blobs = open_blobs(uri)
    names = piece_names(blobs)
    if not names:
        has_parts = bool(blobs.list("compacted/"))
        why = "an unfinished compaction" if has_parts else "no slices/ and no checkpoints/"
        raise InvalidArgument(f"{uri} holds {why}", field="archive")
    found: dict[str, dict[str, Any]] = {}
    for _ in range(LOOKS_MAX):
        looked = _look_through(session, uri, names)
        found |= looked
        if not any(row["refusal"] == _GONE for row in looked.values()):
            return _index_of(uri, found)
        names = [name for name in piece_names(blobs) if name not in found]
        if not names:
            return _index_of(uri, found)
    raise Unavailable(f"{uri} changes faster than it can be looked through; begin it again")


def _look_through(
    session: SparkSession, uri: str, names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Returns the description of each blob, by its name: see `_PIECE_TYPES`."""
    tasks = min(len(names), 8 * session.sparkContext.defaultParallelism)
    # Neighbours have similar sizes: dealt out in turns, tasks take about equally long.
    dealt = ["\n".join(names[turn::tasks]) for turn in range(tasks)]
    rows = in_tasks(session, dealt, _inspecting(uri), _PIECE_TYPES).toArrow().to_pylist()
    return {row["name"]: row for row in rows}


def _index_of(uri: str, found: Mapping[str, dict[str, Any]]) -> Index:
    pieces, refused = [], {}
    for name, row in found.items():
        reason = row["refusal"]
        if reason is None:
            pieces.append(Piece(**{key: value for key, value in row.items() if key != "refusal"}))
        elif reason != _GONE:
            refused[f"{name}: {reason}"] = 1
    gone = [name for name, row in found.items() if row["refusal"] == _GONE]
    refused |= {f"{name}: {_GONE}": 1 for name in gone if not has_heirs(name, pieces)}
    return Index(uri, tuple(cover(pieces)), tuple(sorted(refused.items())))


def _inspecting(uri: str) -> Callable[[Iterator[str]], Iterator[pa.RecordBatch]]:
    def inspect(items: Iterator[str]) -> Iterator[pa.RecordBatch]:
        blobs = open_blobs(uri)
        for item in items:
            rows = [_inspected(blobs, name) for name in item.split("\n")]
            yield pa.RecordBatch.from_pylist(rows, schema=_PIECE_SCHEMA)

    return inspect


def _inspected(blobs: Blobs, name: str) -> dict[str, Any]:
    try:
        if match := SLICE.fullmatch(name):
            slot, first, last = (int(part) for part in match.groups())
            return _inspected_slice(blobs.read(name), name, slot, first, last)
        if match := CHECKPOINT.fullmatch(name):
            return _inspected_checkpoint(blobs.read(name), name, int(match[1]))
        return {"name": name, "refusal": "has no name of a slice: left by an unfinished copy?"}
    except BlobNotFound:
        return {"name": name, "refusal": _GONE}
    except (Internal, pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return {"name": name, "refusal": f"is damaged or cut off: {reason:.120}"}


def _inspected_slice(
    contents: bytes, name: str, slot: int, first: int, last: int
) -> dict[str, Any]:
    file = pq.ParquetFile(pa.BufferReader(contents))
    check_form(file.schema_arrow)
    rows, arrivals = 0, []
    for batch in file.iter_batches(_BATCH_ROWS):
        rows += len(batch)
        arrivals.append(pc.min_max(batch.column("arrival_ms")).as_py())
    if rows != last - first + 1:
        raise CorruptSlice(f"holds {rows} objects, its name says {last - first + 1}")
    return {
        "name": name,
        "slot": slot,
        "first": first,
        "last": last,
        "rows": rows,
        "bytes": len(contents),
        "arrival_first": min(one["min"] for one in arrivals),
        "arrival_last": max(one["max"] for one in arrivals),
    }


def _inspected_checkpoint(contents: bytes, name: str, slot: int) -> dict[str, Any]:
    rows = stored_rows(read_state(contents))
    count = len(rows)
    return {
        "name": name,
        "slot": slot,
        "first": int(rows.seqs.min()) if count else 0,
        "last": int(rows.seqs.max()) if count else -1,
        "rows": count,
        "bytes": len(contents),
        "arrival_first": int(rows.arrivals_ms.min()) if count else 0,
        "arrival_last": int(rows.arrivals_ms.max()) if count else 0,
    }


def read_objects(session: SparkSession, index: Index, columns: Sequence[str]) -> DataFrame:
    """Returns the objects of an archive with some of their columns."""
    return in_tasks(
        session, task_items(session, index), _reading(index.uri, tuple(columns)), ddl_of(columns)
    )


def task_items(session: SparkSession, index: Index) -> list[str]:
    """Returns the pieces of an archive, divided among tasks; see `pieces_of`."""
    groups = tasks_of(index.pieces, session.sparkContext.defaultParallelism)
    return [item_of(group) for group in groups]


def tasks_of(pieces: Sequence[Piece], parallelism: int) -> list[list[Piece]]:
    """Divides pieces among tasks, in order, with about as many objects each."""
    total = sum(piece.last - piece.first + 1 for piece in pieces)
    rows_max = min(TASK_ROWS_MAX, max(1, -(-total // (2 * parallelism))))
    groups: list[list[Piece]] = []
    room = 0
    for piece in pieces:
        size = piece.last - piece.first + 1
        if room < size or not groups:
            groups.append([])
            room = rows_max
        groups[-1].append(piece)
        room -= size
    return groups


def _reading(
    uri: str, columns: tuple[str, ...]
) -> Callable[[Iterator[str]], Iterator[pa.RecordBatch]]:
    def read(items: Iterator[str]) -> Iterator[pa.RecordBatch]:
        blobs = open_blobs(uri)
        for item in items:
            for piece in pieces_of(item):
                yield from _piece_batches(blobs, piece, columns)

    return read


def _piece_batches(
    blobs: Blobs, piece: Piece, columns: tuple[str, ...]
) -> Iterator[pa.RecordBatch]:
    """Yields a piece's objects; decodes only the wanted columns."""
    for part in held_now(blobs, piece):
        if part.is_slice:
            yield from _slice_batches(part, columns)
        else:
            yield _stored_batch(part.rows(), columns)


def _slice_batches(part: Part, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    file = pq.ParquetFile(pa.BufferReader(part.contents))
    wanted = [_NAMES.get(column, column) for column in columns]
    for batch in file.iter_batches(_BATCH_ROWS, columns=[*wanted, "seq"]):
        seqs = batch.column("seq")
        inside = pc.and_(pc.greater_equal(seqs, part.first), pc.less_equal(seqs, part.last))
        whole = pc.all(inside).as_py()
        yield _renamed(batch if whole else batch.filter(inside), columns)


def _renamed(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
    arrays = []
    for name in columns:
        array = batch.column(_NAMES.get(name, name))
        wanted = OBJECT_TYPES[name][1]
        # The same bits: Spark has no unsigned numbers.
        is_unsigned = array.type == pa.uint64()
        arrays.append(array.view(wanted) if is_unsigned else array.cast(wanted))
    arrays.append(pa.nulls(len(batch), pa.string()))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(columns))


def _stored_batch(rows: StoredRows, columns: tuple[str, ...]) -> pa.RecordBatch:
    batch = object_batch(rows.objects, columns, arrivals_ms=rows.arrivals_ms, numbers=rows.numbers)
    if "session" not in columns:
        return batch
    at = batch.schema.get_field_index("session")
    arrays = batch.columns
    arrays[at] = pa.array(rows.sessions.view(np.int64))
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)
