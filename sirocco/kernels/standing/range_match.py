"""Matches a batch of objects with the posting lists of standing range queries.

Objects are taken in groups of about 32, and each group passes four stages. Every stage prefetches
the memory of the next one, so that the cache misses of a whole group are in flight together (group
prefetching, Chen, Ailamaki, Gibbons, Mowry 2004):

1. every (term, level in use) of every object gives a key; its filter word is prefetched;
2. keys that pass the filter prefetch their slot;
3. slots found prefetch the first postings of their list;
4. postings are tested, and hits are checked and written, object by object.

A lane is one object at one place. An object on the antimeridian takes two lanes, one for each side,
since longitudes ±180 are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.geometry import distance_m, ring_side
from sirocco.kernels.base.memory import four_at_least, prefetch, trailing_zeros
from sirocco.kernels.base.stretch_table import (
    BITS,
    FILTER_SHIFT,
    FRONTIER,
    cell_part,
    filter_bits,
    find,
    home_of,
    term_part,
)
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.pyramid import (
    BORN,
    BOX,
    DEAD,
    EXPIRES,
    INFO_MULTI,
    INFO_SHIFT,
    INFO_TERMS,
    KIND_BOX,
    KIND_BOXES,
    KIND_CIRCLE,
    KIND_SHIFT,
    LARGE_LEVELS,
    POSTING_INFO,
    POSTING_ROW,
    POSTING_SECOND_TERM,
    POSTING_TERM,
    POSTING_WORDS,
    ROW_WORDS,
    SHAPE_HEADER,
    STAMP,
    STATE_FREE,
    STATE_MASK,
    STATE_PLAIN,
    TERM_BLOCK,
    cell_key,
    fine_cell,
    survey_level,
)

__all__ = ["batch_bounds", "match_batch"]

_LANES = 32
_HITS = 1_024
_LINE_WORDS = 16
_COUNT_MASK = 0x3FFFFFF
# One step of f4 relative to a value: a coordinate farther than this inside a rounded edge is inside
# the true edge, which is less than one step away.
_F4_STEP = 1.2e-7

_I8 = types.Array(types.int64, 1, "C")
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C")
_U4 = types.Array(types.uint32, 1, "C")
_U2 = types.Array(types.uint16, 1, "C")
_U1 = types.Array(types.uint8, 1, "C")
_F8 = types.Array(types.float64, 1, "C")
_F8_IN = types.Array(types.float64, 1, "C", readonly=True)
_F4 = types.Array(types.float32, 1, "C")


@kernel(types.UniTuple(types.int64, 3)(_I8_IN, _I8_IN, _I8_IN))
def batch_bounds(term_offsets: Any, arrival_ms: Any, positions: Any) -> Any:
    """Returns (most terms of an object, latest arrival, least position) of n ≥ 1 objects."""
    terms_max = np.int64(0)
    arrival_max = arrival_ms[0]
    position_min = positions[0]
    for i in range(positions.shape[0]):
        terms_max = max(terms_max, term_offsets[i + 1] - term_offsets[i])
        arrival_max = max(arrival_max, arrival_ms[i])
        position_min = min(position_min, positions[i])
    return terms_max, arrival_max, position_min


@kernel(inline=True)
def _has_term(terms: Any, begin: Any, end: Any, term: Any) -> Any:
    """Returns whether terms[begin:end] holds a term."""
    found = False
    for i in range(begin, end):
        found |= terms[i] == term
    return found


@kernel
def _conjunction_holds(terms_words: Any, at: Any, terms: Any, begin: Any, end: Any) -> Any:
    """Checks one conjunction of a term block for an object's terms; it holds the anchor."""
    head = np.int64(terms_words[at])
    positives = head & 0x1FFF
    negatives = (head >> 13) & 0x1FFF
    for i in range(at + 2, at + 1 + positives):
        if not _has_term(terms, begin, end, terms_words[i]):
            return False
    for i in range(at + 1 + positives, at + 1 + positives + negatives):
        if _has_term(terms, begin, end, terms_words[i]):
            return False
    return True


@kernel(inline=True)
def _well_inside(posting_boxes: Any, at: Any, x: Any, y: Any) -> Any:
    """Returns whether a point is more than one f4 step inside a rounded box."""
    west = np.float64(posting_boxes[at])
    south = np.float64(posting_boxes[at + 1])
    east = -np.float64(posting_boxes[at + 2])
    north = -np.float64(posting_boxes[at + 3])
    tiny = 1e-40
    return (
        (x - west > abs(west) * _F4_STEP + tiny)
        & (y - south > abs(south) * _F4_STEP + tiny)
        & (east - x > abs(east) * _F4_STEP + tiny)
        & (north - y > abs(north) * _F4_STEP + tiny)
    )


@kernel
def _region_holds(
    row: Any, kind: Any, row_words: Any, row_boxes: Any, shapes_values: Any, x: Any, y: Any
) -> Any:
    """Checks a row's region exactly, in f8."""
    base = row * ROW_WORDS + BOX
    if kind == KIND_BOX:
        return (
            x >= row_boxes[base]
            and y >= row_boxes[base + 1]
            and x <= row_boxes[base + 2]
            and y <= row_boxes[base + 3]
        )
    at = 4 * (row_words[base] & 0xFFFFFFFF)
    box_count = np.int64(shapes_values[at])
    ring_count = np.int64(shapes_values[at + 1])
    if kind == KIND_CIRCLE:
        return (
            distance_m(shapes_values[at + 2], shapes_values[at + 3], x, y)
            <= (shapes_values[at + 4])
        )
    at += SHAPE_HEADER
    if kind == KIND_BOXES:
        for i in range(at, at + 4 * box_count, 4):
            if (
                x >= shapes_values[i]
                and y >= shapes_values[i + 1]
                and x <= shapes_values[i + 2]
                and y <= shapes_values[i + 3]
            ):
                return True
        return False
    at += 4 * box_count
    vertex = (at + ring_count + (ring_count & 1)) // 2
    parity = 0
    for ring in range(ring_count):
        end = vertex + np.int64(shapes_values[at + ring])
        side = ring_side(shapes_values, vertex, end, x, y)
        if side == 2:
            return True
        parity ^= side
        vertex = end
    return parity == 1


@kernel(
    types.UniTuple(types.int64, 2)(
        _F8_IN, _F8_IN, _I8_IN, _I4_IN, _I8_IN, _I8_IN, types.int64, types.int64,
        _U8, _U8, _I8, _U2, _I4, _F4, _I8, _F8, _U1, _U4, _I4, _F8,
        _F8_IN, types.int64, _U2, _I8, _U8, _U8, _U8, _I4, _I4, _I4,
    )
)  # fmt: skip
def match_batch(
    lon: Any,
    lat: Any,
    term_offsets: Any,
    terms: Any,
    arrival_ms: Any,
    positions: Any,
    begin: Any,
    check_all: Any,
    slots: Any,
    filter_words: Any,
    state: Any,
    levels: Any,
    postings: Any,
    posting_boxes: Any,
    row_words: Any,
    row_boxes: Any,
    row_state: Any,
    row_stamp: Any,
    terms_words: Any,
    shapes_values: Any,
    grid: Any,
    finest: Any,
    cell_levels: Any,
    match_state: Any,
    term_parts: Any,
    probe_keys: Any,
    probe_hashes: Any,
    probe_lanes: Any,
    out_objects: Any,
    out_rows: Any,
) -> Any:
    """Finds all pairs of an object and a row whose query it satisfies.

    Args:
        lon, lat: f8[n], degrees.
        term_offsets: i8[n + 1], terms: i4[t]: each object's term ids, 1 for unknown ones.
        arrival_ms, positions: i8[n].
        begin: the first object to take.
        check_all: 1: compare every hit with the life of its row, 0: only where its state says so.
        slots, filter_words, state: the table.
        levels: u2[ids], pyramid levels in use by each term.
        postings: i4[…] and posting_boxes: f4, the same memory.
        row_words: i8[8 · rows] and row_boxes: f8, the same memory.
        row_state: u1[rows].
        row_stamp: u4[rows], the last lane that met a row with several postings.
        terms_words: term blocks; shapes_values: shape blocks as f8.
        grid: f8[4], west, south, fine cells per degree in x, in y.
        finest: the finest level.
        cell_levels: u2[c], levels in use by queries of each survey cell.
        match_state: i8[3], stamps given so far (changed), levels in use by large regions.
        term_parts: u8[t], scratch.
        probe_keys, probe_hashes: u8[p], probe_lanes: i4[p]: scratch, p ≥ (most terms of
            an object + 1) × levels × 2.
        out_objects, out_rows: i4[m], overwritten, ordered by object.

    Returns:
        (number of the first object not done, pairs written). An object whose pairs do not fit
        is not begun; if it is the first one, give longer arrays.
    """
    total = lon.shape[0]
    shift = np.uint64(64 - state[BITS])
    frontier = state[FRONTIER]
    last = (1 << finest) - 1
    survey = survey_level(finest)
    survey_down = finest - survey
    pair_room = out_rows.shape[0]
    pairs = 0

    for i in range(np.uint64(term_offsets[begin]), np.uint64(term_offsets[total])):
        term_parts[i] = term_part(np.uint64(terms[i]), state)
    no_term = term_part(np.uint64(0), state)

    lane_object = np.empty(_LANES + 1, np.int64)
    lane_x = np.empty(_LANES + 1, np.float64)
    lane_end = np.empty(_LANES + 1, np.int64)
    hits = np.empty(_HITS + 1, np.int64)

    first_object = begin
    while first_object < total:
        # Stage 1: lanes and keys.
        lanes = 0
        # Unsigned indices: for signed ones Numba adds a test for negative values.
        probes = np.uint64(0)
        next_object = first_object
        while next_object < total and lanes < _LANES - 1:
            term_begin = term_offsets[next_object]
            term_end = term_offsets[next_object + 1]
            if (
                lanes > 0
                and np.int64(probes) + (term_end - term_begin + 1) * (finest + 1) * 2
                > probe_keys.shape[0]
            ):
                break
            x = lon[next_object]
            sides = 1
            if abs(x) == 180.0:
                sides = 2
                x = -180.0
            fine_row = fine_cell(lat[next_object], grid[1], grid[3], last)
            for _ in range(sides):
                fine_column = fine_cell(x, grid[0], grid[2], last)
                lane_object[lanes] = next_object
                lane_x[lanes] = x
                survey_cell = ((fine_row >> survey_down) << survey) | (fine_column >> survey_down)
                mask = np.uint64(match_state[LARGE_LEVELS]) | np.uint64(cell_levels[survey_cell])
                while mask != np.uint64(0):
                    level = trailing_zeros(mask)
                    mask &= mask - np.uint64(1)
                    down = finest - level
                    cell = cell_key(0, level, fine_column >> down, fine_row >> down)
                    of_cell = cell_part(cell, state)
                    if (levels[0] >> level) & 1 != 0:
                        h = no_term ^ of_cell
                        probe_keys[probes] = cell
                        probe_hashes[probes] = h
                        probe_lanes[probes] = lanes
                        prefetch(filter_words, home_of(h, shift, frontier) >> FILTER_SHIFT)
                        probes += np.uint64(1)
                    for i in range(np.uint64(term_begin), np.uint64(term_end)):
                        # Without a branch: a processor cannot predict whether a term is at a level.
                        term = np.uint64(terms[i])
                        key = (term << np.uint64(32)) | cell
                        h = term_parts[i] ^ of_cell
                        probe_keys[probes] = key
                        probe_hashes[probes] = h
                        probe_lanes[probes] = lanes
                        prefetch(filter_words, home_of(h, shift, frontier) >> FILTER_SHIFT)
                        probes += (np.uint64(levels[term]) >> np.uint64(level)) & np.uint64(1)
                lanes += 1
                x = 180.0
            next_object += 1

        # Stage 2: the filter.
        kept = np.uint64(0)
        for i in range(probes):
            h = probe_hashes[i]
            bits = filter_bits(h)
            home = np.uint64(home_of(h, shift, frontier))
            word = filter_words[home >> np.uint64(FILTER_SHIFT)]
            probe_keys[kept] = probe_keys[i]
            probe_hashes[kept] = h
            probe_lanes[kept] = probe_lanes[i]
            kept += np.uint64(word & bits == bits)
        for i in range(kept):
            prefetch(slots, 2 * home_of(probe_hashes[i], shift, frontier))

        # Stage 3: the table. From here on `probe_keys` holds the found lists.
        found = 0
        for lane in range(lanes):
            lane_end[lane] = 0
        for i in range(kept):
            at = find(slots, home_of(probe_hashes[i], shift, frontier), probe_keys[i])
            if at >= 0:
                probe_keys[found] = slots[2 * at + 1]
                found += 1
                lane_end[probe_lanes[i]] = found
                first = np.int64(slots[2 * at + 1] >> np.uint64(32)) * POSTING_WORDS
                for line in range(4):
                    prefetch(posting_boxes, first + line * _LINE_WORDS)

        # Stage 4: postings, lane by lane.
        at_list = 0
        object_pairs = pairs
        stamp = match_state[STAMP]
        for lane in range(lanes):
            this = lane_object[lane]
            is_twin = lane > 0 and lane_object[lane - 1] == this
            if not is_twin:
                object_pairs = pairs
                stamp += 1
            match_state[STAMP] = stamp
            is_double = is_twin or (lane + 1 < lanes and lane_object[lane + 1] == this)
            x = lane_x[lane]
            y = lat[this]
            x4 = np.float32(x)
            y4 = np.float32(y)
            minus_x4 = -x4
            minus_y4 = -y4
            term_begin = term_offsets[this]
            term_end = term_offsets[this + 1]
            posting = np.int64(0)
            posting_end = np.int64(0)
            while True:
                # Gather hits from as many lists as fit, then check them: otherwise each short list
                # would need a loop of its own.
                hit_count = 0
                while hit_count < _HITS:
                    if posting == posting_end:
                        if at_list >= lane_end[lane]:
                            break
                        value = probe_keys[at_list]
                        at_list += 1
                        posting = np.int64(value >> np.uint64(32))
                        posting_end = posting + np.int64(value & np.uint64(_COUNT_MASK))
                    stop = min(posting_end, posting + _HITS - hit_count)
                    for p in range(posting, stop):
                        hits[hit_count] = p
                        hit_count += four_at_least(
                            posting_boxes, p * POSTING_WORDS, x4, y4, minus_x4, minus_y4
                        )
                    posting = stop
                if hit_count == 0:
                    break
                if pairs + hit_count > pair_room:
                    return this, object_pairs
                for i in range(hit_count):
                    prefetch(row_state, np.int64(postings[hits[i] * POSTING_WORDS + POSTING_ROW]))
                for i in range(hit_count):
                    word = hits[i] * POSTING_WORDS
                    other = postings[word + POSTING_TERM]
                    if other != 0:
                        if not _has_term(terms, term_begin, term_end, other):
                            continue
                        other = postings[word + POSTING_SECOND_TERM]
                        if other != 0 and not _has_term(terms, term_begin, term_end, other):
                            continue
                    row = np.int64(postings[word + POSTING_ROW])
                    info = np.int64(postings[word + POSTING_INFO])
                    row_now = np.int64(row_state[row])
                    if row_now & STATE_MASK != STATE_PLAIN or check_all != 0:
                        base = row * ROW_WORDS
                        if (
                            row_now & STATE_MASK == STATE_FREE
                            or positions[this] < row_words[base + BORN]
                            or positions[this] >= row_words[base + DEAD]
                            or arrival_ms[this] >= row_words[base + EXPIRES]
                        ):
                            continue
                    kind = row_now >> KIND_SHIFT
                    if (
                        kind >= KIND_CIRCLE or not _well_inside(posting_boxes, word, x, y)
                    ) and not _region_holds(row, kind, row_words, row_boxes, shapes_values, x, y):
                        continue
                    if info != 0 or is_double:
                        if info & INFO_TERMS != 0:
                            block = 4 * (row_words[row * ROW_WORDS + TERM_BLOCK] & 0xFFFFFFFF)
                            if not _conjunction_holds(
                                terms_words, block + (info >> INFO_SHIFT), terms, term_begin,
                                term_end,
                            ):  # fmt: skip
                                continue
                        if info & INFO_MULTI != 0 or is_double:
                            if row_stamp[row] == np.uint32(stamp):
                                continue
                            row_stamp[row] = np.uint32(stamp)
                    out_objects[pairs] = this
                    out_rows[pairs] = row
                    pairs += 1
                if hit_count < _HITS:
                    break
        first_object = next_object
    return total, pairs
