"""Memory of a compiled standing query in each slot that holds it."""

from __future__ import annotations

import orjson

from sirocco.model.geometry import Polygon, Region
from sirocco.model.query import KnnQuery, Query, RankedQuery

# Columns of a one-entry query; an index entry with its block; a term; an edge.
QUERY_BYTES = 160
ENTRY_BYTES = 64
TERM_BYTES = 8
BOX_BYTES = 32
VERTEX_BYTES = 16
# Conditions on attributes are held as Python values.
FILTER_FACTOR = 4


def compiled_bytes(query: Query) -> int:
    """Returns a query's approximate bytes in a slot: conjunctions × (terms + boxes)."""
    region: Region | None = None
    conjunctions, terms = 1, 0
    if isinstance(query, RankedQuery):
        terms = len(query.keywords)
    else:
        region = None if isinstance(query, KnnQuery) else query.region
        if query.expression is not None:
            each = query.expression.conjunctions
            conjunctions = len(each)
            terms = sum(len(one.positive) + len(one.negative) for one in each)
    boxes = 1 if region is None else len(region.boxes())
    size = QUERY_BYTES + conjunctions * boxes * ENTRY_BYTES + terms * TERM_BYTES
    size += boxes * BOX_BYTES + len(query.id.encode())
    if isinstance(region, Polygon):
        size += VERTEX_BYTES * sum(map(len, region.rings))
    if query.where is not None:
        size += FILTER_FACTOR * len(orjson.dumps(query.where.canonical()))
    return size
