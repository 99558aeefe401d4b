"""Objects and queries of the model → a sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sirocco.model.geometry import Circle, Region
from sirocco.model.objects import ObjectColumns
from sirocco.model.patterns import words_of
from sirocco.model.query import KnnQuery, Query, RankedQuery, kind_of
from sirocco.model.text import term_hash, tokens_of_batch
from sirocco.schemes.map.map import WORLD, Box
from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries, no_queries
from sirocco.schemes.workload.search_boxes import knn_search_boxes

_KINDS = {
    ("range", "snapshot"): QueryKind.RANGE_SNAPSHOT,
    ("knn", "snapshot"): QueryKind.KNN_SNAPSHOT,
    ("ranked", "snapshot"): QueryKind.RANKED_SNAPSHOT,
    ("terms", "snapshot"): QueryKind.TERMS_SNAPSHOT,
    ("range", "continuous"): QueryKind.RANGE_CONTINUOUS,
    ("knn", "continuous"): QueryKind.KNN_CONTINUOUS,
    ("terms", "continuous"): QueryKind.TERMS_CONTINUOUS,
    ("ranked", "continuous"): QueryKind.RANKED_CONTINUOUS,
}


def sample_of(
    objects: ObjectColumns, queries: Sequence[Query], population: int, span_ms: int
) -> Sample:
    """Describes objects and queries as a scheme's sample.

    The objects' ids replace the event keys, which are only assigned at publication.

    Args:
        objects: The sampled objects, valid.
        queries: Queries; empty if they are unknown.
        population: Number of objects from which the sample was drawn.
        span_ms: Time in which these arrived.
    """
    terms = tokens_of_batch(objects.text, objects.text_offsets)
    columns = (objects.lon, objects.lat, terms.offsets, terms.terms, objects.ids)
    sample = Sample(*columns, no_queries())
    return replace(sample, queries=sample_queries(queries, sample, population, span_ms))


def sample_queries(
    queries: Sequence[Query], objects: Sample, population: int, span_ms: int
) -> SampleQueries:
    """Describes queries for the cost model.

    An expression with alternatives counts as its shortest conjunction, which is satisfied most
    often.

    Args:
        queries: The queries.
        objects: A sample of the objects; its queries are ignored.
        population: Number of objects from which the sample was drawn.
        span_ms: Time in which these arrived.
    """
    rows = [_keywords(query) for query in queries]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    terms = np.array([term for row in rows for term in row], np.uint64)
    boxes = np.array([_box(query) for query in queries], np.float64).reshape(-1, 4)
    nearest = [i for i, query in enumerate(queries) if isinstance(query, KnnQuery)]
    if nearest:
        boxes[nearest] = _search_boxes(queries, nearest, rows, objects, population)
    return SampleQueries(
        kinds=np.array([_KINDS[kind_of(query), query.mode] for query in queries], np.uint8),
        boxes=boxes,
        term_offsets=offsets,
        terms=terms,
        lifetimes=np.array([_lifetime(query, span_ms) for query in queries], np.float64),
    )


def _keywords(query: Query) -> list[int]:
    if isinstance(query, RankedQuery):
        return [term_hash(term) for term in query.keywords]
    if query.expression is None:
        return []
    conjunctions = query.expression.conjunctions
    positive = min((one.positive for one in conjunctions), key=lambda terms: (len(terms), terms))
    return [term_hash(word) for word in sorted({w for term in positive for w in words_of(term)})]


def _box(query: Query) -> Box:
    if isinstance(query, KnnQuery):
        return WORLD
    region: Region | None
    if isinstance(query, RankedQuery):
        region = Circle(query.lon, query.lat, query.radius_m)
    else:
        region = query.region
    if region is None:
        return WORLD
    boxes = region.boxes()
    # One of two boxes ends at 180 and the other begins at -180: together they are one box across
    # the antimeridian.
    first = int(np.argmax(boxes[:, 2]))
    west, south, _, north = boxes[first]
    return float(west), float(south), float(boxes[len(boxes) - 1 - first, 2]), float(north)


def _search_boxes(
    queries: Sequence[Query],
    nearest: list[int],
    rows: list[list[int]],
    objects: Sample,
    population: int,
) -> NDArray[np.float64]:
    own = [query for i in nearest if isinstance(query := queries[i], KnnQuery)]
    known, counts = np.unique(objects.terms, return_counts=True)
    holders = dict(zip(known.tolist(), counts.tolist(), strict=True))
    # Under independence, a pair of keywords would be far rarer than in texts in which they occur
    # together, so only the rarest keyword counts.
    satisfying = [min((holders.get(term, 0) for term in rows[i]), default=None) for i in nearest]
    share = len(objects) / max(population, 1)
    needed = [
        query.k * share * (1.0 if held is None else len(objects) / max(held, 1))
        for query, held in zip(own, satisfying, strict=True)
    ]
    return knn_search_boxes(
        np.array([query.lon for query in own]),
        np.array([query.lat for query in own]),
        np.maximum(needed, 1.0),
        objects.lon,
        objects.lat,
    )


def _lifetime(query: Query, span_ms: int) -> float:
    return 1.0 if query.ttl_ms is None or span_ms <= 0 else query.ttl_ms / span_ms
