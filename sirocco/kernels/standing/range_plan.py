"""Turns query rows into postings: writes rows and blocks, and lists the postings to make.

Planning and posting are two passes, so that the second knows all keys beforehand and can keep many
cache misses in flight, and can stop and continue where an array has to grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.blocks import block_class, take_block
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
    KIND_SHIFT,
    LARGE_LEVELS,
    POSTING_INFO,
    POSTING_ROW,
    POSTING_SECOND_TERM,
    POSTING_TERM,
    POSTING_WORDS,
    ROW_WORDS,
    SHAPE_HEADER,
    SHAPE_UNIT,
    STATE_CHECK,
    SURVEYED,
    TERM_BLOCK,
    TERM_UNIT,
    fine_cell,
    level_of_side,
    region_keys,
    survey_level,
)

__all__ = ["plan_insert", "write_shapes"]

_TERM_UNIT = TERM_UNIT

# A larger region counts as present everywhere: marking would cost more than it saves.
_MARKED_CELLS_MAX = 64

_I8 = types.Array(types.int64, 1, "C")
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C")
_U2 = types.Array(types.uint16, 1, "C")
_U1 = types.Array(types.uint8, 1, "C")
_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)
_F8 = types.Array(types.float64, 1, "C")
_F8_IN = types.Array(types.float64, 1, "C", readonly=True)
_F8_2_IN = types.Array(types.float64, 2, "C", readonly=True)


@kernel
def _survey(
    boxes: Any, first_box: Any, last_box: Any, grid: Any, finest: Any, density: Any, state: Any
) -> Any:
    """Counts a query in the survey; returns the share of all queries in its survey cell."""
    level = survey_level(finest)
    last = (1 << finest) - 1
    down = finest - level
    column = fine_cell(0.5 * (boxes[first_box, 0] + boxes[first_box, 2]), grid[0], grid[2], last)
    row = fine_cell(0.5 * (boxes[first_box, 1] + boxes[first_box, 3]), grid[1], grid[3], last)
    cell = ((row >> down) << level) | (column >> down)
    density[cell] += 1
    state[SURVEYED] += 1
    return np.float64(density[cell]) / np.float64(state[SURVEYED])


@kernel
def _level(fit: Any, finest: Any, expected: Any, list_length: Any) -> Any:
    """Chooses the level of a conjunction: the finest, or one an even number of levels above it.

    Every level in use costs each object at a place one probe for each term, and regions whose sides
    differ by a factor of four would use four levels if all were allowed; so only every second one
    is. At the fitting level a region meets up to four cells; two levels above it needs half the
    postings and keys, but lists are sixteen times as long. The upper level is taken if lists stay
    short all the
    same: for rare terms and in places with few queries.

    Args:
        fit: level at which the region meets at most two cells in each direction.
        finest: the finest level.
        expected: total postings of the anchor expected in the survey cell.
        list_length: how many of them one list may hold, as expected.
    """
    level = fit - 1
    if (finest - fit) & 1 == 0:
        level = fit - 2
        if expected > list_length * 4.0 ** (level - survey_level(finest)):
            level = fit
    return max(level, 0)


@kernel
def _mark_levels(
    boxes: Any,
    first_box: Any,
    last_box: Any,
    conj_levels: Any,
    grid: Any,
    finest: Any,
    cell_levels: Any,
    state: Any,
) -> None:
    """Marks in each survey cell that a query meets its levels there."""
    level = survey_level(finest)
    last = (1 << finest) - 1
    down = finest - level
    for box in range(first_box, last_box):
        first_column = fine_cell(boxes[box, 0], grid[0], grid[2], last) >> down
        last_column = fine_cell(boxes[box, 2], grid[0], grid[2], last) >> down
        first_row = fine_cell(boxes[box, 1], grid[1], grid[3], last) >> down
        last_row = fine_cell(boxes[box, 3], grid[1], grid[3], last) >> down
        if (last_column - first_column + 1) * (last_row - first_row + 1) > _MARKED_CELLS_MAX:
            state[LARGE_LEVELS] |= conj_levels
            continue
        for row in range(first_row, last_row + 1):
            for column in range(first_column, last_column + 1):
                cell_levels[(row << level) | column] |= np.uint16(conj_levels)


@kernel(inline=True)
def _write_row(
    row: Any,
    born: Any,
    expires_ms: Any,
    terms: Any,
    box: Any,
    boxes: Any,
    row_words: Any,
    row_boxes: Any,
    row_state: Any,
) -> None:
    """Writes the words of a row with a reference to its term block, and its box if it has one."""
    base = row * ROW_WORDS
    row_words[base + BORN] = born
    row_words[base + DEAD] = np.int64(0x7FFFFFFFFFFFFFFF)
    row_words[base + EXPIRES] = expires_ms
    row_words[base + TERM_BLOCK] = terms
    if row_state[row] >> KIND_SHIFT == KIND_BOX:
        for i in range(4):
            row_boxes[base + BOX + i] = boxes[box, i]
    row_state[row] = row_state[row] | STATE_CHECK


@kernel(inline=True)
def _fit(boxes: Any, first_box: Any, last_box: Any, grid: Any, finest: Any) -> Any:
    """Returns the level at which the boxes meet at most two cells in each direction."""
    side = 0.0
    for box in range(first_box, last_box):
        side = max(side, (boxes[box, 2] - boxes[box, 0]) * grid[2])
        side = max(side, (boxes[box, 3] - boxes[box, 1]) * grid[3])
    return level_of_side(side, finest)


@kernel(inline=True)
def _rarest(pos_ids: Any, first: Any, end: Any, frequencies: Any) -> Any:
    """Returns where the rarest of some terms is; −1 if there are none."""
    rarest = np.int64(-1)
    least = np.int64(0x7FFFFFFFFFFFFFFF)
    for i in range(first, end):
        frequency = np.int64(frequencies[pos_ids[i]])
        if frequency < least:
            least = frequency
            rarest = np.int64(i)
    return rarest


@kernel(inline=True)
def _write_terms(
    at: Any,
    level: Any,
    anchor_at: Any,
    pos_ids: Any,
    first: Any,
    end: Any,
    neg_ids: Any,
    first_negative: Any,
    end_negative: Any,
    terms_words: Any,
    templates: Any,
    word: Any,
) -> Any:
    """Writes a conjunction to its term block, anchor first; returns the word after it.

    The next two terms are written to the template at `word`, too.
    """
    terms_words[at] = (end - first) | ((end_negative - first_negative) << 13) | (level << 26)
    at += 1
    templates[word + POSTING_TERM] = 0
    templates[word + POSTING_SECOND_TERM] = 0
    if anchor_at >= 0:
        terms_words[at] = pos_ids[anchor_at]
        at += 1
    others = 0
    for i in range(first, end):
        if i != anchor_at:
            if others < 2:
                templates[word + POSTING_TERM + others] = pos_ids[i]
            others += 1
            terms_words[at] = pos_ids[i]
            at += 1
    for i in range(first_negative, end_negative):
        terms_words[at] = neg_ids[i]
        at += 1
    return at


@kernel(inline=True)
def _list_postings(
    anchor: Any,
    level: Any,
    boxes: Any,
    first_box: Any,
    last_box: Any,
    grid: Any,
    finest: Any,
    template: Any,
    templates: Any,
    keys: Any,
    owners: Any,
    count: Any,
) -> Any:
    """Lists the postings of a conjunction: of each box those of its cells, by one template.

    Args:
        template: the first one, which is complete but for its box; the others are made like it.
        count: postings so far.

    Returns:
        How many there are then; −1 if there is no room.
    """
    word = template * POSTING_WORDS
    for box in range(first_box, last_box):
        own = template * POSTING_WORDS
        if own != word:
            for i in range(POSTING_TERM, POSTING_WORDS):
                templates[own + i] = templates[word + i]
        templates[own] = box
        before = count
        count = region_keys(
            anchor, level, boxes[box, 0], boxes[box, 1], boxes[box, 2], boxes[box, 3],
            grid, finest, keys, count,
        )  # fmt: skip
        if count < 0:
            return np.int64(-1)
        for i in range(before, count):
            owners[i] = template
        template += 1
    return count


@kernel(
    types.int64(
        _I8_IN, _I8_IN, _I4_IN, _I8_IN, _I4_IN, _I8_IN, _F8_2_IN, _I8_IN, types.int64,
        _I4_IN, _I8, _F8, _U1, _I8, _I4, _I4_IN, _I4_IN, _U2, _F8_IN, types.int64, types.float64,
        _I4, _U2, _I8, _I4, _U8, _I4,
    )
)  # fmt: skip
def plan_insert(
    conj_offsets: Any,
    pos_offsets: Any,
    pos_ids: Any,
    neg_offsets: Any,
    neg_ids: Any,
    box_offsets: Any,
    boxes: Any,
    expires_ms: Any,
    position: Any,
    rows: Any,
    row_words: Any,
    row_boxes: Any,
    row_state: Any,
    terms_state: Any,
    terms_words: Any,
    frequencies: Any,
    uses: Any,
    levels: Any,
    grid: Any,
    finest: Any,
    list_length: Any,
    density: Any,
    cell_levels: Any,
    match_state: Any,
    templates: Any,
    keys: Any,
    owners: Any,
) -> Any:
    """Writes rows and their term blocks; lists the postings to make.

    Args:
        conj_offsets … box_offsets: i8, as in `QueryRows`, with ids instead of wire hashes.
        boxes: f8[b, 4].
        expires_ms: i8[n].
        position: born position of all of them.
        rows: i4[n], the row of each query.
        row_words: i8[8 · rows] and row_boxes: f8, the same memory.
        row_state: u1[rows], with the kind from `write_shapes`; set to STATE_CHECK.
        terms_state, terms_words: term blocks, with room.
        frequencies: i4[ids]; the rarest positive term of a conjunction becomes its anchor.
        uses: i4[ids], the number of conjunctions with each term.
        levels: u2[ids], level masks, changed.
        grid: f8[4], west, south, fine cells per degree in x, in y.
        finest: the finest level.
        list_length: expected postings of a list; see `_level`.
        density: i4[c], regions by survey cell; cell_levels: u2[c], levels in use there; changed.
        match_state: i8[3]: word 1 levels in use by large regions, word 2 regions surveyed;
            changed.
        templates: i4[8 · (conjunctions × boxes)], postings without their boxes, overwritten;
            words 0 holds the number of the box.
        keys: u8[…], owners: i4[…]: postings to make, (key, number of template).

    Returns:
        The number of postings to make; −1 if the term blocks or the keys have no room.
    """
    count = np.int64(0)
    template = 0
    for query in range(rows.shape[0]):
        row = np.int64(rows[query])
        first_conj = conj_offsets[query]
        last_conj = conj_offsets[query + 1]
        first_box = box_offsets[query]
        last_box = box_offsets[query + 1]
        words = (
            last_conj
            - first_conj
            + pos_offsets[last_conj]
            - pos_offsets[first_conj]
            + neg_offsets[last_conj]
            - neg_offsets[first_conj]
        )
        size_class = block_class((words + _TERM_UNIT - 1) // _TERM_UNIT)
        block = take_block(terms_state, terms_words, _TERM_UNIT, size_class)
        if block < 0:
            return np.int64(-1)
        reference = block | (size_class << 32) | ((last_conj - first_conj) << 40)
        _write_row(
            row, position, expires_ms[query], reference, first_box, boxes,
            row_words, row_boxes, row_state,
        )  # fmt: skip
        fit = _fit(boxes, first_box, last_box, grid, finest)
        share = _survey(boxes, first_box, last_box, grid, finest, density, match_state)

        info = 0
        if last_conj - first_conj > 1 or last_box - first_box > 1:
            info = INFO_MULTI
        at = block * _TERM_UNIT
        block_begin = at
        conj_levels = 0
        for conj in range(first_conj, last_conj):
            first, end = pos_offsets[conj], pos_offsets[conj + 1]
            first_negative, end_negative = neg_offsets[conj], neg_offsets[conj + 1]
            anchor_at = _rarest(pos_ids, first, end, frequencies)
            anchor = np.int64(0)
            anchor_uses = match_state[SURVEYED]
            if anchor_at >= 0:
                anchor = np.int64(pos_ids[anchor_at])
                anchor_uses = np.int64(uses[anchor])
            level = _level(fit, finest, anchor_uses * share, list_length)
            conj_levels |= 1 << level
            levels[anchor] |= np.uint16(1 << level)

            head = at
            word = template * POSTING_WORDS
            at = _write_terms(
                at, level, anchor_at, pos_ids, first, end, neg_ids, first_negative, end_negative,
                terms_words, templates, word,
            )  # fmt: skip
            conj_info = info
            if end - first > 3 or end_negative > first_negative:
                conj_info |= INFO_TERMS
            templates[word + POSTING_ROW] = row
            templates[word + POSTING_INFO] = conj_info | ((head - block_begin) << INFO_SHIFT)
            count = _list_postings(
                anchor, level, boxes, first_box, last_box, grid, finest,
                template, templates, keys, owners, count,
            )  # fmt: skip
            if count < 0:
                return np.int64(-1)
            template += last_box - first_box
        _mark_levels(
            boxes, first_box, last_box, conj_levels, grid, finest, cell_levels, match_state
        )
    return count


@kernel(
    types.int64(
        _I4_IN, _I8_IN, _F8_2_IN, _U1_IN, _F8_2_IN, _I8_IN, _I8_IN, _F8_2_IN,
        _I8, _U1, _I8, _I4, _F8,
    )
)  # fmt: skip
def write_shapes(
    rows: Any,
    box_offsets: Any,
    boxes: Any,
    shape: Any,
    circles: Any,
    polygon_offsets: Any,
    ring_offsets: Any,
    vertices: Any,
    row_words: Any,
    row_state: Any,
    shapes_state: Any,
    shapes_words: Any,
    shapes_values: Any,
) -> Any:
    """Sets the kind of rows; writes the shape blocks of those that are not one box.

    Args:
        rows: i4[n].
        box_offsets … vertices: as in `QueryRows`.
        row_words: i8[8 · rows], row_state: u1[rows], changed.
        shapes_state, shapes_words: blocks of 32 bytes, with room; shapes_values: f8, the same
            memory as shapes_words.

    Returns:
        0; −1 if the shape blocks have no room.
    """
    for query in range(rows.shape[0]):
        row = np.int64(rows[query])
        first_box = box_offsets[query]
        box_count = box_offsets[query + 1] - first_box
        if shape[query] == 0 and box_count == 1:
            row_state[row] = KIND_BOX << KIND_SHIFT
            continue
        row_state[row] = (shape[query] + 1) << KIND_SHIFT
        first_ring = polygon_offsets[query]
        ring_count = polygon_offsets[query + 1] - first_ring
        first_vertex = ring_offsets[first_ring]
        vertex_count = ring_offsets[first_ring + ring_count] - first_vertex
        size = SHAPE_HEADER + 4 * box_count + ring_count + (ring_count & 1) + 2 * vertex_count
        size_class = block_class((size + 3) // 4)
        block = take_block(shapes_state, shapes_words, SHAPE_UNIT, size_class)
        if block < 0:
            return -1
        row_words[row * ROW_WORDS + BOX] = block | (size_class << 32)
        at = 4 * block
        shapes_values[at] = box_count
        shapes_values[at + 1] = ring_count
        for i in range(3):
            shapes_values[at + 2 + i] = circles[query, i]
        at += SHAPE_HEADER
        for box in range(first_box, first_box + box_count):
            for i in range(4):
                shapes_values[at + i] = boxes[box, i]
            at += 4
        for ring in range(first_ring, first_ring + ring_count):
            shapes_values[at] = ring_offsets[ring + 1] - ring_offsets[ring]
            at += 1
        at += ring_count & 1
        for vertex in range(first_vertex, first_vertex + vertex_count):
            shapes_values[at] = vertices[vertex, 0]
            shapes_values[at + 1] = vertices[vertex, 1]
            at += 2
    return 0
