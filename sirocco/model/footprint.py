"""Memory of a compiled standing query in each slot that holds it, and in its merger.

What clients choose counts as if it were used: a list of k entries is counted whole.
"""

from __future__ import annotations

import orjson

from sirocco.model.folding.folded_terms import unmarked
from sirocco.model.geometry import Polygon, Region
from sirocco.model.patterns import words_of
from sirocco.model.query import KnnQuery, Query, RankedQuery, TermsQuery

# Columns of a one-entry query; an index entry with its block; a term; an edge.
QUERY_BYTES = 160
ENTRY_BYTES = 64
TERM_BYTES = 8
# A word of a phrase, or a byte of a beginning: a node of the tree in which texts look for them.
NODE_BYTES = 200
BOX_BYTES = 32
VERTEX_BYTES = 16
# Conditions on attributes are held as Python values.
FILTER_FACTOR = 4

# What a slot holds beside its columns: the definition, and the condition and schedule of steps.
KNN_BYTES = 900
TERMS_BYTES = 1_700
RANKED_BYTES = 3_300
# An entry of a list: 32 bytes in the slot, 40 in the merger, and an object's name there.
KNN_ENTRY_BYTES = 128
# An entry of a step: a term, or an object, from one slot until all have reported, and that of the
# list sent last.
STEP_ENTRY_BYTES = 64
# Counts of a sliding window, of lists that are short enough for it.
WINDOW_BYTES = 2_600
WINDOW_K_MAX = 32


def compiled_bytes(query: Query) -> int:
    """Returns a query's approximate bytes: conjunctions × (terms + boxes), patterns, its list."""
    region: Region | None = None
    conjunctions, terms, nodes = 1, 0, 0
    if isinstance(query, RankedQuery):
        terms = len(query.keywords)
    else:
        region = None if isinstance(query, KnnQuery) else query.region
        if query.expression is not None:
            each = query.expression.conjunctions
            conjunctions = len(each)
            terms = sum(len(one.positive) + len(one.negative) for one in each)
            nodes = sum(map(_nodes_of, query.expression.patterns))
    boxes = 1 if region is None else len(region.boxes())
    size = QUERY_BYTES + conjunctions * boxes * ENTRY_BYTES + terms * TERM_BYTES
    size += nodes * NODE_BYTES
    size += boxes * BOX_BYTES + len(query.id.encode()) + _list_bytes(query)
    if isinstance(region, Polygon):
        size += VERTEX_BYTES * sum(map(len, region.rings))
    if query.where is not None:
        size += FILTER_FACTOR * len(orjson.dumps(query.where.canonical()))
    return size


def _nodes_of(pattern: str) -> int:
    """Returns how many nodes a phrase or beginning takes at most; a folded word counts as one."""
    return len(pattern.encode()) if pattern.endswith("*") else len(words_of(unmarked(pattern)))


def _list_bytes(query: Query) -> int:
    """Returns what a query with a list takes beside what any query does."""
    if isinstance(query, KnnQuery):
        return KNN_BYTES + query.k * KNN_ENTRY_BYTES
    if isinstance(query, TermsQuery):
        window = WINDOW_BYTES if query.k <= WINDOW_K_MAX else 0
        return TERMS_BYTES + window + query.k * STEP_ENTRY_BYTES
    if isinstance(query, RankedQuery):
        return RANKED_BYTES + query.k * STEP_ENTRY_BYTES
    return 0
