"""Finds the postings of removed rows: their keys, and their terms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.blocks import free_block
from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.pyramid import (
    BOX,
    KIND_BOX,
    KIND_SHIFT,
    ROW_WORDS,
    SHAPE_HEADER,
    SHAPE_UNIT,
    STATE_FREE,
    TERM_BLOCK,
    TERM_UNIT,
    region_keys,
)

__all__ = ["plan_remove"]

_I8 = types.Array(types.int64, 1, "C")
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C")
_U1 = types.Array(types.uint8, 1, "C")
_F8 = types.Array(types.float64, 1, "C")
_F8_IN = types.Array(types.float64, 1, "C", readonly=True)


@kernel
def _list_row(
    row: Any,
    row_words: Any,
    row_boxes: Any,
    row_state: Any,
    terms_words: Any,
    shapes_values: Any,
    grid: Any,
    finest: Any,
    keys: Any,
    count: Any,
    released: Any,
    released_count: Any,
) -> Any:
    """Adds one row's keys and terms; returns both new counts.

    The first is −1 if `keys` was too short.
    """
    base = row * ROW_WORDS
    reference = row_words[base + TERM_BLOCK]
    at = (reference & 0xFFFFFFFF) * TERM_UNIT
    box_count = np.int64(1)
    box_values = row_boxes
    first_box = base + 4
    if row_state[row] >> KIND_SHIFT != KIND_BOX:
        shape_at = 4 * (row_words[base + BOX] & 0xFFFFFFFF)
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
            count = region_keys(
                anchor, head >> 26, box_values[box], box_values[box + 1], box_values[box + 2],
                box_values[box + 3], grid, finest, keys, count,
            )  # fmt: skip
            if count < 0:
                return count, released_count
    return count, released_count


@kernel(
    types.UniTuple(types.int64, 3)(
        _I4_IN, types.int64, _I8, _F8, _U1, _I8, _I4, _I8, _I4, _F8, _F8_IN, types.int64,
        _U8, _I4,
    )
)  # fmt: skip
def plan_remove(
    rows: Any,
    begin: Any,
    row_words: Any,
    row_boxes: Any,
    row_state: Any,
    terms_state: Any,
    terms_words: Any,
    shapes_state: Any,
    shapes_words: Any,
    shapes_values: Any,
    grid: Any,
    finest: Any,
    keys: Any,
    released: Any,
) -> Any:
    """Frees rows and their blocks; lists the postings and term uses to remove.

    Args:
        rows: i4[n], all of them in use; begin: first of them to process.
        row_words … finest: as in `plan_insert` and `write_shapes`.
        keys: u8[k], overwritten with the keys of all postings.
        released: i4[t]: overwritten with the terms, one for each use.

    Returns:
        (postings, terms, number of the first row without room). −1 postings: a row meets more cells
        than regions can.
    """
    count = np.int64(0)
    released_count = np.int64(0)
    for i in range(begin, rows.shape[0]):
        row = np.int64(rows[i])
        base = row * ROW_WORDS
        if i + 4 < rows.shape[0]:
            prefetch(row_words, np.int64(rows[i + 4]) * ROW_WORDS)
        reference = row_words[base + TERM_BLOCK]
        size_class = (reference >> 32) & 0xFF
        box_count = np.int64(1)
        if row_state[row] >> KIND_SHIFT != KIND_BOX:
            box_count = np.int64(shapes_values[4 * (row_words[base + BOX] & 0xFFFFFFFF)])
        # A box meets two cells in each direction at its level, three after rounding.
        if (
            count + 9 * box_count * (reference >> 40) > keys.shape[0]
            or released_count + (TERM_UNIT << size_class) > released.shape[0]
        ):
            return count, released_count, i
        count, released_count = _list_row(
            row, row_words, row_boxes, row_state, terms_words, shapes_values, grid, finest,
            keys, count, released, released_count,
        )  # fmt: skip
        if count < 0:
            return count, released_count, i
        free_block(terms_state, terms_words, TERM_UNIT, size_class, reference & 0xFFFFFFFF)
        if row_state[row] >> KIND_SHIFT != KIND_BOX:
            shape_reference = row_words[base + BOX]
            free_block(
                shapes_state,
                shapes_words,
                SHAPE_UNIT,
                shape_reference >> 32,
                shape_reference & 0xFFFFFFFF,
            )
        row_state[row] = STATE_FREE
    return count, released_count, rows.shape[0]
