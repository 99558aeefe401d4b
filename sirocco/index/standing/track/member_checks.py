"""Checks of members' objects against the queries that they were inside of."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sirocco.index.base.query_rows import FLAG_RESIDUAL
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.standing.export import export_queries
from sirocco.index.standing.range_index import RangeIndex
from sirocco.index.standing.text.text_terms import terms_of_texts
from sirocco.index.standing.track.track_pairs import Members
from sirocco.model.term_hashing import TermHashing

__all__ = ["accepted_pairs", "satisfied_members"]

# Members' objects evaluated together, and maximum number of their pairs with queries.
_OBJECTS_MAX = 1_024
_PAIRS_MAX = 1 << 20


def accepted_pairs(
    object_rows: npt.NDArray[np.integer],
    query_rows: npt.NDArray[np.int32],
    residual: npt.NDArray[np.intp],
    accepts: Callable[[int, int], bool] | None,
) -> npt.NDArray[np.bool_]:
    """Returns bool[m], the pairs that hold after the caller's decisions."""
    if accepts is None:
        raise ValueError("accepts: is missing, and a query needs it")
    holds = np.ones(len(query_rows), np.bool_)
    pairs = zip(object_rows[residual].tolist(), query_rows[residual].tolist(), strict=True)
    holds[residual] = [accepts(object_row, query_row) for object_row, query_row in pairs]
    return holds


def satisfied_members(
    ranges: RangeIndex,
    flags: npt.NDArray[np.uint8],
    members: Members,
    objects_of: Callable[[npt.NDArray[np.int32]], StoredRows],
    begins_ms: npt.NDArray[np.int64],
    position: int,
    accepts: Callable[[StoredRows], Callable[[int, int], bool]],
    hashing: TermHashing,
) -> npt.NDArray[np.bool_]:
    """Returns bool[m], whether the object of each member satisfies its query at a position.

    An index of only the members' queries is searched, once per object: an object may be inside
    thousands of queries, and satisfy as many that are not in question here.

    Args:
        ranges: holds the queries.
        flags: u1[rows], of the queries.
        members: pairs with known objects.
        objects_of: returns members' objects by number, one row each.
        begins_ms: i8[m], earlier objects do not count.
        position: position in the slot.
        accepts: returns, for some objects, the `accepts` of `match`.
        hashing: numbers the terms.
    """
    rows, own = np.unique(members.query_rows, return_inverse=True)
    numbers, objects = np.unique(members.numbers, return_inverse=True)
    index = RangeIndex(ranges._grid, len(rows), hashing)
    row_of = np.argsort(index.insert(export_queries(ranges, rows), position))
    pairs = objects.astype(np.int64) * len(rows) + own
    order = np.argsort(pairs, kind="stable")
    holds = np.zeros(len(pairs), np.bool_)
    step = int(np.clip(_PAIRS_MAX // max(len(rows), 1), 1, _OBJECTS_MAX))
    for begin in range(0, len(numbers), step):
        found = objects_of(numbers[begin : begin + step])
        matched_objects, matched_rows = _matches_at(index, found, position, hashing)
        matched = (matched_objects.astype(np.int64) + begin) * len(rows) + row_of[matched_rows]
        bounds = np.searchsorted(pairs, np.array([begin, begin + step]) * len(rows), sorter=order)
        chosen = order[slice(*bounds)]
        chosen = chosen[np.isin(pairs[chosen], matched)]
        chosen = chosen[found.arrivals_ms[objects[chosen] - begin] >= begins_ms[chosen]]
        query_rows = members.query_rows[chosen]
        residual = np.flatnonzero(flags[query_rows] & FLAG_RESIDUAL)
        own_rows = (objects[chosen] - begin).astype(np.int32)
        holds[chosen] = accepted_pairs(own_rows, query_rows, residual, accepts(found))
    return holds


def _matches_at(
    index: RangeIndex, found: StoredRows, position: int, hashing: TermHashing
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Returns (row of `found`, query row) i4[p] of the matches at a position."""
    # Of another query than before: its phrases were not looked for then.
    objects = found.objects
    terms = terms_of_texts(index.vocabulary, hashing, objects.text, objects.text_offsets)
    pairs = index.match(
        objects.lon,
        objects.lat,
        terms.offsets,
        terms.terms,
        found.arrivals_ms,
        np.full(len(found), position, np.int64),
    )
    return pairs.object_rows, pairs.query_rows
