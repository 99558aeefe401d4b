"""Finds the runs of rows that a region may hold, by the tree of a slice."""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.base.memory import trailing_zeros
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.store.slice_region import (
    COVERED,
    DISJOINT,
    SHAPE_BOX,
    overlap_relation,
    overlapping_children,
)
from sirocco.kernels.store.slice_seal import BLOCK_ROWS, FANOUT

__all__ = ["collect_runs"]


@kernel
def collect_runs(
    words: Any, values: Any, quads: Any, boxes: Any, levels: Any, rows: Any, visits_max: Any
) -> Any:
    """Finds the stretches of rows whose nodes the region meets.

    Args:
        words, values, quads: the condition's region, see `slice_region`.
        boxes, levels: the tree.
        rows: number of rows of the slice.
        visits_max: gives up after this many nodes below the first.

    Returns:
        (runs i8[…], their number, rows in them): a run is (begin, end, 1 if all its rows lie in the
        region), ascending; the number is −1 where it gave up.
    """
    runs = np.empty(3 * 32, np.int64)
    count = np.int64(0)
    total = np.int64(0)
    visits = np.int64(0)
    level = levels.shape[0] - 2
    # For each level, the children of the open node: a mask of those to visit, and the first.
    open_masks = np.empty(level + 1, np.uint64)
    open_first = np.empty(level + 1, np.int64)
    open_masks[level] = overlapping_children(words, quads, boxes, levels[level], levels[level] + 1)
    open_first[level] = 0
    top = level
    span = np.int64(BLOCK_ROWS)
    for _ in range(top):
        span *= FANOUT
    is_box = words[0] == SHAPE_BOX and words[1] == 1
    west, south, east, north = values[0], values[1], values[2], values[3]
    while True:
        mask = open_masks[level]
        if mask == np.uint64(0):
            if level == top:
                return runs, count, total
            level += 1
            span *= FANOUT
            continue
        open_masks[level] = mask & (mask - np.uint64(1))
        node = open_first[level] + trailing_zeros(mask)
        at = levels[level] + node
        if is_box:
            covers = np.int64(
                (np.float64(boxes[4 * at]) >= west)
                & (np.float64(boxes[4 * at + 1]) >= south)
                & (-np.float64(boxes[4 * at + 2]) <= east)
                & (-np.float64(boxes[4 * at + 3]) <= north)
            )
        else:
            relation = overlap_relation(words, values, boxes, at)
            if relation == DISJOINT:
                continue
            covers = np.int64(relation == COVERED)
        if covers == 0 and level > 0:
            visits += FANOUT
            if visits > visits_max:
                return runs, np.int64(-1), total
            first = node * FANOUT
            last = min(first + FANOUT, levels[level] - levels[level - 1])
            level -= 1
            span //= FANOUT
            open_first[level] = first
            open_masks[level] = overlapping_children(
                words, quads, boxes, levels[level] + first, levels[level] + last
            )
            continue
        begin = node * span
        end = min(begin + span, rows)
        total += end - begin
        if count > 0 and runs[3 * count - 2] == begin and runs[3 * count - 1] == covers:
            runs[3 * count - 2] = end
            continue
        if 3 * count == runs.shape[0]:
            longer = np.empty(2 * runs.shape[0], np.int64)
            for i in range(3 * count):
                longer[i] = runs[i]
            runs = longer
        runs[3 * count] = begin
        runs[3 * count + 1] = end
        runs[3 * count + 2] = covers
        count += 1
