"""The rows of a bulk request that go to their owners as columns: plain queries, and removals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from sirocco_api.v1 import query_service_pb2 as pb

from sirocco.codec.plain_queries import read_plain_queries, read_removed_queries
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.text.small_operators import mark_small_operators
from sirocco.model.access import Grant
from sirocco.model.hints.warnings import warnings_of_text
from sirocco.model.query import query_handle
from sirocco.protocol.contract.plain_queries import PlainQueries, RemovedQueries
from sirocco.services.router.changes.row_warnings import WARNED_ROWS_MAX

# From so many queries on; what columns cost for a single one does not pay.
COLUMN_ROWS_MIN = 8

Queries = TypeVar("Queries", PlainQueries, RemovedQueries)


@dataclass(frozen=True, slots=True)
class ColumnRows(Generic[Queries]):
    """Queries of a request, as columns.

    Attributes:
        rows: i8[n], ascending, their rows in the request.
        queries: with n rows.
        warnings: of rows of the request, as many as one response names.
    """

    rows: NDArray[np.intp]
    queries: Queries
    warnings: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def of_partitions(self, partitions: int) -> dict[int, ColumnRows[Queries]]:
        """Returns those of each registry partition."""
        own = (self.queries.handles % np.uint64(partitions)).astype(np.int64)
        found: dict[int, ColumnRows[Queries]] = {}
        for partition in sorted_distinct(own).tolist():
            rows = np.flatnonzero(own == partition)
            found[partition] = ColumnRows(self.rows[rows], self.queries.take(rows))
        return found

    def others(self, count: int) -> list[int]:
        """Returns the other rows of a request with so many."""
        is_other = np.ones(count, np.bool_)
        is_other[self.rows] = False
        return np.flatnonzero(is_other).tolist()


def plain_rows(
    request: pb.RegisterQueriesRequest | pb.UpdateQueriesRequest,
) -> ColumnRows[PlainQueries] | None:
    """Returns the plain queries of a checked request; None if there are none.

    Queries whose id is in several rows are not among them: these are decided in order.
    """
    count = len(request.queries)
    if count < COLUMN_ROWS_MIN:
        return None
    found = read_plain_queries(request.SerializeToString(), count)
    if found is None:
        return None
    columns = ColumnRows(*found)
    columns = _alone(columns, [request.queries[row].id for row in columns.others(count)])
    if not len(columns.rows):
        return None
    return ColumnRows(columns.rows, columns.queries, _warnings(columns))


def removal_rows(
    request: pb.UnregisterQueriesRequest, grant: Grant
) -> ColumnRows[RemovedQueries] | None:
    """Returns the removals of a checked request that can be columns; None if there are none.

    Those of an id that is in several rows are not among them.
    """
    count = len(request.ids)
    if count < COLUMN_ROWS_MIN:
        return None
    if grant.tenant:
        request = pb.UnregisterQueriesRequest(ids=map(grant.inward, request.ids))
    columns = ColumnRows(*read_removed_queries(request.SerializeToString(), count))
    columns = _alone(columns, [request.ids[row] for row in columns.others(count)])
    return columns if len(columns.rows) else None


def _alone(columns: ColumnRows[Queries], others: Sequence[str]) -> ColumnRows[Queries]:
    """Returns the rows whose id is in no other row; `others` are the ids of the other rows."""
    handles = columns.queries.handles
    _, place, counts = np.unique(handles, return_inverse=True, return_counts=True)
    is_alone = counts[place] == 1
    if others:
        is_alone &= ~np.isin(handles, np.array(list(map(query_handle, others)), np.uint64))
    if is_alone.all():
        return columns
    kept = np.flatnonzero(is_alone)
    return ColumnRows(columns.rows[kept], columns.queries.take(kept))


def _warnings(columns: ColumnRows[PlainQueries]) -> dict[int, Sequence[str]]:
    """Returns the warnings of plain queries, by row of the request.

    Small operators are all that they can have: their texts are words.
    """
    rows, queries = columns.rows, columns.queries
    is_warned = np.empty(len(rows), np.bool_)
    mark_small_operators(queries.texts, queries.text_offsets, is_warned)
    found: dict[int, Sequence[str]] = {}
    for place in np.flatnonzero(is_warned)[:WARNED_ROWS_MAX].tolist():
        begin, end = queries.text_offsets[place : place + 2].tolist()
        found[int(rows[place])] = warnings_of_text(queries.texts[begin:end].tobytes().decode())
    return found
