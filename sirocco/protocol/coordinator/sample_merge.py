"""Merges samples of several evaluators into one."""

from __future__ import annotations

import numpy as np

from sirocco.protocol.contract.load_messages import SampleReport
from sirocco.protocol.contract.query_samples import (
    DRAW_MAX,
    joined_queries,
    least_distinct,
    range_queries,
)
from sirocco.schemes.workload.columns import take_rows
from sirocco.schemes.workload.sample import Sample, SampleQueries


def joined_sample(parts: list[SampleReport]) -> Sample | None:
    """Returns the samples of several evaluators as one; None where there is nothing.

    Each part stands for as many objects and queries as it was drawn from. So the most sparsely
    drawn parts decide how many of the others are taken, down to none.
    """
    parts_with_sample = [part for part in parts if len(part.sample)]
    if not parts_with_sample:
        return None
    density = min(len(part.sample) / max(part.objects, 1.0) for part in parts_with_sample)
    lon, lat, keys, lengths, terms = [], [], [], [], []
    # The sum is rounded: many parts with less than half an object each still yield some.
    ends = np.rint(
        np.cumsum([0.0] + [density * part.objects for part in parts_with_sample])
    ).astype(np.int64)
    for part, share in zip(parts_with_sample, np.diff(ends).tolist(), strict=True):
        sample = part.sample
        count = min(len(sample), share)
        rows = np.linspace(0, len(sample) - 1, count).astype(np.int64)
        own_offsets, own_terms = take_rows(sample.term_offsets, sample.terms, rows)
        lon.append(sample.lon[rows])
        lat.append(sample.lat[rows])
        keys.append(sample.event_keys[rows])
        lengths.append(np.diff(own_offsets))
        terms.append(own_terms)
    return Sample(
        np.concatenate(lon),
        np.concatenate(lat),
        np.cumsum(np.concatenate([[0], *lengths])),
        np.concatenate(terms),
        np.concatenate(keys),
        _distinct_queries(parts),
    )


def _distinct_queries(parts: list[SampleReport]) -> SampleQueries:
    rows = [
        (part.draws, part.sample.queries.boxes, part.sample.queries.term_offsets) for part in parts
    ]
    keywords = [part.sample.queries.terms for part in parts]
    draws, boxes, offsets, terms = joined_queries(
        [(*each, own) for each, own in zip(rows, keywords, strict=True)]
    )
    sparse = [part.draws for part in parts if 0 < len(part.draws) < part.queries]
    first = least_distinct(draws, min((int(own.max()) for own in sparse), default=DRAW_MAX))
    return range_queries(boxes[first], *take_rows(offsets, terms, first))
