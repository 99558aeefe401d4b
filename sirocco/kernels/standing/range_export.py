"""Reads queries of a range index back from its rows and blocks (their words: see `pyramid`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.pyramid import (
    BOX,
    EXPIRES,
    KIND_BOX,
    KIND_SHIFT,
    ROW_WORDS,
    SHAPE_HEADER,
    TERM_BLOCK,
)
from sirocco.kernels.standing.range_plan import _TERM_UNIT

__all__ = ["measure_rows", "read_rows"]

_AHEAD = 8

_I8 = types.Array(types.int64, 1, "C")
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_U1 = types.Array(types.uint8, 1, "C")
_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)
_F8_IN = types.Array(types.float64, 1, "C", readonly=True)
_F8_2 = types.Array(types.float64, 2, "C")


@kernel(types.UniTuple(types.int64, 3)(_I4_IN, _I8_IN, _U1_IN, _I4_IN, _F8_IN, _I8, _I8, _I8))
def measure_rows(
    rows: Any,
    row_words: Any,
    row_state: Any,
    terms_words: Any,
    shapes_values: Any,
    conj_offsets: Any,
    box_offsets: Any,
    polygon_offsets: Any,
) -> Any:
    """Computes the lengths of the columns of some queries.

    Args:
        rows: i4[n], rows in use.
        row_words: i8[8 · rows], row_state: u1[rows].
        terms_words: i4, term blocks; shapes_values: f8, shape blocks.
        conj_offsets, box_offsets, polygon_offsets: i8[n + 1], overwritten: conjunctions, boxes
            and rings of each query.

    Returns:
        (positive terms, negative terms, vertices), their total numbers.
    """
    positives = np.int64(0)
    negatives = np.int64(0)
    vertices = np.int64(0)
    conj_offsets[0] = 0
    box_offsets[0] = 0
    polygon_offsets[0] = 0
    for i in range(rows.shape[0]):
        if i + _AHEAD < rows.shape[0]:
            prefetch(row_words, np.int64(rows[i + _AHEAD]) * ROW_WORDS)
        row = np.int64(rows[i])
        base = row * ROW_WORDS
        reference = row_words[base + TERM_BLOCK]
        conjunctions = reference >> 40
        at = (reference & 0xFFFFFFFF) * _TERM_UNIT
        for _ in range(conjunctions):
            head = np.int64(terms_words[at])
            positive = head & 0x1FFF
            negative = (head >> 13) & 0x1FFF
            positives += positive
            negatives += negative
            at += 1 + positive + negative
        boxes = np.int64(1)
        rings = np.int64(0)
        if row_state[row] >> KIND_SHIFT != KIND_BOX:
            shape_at = 4 * (row_words[base + BOX] & 0xFFFFFFFF)
            boxes = np.int64(shapes_values[shape_at])
            rings = np.int64(shapes_values[shape_at + 1])
            first_ring = shape_at + SHAPE_HEADER + 4 * boxes
            for ring in range(first_ring, first_ring + rings):
                vertices += np.int64(shapes_values[ring])
        conj_offsets[i + 1] = conj_offsets[i] + conjunctions
        box_offsets[i + 1] = box_offsets[i] + boxes
        polygon_offsets[i + 1] = polygon_offsets[i] + rings
    return positives, negatives, vertices


@kernel(
    types.void(
        _I4_IN, _I8_IN, _F8_IN, _U1_IN, _I4_IN, _F8_IN, _U8_IN, _I8_IN, _I8_IN, _I8_IN,
        _I8, _U8, _I8, _U8, _F8_2, _U1, _F8_2, _I8, _F8_2, _I8,
    )
)  # fmt: skip
def read_rows(
    rows: Any,
    row_words: Any,
    row_boxes: Any,
    row_state: Any,
    terms_words: Any,
    shapes_values: Any,
    hash_of: Any,
    conj_offsets: Any,
    box_offsets: Any,
    polygon_offsets: Any,
    pos_offsets: Any,
    pos_terms: Any,
    neg_offsets: Any,
    neg_terms: Any,
    boxes: Any,
    shape: Any,
    circles: Any,
    ring_offsets: Any,
    vertices: Any,
    expires_ms: Any,
) -> None:
    """Writes the columns of some queries.

    Args:
        rows … shapes_values: as in `measure_rows`; row_boxes: f8, the same memory as row_words.
        hash_of: u8[ids], wire hash of each term.
        conj_offsets, box_offsets, polygon_offsets: i8[n + 1], from `measure_rows`.
        pos_offsets … expires_ms: columns of `QueryRows` in their full length, overwritten.
    """
    pos_offsets[0] = 0
    neg_offsets[0] = 0
    ring_offsets[0] = 0
    pos_at = np.int64(0)
    neg_at = np.int64(0)
    vertex_at = np.int64(0)
    for i in range(rows.shape[0]):
        if i + _AHEAD < rows.shape[0]:
            prefetch(row_words, np.int64(rows[i + _AHEAD]) * ROW_WORDS)
        row = np.int64(rows[i])
        base = row * ROW_WORDS
        expires_ms[i] = row_words[base + EXPIRES]

        at = (row_words[base + TERM_BLOCK] & 0xFFFFFFFF) * _TERM_UNIT
        for conj in range(conj_offsets[i], conj_offsets[i + 1]):
            head = np.int64(terms_words[at])
            at += 1
            for _ in range(head & 0x1FFF):
                pos_terms[pos_at] = hash_of[terms_words[at]]
                pos_at += 1
                at += 1
            for _ in range((head >> 13) & 0x1FFF):
                neg_terms[neg_at] = hash_of[terms_words[at]]
                neg_at += 1
                at += 1
            pos_offsets[conj + 1] = pos_at
            neg_offsets[conj + 1] = neg_at

        kind = np.int64(row_state[row] >> KIND_SHIFT)
        if kind == KIND_BOX:
            shape[i] = 0
            for k in range(4):
                boxes[box_offsets[i], k] = row_boxes[base + 4 + k]
            for k in range(3):
                circles[i, k] = 0.0
            continue
        shape[i] = kind - 1
        at = 4 * (row_words[base + BOX] & 0xFFFFFFFF)
        for k in range(3):
            circles[i, k] = shapes_values[at + 2 + k]
        at += SHAPE_HEADER
        for box in range(box_offsets[i], box_offsets[i + 1]):
            for k in range(4):
                boxes[box, k] = shapes_values[at + k]
            at += 4
        rings = polygon_offsets[i + 1] - polygon_offsets[i]
        first_vertex = vertex_at
        for ring in range(polygon_offsets[i], polygon_offsets[i + 1]):
            vertex_at += np.int64(shapes_values[at])
            ring_offsets[ring + 1] = vertex_at
            at += 1
        at += rings & 1
        for vertex in range(first_vertex, vertex_at):
            vertices[vertex, 0] = shapes_values[at]
            vertices[vertex, 1] = shapes_values[at + 1]
            at += 2
