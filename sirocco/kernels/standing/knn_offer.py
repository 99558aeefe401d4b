"""Offers objects to the lists of standing kNN queries once they were found to be near.

Functions with array arguments are inlined, and use each array either on every path or only in
loops: where Numba cannot prove that an array outlives a call, it counts references atomically,
which took a third of the time of a hit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.geometry import distance_m
from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.knn_list import ENTRY_WORDS, comes_before_last, millimetres, put_entry
from sirocco.kernels.standing.knn_plan import (
    BOUND,
    COUNT_SHIFT,
    INFO_RESIDUAL,
    LATITUDE,
    LIST,
    LIST_SHIFT,
    LONGITUDE,
    MARK_DUE,
    SIZE_MASK,
)
from sirocco.kernels.standing.knn_region import BOUND_NONE, reach_of
from sirocco.kernels.standing.pyramid import (
    BORN,
    DEAD,
    EXPIRES,
    INFO_MULTI,
    INFO_SHIFT,
    INFO_TERMS,
    POSTING_INFO,
    POSTING_ROW,
    ROW_WORDS,
    STATE_FREE,
    STATE_MASK,
    STATE_PLAIN,
    TERM_BLOCK,
    TERM_UNIT,
)

__all__ = [
    "DUE_COUNT",
    "NEEDED",
    "SCANNED",
    "STAMP",
    "UNDECIDED",
    "UNDECIDED_COUNT",
    "draw_in",
    "draw_in_all",
    "has_term",
    "offer",
    "settle_undecided",
]

# Words of `progress`.
STAMP = 0  # plus the number of an object in its batch: identifies the object that met a row
DUE_COUNT = 1  # rows on the queue
SCANNED = 2  # postings tested so far
NEEDED = 3  # pairs that the object at which matching stopped may make
UNDECIDED_COUNT = 4  # pairs of the call that wait for the caller

# In `out_rows`: not a hit yet, the caller decides. Row numbers are lower.
UNDECIDED = 1 << 30

# How often a circle halves by what other slots know before its row is posted again.
_LAZY_HALVINGS = 4

# Cache lines of a list that are prefetched: enough for the most frequent k.
_LINES_AHEAD = 5
_LINE_WORDS = 8

_I8 = types.Array(types.int64, 1, "C")
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_U1 = types.Array(types.uint8, 1, "C")
_F4 = types.Array(types.float32, 1, "C")


@kernel(inline=True)
def has_term(terms: Any, begin: Any, end: Any, term: Any) -> Any:
    """Returns whether terms[begin:end] holds a term."""
    found = False
    for i in range(begin, end):
        found |= terms[i] == term
    return found


@kernel(inline=True)
def _text_holds(terms_words: Any, at: Any, terms: Any, begin: Any, end: Any) -> Any:
    """Checks the conjunction whose head is at a word of the term blocks; it holds its anchor."""
    head = np.int64(terms_words[at])
    first_negative = at + 1 + (head & 0x1FFF)
    for i in range(at + 2, first_negative):
        if not has_term(terms, begin, end, terms_words[i]):
            return False
    for i in range(first_negative, first_negative + ((head >> 13) & 0x1FFF)):
        if has_term(terms, begin, end, terms_words[i]):
            return False
    return True


@kernel(types.void(types.int64, types.int64, _I8, _F4, _U1, _U1, _I4, _I8), inline=True)
def draw_in(
    row: Any,
    bound_mm: Any,
    row_words: Any,
    reach: Any,
    listed: Any,
    marks: Any,
    due: Any,
    progress: Any,
) -> None:
    """Lowers the bound of a row; queues the row if its circle has shrunk to half.

    Args:
        row: posted; bound_mm: not above the one for which it was posted.
        row_words … progress: as in `knn_match.match_batch`.
    """
    # Without branches, see above; `due` has room for one more than all rows.
    row_words[row * ROW_WORDS + BOUND] = bound_mm
    reach[row] = reach_of(bound_mm)
    half_mm = (np.int64(1) << np.int64(listed[row])) >> 1
    is_due = np.int64((bound_mm <= half_mm) & (half_mm > 0) & (marks[row] & MARK_DUE == 0))
    marks[row] = np.int64(marks[row]) | (MARK_DUE * is_due)
    due[progress[DUE_COUNT]] = row
    progress[DUE_COUNT] += is_due


@kernel(types.void(_I4_IN, _I8_IN, _I8, _F4, _U1, _U1, _I4, _I8, _I8))
def draw_in_all(
    rows: Any,
    bounds_mm: Any,
    row_words: Any,
    reach: Any,
    listed: Any,
    marks: Any,
    due: Any,
    shared_mm: Any,
    progress: Any,
) -> None:
    """Lowers the bounds of posted rows to those that another slot sends, where these are less.

    Most of these rows are far from all objects of their slot: to post one again saves nothing until
    its circle has become very much smaller.

    Args:
        rows: i4[n], -1 where there is none; bounds_mm: i8[n].
        row_words … progress: as in `draw_in`.
        shared_mm: i8[rows], the bounds that other slots know.
    """
    for i in range(rows.shape[0]):
        row = np.int64(rows[i])
        if row < 0:
            continue
        bound = bounds_mm[i]
        shared_mm[row] = min(shared_mm[row], bound)
        if bound >= row_words[row * ROW_WORDS + BOUND]:
            continue
        row_words[row * ROW_WORDS + BOUND] = bound
        reach[row] = reach_of(bound)
        small_mm = (np.int64(1) << np.int64(listed[row])) >> _LAZY_HALVINGS
        if bound <= small_mm and small_mm > 0 and marks[row] & MARK_DUE == 0:
            marks[row] = np.int64(marks[row]) | MARK_DUE
            due[progress[DUE_COUNT]] = row
            progress[DUE_COUNT] += 1


@kernel(inline=True)
def _enter(
    row: Any,
    distance: Any,
    object_id: Any,
    session: Any,
    number: Any,
    row_words: Any,
    lists: Any,
    reach: Any,
    listed: Any,
    marks: Any,
    due: Any,
    progress: Any,
) -> None:
    """Adds an object to the list of a row that accepts it, and shrinks the row's circle."""
    base = row * ROW_WORDS
    word = row_words[base + LIST]
    begin = word >> LIST_SHIFT
    count = (word >> COUNT_SHIFT) & SIZE_MASK
    k = word & SIZE_MASK
    new_count = put_entry(lists, begin, count, k, np.uint64(distance), object_id, session, number)
    row_words[base + LIST] = word + ((new_count - count) << COUNT_SHIFT)
    farthest = np.int64(lists[begin * ENTRY_WORDS]) if new_count == k else np.int64(BOUND_NONE)
    bound = min(row_words[base + BOUND], farthest)
    draw_in(row, bound, row_words, reach, listed, marks, due, progress)


@kernel(inline=True)
def _takes(
    base: Any, distance: Any, object_id: Any, session: Any, number: Any, row_words: Any, lists: Any
) -> Any:
    """Returns whether the list of the row at word `base` accepts an object."""
    word = row_words[base + LIST]
    is_open = (word >> COUNT_SHIFT) & SIZE_MASK < word & SIZE_MASK
    is_before = comes_before_last(
        lists, word >> LIST_SHIFT, np.uint64(distance), object_id, session, number
    )
    return (distance <= row_words[base + BOUND]) & (is_open | is_before)


@kernel
def offer(
    candidates: Any,
    candidate_objects: Any,
    count: Any,
    lon: Any,
    lat: Any,
    term_offsets: Any,
    terms: Any,
    arrival_ms: Any,
    positions: Any,
    ids: Any,
    sessions: Any,
    numbers: Any,
    check_all: Any,
    postings: Any,
    row_words: Any,
    row_floats: Any,
    row_state: Any,
    row_stamp: Any,
    terms_words: Any,
    lists: Any,
    reach: Any,
    listed: Any,
    marks: Any,
    due: Any,
    progress: Any,
    out_objects: Any,
    out_rows: Any,
    out_mm: Any,
    pairs: Any,
) -> Any:
    """Offers objects to the rows of candidate postings, in order; returns the number of pairs.

    Args:
        candidates: u8[c], first words of postings; candidate_objects: i8[c]; count: how many.
        lon … out_mm: as in `knn_match.match_batch`; pairs: written so far.
    """
    alive = np.int64(0)
    for i in range(count):
        p = candidates[i]
        this = candidate_objects[i]
        row = np.int64(postings[p + POSTING_ROW])
        base = row * ROW_WORDS
        row_now = np.int64(row_state[row])
        if (row_now & STATE_MASK != STATE_PLAIN or check_all != 0) and (
            row_now & STATE_MASK == STATE_FREE
            or positions[this] < row_words[base + BORN]
            or positions[this] >= row_words[base + DEAD]
            or arrival_ms[this] >= row_words[base + EXPIRES]
        ):
            continue
        at = (row_words[base + LIST] >> LIST_SHIFT) * ENTRY_WORDS
        for line in range(_LINES_AHEAD):
            prefetch(lists, at + line * _LINE_WORDS)
        candidates[alive] = p
        candidate_objects[alive] = this
        alive += 1

    for i in range(alive):
        p = candidates[i]
        this = candidate_objects[i]
        row = np.int64(postings[p + POSTING_ROW])
        info = np.int64(postings[p + POSTING_INFO])
        base = row * ROW_WORDS
        distance = millimetres(
            distance_m(
                row_floats[base + LONGITUDE], row_floats[base + LATITUDE], lon[this], lat[this]
            )
        )
        if not _takes(base, distance, ids[this], sessions[this], numbers[this], row_words, lists):
            continue
        if info & INFO_TERMS != 0:
            block = (row_words[base + TERM_BLOCK] & 0xFFFFFFFF) * TERM_UNIT
            if not _text_holds(
                terms_words,
                block + (info >> INFO_SHIFT),
                terms,
                term_offsets[this],
                term_offsets[this + 1],
            ):
                continue
        if info & INFO_MULTI != 0:
            stamp = np.uint32(progress[STAMP] + this)
            if row_stamp[row] == stamp:
                continue
            row_stamp[row] = stamp
        out_objects[pairs] = this
        out_mm[pairs] = distance
        if info & INFO_RESIDUAL != 0:
            out_rows[pairs] = row | UNDECIDED
            progress[UNDECIDED_COUNT] += 1
        else:
            out_rows[pairs] = row
            _enter(
                row, distance, ids[this], sessions[this], numbers[this],
                row_words, lists, reach, listed, marks, due, progress,
            )  # fmt: skip
        pairs += 1
    return pairs


@kernel(
    types.int64(
        types.int64, types.int64, types.int64, _I4_IN, _I4, _I8_IN, _U8_IN, _U8_IN, _U8_IN,
        _I8, _U8, _F4, _U1, _U1, _I4, _I8,
    )
)  # fmt: skip
def settle_undecided(
    at: Any,
    is_accepted: Any,
    pairs: Any,
    out_objects: Any,
    out_rows: Any,
    out_mm: Any,
    ids: Any,
    sessions: Any,
    numbers: Any,
    row_words: Any,
    lists: Any,
    reach: Any,
    listed: Any,
    marks: Any,
    due: Any,
    progress: Any,
) -> Any:
    """Carries out the caller's decision about one pair and finds the next one to decide.

    Args:
        at: the pair, −1 for none yet.
        is_accepted: 1: the object enters the list and the pair is a hit, 0: it is not.
        pairs: number of pairs.
        out_objects … progress: as in `knn_match.match_batch`. Pairs that are not hits get row −1.

    Returns:
        The next pair with ASKED whose list still accepts the object, or `pairs`.
    """
    if at >= 0:
        this = np.int64(out_objects[at])
        if is_accepted != 0:
            row = np.int64(out_rows[at]) & (UNDECIDED - 1)
            out_rows[at] = row
            _enter(
                row, out_mm[at], ids[this], sessions[this], numbers[this],
                row_words, lists, reach, listed, marks, due, progress,
            )  # fmt: skip
        else:
            out_rows[at] = -1
    for i in range(at + 1, pairs):
        if np.int64(out_rows[i]) & UNDECIDED == 0 or out_rows[i] < 0:
            continue
        this = np.int64(out_objects[i])
        row = np.int64(out_rows[i]) & (UNDECIDED - 1)
        if _takes(
            row * ROW_WORDS, out_mm[i], ids[this], sessions[this], numbers[this], row_words, lists
        ):
            return i
        out_rows[i] = -1
    return pairs
