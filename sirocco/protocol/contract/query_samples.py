"""Samples of standing queries, drawn by a hash of their handles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.workload.sample import QueryKind, SampleQueries

QuerySample = tuple[NDArray[np.uint64], NDArray[np.float64], NDArray[np.int64], NDArray[np.uint64]]


DRAW_MAX = (1 << 64) - 1


def least_distinct(draws: NDArray[np.uint64], greatest: int) -> NDArray[np.int64]:
    """Returns one row of each distinct number up to the greatest, in their order.

    The numbers are drawn: below any bound, each evaluator has the same share of its queries.
    """
    distinct, first = np.unique(draws, return_index=True)
    return first[distinct <= np.uint64(greatest)].astype(np.int64)


def joined_queries(parts: list[QuerySample]) -> QuerySample:
    """Joins the samples of several slots or evaluators."""
    if not parts:
        none = np.empty(0, np.uint64)
        return none, np.empty((0, 4)), np.zeros(1, np.int64), none
    lengths = np.concatenate([np.diff(offsets) for _, _, offsets, _ in parts])
    return (
        np.concatenate([draws for draws, _, _, _ in parts]),
        np.concatenate([boxes for _, boxes, _, _ in parts]),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([keywords for _, _, _, keywords in parts]),
    )


def range_queries(
    boxes: NDArray[np.float64], offsets: NDArray[np.int64], terms: NDArray[np.uint64]
) -> SampleQueries:
    """Returns range queries of boxes f8[q, 4] and the keywords of each."""
    kinds = np.full(len(boxes), QueryKind.RANGE_CONTINUOUS, np.uint8)
    return SampleQueries(kinds, boxes, offsets, terms, np.ones(len(boxes)))
