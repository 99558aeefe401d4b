"""Merges the small slices of an archive into large ones, as a separate dataset.

Slices are not replaced in place. Checkpoints and running evaluators name a slice by its first and
last object and read it under exactly this name (docs/adr/0012,
`sirocco/protocol/evaluator/slot/archived_slices.py`): they would not find a large slice there, and
to remove the small ones would break searches and recoveries. So the large ones are written
elsewhere, in the same format, and these jobs read them as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession

from sirocco.codec.slices import write_slice
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.sealing import seal
from sirocco.model.errors import InvalidArgument
from sirocco.transport.archive import Archive, open_archive
from sirocco.transport.errors import BlobNotFound
from sirocco_spark.archive import Index
from sirocco_spark.blobs import open_blobs
from sirocco_spark.pieces import MANIFEST, Piece, held_now, item_of, pieces_of
from sirocco_spark.session import in_tasks

# A task holds this many objects twice, once as read and once as sealed: about a gigabyte.
ROWS_MAX = 524_288

_WRITTEN_DDL = "name string, rows long, bytes long, arrival_first long, arrival_last long"
_SCHEMA = pa.schema(
    {
        "name": pa.string(),
        **dict.fromkeys(("rows", "bytes", "arrival_first", "arrival_last"), pa.int64()),
    }
)


def groups_of(pieces: Sequence[Piece], rows_max: int) -> list[list[Piece]]:
    """Groups neighbours of a slot into slices of at most `rows_max` objects.

    A slice holds consecutive objects, so no group spans a gap.
    """
    groups: list[list[Piece]] = []
    rows = 0
    for piece in pieces:
        size = piece.last - piece.first + 1
        before = groups[-1][-1] if groups else None
        follows = before is not None and (before.slot, before.last + 1) == (piece.slot, piece.first)
        if not follows or rows + size > rows_max:
            groups.append([])
            rows = 0
        groups[-1].append(piece)
        rows += size
    return groups


def compacted_name(group: Sequence[Piece]) -> str:
    """Returns the name of a group's slice."""
    return f"compacted/{group[0].slot:05}/{group[0].first:016}-{group[-1].last:016}"


def open_output(uri: str) -> Archive:
    """Opens the place of a compacted dataset.

    Raises:
        InvalidArgument: The URI is invalid, or there is a compacted dataset already.
        Unavailable: It cannot be reached.
    """
    try:
        archive = open_archive(uri)
    except ValueError as error:
        raise InvalidArgument(str(error), field="out") from None
    try:
        archive.read(MANIFEST)
    except BlobNotFound:
        return archive
    raise InvalidArgument(f"{uri} holds a compacted dataset already", field="out")


def compact(session: SparkSession, index: Index, out: str, rows_max: int) -> list[dict[str, Any]]:
    """Writes the slices; returns the description of each. Repeating it writes the same."""
    items = [item_of(group) for group in groups_of(index.pieces, rows_max)]
    written = in_tasks(session, items, _merging(index.uri, out), _WRITTEN_DDL).toArrow().to_pylist()
    return sorted(written, key=lambda one: one["name"])


def publish(archive: Archive, manifest: dict[str, Any]) -> None:
    """Makes the dataset visible: removes files of killed runs, then writes the manifest."""
    named = {one["name"] for one in manifest["slices"]}
    for name in archive.list("compacted/"):
        if name not in named:
            archive.delete(name)
    archive.write(MANIFEST, orjson.dumps(manifest, option=orjson.OPT_INDENT_2))


def _merging(uri: str, out: str) -> Callable[[Iterator[str]], Iterator[pa.RecordBatch]]:
    def merge(items: Iterator[str]) -> Iterator[pa.RecordBatch]:
        blobs, archive = open_blobs(uri), open_archive(out)
        for group in map(pieces_of, items):
            parts = [part.rows() for piece in group for part in held_now(blobs, piece)]
            row = _write(archive, compacted_name(group), StoredRows.concat(parts))
            yield pa.RecordBatch.from_pylist([row], schema=_SCHEMA)

    return merge


def _write(archive: Archive, name: str, rows: StoredRows) -> dict[str, Any]:
    # In log order: equal objects are then sealed into equal bytes, whatever their former order.
    contents = write_slice(seal(rows.take(rows.seqs.argsort(kind="stable"))))
    archive.write(name, contents)
    return {
        "name": name,
        "rows": len(rows),
        "bytes": len(contents),
        "arrival_first": int(rows.arrivals_ms.min()),
        "arrival_last": int(rows.arrivals_ms.max()),
    }
