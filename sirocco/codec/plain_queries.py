"""Requests for many queries → columns: plain range queries, and ids of queries to be removed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.plain_queries import read_queries, split_rows
from sirocco.protocol.contract.plain_queries import (
    PlainQueries,
    RemovedQueries,
    Rows,
    plain_queries,
    removed_queries,
)

# Field `queries` of `RegisterQueriesRequest` and `UpdateQueriesRequest`, length-delimited.
_QUERIES_TAG = 1 << 3 | 2

# Field `ids` of `UnregisterQueriesRequest`, likewise.
_IDS_TAG = 1 << 3 | 2

# Kernels read whole words.
MARGIN = b"\0" * 8


@dataclass(frozen=True, slots=True)
class ReadMessages:
    """What a kernel has read of n messages; see `read_queries`."""

    data: NDArray[np.uint8]
    kinds: NDArray[np.uint8]
    spans: NDArray[np.int64]
    boxes: NDArray[np.float64]

    @classmethod
    def of(cls, data: bytes, count: int) -> ReadMessages:
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
    read = ReadMessages.of(request + MARGIN, count)
    if split_rows(read.data[: len(request)], _QUERIES_TAG, begins, ends) != count:
        return None
    read_queries(read.data, begins, ends, read.kinds, read.spans, read.boxes)
    rows = np.flatnonzero(read.kinds)
    return (rows, read.queries(rows)) if len(rows) else None


def read_removed_queries(request: bytes, count: int) -> tuple[Rows, RemovedQueries]:
    """Reads the ids of a bulk removal that can be columns: not empty, and not too long.

    Args:
        request: the message as it was checked and written.
        count: of all its ids.

    Returns:
        Their rows, ascending, and the queries.
    """
    begins, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    data = np.frombuffer(request, np.uint8)
    if split_rows(data, _IDS_TAG, begins, ends) != count:
        # None is a column then: each id is decided by itself.
        begins, ends = begins[:0], ends[:0]
    return removed_queries(data, begins, ends)
