"""The queries that a scheme assumes if a sample has none."""

from __future__ import annotations

import numpy as np

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.schemes.workload.columns import take_rows
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries

# SSTD 7.1 generated its queries in this way: each from the place and a keyword of an object,
# equally many of six kinds, regions of 0.01 % of the space.
KINDS = (
    QueryKind.RANGE_SNAPSHOT,
    QueryKind.KNN_SNAPSHOT,
    QueryKind.TERMS_SNAPSHOT,
    QueryKind.RANGE_CONTINUOUS,
    QueryKind.KNN_CONTINUOUS,
    QueryKind.TERMS_CONTINUOUS,
)
REGION_SIDE_SHARE = 0.01

# Objects from which queries are made. More do not change the statistics of a tree of some hundred
# leaves, and its building time is proportional to them.
SOURCES_MAX = 4096


def assumed_queries(sample: Sample) -> SampleQueries:
    """Makes queries from the objects of a sample: one of each kind for each of some objects.

    The space in which a region takes 0.01 % is the bounding box of the objects, not the world:
    people who post in one city also search in that city.

    Returns:
        As many queries of each of SSTD's six kinds as objects are used; none without objects.
    """
    count = len(sample)
    rows = sorted_distinct(
        np.linspace(0, max(count - 1, 0), min(count, SOURCES_MAX)).astype(np.int64)
    )
    lon, lat = sample.lon[rows], sample.lat[rows]
    half = REGION_SIDE_SHARE / 2
    x = half * float(np.ptp(sample.lon)) if count else 0.0
    y = half * float(np.ptp(sample.lat)) if count else 0.0
    boxes = np.stack([lon - x, lat - y, lon + x, lat + y], 1)
    offsets, terms = take_rows(sample.term_offsets, sample.terms, rows)
    lengths = np.diff(offsets)
    has_text = lengths > 0
    # The object's key selects the keyword: all places in a text are equally likely. With unsigned
    # numbers, since NumPy divides u8 by i8 as floats, which lose a key's low bits.
    words = np.maximum(lengths, 1).astype(np.uint64)
    pick = offsets[:-1] + (sample.event_keys[rows] % words).astype(np.int64)
    return SampleQueries(
        kinds=np.repeat(np.array(KINDS, np.uint8), len(rows)),
        boxes=np.tile(boxes, (len(KINDS), 1)),
        term_offsets=np.concatenate([[0], np.cumsum(np.tile(has_text, len(KINDS)))]),
        terms=np.tile(terms[pick[has_text]], len(KINDS)),
        lifetimes=np.ones(len(KINDS) * len(rows)),
    )
