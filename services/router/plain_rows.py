"""The plain queries of a bulk request, which go to their owners as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from sirocco_api.v1 import query_service_pb2 as pb

from sirocco.codec.plain_queries import read_plain_queries
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.text.small_operators import mark_small_operators
from sirocco.model.hints.warnings import warnings_of_text
from sirocco.model.query import query_handle
from sirocco.protocol.contract.plain_queries import PlainQueries
from sirocco.services.router.row_warnings import WARNED_ROWS_MAX

# From so many queries on; what columns cost for a single one does not pay.
PLAIN_ROWS_MIN = 8


@dataclass(frozen=True, slots=True)
class PlainRows:
    """Plain queries of a request.

    Attributes:
        rows: i8[n], ascending, their rows in the request.
        queries: with n rows.
        warnings: of rows of the request, as many as one response names.
    """

    rows: NDArray[np.intp]
    queries: PlainQueries
    warnings: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def of_partitions(self, partitions: int) -> dict[int, PlainRows]:
        """Returns those of each registry partition."""
        own = (self.queries.handles % np.uint64(partitions)).astype(np.int64)
        found: dict[int, PlainRows] = {}
        for partition in sorted_distinct(own).tolist():
            rows = np.flatnonzero(own == partition)
            found[partition] = PlainRows(self.rows[rows], self.queries.take(rows))
        return found


def plain_rows(request: pb.RegisterQueriesRequest | pb.UpdateQueriesRequest) -> PlainRows | None:
    """Returns the plain queries of a checked request; None if there are none.

    Queries whose id is in several rows are not among them: these are decided in order.
    """
    count = len(request.queries)
    if count < PLAIN_ROWS_MIN:
        return None
    found = read_plain_queries(request.SerializeToString(), count)
    if found is None:
        return None
    rows, queries = found
    is_other = np.ones(count, np.bool_)
    is_other[rows] = False
    others = [query_handle(request.queries[r].id) for r in np.flatnonzero(is_other).tolist()]
    _, place, counts = np.unique(queries.handles, return_inverse=True, return_counts=True)
    is_alone = counts[place] == 1
    if others:
        is_alone &= ~np.isin(queries.handles, np.array(others, np.uint64))
    if not is_alone.all():
        kept = np.flatnonzero(is_alone)
        if not len(kept):
            return None
        rows, queries = rows[kept], queries.take(kept)
    return PlainRows(rows, queries, _warnings(rows, queries))


def _warnings(rows: NDArray[np.intp], queries: PlainQueries) -> dict[int, Sequence[str]]:
    """Returns the warnings of plain queries, by row of the request.

    Small operators are all that they can have: their texts are words.
    """
    is_warned = np.empty(len(rows), np.bool_)
    mark_small_operators(queries.texts, queries.text_offsets, is_warned)
    found: dict[int, Sequence[str]] = {}
    for place in np.flatnonzero(is_warned)[:WARNED_ROWS_MAX].tolist():
        begin, end = queries.text_offsets[place : place + 2].tolist()
        found[int(rows[place])] = warnings_of_text(queries.texts[begin:end].tobytes().decode())
    return found
