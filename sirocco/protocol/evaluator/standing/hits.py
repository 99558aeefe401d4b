"""Pairs of objects and queries, and how those of several families become one list."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.query_table import QueryTable
from sirocco.index.standing.track.track_pairs import StayEvents
from sirocco.protocol.evaluator.standing.query_families import RANGE, Names, Rows, SlotQueries


@dataclass(frozen=True, slots=True)
class Hits:
    """Pairs of objects and queries.

    Attributes:
        names: what `query_rows` are rows of.
        object_rows: i4[m], ascending.
        query_rows: i4[m].
        changes, distances_m: as in `MatchColumns`.
        are_candidates: bool[m], of knn queries; None: none are, or the hits have one position.
    """

    names: Names
    object_rows: Rows
    query_rows: Rows
    changes: NDArray[np.uint8] | None = None
    distances_m: NDArray[np.float64] | None = None
    are_candidates: NDArray[np.bool_] | None = None

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
    found = [hits for _, hits in present]
    changes = _filled([hits.changes for hits in found], found, np.uint8)
    distances_m = _filled([hits.distances_m for hits in found], found, np.float64)
    are_candidates = _filled([hits.are_candidates for hits in found], found, np.bool_)
    return Hits(
        names,
        object_rows[order],
        query_rows[order],
        None if changes is None else changes[order],
        None if distances_m is None else distances_m[order],
        None if are_candidates is None else are_candidates[order],
    )


def ordered_events(reported: StayEvents, table: QueryTable) -> tuple[StoredRows, Hits]:
    """Returns events of tracked values in an order that every evaluator finds, and their objects.

    An object is listed once for all events of a group that concern it.
    """
    sessions, numbers = reported.objects.sessions, reported.objects.numbers
    handles = table.handle_rows(reported.query_rows)
    places = reported.object_rows
    order = np.lexsort((handles, places, numbers[places], sessions[places], reported.order))
    groups, places = reported.order[order], places[order]
    is_first = np.ones(len(order), np.bool_)
    is_first[1:] = (groups[1:] != groups[:-1]) | (places[1:] != places[:-1])
    rows = (np.cumsum(is_first) - 1).astype(np.int32)
    hits = Hits(table, rows, reported.query_rows[order], reported.events[order])
    return reported.objects.take(places[is_first]), hits


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
