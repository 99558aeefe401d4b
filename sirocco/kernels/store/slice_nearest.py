"""Finds nearest neighbours in slices: best first through the tree, or along posting lists.

Best first (Hjaltason, Samet, Distance browsing in spatial databases, TODS 1999, section 3): the
node with the least bound of distance is opened next, until none can hold a better row than the k
found. For a text that few rows satisfy, posting lists are read instead. They are read, too, if the
tree, against the estimate, gave many rows that do not satisfy it, since words cluster in space.

`slice_best` describes how the k best so far are kept.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.geometry import distance_m
from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.store.slice_best import limit_of, offer
from sirocco.kernels.store.slice_range import is_due
from sirocco.kernels.store.slice_reach import haversine_of, least_haversine, near_box
from sirocco.kernels.store.slice_region import DISJOINT, meets_node, overlap_relation, point_inside
from sirocco.kernels.store.slice_seal import BLOCK_ROWS, FANOUT
from sirocco.kernels.store.slice_table import (
    FIRST_SEQ,
    LAST_SEQ,
    event_columns,
    is_outside,
    is_within,
    search_columns,
)
from sirocco.kernels.store.slice_text import (
    choose_anchors,
    number_hashes,
    only_term,
    text_holds,
)

__all__ = ["nearest_rows", "nearest_sealed"]

# The box around the point is recomputed when the limit has shrunk to this share.
_SHRUNK = 0.9
# In the queue, the bits of a node's number are above those of its level.
_LEVEL_BITS = 4
# With at most this many postings the tree is not tried.
_FEW_POSTINGS = 64
_AHEAD = 8

_F8 = types.Array(types.float64, 1, "C", readonly=True)
_F4 = types.Array(types.float32, 1, "C", readonly=True)
_I8 = types.Array(types.int64, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_F8_OUT = types.Array(types.float64, 1, "C")
_U8_OUT = types.Array(types.uint64, 1, "C")
_I8_OUT = types.Array(types.int64, 1, "C")


@kernel
def _push(bounds: Any, nodes: Any, count: Any, bound: Any, node: Any) -> Any:
    """Puts a node into the queue (a heap whose top is least)."""
    at = count
    while at > 0 and bounds[(at - 1) >> 1] > bound:
        bounds[at] = bounds[(at - 1) >> 1]
        nodes[at] = nodes[(at - 1) >> 1]
        at = (at - 1) >> 1
    bounds[at] = bound
    nodes[at] = node


@kernel
def _pop(bounds: Any, nodes: Any, count: Any) -> Any:
    """Takes the top off the queue of `count` nodes; returns it."""
    top = nodes[0]
    bound = bounds[count - 1]
    node = nodes[count - 1]
    last = count - 1
    at = 0
    while 2 * at + 1 < last:
        child = 2 * at + 1
        if child + 1 < last and bounds[child + 1] < bounds[child]:
            child += 1
        if bounds[child] >= bound:
            break
        bounds[at] = bounds[child]
        nodes[at] = nodes[child]
        at = child
    bounds[at] = bound
    nodes[at] = node
    return top


@kernel
def _along_tree(
    point: Any, columns: Any, region: Any, life: Any, text: Any, quads: Any, boxes: Any,
    levels: Any, events: Any, best: Any, rows_max: Any,
) -> Any:  # fmt: skip
    """Opens nodes in order of their bounds; returns whether the search is complete.

    Args:
        point: (lon, lat, cosine of lat, greatest distance).
        columns: (lon, lat, arrivals_ms, seqs, term_offsets, terms).
        region: (words, values).
        life: see `is_due`.
        text: (numbers, anchors, only term), see `slice_text`.
        quads, boxes, levels: see `slice_region`, `sirocco/index/store/slices.py`.
        events: (ids, session_rows, numbers, sessions, number_bases, source).
        best: the k best so far.
        rows_max: gives up once so many rows failed.
    """
    x, y, cos_y, radius_m = point
    # Outside of the loops: each time that an array comes out of a tuple its owners are counted.
    lon, lat, arrivals_ms, seqs, term_offsets, terms = columns
    words, values = region
    term_numbers, anchors, only = text
    ids, session_rows, numbers, sessions, number_bases, source = events
    metres, keys, refs, state = best
    conjunctions = words[3]
    n = np.int64(lat.shape[0])
    failed = np.int64(0)
    limit_m = limit_of(metres, state, radius_m)
    limit = haversine_of(limit_m)
    bounds = np.empty(256)
    nodes = np.empty(256, np.int64)
    top = levels.shape[0] - 2
    count = 0
    bound = least_haversine(x, y, cos_y, boxes, levels[top])
    if bound <= limit:
        bounds[0] = bound
        nodes[0] = top
        count = 1
    while count > 0 and bounds[0] <= limit:
        code = _pop(bounds, nodes, count)
        count -= 1
        level = code & ((1 << _LEVEL_BITS) - 1)
        node = code >> _LEVEL_BITS
        if level > 0:
            first = levels[level - 1]
            end = min(levels[level] - first, (node + 1) * FANOUT)
            if count + FANOUT > bounds.shape[0]:
                longer_bounds = np.empty(2 * bounds.shape[0])
                longer_nodes = np.empty(2 * bounds.shape[0], np.int64)
                for i in range(count):
                    longer_bounds[i] = bounds[i]
                    longer_nodes[i] = nodes[i]
                bounds, nodes = longer_bounds, longer_nodes
            for child in range(node * FANOUT, end):
                bound = least_haversine(x, y, cos_y, boxes, first + child)
                if (
                    bound <= limit
                    and meets_node(words, quads, boxes, first + child)
                    and overlap_relation(words, values, boxes, first + child) != DISJOINT
                ):
                    _push(bounds, nodes, count, bound, (child << _LEVEL_BITS) | (level - 1))
                    count += 1
            continue
        west, south, east, north = near_box(x, y, limit_m)
        for row in range(node * BLOCK_ROWS, min(n, (node + 1) * BLOCK_ROWS)):
            if (lon[row] < west) | (lon[row] > east) | (lat[row] < south) | (lat[row] > north):
                continue
            if not (
                point_inside(words, values, lon[row], lat[row])
                and is_due(life, arrivals_ms, seqs, row)
                and text_holds(
                    words, conjunctions, term_numbers, anchors, only, term_offsets, terms, row, -1
                )
            ):
                failed += 1
                continue
            distance = distance_m(x, y, lon[row], lat[row])
            if distance <= limit_m:
                place = np.int64(session_rows[row])
                offer(
                    metres, keys, refs, state, distance, ids[row], sessions[place],
                    number_bases[place] + np.uint64(numbers[row]), (source << 32) | row,
                )  # fmt: skip
        if failed > rows_max:
            return False
        if state[0] == metres.shape[0]:
            limit_m = limit_of(metres, state, radius_m)
            limit = haversine_of(limit_m)
    return True


@kernel
def _along_lists(
    point: Any, columns: Any, region: Any, life: Any, text: Any, posting_offsets: Any,
    postings: Any, events: Any, best: Any,
) -> None:  # fmt: skip
    """Reads the posting lists of all anchors; arguments as in `_along_tree`."""
    # Outside of the loops: each time that an array comes out of a tuple its owners are counted.
    lon, lat, arrivals_ms, seqs, term_offsets, terms = columns
    words, values = region
    term_numbers, anchors, only = text
    ids, session_rows, numbers, sessions, number_bases, source = events
    metres, keys, refs, state = best
    conjunctions = words[3]
    boxed_m = limit_of(metres, state, point[3])
    west, south, east, north = near_box(point[0], point[1], boxed_m)
    for i in range(anchors.shape[0]):
        if anchors[i] < 0:
            continue
        begin = np.int64(posting_offsets[term_numbers[anchors[i]]])
        end = np.int64(posting_offsets[term_numbers[anchors[i]] + 1])
        for k in range(begin - _AHEAD, end):
            if k + _AHEAD < end:
                prefetch(lon, np.int64(postings[k + _AHEAD]))
                prefetch(lat, np.int64(postings[k + _AHEAD]))
            if k < begin:
                continue
            row = np.int64(postings[k])
            if (lon[row] < west) | (lon[row] > east) | (lat[row] < south) | (lat[row] > north):
                continue
            if not (
                point_inside(words, values, lon[row], lat[row])
                and is_due(life, arrivals_ms, seqs, row)
                and text_holds(
                    words, conjunctions, term_numbers, anchors, only, term_offsets, terms, row, i
                )
            ):
                continue
            limit_m = limit_of(metres, state, point[3])
            if limit_m < _SHRUNK * boxed_m:
                boxed_m = limit_m
                west, south, east, north = near_box(point[0], point[1], boxed_m)
            distance = distance_m(point[0], point[1], lon[row], lat[row])
            if distance <= limit_m:
                place = np.int64(session_rows[row])
                offer(
                    metres, keys, refs, state, distance, ids[row], sessions[place],
                    number_bases[place] + np.uint64(numbers[row]), (source << 32) | row,
                )  # fmt: skip


@kernel
def _nearest_of_slice(
    slice_row: Any, source: Any, words: Any, values: Any, quads: Any, hashes: Any,
    arrival_from_ms: Any, arrival_to_ms: Any, seq_before: Any, point: Any, best: Any,
) -> None:  # fmt: skip
    """Offers the rows of one slice to the k best; see `nearest_sealed`."""
    (
        lon, lat, arrivals_ms, seqs, term_offsets, terms, vocabulary, posting_offsets, postings,
        boxes, levels,
    ) = search_columns(slice_row)  # fmt: skip
    ids, session_rows, numbers, sessions, number_bases = event_columns(slice_row)
    metres, keys, refs, state = best
    n = np.int64(lon.shape[0])
    conjunctions = words[3]
    term_numbers = np.empty(hashes.shape[0], np.int64)
    anchors = np.empty(conjunctions, np.int64)
    columns = (lon, lat, arrivals_ms, seqs, term_offsets, terms)
    region = (words, values)
    checks = np.int64(not is_within(slice_row, arrival_from_ms, arrival_to_ms, seq_before))
    before = min(seq_before, slice_row[LAST_SEQ] + 1) - slice_row[FIRST_SEQ]
    life = (checks, arrival_from_ms, arrival_to_ms, before)
    events = (ids, session_rows, numbers, sessions, number_bases, source)
    rows_max = np.int64(1 << 62)
    only = np.int64(-1)
    if conjunctions > 0:
        number_hashes(vocabulary, hashes, term_numbers)
        listed = choose_anchors(
            words, words[4], conjunctions, term_numbers, posting_offsets, anchors
        )
        if listed == 0:
            return
        only = only_term(words, words[4], conjunctions, term_numbers)
        text = (term_numbers, anchors, only)
        # Rows that the tree would give before k of them have the text, were it spread evenly.
        spread_rows = np.float64(metres.shape[0]) * np.float64(n) / np.float64(listed)
        if listed <= _FEW_POSTINGS or np.float64(listed) < spread_rows:
            _along_lists(
                point, columns, region, life, text, posting_offsets, postings, events, best
            )
            return
        rows_max = 2 * listed
    text = (term_numbers, anchors, only)
    before_count = state[0]
    before_metres = np.empty(before_count)
    before_keys = np.empty(3 * before_count, np.uint64)
    before_refs = np.empty(before_count, np.int64)
    for i in range(before_count):
        before_metres[i] = metres[i]
        before_refs[i] = refs[i]
        for k in range(3 * i, 3 * i + 3):
            before_keys[k] = keys[k]
    if not _along_tree(
        point, columns, region, life, text, quads, boxes, levels, events, best, rows_max
    ):
        # Restores the k best from before the tree: the lists would add the tree's rows again.
        for i in range(before_count):
            metres[i] = before_metres[i]
            refs[i] = before_refs[i]
            for k in range(3 * i, 3 * i + 3):
                keys[k] = before_keys[k]
        state[0] = before_count
        _along_lists(point, columns, region, life, text, posting_offsets, postings, events, best)


@kernel(
    types.void(
        types.Array(types.int64, 2, "C", readonly=True), _I8, _I8, _F8, _F4, _U8, types.int64,
        types.int64, types.int64, types.float64, types.float64, types.float64,
        _F8_OUT, _U8_OUT, _I8_OUT, _I8_OUT,
    )
)  # fmt: skip
def nearest_sealed(
    table: Any,
    order: Any,
    words: Any,
    values: Any,
    quads: Any,
    hashes: Any,
    arrival_from_ms: Any,
    arrival_to_ms: Any,
    seq_before: Any,
    x: Any,
    y: Any,
    radius_m: Any,
    metres: Any,
    keys: Any,
    refs: Any,
    state: Any,
) -> None:
    """Offers the rows of sealed slices to the k best.

    Args:
        table: i8[s, TABLE_WORDS], see `slice_table`.
        order: i8[m], rows of the table in the order in which they are searched.
        words, values, quads, hashes: the condition, see `slice_region` and `slice_text`.
        arrival_from_ms, arrival_to_ms, seq_before: see `search_sealed`.
        x, y: the point.
        radius_m: greatest distance of a row.
        metres, keys, refs, state: the k best so far, updated; a source is a row of the table.
    """
    point = (x, y, max(0.0, math.cos(math.radians(y))), radius_m)
    for i in range(order.shape[0]):
        slice_row = table[order[i]]
        if not is_outside(slice_row, arrival_from_ms, arrival_to_ms, seq_before):
            _nearest_of_slice(
                slice_row, order[i], words, values, quads, hashes, arrival_from_ms,
                arrival_to_ms, seq_before, point, (metres, keys, refs, state),
            )  # fmt: skip


@kernel(
    types.void(
        _I8, _F8, _F8, _U8, _U8, _U8, types.float64, types.float64, types.float64, types.int64,
        _F8_OUT, _U8_OUT, _I8_OUT, _I8_OUT,
    )
)  # fmt: skip
def nearest_rows(
    rows: Any,
    lon: Any,
    lat: Any,
    ids: Any,
    sessions: Any,
    numbers: Any,
    x: Any,
    y: Any,
    radius_m: Any,
    source: Any,
    metres: Any,
    keys: Any,
    refs: Any,
    state: Any,
) -> None:
    """Offers given rows (i8[m], with their columns) to the k best; see `nearest_sealed`."""
    for i in range(rows.shape[0]):
        distance = distance_m(x, y, lon[i], lat[i])
        if distance <= radius_m:
            offer(
                metres,
                keys,
                refs,
                state,
                distance,
                ids[i],
                sessions[i],
                numbers[i],
                (source << 32) | rows[i],
            )
