"""Matches a batch of objects with standing kNN queries, and updates their lists.

An object enters the list of a query whose text it satisfies if the list is not full, or if it comes
before the last object there. Queries are found by the cells that their circles of influence meet
(SEA-CNN, Xiong, Mokbel, Aref, ICDE 2005; SSTD 6.1), under their rarest positive term.

Postings do not move while a batch is matched: circles only shrink, so the postings at its begin
stay sufficient. A posting that was tested in vain takes over the present reach of its row. A row
whose circle has shrunk to half is put on a queue, to be posted again between two calls.

Objects are taken in groups as in `range_match`: each stage prefetches the memory of the next.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.memory import prefetch, trailing_zeros
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
from sirocco.kernels.standing.knn_offer import (
    DUE_COUNT,
    NEEDED,
    SCANNED,
    UNDECIDED_COUNT,
    has_term,
    offer,
)
from sirocco.kernels.standing.knn_region import KNN_TERM_SHIFT, knn_key
from sirocco.kernels.standing.pyramid import POSTING_WORDS, ROW_WORDS, fine_cell

__all__ = ["match_batch"]

_LANES = 32
# Postings of a group that are offered together: from the prefetch on, their rows and lists stay in
# the second-level cache.
_CANDIDATES = 512
_COUNT_MASK = 0x3FFFFFF
_LINE_WORDS = 16

_I8 = types.Array(types.int64, 1, "C")
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_U4 = types.Array(types.uint32, 1, "C")
_U2 = types.Array(types.uint16, 1, "C")
_U1 = types.Array(types.uint8, 1, "C")
_F8 = types.Array(types.float64, 1, "C")
_F8_IN = types.Array(types.float64, 1, "C", readonly=True)
_F4 = types.Array(types.float32, 1, "C")


@kernel
def _lists_of_group(
    lon: Any,
    lat: Any,
    term_offsets: Any,
    terms: Any,
    first: Any,
    slots: Any,
    filter_words: Any,
    state: Any,
    levels: Any,
    postings: Any,
    grid: Any,
    finest: Any,
    probe_keys: Any,
    probe_hashes: Any,
    probe_lanes: Any,
    lane_end: Any,
) -> Any:
    """Finds the lists that a group of objects has to search.

    Args:
        lon … finest, probe_lanes: as in `match_batch`; first: the group's first object.
        probe_keys: overwritten: the slots of the lists found, object by object.
        lane_end: i8[32], overwritten: where each object's lists end, 0 where it has none.

    Returns:
        How many objects the group has.
    """
    shift = np.uint64(64 - state[BITS])
    frontier = state[FRONTIER]
    last = (1 << finest) - 1
    levels_count = (finest >> 1) + 1
    probes = np.int64(0)
    lanes = np.int64(0)
    cells = np.empty(levels_count, np.uint64)
    cell_parts = np.empty(levels_count, np.uint64)
    while first + lanes < lon.shape[0] and lanes < _LANES:
        this = first + lanes
        term_begin = term_offsets[this]
        term_end = term_offsets[this + 1]
        if lanes > 0 and probes + (term_end - term_begin + 1) * levels_count > probe_keys.shape[0]:
            break
        # Circles that contain longitude ±180 are in the columns of both.
        fine_column = fine_cell(lon[this], grid[0], grid[2], last)
        fine_row = fine_cell(lat[this], grid[1], grid[3], last)
        for level in range(levels_count):
            down = finest - 2 * level
            cells[level] = knn_key(0, level, fine_column >> down, fine_row >> down)
            cell = cells[level] & np.uint64(0xFFFFFFFF)
            cell_parts[level] = cell_part(cell, state)
        for i in range(term_begin - 1, term_end):
            # All objects have term 0: queries without text are stored under it.
            term = np.int64(terms[i]) if i >= term_begin else np.int64(0)
            mask = np.uint64(levels[term])
            while mask != np.uint64(0):
                level = trailing_zeros(mask)
                mask &= mask - np.uint64(1)
                key = (np.uint64(term) << np.uint64(KNN_TERM_SHIFT)) | cells[level]
                h = term_part(key >> np.uint64(32), state) ^ cell_parts[level]
                probe_keys[probes] = key
                probe_hashes[probes] = h
                probe_lanes[probes] = lanes
                probes += 1
                prefetch(filter_words, home_of(h, shift, frontier) >> FILTER_SHIFT)
        lanes += 1

    kept = np.int64(0)
    for i in range(probes):
        h = probe_hashes[i]
        bits = filter_bits(h)
        home = home_of(h, shift, frontier)
        probe_keys[kept] = probe_keys[i]
        probe_hashes[kept] = h
        probe_lanes[kept] = probe_lanes[i]
        is_kept = filter_words[home >> FILTER_SHIFT] & bits == bits
        if is_kept:
            prefetch(slots, 2 * home)
        kept += np.int64(is_kept)

    found = np.int64(0)
    lane_end[:] = 0
    for i in range(kept):
        at = find(slots, home_of(probe_hashes[i], shift, frontier), probe_keys[i])
        if at >= 0:
            posting = np.int64(slots[2 * at + 1] >> np.uint64(32)) * POSTING_WORDS
            prefetch(postings, posting)
            prefetch(postings, posting + _LINE_WORDS)
            probe_keys[found] = np.uint64(at)
            found += 1
            lane_end[probe_lanes[i]] = found
    return lanes


@kernel(inline=True)
def _scan(
    posting: Any,
    end: Any,
    x: Any,
    y: Any,
    z: Any,
    posting_floats: Any,
    candidates: Any,
    count: Any,
) -> Any:
    """Adds the postings of a list that reach a point; returns the new number of candidates.

    Args:
        posting, end: u8, word of the first posting, and the word after the last.
        x, y, z: f4, the point on the unit sphere.
        posting_floats: f4; candidates: u8[c], with room for all and one more; count: u8.
    """
    # Unsigned indices: for signed ones Numba adds a test for negative values.
    for p in range(posting, end, np.uint64(POSTING_WORDS)):
        dx = posting_floats[p] - x
        dy = posting_floats[p + np.uint64(1)] - y
        dz = posting_floats[p + np.uint64(2)] - z
        candidates[count] = p
        count += np.uint64(dx * dx + dy * dy + dz * dz <= posting_floats[p + np.uint64(3)])
    return count


@kernel(inline=True)
def _sift(
    candidates: Any,
    candidate_objects: Any,
    fresh: Any,
    count: Any,
    this: Any,
    x: Any,
    y: Any,
    z: Any,
    terms: Any,
    term_begin: Any,
    term_end: Any,
    postings: Any,
    posting_floats: Any,
    reach: Any,
    row_words: Any,
) -> Any:
    """Removes candidates excluded by their row's present reach or by a further term.

    Args:
        candidates, candidate_objects: as in `knn_offer.offer`; those from `fresh` to `count` belong
            to object `this`, which is at (x, y, z) on the unit sphere.
        terms, term_begin, term_end: its terms.
        postings … row_words: as in `match_batch`.

    Returns:
        The new number of candidates.
    """
    kept = fresh
    for i in range(fresh, count):
        p = candidates[i]
        own = reach[postings[p + 6]]
        if posting_floats[p + 3] != own:
            posting_floats[p + 3] = own
            dx = posting_floats[p] - x
            dy = posting_floats[p + 1] - y
            dz = posting_floats[p + 2] - z
            if dx * dx + dy * dy + dz * dz > own:
                continue
        other = postings[p + 4]
        if other != 0:
            if not has_term(terms, term_begin, term_end, other):
                continue
            other = postings[p + 5]
            if other != 0 and not has_term(terms, term_begin, term_end, other):
                continue
        prefetch(row_words, np.int64(postings[p + 6]) * ROW_WORDS)
        candidates[kept] = p
        candidate_objects[kept] = this
        kept += 1
    return kept


@kernel(
    types.UniTuple(types.int64, 2)(
        _F8_IN, _F8_IN, _I8_IN, _I4_IN, _I8_IN, _I8_IN, _U8_IN, _U8_IN, _U8_IN,
        types.int64, types.int64, types.int64, types.int64, types.int64,
        _U8, _U8, _I8, _U2, _I4, _F4, _I8, _F8, _U1, _U4, _I4, _U8, _F4, _U1, _U1,
        _F8_IN, types.int64, _U8, _U8, _I4, _I4, _I8, _I4, _I4, _I8,
    )
)  # fmt: skip
def match_batch(
    lon: Any,
    lat: Any,
    term_offsets: Any,
    terms: Any,
    arrival_ms: Any,
    positions: Any,
    ids: Any,
    sessions: Any,
    numbers: Any,
    begin: Any,
    check_all: Any,
    due_max: Any,
    undecided_max: Any,
    scanned_max: Any,
    slots: Any,
    filter_words: Any,
    state: Any,
    levels: Any,
    postings: Any,
    posting_floats: Any,
    row_words: Any,
    row_floats: Any,
    row_state: Any,
    row_stamp: Any,
    terms_words: Any,
    lists: Any,
    reach: Any,
    listed: Any,
    marks: Any,
    grid: Any,
    finest: Any,
    probe_keys: Any,
    probe_hashes: Any,
    probe_lanes: Any,
    due: Any,
    progress: Any,
    out_objects: Any,
    out_rows: Any,
    out_mm: Any,
) -> Any:
    """Adds objects, one after the other, to the lists that they enter.

    Args:
        lon, lat: f8[n], degrees.
        term_offsets: i8[n + 1], terms: i4[t]: each object's term ids, 1 for unknown ones.
        arrival_ms, positions: i8[n]; ids, sessions, numbers: u8[n].
        begin: the first object to take.
        check_all: 1: compare every hit with the life of its row, 0: only where its state says so.
        due_max, undecided_max: stop before the next object when this many rows are due, or this
            many pairs wait for the caller.
        scanned_max: the same, when rows are due and this many postings were tested meanwhile.
        slots, filter_words, state: the table; postings and posting_floats: the same memory.
        levels: u2[ids], levels in use by each term.
        row_words and row_floats: i8 and f8[8 · rows], the same memory; row_state: u1[rows].
        row_stamp: u4[rows], the last object that met a row with several postings.
        terms_words: term blocks; lists: u8, see `knn_list`.
        reach, listed, marks: see `knn_plan`.
        grid: f8[4], finest: of the pyramid.
        probe_keys, probe_hashes: u8[p], probe_lanes: i4[p]: scratch, p ≥ (most terms of an
            object + 1) × levels.
        due: i4[rows], queue of rows to be posted again; progress: i8[5], see STAMP and others.
        out_objects, out_rows: i4[m], out_mm: i8[m], overwritten, ordered by object. A row with
            ASKED is a pair that the caller has to decide: the list has not been changed.

    Returns:
        (number of the first object not done, pairs written). `progress[NEEDED]` is the room in the
        output that this object may need.
    """
    total = lon.shape[0]
    pairs = np.int64(0)
    scanned = np.int64(0)
    lane_end = np.empty(_LANES, np.int64)
    candidates = np.empty(_CANDIDATES + 1, np.uint64)
    candidate_objects = np.empty(_CANDIDATES + 1, np.int64)
    progress[NEEDED] = 0
    progress[UNDECIDED_COUNT] = 0

    first = begin
    while first < total:
        lanes = _lists_of_group(
            lon, lat, term_offsets, terms, first, slots, filter_words, state, levels, postings,
            grid, finest, probe_keys, probe_hashes, probe_lanes, lane_end,
        )  # fmt: skip
        at_list = np.int64(0)
        count = np.int64(0)
        next_object = first + lanes
        for this in range(first, first + lanes):
            list_end = lane_end[this - first]
            if at_list >= list_end:
                continue
            lengths = np.int64(0)
            for i in range(at_list, list_end):
                lengths += np.int64(slots[2 * probe_keys[i] + 1]) & _COUNT_MASK
            if (
                pairs + count + lengths > out_rows.shape[0]
                or progress[DUE_COUNT] >= due_max
                or progress[UNDECIDED_COUNT] >= undecided_max
                or (progress[DUE_COUNT] > 0 and scanned >= scanned_max)
            ):
                progress[NEEDED] = lengths
                next_object = this
                break
            scanned += lengths

            x_angle = math.radians(lon[this])
            y_angle = math.radians(lat[this])
            x = np.float32(math.cos(y_angle) * math.cos(x_angle))
            y = np.float32(math.cos(y_angle) * math.sin(x_angle))
            z = np.float32(math.sin(y_angle))
            posting = np.uint64(0)
            posting_end = np.uint64(0)
            while True:
                fresh = count
                while count < _CANDIDATES:
                    if posting == posting_end:
                        if at_list >= list_end:
                            break
                        value = slots[2 * probe_keys[at_list] + 1]
                        at_list += 1
                        length = (value & np.uint64(_COUNT_MASK)) * np.uint64(POSTING_WORDS)
                        posting = (value >> np.uint64(32)) * np.uint64(POSTING_WORDS)
                        posting_end = posting + length
                    room = np.uint64((_CANDIDATES - count) * POSTING_WORDS)
                    stop = min(posting_end, posting + room)
                    count = np.int64(
                        _scan(posting, stop, x, y, z, posting_floats, candidates, np.uint64(count))
                    )
                    posting = stop
                is_full = count == _CANDIDATES
                count = _sift(
                    candidates, candidate_objects, fresh, count, this, x, y, z, terms,
                    term_offsets[this], term_offsets[this + 1], postings, posting_floats, reach,
                    row_words,
                )  # fmt: skip
                if not is_full:
                    break
                pairs = offer(
                    candidates, candidate_objects, count, lon, lat, term_offsets, terms,
                    arrival_ms, positions, ids, sessions, numbers, check_all, postings, row_words,
                    row_floats, row_state, row_stamp, terms_words, lists, reach, listed, marks,
                    due, progress, out_objects, out_rows, out_mm, pairs,
                )  # fmt: skip
                count = np.int64(0)
        pairs = offer(
            candidates, candidate_objects, count, lon, lat, term_offsets, terms, arrival_ms,
            positions, ids, sessions, numbers, check_all, postings, row_words, row_floats,
            row_state, row_stamp, terms_words, lists, reach, listed, marks, due, progress,
            out_objects, out_rows, out_mm, pairs,
        )  # fmt: skip
        if next_object < first + lanes:
            progress[SCANNED] += scanned
            return next_object, pairs
        first = next_object
    progress[SCANNED] += scanned
    return total, pairs
