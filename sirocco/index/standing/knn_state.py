"""Standing kNN queries ⇄ named columns for a checkpoint.

Columns of n queries: `conj_offsets`, `pos_offsets`, `pos_terms`, `neg_offsets`, `neg_terms`, the
words of both, `expires_ms` and `flags` as in `QueryRows`; `points` f8[n, 2] (lon, lat); `k` i8[n];
`born` and `dead` i8[n], slot positions; `bounds_mm` i8[n]; `tells` u1[n], whether the bound is for
other slots: not known of the queries of an earlier version; `list_offsets` i8[n + 1] into the
entries `list_mm` (distances), `list_ids`, `list_sessions` and `list_numbers` u8[e], in the order of
`kernels.standing.knn_list`: a heap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sirocco.index.base.query_rows import FLAG_RESIDUAL, QueryRows
from sirocco.index.standing.export import export_rows
from sirocco.index.standing.knn_rows import KnnRows
from sirocco.kernels.standing.knn_list import ENTRY_WORDS
from sirocco.kernels.standing.knn_plan import (
    BOUND,
    COUNT_SHIFT,
    LATITUDE,
    LIST,
    LIST_SHIFT,
    LONGITUDE,
    MARK_RESIDUAL,
    SIZE_MASK,
)
from sirocco.kernels.standing.knn_region import BOUND_NONE
from sirocco.kernels.standing.pyramid import BORN, DEAD, ROW_WORDS

__all__ = ["export_state", "restore_state"]

_TEXT = ("conj_offsets", "pos_offsets", "pos_terms", "neg_offsets", "neg_terms", "expires_ms")
_WORDS = ("words", "word_offsets", "pos_word_rows", "neg_word_rows")
_ENTRIES = ("list_mm", "list_ids", "list_sessions", "list_numbers")
_WORLD = (-180.0, -90.0, 180.0, 90.0)


def export_state(index_rows: KnnRows, rows: npt.NDArray[np.int32]) -> dict[str, npt.NDArray[Any]]:
    """Returns the columns of rows (i4[n], in use)."""
    queries = export_rows(index_rows.store, index_rows.vocabulary, rows)
    own = index_rows.store.words.reshape(-1, ROW_WORDS)[rows]
    counts = (own[:, LIST] >> COUNT_SHIFT) & SIZE_MASK
    offsets, places = _places(own[:, LIST] >> LIST_SHIFT, counts)
    entries = index_rows.lists.words.reshape(-1, ENTRY_WORDS)[places]
    is_residual = index_rows.marks[rows] & MARK_RESIDUAL != 0
    return {
        **{name: getattr(queries, name) for name in (*_TEXT, *_WORDS)},
        "flags": np.where(is_residual, FLAG_RESIDUAL, 0).astype(np.uint8),
        "points": own[:, [LONGITUDE, LATITUDE]].view(np.float64),
        "k": own[:, LIST] & SIZE_MASK,
        "born": own[:, BORN].copy(),
        "dead": own[:, DEAD].copy(),
        "bounds_mm": own[:, BOUND].copy(),
        "tells": (index_rows.shared_mm[rows] != 0).astype(np.uint8),
        "list_offsets": offsets,
        **{name: entries[:, i].copy() for i, name in enumerate(_ENTRIES)},
    }


def restore_state(
    index_rows: KnnRows, state: Mapping[str, npt.NDArray[Any]]
) -> npt.NDArray[np.int32]:
    """Writes and places the queries of a state; returns i4[n], their rows."""
    n = len(state["k"])
    if n == 0:
        return np.empty(0, np.int32)
    rows = index_rows.write(_queries(state), state["points"], state["k"], state["born"])
    at = rows.astype(np.int64) * ROW_WORDS
    words = index_rows.store.words
    counts = np.diff(state["list_offsets"])
    _, places = _places(words[at + LIST] >> LIST_SHIFT, counts)
    entries = np.column_stack([state[name] for name in _ENTRIES])
    index_rows.lists.words.reshape(-1, ENTRY_WORDS)[places] = entries
    words[at + LIST] |= counts << COUNT_SHIFT
    words[at + BOUND] = state["bounds_mm"]
    index_rows.shared_mm[rows] = np.where(state.get("tells", 0), BOUND_NONE, 0)
    index_rows.place(rows)
    return rows


def _places(
    begins: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Returns the offsets of consecutive pieces, and the places of their elements."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets, np.arange(offsets[-1]) + np.repeat(begins - offsets[:-1], counts)


def _queries(state: Mapping[str, npt.NDArray[Any]]) -> QueryRows:
    n = len(state["k"])
    one_each = np.arange(n + 1, dtype=np.int64)
    return QueryRows(
        **{name: state[name] for name in (*_TEXT, "flags")},
        # Absent from a state of an earlier version.
        **{name: state[name] for name in _WORDS if name in state},
        box_offsets=one_each,
        boxes=np.tile(np.array(_WORLD), (n, 1)),
        shape=np.zeros(n, np.uint8),
        circles=np.zeros((n, 3), np.float64),
        polygon_offsets=np.zeros(n + 1, np.int64),
        ring_offsets=np.zeros(1, np.int64),
        vertices=np.empty((0, 2), np.float64),
    )
