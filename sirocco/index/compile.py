"""Queries (values of the model) → the columns that slots and indexes take.

Of any kind the columns say which objects count: where (a ranked query within its circle, a knn
query in the whole world), with which text (a ranked query with any: objects without its keywords
count in its statistics), until when.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sirocco.index.query_rows import (
    FLAG_RESIDUAL,
    NEVER_MS,
    SHAPE_BOX,
    SHAPE_CIRCLE,
    SHAPE_POLYGON,
    QueryRows,
)
from sirocco.index.ragged import take_ragged
from sirocco.model.expression import Expression
from sirocco.model.geometry import Circle, Polygon, Region
from sirocco.model.query import KnnQuery, Query, RankedQuery
from sirocco.model.text import term_hash

_WORLD = (-180.0, -90.0, 180.0, 90.0)


class _Ragged:
    """A ragged column in the making."""

    def __init__(self) -> None:
        self.ends = [0]
        self.flat: list[object] = []

    def close(self) -> None:
        self.ends.append(len(self.flat))

    def offsets(self) -> NDArray[np.int64]:
        return np.array(self.ends, np.int64)


def compile_queries(queries: Sequence[Query], starts_ms: Sequence[int]) -> QueryRows:
    """Compiles queries, each with the begin of its lifetime (epoch ms)."""
    conjunctions, positive, negative, boxes = _Ragged(), _Ragged(), _Ragged(), _Ragged()
    polygons, rings = _Ragged(), _Ragged()
    circles = np.zeros((len(queries), 3))
    shapes = np.full(len(queries), SHAPE_BOX, np.uint8)
    for row, query in enumerate(queries):
        expression = None if isinstance(query, RankedQuery) else query.expression
        _add_text(expression, conjunctions, positive, negative)
        region = _region_of(query)
        if region is None:
            boxes.flat.append(_WORLD)
        else:
            boxes.flat.extend(region.boxes().tolist())
        boxes.close()
        if isinstance(region, Circle):
            shapes[row] = SHAPE_CIRCLE
            circles[row] = region.lon, region.lat, region.radius_m
        elif isinstance(region, Polygon):
            shapes[row] = SHAPE_POLYGON
            for ring in region.rings:
                rings.flat.extend(ring)
                rings.close()
                polygons.flat.append(ring)
        polygons.close()
    return QueryRows(
        conj_offsets=conjunctions.offsets(),
        pos_offsets=positive.offsets(),
        pos_terms=np.array(positive.flat, np.uint64),
        neg_offsets=negative.offsets(),
        neg_terms=np.array(negative.flat, np.uint64),
        box_offsets=boxes.offsets(),
        boxes=np.array(boxes.flat, np.float64).reshape(-1, 4),
        shape=shapes,
        circles=circles,
        polygon_offsets=polygons.offsets(),
        ring_offsets=rings.offsets(),
        vertices=np.array(rings.flat, np.float64).reshape(-1, 2),
        expires_ms=np.array(
            [
                NEVER_MS if query.ttl_ms is None else start_ms + query.ttl_ms
                for query, start_ms in zip(queries, starts_ms, strict=True)
            ],
            np.int64,
        ),
        flags=np.array([FLAG_RESIDUAL * (query.where is not None) for query in queries], np.uint8),
    )


def _region_of(query: Query) -> Region | None:
    if isinstance(query, RankedQuery):
        return Circle(query.lon, query.lat, query.radius_m)
    return None if isinstance(query, KnnQuery) else query.region


def _add_text(
    expression: Expression | None, conjunctions: _Ragged, positive: _Ragged, negative: _Ragged
) -> None:
    if expression is None:
        conjunctions.flat.append(None)
        positive.close()
        negative.close()
    else:
        conjunctions.flat.extend(expression.conjunctions)
        for conjunction in expression.conjunctions:
            positive.flat.extend([term_hash(term) for term in conjunction.positive])
            positive.close()
            if conjunction.negative:
                negative.flat.extend([term_hash(term) for term in conjunction.negative])
            negative.close()
    conjunctions.close()


def take_queries(rows: QueryRows, wanted: NDArray[np.integer]) -> QueryRows:
    """Returns some of the queries, in the given order."""
    conj_offsets, conjunctions = take_ragged(rows.conj_offsets, wanted)
    pos_offsets, positive = take_ragged(rows.pos_offsets, conjunctions)
    neg_offsets, negative = take_ragged(rows.neg_offsets, conjunctions)
    box_offsets, boxes = take_ragged(rows.box_offsets, wanted)
    polygon_offsets, rings = take_ragged(rows.polygon_offsets, wanted)
    ring_offsets, vertices = take_ragged(rows.ring_offsets, rings)
    return QueryRows(
        conj_offsets=conj_offsets,
        pos_offsets=pos_offsets,
        pos_terms=rows.pos_terms[positive],
        neg_offsets=neg_offsets,
        neg_terms=rows.neg_terms[negative],
        box_offsets=box_offsets,
        boxes=rows.boxes[boxes],
        shape=rows.shape[wanted],
        circles=rows.circles[wanted],
        polygon_offsets=polygon_offsets,
        ring_offsets=ring_offsets,
        vertices=rows.vertices[vertices],
        expires_ms=rows.expires_ms[wanted],
        flags=rows.flags[wanted],
    )
