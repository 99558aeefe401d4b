"""Records of the registry ⇄ columns, many at a time; see `PlainChanges` and `Removals`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sirocco.codec.plain_queries import MARGIN, ReadMessages
from sirocco.kernels.base.change_records import (
    CHANGE_NUMBERS,
    FIXED_BYTES_MAX,
    REMOVAL,
    REMOVAL_BYTES_MAX,
    read_changes,
    write_changes,
    write_removals,
)
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.protocol.contract.plain_queries import (
    ChangeColumns,
    PlainChanges,
    Removals,
    pack_subscribers,
)

Rows = NDArray[np.intp]


def read_change_columns(values: Sequence[bytes]) -> list[tuple[Rows, ChangeColumns]]:
    """Reads the changes of plain queries, and the removals, among some records of the registry.

    Args:
        values: of the records, each a `ChangeRequest`.

    Returns:
        Of each kind that is among them the rows, ascending, and the changes. All other records are
        left to the usual reader.
    """
    ends = np.cumsum([len(value) for value in values], dtype=np.int64)
    begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    read = ReadMessages.of(b"".join([*values, MARGIN]), len(values))
    hashes = np.empty((len(values), 2), np.uint64)
    numbers = np.empty((len(values), CHANGE_NUMBERS), np.int64)
    read_changes(read.data, begins, ends, read.kinds, read.spans, read.boxes, hashes, numbers)
    is_timely = np.abs(numbers[:, 0]) <= DEFAULT_LIMITS.ts_ms
    is_removal = read.kinds == REMOVAL
    found: list[tuple[Rows, ChangeColumns]] = []
    plain = np.flatnonzero((read.kinds != 0) & ~is_removal & is_timely)
    if len(plain):
        found.append(_plain_changes(read, plain, hashes, numbers))
    removed = np.flatnonzero(is_removal & is_timely)
    if len(removed):
        starts_ms, revisions, epochs = numbers[removed, :3].T.copy()
        found.append((removed, Removals(hashes[removed, 0], starts_ms, revisions, epochs)))
    return [each for each in found if len(each[0])]


def _plain_changes(
    read: ReadMessages, rows: Rows, hashes: NDArray[np.uint64], numbers: NDArray[np.int64]
) -> tuple[Rows, PlainChanges]:
    queries = read.queries(rows)
    # Digests of other versions and handles of other ids are left to the usual reader.
    is_sound = (queries.handles == hashes[rows, 0]) & (queries.digests == hashes[rows, 1])
    if not is_sound.all():
        kept = np.flatnonzero(is_sound)
        rows, queries = rows[kept], queries.take(kept)
    starts_ms, revisions, epochs, sinces, are_starts_given = numbers[rows].T.copy()
    return rows, PlainChanges(
        queries=queries,
        starts_ms=starts_ms,
        expected_revisions=revisions,
        epochs=epochs,
        sinces=sinces,
        are_starts_given=are_starts_given != 0,
    )


def write_change_columns(changes: ChangeColumns) -> list[bytes]:
    """Returns the `ChangeRequest` of each change."""
    count = len(changes)
    ends = np.empty(count, np.int64)
    if isinstance(changes, Removals):
        out = np.empty(count * REMOVAL_BYTES_MAX, np.uint8)
        columns = changes.starts_ms, changes.expected_revisions, changes.epochs
        write_removals(changes.handles, np.stack(columns, axis=1), out, ends)
    else:
        out = _written(changes, ends)
    # Without the room that was left over.
    data, bounds = out[: ends[-1] if count else 0].tobytes(), [0, *ends.tolist()]
    return [data[begin:end] for begin, end in pairwise(bounds)]


def _written(changes: PlainChanges, ends: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Returns the messages of changes, one after the other; sets where each ends."""
    queries = changes.queries
    names = queries.names
    flat, flat_offsets = pack_subscribers(names.subscriber_rows, names.subscribers)
    count = len(changes)
    room = count * FIXED_BYTES_MAX + len(names.ids) + len(flat) + len(queries.texts)
    out, numbers = np.empty(room, np.uint8), np.empty((count, CHANGE_NUMBERS), np.int64)
    for column, values in enumerate(
        (
            *(changes.starts_ms, changes.expected_revisions, changes.epochs),
            *(changes.sinces, changes.are_starts_given),
        )
    ):
        numbers[:, column] = values
    write_changes(
        *(names.ids, names.id_offsets, flat, flat_offsets, queries.texts, queries.text_offsets),
        *(queries.has_box, queries.rows.boxes, names.handles, queries.digests, numbers, out, ends),
    )
    return out
