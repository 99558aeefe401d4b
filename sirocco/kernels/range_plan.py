"""From query rows to postings and back: what has to be put into, or taken out of, which list.

Planning and posting are two passes, so that the second knows all keys beforehand and can keep
many cache misses in flight, and can stop and go on where an array has to grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.blocks import block_class, give_block, take_block
from sirocco.kernels.compiled import kernel
from sirocco.kernels.memory import prefetch
from sirocco.kernels.pyramid import (
    INFO_MULTI,
    INFO_SHIFT,
    INFO_TERMS,
    KIND_BOX,
    POSTING_WORDS,
    ROW_WORDS,
    SHAPE_HEADER,
    STATE_CHECK,
    STATE_FREE,
    cell_key,
    fine_cell,
    level_of_side,
)

__all__ = ["plan_insert", "plan_remove", "write_shapes"]

_TERM_UNIT = 4  # words of 4 bytes: head and three terms, the most frequent query, in 16 bytes
_SHAPE_UNIT = 8  # words of 4 bytes = 4 f8

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
def _cover(
    term: Any,
    level: Any,
    west: Any,
    south: Any,
    east: Any,
    north: Any,
    grid: Any,
    finest: Any,
    keys: Any,
    owners: Any,
    count: Any,
    owner: Any,
) -> Any:
    """Adds the key of each cell of one level that a box meets; returns the new count."""
    last = (1 << finest) - 1
    down = finest - level
    first_column = fine_cell(west, grid[0], grid[2], last) >> down
    last_column = fine_cell(east, grid[0], grid[2], last) >> down
    first_row = fine_cell(south, grid[1], grid[3], last) >> down
    last_row = fine_cell(north, grid[1], grid[3], last) >> down
    for row in range(first_row, last_row + 1):
        for column in range(first_column, last_column + 1):
            keys[count] = cell_key(term, level, column, row)
            owners[count] = owner
            count += 1
    return count


@kernel(
    types.int64(
        _I8_IN, _I8_IN, _I4_IN, _I8_IN, _I4_IN, _I8_IN, _F8_2_IN, _I8_IN, types.int64,
        _I4_IN, _I8, _F8, _U1, _U1, _I8, _I4, _I4_IN, _U2, _F8_IN, types.int64, types.int64,
        types.int64, _I4, _U8, _I4,
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
    row_kind: Any,
    row_state: Any,
    terms_state: Any,
    terms_words: Any,
    frequencies: Any,
    levels: Any,
    grid: Any,
    finest: Any,
    allowed: Any,
    rare_uses_max: Any,
    templates: Any,
    keys: Any,
    owners: Any,
) -> Any:
    """Writes rows and their term blocks; lists the postings that have to be made.

    Args:
        conj_offsets … box_offsets: i8, as in `QueryRows`, ids in place of wire hashes.
        boxes: f8[b, 4].
        expires_ms: i8[n].
        position: born position of all of them.
        rows: i4[n], the row of each query.
        row_words: i8[8 · rows] and row_boxes: f8, the same memory.
        row_kind: u1[rows], set to KIND_BOX for one box (`write_shapes` sets the others first).
        row_state: u1[rows], set to STATE_CHECK.
        terms_state, terms_words: term blocks, with room.
        frequencies: i4[ids]; the rarest positive term of a conjunction becomes its anchor.
        levels: u2[ids], level masks, changed.
        grid: f8[4], west, south, fine cells per degree in x, in y.
        finest: the finest level.
        allowed: levels that may be used.
        rare_uses_max: anchors with a frequency up to this stand one allowed level higher.
        templates: i4[8 · (conjunctions × boxes)], postings without their boxes, overwritten;
            words 0 holds the number of the box.
        keys: u8[…], owners: i4[…]: postings to make, (key, number of template).

    Returns:
        The number of postings to make.
    """
    count = 0
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
        base = row * ROW_WORDS
        row_words[base] = position
        row_words[base + 1] = np.int64(0x7FFFFFFFFFFFFFFF)
        row_words[base + 2] = expires_ms[query]
        row_words[base + 3] = block | (size_class << 32) | ((last_conj - first_conj) << 40)
        if row_kind[row] == KIND_BOX:
            for i in range(4):
                row_boxes[base + 4 + i] = boxes[first_box, i]
        row_state[row] = STATE_CHECK

        side = 0.0
        for box in range(first_box, last_box):
            side = max(side, (boxes[box, 2] - boxes[box, 0]) * grid[2])
            side = max(side, (boxes[box, 3] - boxes[box, 1]) * grid[3])
        finest_fit = level_of_side(side, finest, allowed)

        info = 0
        if last_conj - first_conj > 1 or last_box - first_box > 1:
            info = INFO_MULTI
        at = block * _TERM_UNIT
        block_begin = at
        for conj in range(first_conj, last_conj):
            first = pos_offsets[conj]
            positives = pos_offsets[conj + 1] - first
            first_negative = neg_offsets[conj]
            negatives = neg_offsets[conj + 1] - first_negative
            anchor = 0
            anchor_at = np.int64(-1)
            level = finest_fit
            if positives > 0:
                least = np.int64(0x7FFFFFFFFFFFFFFF)
                for i in range(positives):
                    frequency = np.int64(frequencies[pos_ids[first + i]])
                    if frequency < least:
                        least = frequency
                        anchor_at = first + i
                anchor = np.int64(pos_ids[anchor_at])
                if least <= rare_uses_max and level > 0:
                    level -= 1
                    while (allowed >> level) & 1 == 0:
                        level -= 1
            levels[anchor] |= np.uint16(1 << level)

            head = at
            terms_words[at] = positives | (negatives << 13) | (level << 26)
            at += 1
            word = template * POSTING_WORDS
            templates[word + 4] = 0
            templates[word + 5] = 0
            if positives > 0:
                terms_words[at] = anchor
                at += 1
                others = 0
                for i in range(first, first + positives):
                    if i != anchor_at:
                        if others < 2:
                            templates[word + 4 + others] = pos_ids[i]
                        others += 1
                        terms_words[at] = pos_ids[i]
                        at += 1
            for i in range(first_negative, first_negative + negatives):
                terms_words[at] = neg_ids[i]
                at += 1
            conj_info = info
            if positives > 3 or negatives > 0:
                conj_info |= INFO_TERMS
            templates[word + 6] = row
            templates[word + 7] = conj_info | ((head - block_begin) << INFO_SHIFT)

            for box in range(first_box, last_box):
                own = template * POSTING_WORDS
                if own != word:
                    for i in range(4, 8):
                        templates[own + i] = templates[word + i]
                templates[own] = box
                count = _cover(
                    anchor, level, boxes[box, 0], boxes[box, 1], boxes[box, 2], boxes[box, 3],
                    grid, finest, keys, owners, count, template,
                )  # fmt: skip
                template += 1
    return count


@kernel(
    types.void(
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
    row_kind: Any,
    shapes_state: Any,
    shapes_words: Any,
    shapes_values: Any,
) -> None:
    """Sets the kind of rows and writes the shape blocks of those that are not one box.

    Args:
        rows: i4[n].
        box_offsets … vertices: as in `QueryRows`.
        row_words: i8[8 · rows], row_kind: u1[rows], changed.
        shapes_state, shapes_words: blocks of 32 bytes, with room; shapes_values: f8, the same
            memory as shapes_words.
    """
    for query in range(rows.shape[0]):
        row = np.int64(rows[query])
        first_box = box_offsets[query]
        box_count = box_offsets[query + 1] - first_box
        if shape[query] == 0 and box_count == 1:
            row_kind[row] = KIND_BOX
            continue
        row_kind[row] = shape[query] + 1
        first_ring = polygon_offsets[query]
        ring_count = polygon_offsets[query + 1] - first_ring
        first_vertex = ring_offsets[first_ring]
        vertex_count = ring_offsets[first_ring + ring_count] - first_vertex
        size = SHAPE_HEADER + 4 * box_count + ring_count + (ring_count & 1) + 2 * vertex_count
        size_class = block_class((size + 3) // 4)
        block = take_block(shapes_state, shapes_words, _SHAPE_UNIT, size_class)
        row_words[row * ROW_WORDS + 4] = block | (size_class << 32)
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


@kernel
def _list_row(
    row: Any,
    row_words: Any,
    row_boxes: Any,
    row_kind: Any,
    terms_words: Any,
    shapes_values: Any,
    grid: Any,
    finest: Any,
    keys: Any,
    owners: Any,
    count: Any,
    released: Any,
    released_count: Any,
) -> Any:
    """Adds one row's keys and terms; returns both new counts."""
    base = row * ROW_WORDS
    reference = row_words[base + 3]
    at = (reference & 0xFFFFFFFF) * _TERM_UNIT
    box_count = np.int64(1)
    box_values = row_boxes
    first_box = base + 4
    if row_kind[row] != KIND_BOX:
        shape_at = 4 * (row_words[base + 4] & 0xFFFFFFFF)
        box_values = shapes_values
        box_count = np.int64(shapes_values[shape_at])
        first_box = shape_at + SHAPE_HEADER
    for _ in range(reference >> 40):
        head = np.int64(terms_words[at])
        at += 1
        terms = (head & 0x1FFF) + ((head >> 13) & 0x1FFF)
        anchor = np.int64(terms_words[at]) if head & 0x1FFF > 0 else np.int64(0)
        for i in range(terms):
            released[released_count] = terms_words[at + i]
            released_count += 1
        at += terms
        for i in range(box_count):
            box = first_box + 4 * i
            count = _cover(
                anchor, head >> 26, box_values[box], box_values[box + 1], box_values[box + 2],
                box_values[box + 3], grid, finest, keys, owners, count, row,
            )  # fmt: skip
    return count, released_count


@kernel(
    types.UniTuple(types.int64, 3)(
        _I4_IN, types.int64, _I8, _F8, _U1, _U1, _I8, _I4, _I8, _I4, _F8, _F8_IN, types.int64,
        _U8, _I4, _I4,
    )
)  # fmt: skip
def plan_remove(
    rows: Any,
    begin: Any,
    row_words: Any,
    row_boxes: Any,
    row_kind: Any,
    row_state: Any,
    terms_state: Any,
    terms_words: Any,
    shapes_state: Any,
    shapes_words: Any,
    shapes_values: Any,
    grid: Any,
    finest: Any,
    keys: Any,
    owners: Any,
    released: Any,
) -> Any:
    """Frees rows and their blocks; lists the postings and term uses that have to go.

    Args:
        rows: i4[n], all of them in use; begin: first of them to take.
        row_words … finest: as in `plan_insert` and `write_shapes`.
        keys: u8[k], owners: i4[k]: overwritten with (key, row) of each posting.
        released: i4[t]: overwritten with the terms, one for each use.

    Returns:
        (postings, terms, number of the first row that found no room).
    """
    count = 0
    released_count = 0
    for i in range(begin, rows.shape[0]):
        row = np.int64(rows[i])
        base = row * ROW_WORDS
        if i + 4 < rows.shape[0]:
            prefetch(row_words, np.int64(rows[i + 4]) * ROW_WORDS)
        reference = row_words[base + 3]
        size_class = (reference >> 32) & 0xFF
        box_count = np.int64(1)
        if row_kind[row] != KIND_BOX:
            box_count = np.int64(shapes_values[4 * (row_words[base + 4] & 0xFFFFFFFF)])
        # A box meets two cells in each direction at its level, by rounding three.
        if (
            count + 9 * box_count * (reference >> 40) > keys.shape[0]
            or released_count + (_TERM_UNIT << size_class) > released.shape[0]
        ):
            return count, released_count, i
        count, released_count = _list_row(
            row, row_words, row_boxes, row_kind, terms_words, shapes_values, grid, finest,
            keys, owners, count, released, released_count,
        )  # fmt: skip
        give_block(terms_state, terms_words, _TERM_UNIT, size_class, reference & 0xFFFFFFFF)
        if row_kind[row] != KIND_BOX:
            shape_reference = row_words[base + 4]
            give_block(
                shapes_state,
                shapes_words,
                _SHAPE_UNIT,
                shape_reference >> 32,
                shape_reference & 0xFFFFFFFF,
            )
        row_state[row] = STATE_FREE
    return count, released_count, rows.shape[0]
