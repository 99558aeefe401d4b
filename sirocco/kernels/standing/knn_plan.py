"""Turns standing kNN queries into postings and back: rows, text, and the cells of their circles.

Words are those of `pyramid`, so that postings use the same table as those of regions. But a posting
begins with the point of the query on the unit sphere and the square of the chord that it reaches
(four f4), and words 4 to 7 of a row are: lon, lat (f8), its list (first entry << 32 | entries << 16
| k), and the bound in mm beyond which no object can enter.

A row is in the cells that its circle met when it was last posted. From then on the circle only
shrinks, so these postings stay sufficient; the row is posted again when that pays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.blocks import block_class, free_block, take_block
from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.knn_region import (
    BOUND_NONE,
    bound_class,
    circle_boxes,
    circle_keys,
    circle_level,
    reach_of,
)
from sirocco.kernels.standing.pyramid import (
    BORN,
    DEAD,
    EXPIRES,
    INFO_MULTI,
    INFO_SHIFT,
    INFO_TERMS,
    POSTING_INFO,
    POSTING_ROW,
    POSTING_SECOND_TERM,
    POSTING_TERM,
    POSTING_WORDS,
    ROW_WORDS,
    STATE_CHECK,
    STATE_FREE,
    TERM_BLOCK,
    TERM_UNIT,
)

__all__ = [
    "BOUND",
    "COUNT_SHIFT",
    "INFO_RESIDUAL",
    "LATITUDE",
    "LIST",
    "LIST_SHIFT",
    "LONGITUDE",
    "MARK_DUE",
    "MARK_LISTED",
    "MARK_RESIDUAL",
    "MARK_STATE",
    "MARK_UNLISTED",
    "SIZE_MASK",
    "free_rows",
    "list_rows",
    "unlist_rows",
    "write_rows",
]

# Words of a row besides born, dead, expires_ms and text.
LONGITUDE = 4
LATITUDE = 5
LIST = 6
BOUND = 7
LIST_SHIFT = 32
COUNT_SHIFT = 16
SIZE_MASK = 0xFFFF

# Marks of rows: the state of their postings, and what the caller decides.
MARK_UNLISTED = 0  # no posting, or about to be removed
MARK_LISTED = 1
MARK_DUE = 2  # as listed, and waiting to be posted again
MARK_STATE = 3  # both bits
MARK_RESIDUAL = 4  # the caller decides which objects satisfy the query

INFO_RESIDUAL = 4  # in a posting: its row has MARK_RESIDUAL

_FOR_EVER = 0x7FFFFFFFFFFFFFFF
_HEAD_TERMS = 0x1FFF
_AHEAD = 8

_I8 = types.Array(types.int64, 1, "C")
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C")
_U2 = types.Array(types.uint16, 1, "C")
_U1 = types.Array(types.uint8, 1, "C")
_F8 = types.Array(types.float64, 1, "C")
_F8_IN = types.Array(types.float64, 1, "C", readonly=True)
_F8_2_IN = types.Array(types.float64, 2, "C", readonly=True)
_F4 = types.Array(types.float32, 1, "C")


@kernel(inline=True)
def _write_text(
    first_conj: Any,
    last_conj: Any,
    pos_offsets: Any,
    pos_ids: Any,
    neg_offsets: Any,
    neg_ids: Any,
    frequencies: Any,
    terms_words: Any,
    at: Any,
) -> None:
    """Writes a term block; the rarest positive term of each conjunction goes first."""
    for conj in range(first_conj, last_conj):
        first = np.int64(pos_offsets[conj])
        last = pos_offsets[conj + 1]
        negatives = neg_offsets[conj + 1] - neg_offsets[conj]
        terms_words[at] = (last - first) | (negatives << 13)
        at += 1
        anchor_at: Any = np.int64(-1)
        least = np.int64(_FOR_EVER)
        for i in range(first, last):
            frequency = np.int64(frequencies[pos_ids[i]])
            if frequency < least:
                least = frequency
                anchor_at = i
        if anchor_at >= 0:
            terms_words[at] = pos_ids[anchor_at]
            at += 1
        for i in range(first, last):
            if i != anchor_at:
                terms_words[at] = pos_ids[i]
                at += 1
        for i in range(neg_offsets[conj], neg_offsets[conj + 1]):
            terms_words[at] = neg_ids[i]
            at += 1


@kernel(
    types.int64(
        _I8_IN, _I8_IN, _I4_IN, _I8_IN, _I4_IN, _I8_IN, _I8_IN, _F8_2_IN, _I8_IN, _I4_IN,
        _I8, _F8, _U1, _I8, _I4, _I4_IN,
    )
)  # fmt: skip
def write_rows(
    conj_offsets: Any,
    pos_offsets: Any,
    pos_ids: Any,
    neg_offsets: Any,
    neg_ids: Any,
    expires_ms: Any,
    born: Any,
    points: Any,
    lists: Any,
    rows: Any,
    row_words: Any,
    row_floats: Any,
    row_state: Any,
    terms_state: Any,
    terms_words: Any,
    frequencies: Any,
) -> Any:
    """Writes new rows and their term blocks; they are not posted yet and reach everywhere.

    Args:
        conj_offsets … neg_ids: as in `QueryRows`, with ids instead of wire hashes.
        expires_ms, born: i8[n].
        points: f8[n, 2], lon and lat.
        lists: i8[n], the list word of each row.
        rows: i4[n], the row of each query.
        row_words: i8[8 · rows] and row_floats: f8, the same memory.
        row_state: u1[rows], set to STATE_CHECK.
        terms_state, terms_words: term blocks, with room.
        frequencies: i4[ids], relative frequencies of terms among objects.

    Returns:
        0; −1 if the term blocks have no room.
    """
    for query in range(rows.shape[0]):
        row = np.int64(rows[query])
        first_conj = conj_offsets[query]
        last_conj = conj_offsets[query + 1]
        words = (
            last_conj
            - first_conj
            + pos_offsets[last_conj]
            - pos_offsets[first_conj]
            + neg_offsets[last_conj]
            - neg_offsets[first_conj]
        )
        size_class = block_class((words + TERM_UNIT - 1) // TERM_UNIT)
        block = take_block(terms_state, terms_words, TERM_UNIT, size_class)
        if block < 0:
            return -1
        base = row * ROW_WORDS
        row_words[base + BORN] = born[query]
        row_words[base + DEAD] = np.int64(_FOR_EVER)
        row_words[base + EXPIRES] = expires_ms[query]
        row_words[base + TERM_BLOCK] = block | (size_class << 32) | ((last_conj - first_conj) << 40)
        row_floats[base + LONGITUDE] = points[query, 0]
        row_floats[base + LATITUDE] = points[query, 1]
        row_words[base + LIST] = lists[query]
        row_words[base + BOUND] = np.int64(BOUND_NONE)
        row_state[row] = STATE_CHECK
        _write_text(
            first_conj, last_conj, pos_offsets, pos_ids, neg_offsets, neg_ids, frequencies,
            terms_words, block * TERM_UNIT,
        )  # fmt: skip
    return 0


@kernel(inline=True)
def _template(
    row: Any,
    base: Any,
    reach: Any,
    mark: Any,
    conjunctions: Any,
    place: Any,
    at: Any,
    row_floats: Any,
    terms_words: Any,
    templates: Any,
    template_floats: Any,
    word: Any,
) -> None:
    """Writes the posting of one conjunction, whose head is at word `at` of the term blocks."""
    lon = math.radians(row_floats[base + LONGITUDE])
    lat = math.radians(row_floats[base + LATITUDE])
    template_floats[word] = np.float32(math.cos(lat) * math.cos(lon))
    template_floats[word + 1] = np.float32(math.cos(lat) * math.sin(lon))
    template_floats[word + 2] = np.float32(math.sin(lat))
    template_floats[word + 3] = reach
    head = np.int64(terms_words[at])
    positives = head & _HEAD_TERMS
    negatives = (head >> 13) & _HEAD_TERMS
    templates[word + POSTING_TERM] = terms_words[at + 2] if positives > 1 else 0
    templates[word + POSTING_SECOND_TERM] = terms_words[at + 3] if positives > 2 else 0
    templates[word + POSTING_ROW] = row
    info = place << INFO_SHIFT
    if positives > 3 or negatives > 0:
        info |= INFO_TERMS
    if conjunctions > 1:
        info |= INFO_MULTI
    if mark & MARK_RESIDUAL != 0:
        info |= INFO_RESIDUAL
    templates[word + POSTING_INFO] = info


@kernel(
    types.UniTuple(types.int64, 3)(
        _I4_IN, types.int64, _I8, _F8, _I4, _U1, _U1, _F4, _U2, _F8_IN, types.int64, types.int64,
        _I4, _F4, _U8, _I4,
    )
)  # fmt: skip
def list_rows(
    rows: Any,
    begin: Any,
    row_words: Any,
    row_floats: Any,
    terms_words: Any,
    listed: Any,
    marks: Any,
    reach: Any,
    levels: Any,
    grid: Any,
    finest: Any,
    cells_max: Any,
    templates: Any,
    template_floats: Any,
    keys: Any,
    owners: Any,
) -> Any:
    """Posts rows for their present circles: returns the postings to make.

    Args:
        rows: i4[n], without postings; begin: first of them to process.
        row_words, row_floats, terms_words: as in `write_rows`.
        listed: u1[rows], class of the bound for which each row is posted; set.
        marks: u1[rows], MARK_UNLISTED becomes MARK_LISTED.
        reach: f4[rows], squared chord that each row reaches; set.
        levels: u2[ids], levels in use by each term, changed.
        grid, finest, cells_max: as in `knn_region.circle_level`.
        templates: i4[8 · m] and template_floats: f4, the same memory; overwritten.
        keys: u8[…], owners: i4[…], overwritten: postings to make, (key, number of template).

    Returns:
        (keys, templates, number of the first row without room). −1 keys: a circle meets more cells
        than `cells_max`.
    """
    boxes = np.zeros(8, np.float64)
    spans = np.empty(4, np.int64)
    count = np.int64(0)
    template = np.int64(0)
    for i in range(begin, rows.shape[0]):
        if i + _AHEAD < rows.shape[0]:
            prefetch(row_words, np.int64(rows[i + _AHEAD]) * ROW_WORDS)
        row = np.int64(rows[i])
        base = row * ROW_WORDS
        reference = row_words[base + TERM_BLOCK]
        conjunctions = reference >> 40
        if (
            count + conjunctions * cells_max > keys.shape[0]
            or (template + conjunctions) * POSTING_WORDS > templates.shape[0]
        ):
            return count, template, i
        bound = row_words[base + BOUND]
        size = bound_class(bound)
        listed[row] = size
        reach[row] = reach_of(bound)
        marks[row] = np.int64(marks[row]) | MARK_LISTED
        found = circle_boxes(
            row_floats[base + LONGITUDE], row_floats[base + LATITUDE], np.int64(1) << size, boxes
        )
        level = circle_level(boxes, found, grid, finest, cells_max, spans)
        block = (reference & 0xFFFFFFFF) * TERM_UNIT
        at = block
        for _ in range(conjunctions):
            head = np.int64(terms_words[at])
            anchor = np.int64(terms_words[at + 1]) if head & _HEAD_TERMS > 0 else np.int64(0)
            levels[anchor] = np.int64(levels[anchor]) | (1 << level)
            _template(
                row, base, reach[row], np.int64(marks[row]), conjunctions, at - block, at,
                row_floats, terms_words, templates, template_floats, template * POSTING_WORDS,
            )  # fmt: skip
            before = count
            count = circle_keys(anchor, level, boxes, found, grid, finest, spans, keys, count)
            if count < 0:
                return count, template, i
            for key in range(before, count):
                owners[key] = template
            template += 1
            at += 1 + (head & _HEAD_TERMS) + ((head >> 13) & _HEAD_TERMS)
    return count, template, rows.shape[0]


@kernel(
    types.UniTuple(types.int64, 2)(
        _I4_IN, types.int64, _I8, _F8, _I4, _U1, _U1, _F8_IN, types.int64, types.int64, _U8
    )
)
def unlist_rows(
    rows: Any,
    begin: Any,
    row_words: Any,
    row_floats: Any,
    terms_words: Any,
    listed: Any,
    marks: Any,
    grid: Any,
    finest: Any,
    cells_max: Any,
    keys: Any,
) -> Any:
    """Returns the keys under which rows are stored, and marks the rows as gone.

    Args:
        rows: i4[n], posted; begin: first of them to process.
        row_words … cells_max: as in `list_rows`.
        keys: u8[…], overwritten.

    Returns:
        (keys, number of the first row without room). −1 keys: as in `list_rows`.
    """
    boxes = np.zeros(8, np.float64)
    spans = np.empty(4, np.int64)
    count = np.int64(0)
    for i in range(begin, rows.shape[0]):
        if i + _AHEAD < rows.shape[0]:
            prefetch(row_words, np.int64(rows[i + _AHEAD]) * ROW_WORDS)
        row = np.int64(rows[i])
        base = row * ROW_WORDS
        reference = row_words[base + TERM_BLOCK]
        conjunctions = reference >> 40
        if count + conjunctions * cells_max > keys.shape[0]:
            return count, i
        marks[row] = np.int64(marks[row]) & ~MARK_STATE
        found = circle_boxes(
            row_floats[base + LONGITUDE],
            row_floats[base + LATITUDE],
            np.int64(1) << np.int64(listed[row]),
            boxes,
        )
        level = circle_level(boxes, found, grid, finest, cells_max, spans)
        at = (reference & 0xFFFFFFFF) * TERM_UNIT
        for _ in range(conjunctions):
            head = np.int64(terms_words[at])
            anchor = np.int64(terms_words[at + 1]) if head & _HEAD_TERMS > 0 else np.int64(0)
            count = circle_keys(anchor, level, boxes, found, grid, finest, spans, keys, count)
            if count < 0:
                return count, i
            at += 1 + (head & _HEAD_TERMS) + ((head >> 13) & _HEAD_TERMS)
    return count, rows.shape[0]


@kernel(types.UniTuple(types.int64, 2)(_I4_IN, types.int64, _I8, _U1, _I8, _I4, _I4))
def free_rows(
    rows: Any,
    begin: Any,
    row_words: Any,
    row_state: Any,
    terms_state: Any,
    terms_words: Any,
    released: Any,
) -> Any:
    """Frees rows without postings and their term blocks.

    Args:
        rows: i4[n]; begin: first of them to process.
        row_words … terms_words: as in `write_rows`.
        released: i4[t], overwritten with the terms, one for each use.

    Returns:
        (terms, number of the first row without room).
    """
    count = np.int64(0)
    for i in range(begin, rows.shape[0]):
        row = np.int64(rows[i])
        reference = row_words[row * ROW_WORDS + TERM_BLOCK]
        size_class = (reference >> 32) & 0xFF
        if count + (TERM_UNIT << size_class) > released.shape[0]:
            return count, i
        at = (reference & 0xFFFFFFFF) * TERM_UNIT
        for _ in range(reference >> 40):
            head = np.int64(terms_words[at])
            terms = (head & _HEAD_TERMS) + ((head >> 13) & _HEAD_TERMS)
            for word in range(at + 1, at + 1 + terms):
                released[count] = terms_words[word]
                count += 1
            at += 1 + terms
        free_block(terms_state, terms_words, TERM_UNIT, size_class, reference & 0xFFFFFFFF)
        row_state[row] = STATE_FREE
    return count, rows.shape[0]
