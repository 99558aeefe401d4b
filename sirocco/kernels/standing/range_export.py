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


@kernel(inline=True)
def _read_terms(
    at: Any,
    conj: Any,
    last_conj: Any,
    terms_words: Any,
    hash_of: Any,
    pos_offsets: Any,
    pos_terms: Any,
    neg_offsets: Any,
    neg_terms: Any,
) -> None:
    """Writes the terms of the conjunctions conj to last_conj, whose block begins at a word."""
    pos_at, neg_at = pos_offsets[conj], neg_offsets[conj]
    for each in range(conj, last_conj):
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
        pos_offsets[each + 1] = pos_at
        neg_offsets[each + 1] = neg_at


@kernel(inline=True)
def _read_shape(
    at: Any,
    query: Any,
    shapes_values: Any,
    box_offsets: Any,
    polygon_offsets: Any,
    boxes: Any,
    circles: Any,
    ring_offsets: Any,
    vertices: Any,
) -> None:
    """Writes circle, boxes and rings of a query, whose shape block begins at a value."""
    for k in range(3):
        circles[query, k] = shapes_values[at + 2 + k]
    at += SHAPE_HEADER
    for box in range(box_offsets[query], box_offsets[query + 1]):
        for k in range(4):
            boxes[box, k] = shapes_values[at + k]
        at += 4
    first_ring, last_ring = polygon_offsets[query], polygon_offsets[query + 1]
    for ring in range(first_ring, last_ring):
        ring_offsets[ring + 1] = ring_offsets[ring] + np.int64(shapes_values[at])
        at += 1
    at += (last_ring - first_ring) & 1
    for vertex in range(ring_offsets[first_ring], ring_offsets[last_ring]):
        vertices[vertex, 0] = shapes_values[at]
        vertices[vertex, 1] = shapes_values[at + 1]
        at += 2


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
    for i in range(rows.shape[0]):
        if i + _AHEAD < rows.shape[0]:
            prefetch(row_words, np.int64(rows[i + _AHEAD]) * ROW_WORDS)
        row = np.int64(rows[i])
        base = row * ROW_WORDS
        expires_ms[i] = row_words[base + EXPIRES]
        _read_terms(
            (row_words[base + TERM_BLOCK] & 0xFFFFFFFF) * _TERM_UNIT,
            conj_offsets[i], conj_offsets[i + 1],
            terms_words, hash_of, pos_offsets, pos_terms, neg_offsets, neg_terms,
        )  # fmt: skip
        kind = np.int64(row_state[row] >> KIND_SHIFT)
        if kind == KIND_BOX:
            shape[i] = 0
            for k in range(4):
                boxes[box_offsets[i], k] = row_boxes[base + BOX + k]
            for k in range(3):
                circles[i, k] = 0.0
            continue
        shape[i] = kind - 1
        _read_shape(
            4 * (row_words[base + BOX] & 0xFFFFFFFF), i, shapes_values, box_offsets,
            polygon_offsets, boxes, circles, ring_offsets, vertices,
        )  # fmt: skip
