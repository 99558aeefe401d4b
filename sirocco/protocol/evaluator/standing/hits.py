"""Pairs of objects and queries, and how those of several families become one list."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.evaluator.standing.query_families import RANGE, Names, Rows, SlotQueries


@dataclass(frozen=True, slots=True)
class Hits:
    """Pairs of objects and queries.

    Attributes:
        names: what `query_rows` are rows of.
        object_rows: i4[m], ascending.
        query_rows: i4[m].
        changes, distances_m: as in `MatchColumns`.
    """

    names: Names
    object_rows: Rows
    query_rows: Rows
    changes: NDArray[np.uint8] | None = None
    distances_m: NDArray[np.float64] | None = None

    def at(self, rows: NDArray[np.intp]) -> Hits:
        """The same hits where the objects are these rows of a larger batch."""
        return replace(self, object_rows=rows[self.object_rows].astype(np.int32))


def joined_hits(parts: list[tuple[int, Hits]], names: SlotQueries) -> Hits:
    """Joins hits of several families, ordered by object.

    Args:
        parts: (family, its hits).
        names: all tables as one; hits of range queries alone keep those of their own table.
    """
    present = [(family, hits) for family, hits in parts if len(hits.object_rows)]
    if not present:
        none = np.empty(0, np.int32)
        return Hits(names.tables[RANGE], none, none)
    if [family for family, _ in present] == [RANGE]:
        return present[0][1]
    object_rows = np.concatenate([hits.object_rows for _, hits in present])
    query_rows = np.concatenate(
        [names.rows_of(family, hits.query_rows) for family, hits in present]
    )
    order = np.argsort(object_rows, kind="stable")
    changes = _filled([h.changes for _, h in present], [h for _, h in present], np.uint8)
    distances_m = _filled([h.distances_m for _, h in present], [h for _, h in present], np.float64)
    return Hits(
        names,
        object_rows[order],
        query_rows[order],
        None if changes is None else changes[order],
        None if distances_m is None else distances_m[order],
    )


def _filled(columns: list[Any], hits: list[Hits], dtype: Any) -> NDArray[Any] | None:
    """Joins columns, with zeros for those that are missing; None when all are."""
    if all(column is None for column in columns):
        return None
    return np.concatenate(
        [
            np.zeros(len(each.object_rows), dtype) if column is None else column
            for column, each in zip(columns, hits, strict=True)
        ]
    )
