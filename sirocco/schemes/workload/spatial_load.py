"""The workload of each object of a sample: the queries that it meets (Tornado 4, equation 1)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.workload.assumed_queries import assumed_queries
from sirocco.schemes.workload.columns import keep_values
from sirocco.schemes.workload.cost import HANDLING_SHARE
from sirocco.schemes.workload.sample import Sample, SampleQueries
from sirocco.schemes.workload.spatial_grid import FineGrid

# A keyword with more pairs of an object and a query than this share of the cells is counted on the
# whole grid, which costs as much as pairs for a quarter of the cells.
PAIRS_PER_CELL = 0.25

# Pairs processed together: some columns of this length fit a core's cache.
PAIRS_AT_ONCE = 1 << 18


def with_queries(sample: Sample) -> Sample:
    """Returns the sample, with those of `assumed_queries` if it has no queries."""
    if len(sample.queries):
        return sample
    return replace(sample, queries=assumed_queries(sample))


def object_loads(sample: Sample, grid: FineGrid) -> NDArray[np.int64]:
    """Returns the workload of each object: the queries that it meets, and its own handling.

    Tornado only counts the queries, since its routers drop objects that meet none. Here objects are
    stored too, and leaves without queries are not free: see `cost.HANDLING_SHARE`.

    Args:
        sample: Objects and queries.
        grid: The grid; queries count in the cells that they touch.

    Returns:
        i8[n], positive whole numbers, so that sums and differences of them are exact.
    """
    met = query_candidates(sample, grid)
    mean = float(met.mean()) if len(met) else 0.0
    return met + max(1, round(HANDLING_SHARE * mean))


def query_candidates(
    sample: Sample,
    grid: FineGrid,
    pairs_per_cell: float = PAIRS_PER_CELL,
    pairs_at_once: int = PAIRS_AT_ONCE,
) -> NDArray[np.int64]:
    """Returns for each object how many queries of its cell have its keywords, i8[n].

    This is q_l of equation 1. A query with several keywords counts if the object contains the least
    frequent of them: our evaluators list it under this one, as do Tornado's text summaries (3.1),
    and so it counts once. A query without keywords counts for every object.

    Args:
        sample, grid: See `object_loads`.
        pairs_per_cell: Share of the cells, see `PAIRS_PER_CELL`.
        pairs_at_once: Pairs processed together.
    """
    column, row = grid.columns_of(sample.lon), grid.rows_of(sample.lat)
    owner, spans = grid.spans_of(sample.queries.boxes)
    keys, offsets, held = _keys(sample)
    key_of_span = keys[owner]
    met = _count_on_grid(spans[key_of_span < 0], column, row, grid)
    objects = np.repeat(np.arange(len(sample)), np.diff(offsets))
    order = np.argsort(held, kind="stable")
    objects, held = objects[order], held[order]
    spans = spans[key_of_span >= 0]
    key_of_span = key_of_span[key_of_span >= 0]
    order = np.argsort(key_of_span, kind="stable")
    spans, key_of_span = spans[order], key_of_span[order]
    terms = int(key_of_span.max(initial=-1)) + 1
    first_span = np.searchsorted(key_of_span, np.arange(terms + 1))
    first_object = np.searchsorted(held, np.arange(terms + 1))
    pairs = np.diff(first_span) * np.diff(first_object)
    heavy = pairs > pairs_per_cell * grid.columns * grid.rows
    for term in np.flatnonzero(heavy):
        own = objects[first_object[term] : first_object[term + 1]]
        asked = spans[first_span[term] : first_span[term + 1]]
        met[own] += _count_on_grid(asked, column[own], row[own], grid)
    light = held[: first_object[-1]]
    light = np.flatnonzero(~heavy[light])
    _count_by_pairs(objects[light], held[light], spans, first_span, column, row, met, pairs_at_once)
    return met


def _keys(
    sample: Sample,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Returns the least frequent keyword of each query, and the keywords of each object.

    Returns:
        i8[q], number of the keyword, ties by least hash, -1 for none; then (offsets i8[n + 1], i8
        numbers) of the queries' keywords in each object.
    """
    queries: SampleQueries = sample.queries
    keys = np.full(len(queries), -1, np.int64)
    vocabulary, number = np.unique(queries.terms, return_inverse=True)
    if len(vocabulary) == 0:
        return keys, np.zeros(len(sample) + 1, np.int64), np.empty(0, np.int64)
    place = np.minimum(np.searchsorted(vocabulary, sample.terms), len(vocabulary) - 1)
    known = vocabulary[place] == sample.terms
    offsets, held = keep_values(sample.term_offsets, place.astype(np.int64), known)
    frequency = np.bincount(held, minlength=len(vocabulary))
    lengths = np.diff(queries.term_offsets)
    owner = np.repeat(np.arange(len(queries)), lengths)
    order = np.lexsort((number, frequency[number], owner))
    has_text = lengths > 0
    keys[has_text] = number[order][queries.term_offsets[:-1][has_text]]
    return keys, offsets, held


def _count_on_grid(
    spans: NDArray[np.int64],
    column: NDArray[np.int64],
    row: NDArray[np.int64],
    grid: FineGrid,
) -> NDArray[np.int64]:
    """Returns how many spans cover the cell of each point, i8[n]; O(cells + spans + points)."""
    if len(spans) == 0 or len(column) == 0:
        return np.zeros(len(column), np.int64)
    cover = np.zeros((grid.rows + 1, grid.columns + 1), np.int32)
    x0, y0, x1, y1 = spans.T
    np.add.at(cover, (y0, x0), 1)
    np.add.at(cover, (y0, x1 + 1), -1)
    np.add.at(cover, (y1 + 1, x0), -1)
    np.add.at(cover, (y1 + 1, x1 + 1), 1)
    np.cumsum(cover, 0, out=cover)
    np.cumsum(cover, 1, out=cover)
    return cover[row, column].astype(np.int64)


def _count_by_pairs(
    objects: NDArray[np.int64],
    held: NDArray[np.int64],
    spans: NDArray[np.int64],
    first_span: NDArray[np.int64],
    column: NDArray[np.int64],
    row: NDArray[np.int64],
    met: NDArray[np.int64],
    pairs_at_once: int,
) -> None:
    """Adds to `met` the spans of its keywords that cover each object; O(pairs).

    Args:
        objects, held: i8[m], pairs of an object and one of its keywords.
        spans: i8[s, 4], in the order of their keywords.
        first_span: i8[keywords + 1], into `spans`.
        column, row: i8[n], the cell of each object.
        met: i8[n], the counts to increase.
        pairs_at_once: Pairs processed together.
    """
    asked = first_span[held + 1] - first_span[held]
    ends = np.cumsum(asked)
    at = 0
    while at < len(objects):
        done = int(ends[at - 1]) if at else 0
        end = max(int(np.searchsorted(ends, done + pairs_at_once, "right")), at + 1)
        counts = asked[at:end]
        which = np.repeat(objects[at:end], counts)
        start = first_span[held[at:end]] - (ends[at:end] - counts - done)
        span = spans[np.arange(len(which)) + np.repeat(start, counts)]
        x, y = column[which], row[which]
        inside = (span[:, 0] <= x) & (x <= span[:, 2]) & (span[:, 1] <= y) & (y <= span[:, 3])
        np.add.at(met, which[inside], 1)
        at = end
