"""The archive of a running system as an input: which pieces hold the objects, each once.

Slices are merged while the system runs, so for a while a large one lies beside the small ones that
it was made of; what is newer than every slice is in the newest checkpoint of its slot. From the
names alone it is known which objects a piece holds (docs/adr/0012), and so a *cover* can be chosen
that holds every object of a slot once.

A file that was cut off in the middle of being copied, or is no slice at all, is left out and told;
the small slices take the place of a large one that is damaged.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from sirocco.codec.checkpoint import read_state
from sirocco.codec.slices import FORM, VERSION, CorruptSlice, read_rows
from sirocco.index.stored_rows import StoredRows
from sirocco.model.errors import Internal, InvalidArgument, Unavailable
from sirocco.protocol.effects import State
from sirocco.protocol.messages import SLOTS
from sirocco.transport.archive import open_archive
from sirocco.transport.errors import BlobNotFound
from sirocco_spark.columns import OBJECT_TYPES, arrow_schema, ddl_of, object_batch
from sirocco_spark.session import TASK_ROWS_MAX, in_tasks

# Of a compacted dataset: the names of its slices. It is written last, and without it there is
# nothing: see `compaction.py`.
MANIFEST = "compacted.json"

_SLICE = re.compile(r"(?:slices|compacted)/(\d{5,})/(\d{16,})-(\d{16,})")
_CHECKPOINT = re.compile(rf"checkpoints/{SLOTS}/(\d{{5,}})/(\d{{16,}}-\d{{12,}})")

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
# Column of objects → column of the archive's files.
_NAMES = {"ts": "ts_ms", "arrival": "arrival_ms"}


class Blobs(Protocol):
    """The part of an archive that is needed to read it."""

    def read(self, name: str) -> bytes:
        """The contents of a blob; raises BlobNotFound."""

    def list(self, prefix: str) -> list[str]:
        """The names that begin with a prefix, ascending."""


class Directory:
    """A local archive that is only read: nothing is made, not even what writers need."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, name: str) -> bytes:
        """See `Blobs.read`."""
        try:
            return (self._root / name).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise BlobNotFound(name) from None
        except OSError as error:
            raise Unavailable(f"archive {name}: {error}") from error

    def list(self, prefix: str) -> list[str]:
        """See `Blobs.list`."""
        below = self._root / prefix.rpartition("/")[0]
        names = (p.relative_to(self._root).as_posix() for p in below.rglob("*") if p.is_file())
        return sorted(name for name in names if name.startswith(prefix))


def open_blobs(uri: str) -> Blobs:
    """Opens an archive to read it.

    Raises:
        InvalidArgument: There is no such directory, or the URI is none.
        Unavailable: The store cannot be reached.
    """
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        path = Path(unquote(parts.path) if parts.scheme else uri)
        if not path.is_dir():
            raise InvalidArgument(f"there is no directory {path}", field="archive")
        return Directory(path)
    try:
        # Hadoop's name of the same store.
        return open_archive(uri.replace("s3a://", "s3://", 1))
    except ValueError as error:
        raise InvalidArgument(str(error), field="archive") from None


@dataclass(frozen=True, slots=True)
class Piece:
    """A blob that holds objects of a slot.

    Attributes:
        name: Of the blob.
        slot: Number of the slot.
        first, last: The stretch of the slot's objects that is to be read of it, inclusive.
        rows: Objects in it.
        bytes: Its size.
        arrival_first, arrival_last: Bounds of arrivals of all its objects, epoch ms.
    """

    name: str
    slot: int
    first: int
    last: int
    rows: int
    bytes: int
    arrival_first: int
    arrival_last: int


@dataclass(frozen=True, slots=True)
class Index:
    """What an archive holds.

    Attributes:
        uri: Of the archive.
        pieces: The cover, by slot and first object.
        refused: (reason, how often) of files that were left out.
    """

    uri: str
    pieces: tuple[Piece, ...]
    refused: tuple[tuple[str, int], ...]

    @property
    def rows(self) -> int:
        """Objects in all."""
        return sum(piece.last - piece.first + 1 for piece in self.pieces)

    @property
    def arrivals_ms(self) -> tuple[int, int]:
        """The least and the greatest arrival."""
        return (
            min(piece.arrival_first for piece in self.pieces),
            max(piece.arrival_last for piece in self.pieces),
        )


def index_archive(session: SparkSession, uri: str) -> Index:
    """Looks through all files of an archive, reading each to its end.

    Raises:
        InvalidArgument: It cannot be opened, or it holds no file of the system.
    """
    blobs = open_blobs(uri)
    names = piece_names(blobs)
    if not names:
        has_parts = bool(blobs.list("compacted/"))
        why = "an unfinished compaction" if has_parts else "no slices/ and no checkpoints/"
        raise InvalidArgument(f"{uri} holds {why}", field="archive")
    tasks = min(len(names), 8 * session.sparkContext.defaultParallelism)
    # Neighbours are of like size: dealt out in turns, tasks take about as long as each other.
    dealt = ["\n".join(names[turn::tasks]) for turn in range(tasks)]
    found = in_tasks(session, dealt, _inspecting(uri), _PIECE_TYPES).toArrow().to_pylist()
    refused: dict[str, int] = defaultdict(int)
    pieces = []
    for row in found:
        reason = row.pop("refusal")
        if reason is not None:
            refused[f"{row['name']}: {reason}"] += 1
        else:
            pieces.append(Piece(**row))
    return Index(uri, tuple(cover(pieces)), tuple(sorted(refused.items())))


def piece_names(blobs: Blobs) -> list[str]:
    """Returns the names of the blobs that may hold objects."""
    try:
        listed = orjson.loads(blobs.read(MANIFEST))
        return [one["name"] for one in listed["slices"]]
    except BlobNotFound:
        pass
    except (orjson.JSONDecodeError, LookupError, TypeError):
        raise InvalidArgument(f"{MANIFEST} is damaged", field="archive") from None
    newest: dict[str, str] = {}
    for name in blobs.list(f"checkpoints/{SLOTS}/"):
        newest[name.rpartition("/")[0]] = name
    return blobs.list("slices/") + list(newest.values())


def cover(pieces: Sequence[Piece]) -> list[Piece]:
    """Chooses pieces that hold every object of their slots once, the widest first."""
    chosen: list[Piece] = []
    slot, reached = -1, -1
    for piece in sorted(pieces, key=lambda p: (p.slot, p.first, -p.last)):
        if piece.slot != slot:
            slot, reached = piece.slot, -1
        if piece.last > reached and piece.last >= piece.first:
            chosen.append(replace(piece, first=max(piece.first, reached + 1)))
            reached = piece.last
    return chosen


def _inspecting(uri: str) -> Callable[[Iterator[str]], Iterator[pa.RecordBatch]]:
    def inspect(items: Iterator[str]) -> Iterator[pa.RecordBatch]:
        blobs = open_blobs(uri)
        for item in items:
            rows = [_inspected(blobs, name) for name in item.split("\n")]
            yield pa.RecordBatch.from_pylist(rows, schema=_PIECE_SCHEMA)

    return inspect


def _inspected(blobs: Blobs, name: str) -> dict[str, Any]:
    try:
        if match := _SLICE.fullmatch(name):
            slot, first, last = (int(part) for part in match.groups())
            return _inspected_slice(blobs.read(name), name, slot, first, last)
        if match := _CHECKPOINT.fullmatch(name):
            return _inspected_checkpoint(blobs.read(name), name, int(match[1]))
        return {"name": name, "refusal": "has no name of a slice: left by an unfinished copy?"}
    except BlobNotFound:
        # Merged into a larger one, or out of its time, since the names were listed.
        return {"name": name, "refusal": "has left the archive meanwhile"}
    except (Internal, pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return {"name": name, "refusal": f"is damaged or cut off: {reason:.120}"}


def _inspected_slice(
    contents: bytes, name: str, slot: int, first: int, last: int
) -> dict[str, Any]:
    file = pq.ParquetFile(pa.BufferReader(contents))
    if (file.schema_arrow.metadata or {}).get(FORM) != VERSION:
        raise CorruptSlice("is no slice, or of a later version")
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


def stored_rows(state: State) -> StoredRows:
    """Returns the objects of a slot's checkpoint that are in no slice yet."""
    columns = {n.removeprefix("store."): c for n, c in state.items() if n.startswith("store.")}
    return StoredRows.from_columns(columns)


def piece_rows(blobs: Blobs, piece: Piece) -> Iterator[StoredRows]:
    """Yields the objects of a piece; those of a slice that was merged meanwhile from its heirs.

    Raises:
        Unavailable: They have left the archive.
    """
    for name, contents in _read_following(blobs, piece):
        is_slice = _SLICE.fullmatch(name) is not None
        rows = read_rows(contents) if is_slice else stored_rows(read_state(contents))
        wanted = (rows.seqs >= piece.first) & (rows.seqs <= piece.last)
        yield rows if wanted.all() else rows.take(np.flatnonzero(wanted))


def _read_following(blobs: Blobs, piece: Piece) -> list[tuple[str, bytes]]:
    """Returns (name, contents) of what holds a piece's objects now."""
    try:
        return [(piece.name, blobs.read(piece.name))]
    except BlobNotFound:
        pass
    for name in blobs.list(f"slices/{piece.slot:05}/"):
        match = _SLICE.fullmatch(name)
        if match and int(match[2]) <= piece.first and piece.last <= int(match[3]):
            return [(name, blobs.read(name))]
    raise Unavailable(f"{piece.name} has left the archive while the job ran; begin it again")


def read_objects(session: SparkSession, index: Index, columns: Sequence[str]) -> DataFrame:
    """Returns the objects of an archive with some of their columns."""
    return in_tasks(
        session, task_items(session, index), _reading(index.uri, tuple(columns)), ddl_of(columns)
    )


def task_items(session: SparkSession, index: Index) -> list[str]:
    """Returns the pieces of an archive, dealt out to tasks; see `pieces_of`."""
    groups = tasks_of(index.pieces, session.sparkContext.defaultParallelism)
    return [item_of(group) for group in groups]


def item_of(pieces: Sequence[Piece]) -> str:
    """Returns what a task is told of its pieces."""
    return orjson.dumps([asdict(piece) for piece in pieces]).decode()


def pieces_of(item: str) -> list[Piece]:
    """Returns the pieces of a task."""
    return [Piece(**one) for one in orjson.loads(item)]


def tasks_of(pieces: Sequence[Piece], parallelism: int) -> list[list[Piece]]:
    """Deals pieces out to tasks of about as many objects each, in order."""
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
    """Yields a piece's objects, decoding only the columns that are wanted."""
    for name, contents in _read_following(blobs, piece):
        if _SLICE.fullmatch(name) is None:
            one = replace(piece, name=name)
            for rows in piece_rows(blobs, one):
                yield _stored_batch(rows, columns)
            continue
        file = pq.ParquetFile(pa.BufferReader(contents))
        wanted = [_NAMES.get(column, column) for column in columns]
        for batch in file.iter_batches(_BATCH_ROWS, columns=[*wanted, "seq"]):
            seqs = batch.column("seq")
            inside = pc.and_(pc.greater_equal(seqs, piece.first), pc.less_equal(seqs, piece.last))
            whole = pc.all(inside).as_py()
            yield _renamed(batch if whole else batch.filter(inside), columns)


def _renamed(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
    arrays = []
    for name in columns:
        array = batch.column(_NAMES.get(name, name))
        wanted = OBJECT_TYPES[name][1]
        # The same bits: Spark has no numbers without sign.
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


def read_checkpoint(blobs: Blobs, name: str) -> tuple[State | None, str]:
    """Returns (state, "") of a checkpoint, or (None, why it cannot be read)."""
    try:
        return read_state(blobs.read(name)), ""
    except BlobNotFound:
        return None, "has left the archive meanwhile"
    except Internal as error:
        return None, f"is damaged or cut off: {error}"
