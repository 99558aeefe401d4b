"""Messages of plain range queries ⇄ columns, many at a time; see `PlainQueries`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.plain_queries import (
    CHANGE_NUMBERS,
    FIXED_BYTES_MAX,
    read_changes,
    read_queries,
    split_rows,
    write_changes,
)
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.protocol.contract.plain_queries import (
    PlainChanges,
    PlainQueries,
    pack_subscribers,
    plain_queries,
)

# Field `queries` of `RegisterQueriesRequest` and `UpdateQueriesRequest`, length-delimited.
_QUERIES_TAG = 1 << 3 | 2

# Kernels read whole words.
_MARGIN = b"\0" * 8


@dataclass(frozen=True, slots=True)
class _Read:
    """What a kernel has read of n messages; see `read_queries`."""

    data: NDArray[np.uint8]
    kinds: NDArray[np.uint8]
    spans: NDArray[np.int64]
    boxes: NDArray[np.float64]

    @classmethod
    def of(cls, data: bytes, count: int) -> _Read:
        """Returns the columns to be filled."""
        return cls(
            np.frombuffer(data, np.uint8),
            np.empty(count, np.uint8),
            np.empty((count, 6), np.int64),
            np.empty((count, 4), np.float64),
        )

    def queries(self, rows: NDArray[np.intp]) -> PlainQueries:
        """Returns the plain queries of these rows."""
        has_box = self.kinds[rows] == 2
        return plain_queries(self.data, self.spans[rows], has_box, self.boxes[rows])


def read_plain_queries(request: bytes, count: int) -> tuple[NDArray[np.intp], PlainQueries] | None:
    """Reads the plain queries of a bulk request; None if there are none.

    Args:
        request: the message as it was checked and written.
        count: of all its queries.

    Returns:
        Their rows, and the queries.
    """
    begins, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    read = _Read.of(request + _MARGIN, count)
    if split_rows(read.data[: len(request)], _QUERIES_TAG, begins, ends) != count:
        return None
    read_queries(read.data, begins, ends, read.kinds, read.spans, read.boxes)
    rows = np.flatnonzero(read.kinds)
    return (rows, read.queries(rows)) if len(rows) else None


def read_plain_changes(values: Sequence[bytes]) -> tuple[NDArray[np.intp], PlainChanges] | None:
    """Reads the changes of plain queries among some records of the registry; None without any.

    Args:
        values: of the records, each a `ChangeRequest`.

    Returns:
        Their rows, and the changes.
    """
    ends = np.cumsum([len(value) for value in values], dtype=np.int64)
    begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    read = _Read.of(b"".join([*values, _MARGIN]), len(values))
    hashes = np.empty((len(values), 2), np.uint64)
    numbers = np.empty((len(values), CHANGE_NUMBERS), np.int64)
    read_changes(read.data, begins, ends, read.kinds, read.spans, read.boxes, hashes, numbers)
    rows = np.flatnonzero(read.kinds)
    if not len(rows):
        return None
    queries = read.queries(rows)
    # Digests of other versions and handles of other ids are left to the usual reader.
    is_sound = (queries.handles == hashes[rows, 0]) & (queries.digests == hashes[rows, 1])
    is_sound &= np.abs(numbers[rows, 0]) <= DEFAULT_LIMITS.ts_ms
    if not is_sound.all():
        kept = np.flatnonzero(is_sound)
        if not len(kept):
            return None
        rows, queries = rows[kept], queries.take(kept)
    numbers = numbers[rows]
    return rows, PlainChanges(
        queries=queries,
        starts_ms=numbers[:, 0].copy(),
        expected_revisions=numbers[:, 1].copy(),
        epochs=numbers[:, 2].copy(),
        sinces=numbers[:, 3].copy(),
        are_starts_given=numbers[:, 4] != 0,
    )


def write_plain_changes(changes: PlainChanges) -> list[bytes]:
    """Returns the `ChangeRequest` of each change."""
    queries = changes.queries
    names = queries.names
    flat, flat_offsets = pack_subscribers(names.subscriber_rows, names.subscribers)
    count = len(changes)
    room = count * FIXED_BYTES_MAX + len(names.ids) + len(flat) + len(queries.texts)
    out, ends = np.empty(room, np.uint8), np.empty(count, np.int64)
    numbers = np.empty((count, CHANGE_NUMBERS), np.int64)
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
    data, bounds = out.tobytes(), [0, *ends.tolist()]
    return [data[begin:end] for begin, end in pairwise(bounds)]
