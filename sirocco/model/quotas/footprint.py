"""Memory of a compiled standing query in each slot that holds it, and in its merger.

What clients choose counts as if it were used: a list of k entries is counted whole. The router that
owns the query takes 68 bytes more, and for a query whose region no other has, 110, four for each of
16 leaves at most and a bit for each slot of the map: less than any query counts here, so that it is
not counted again.
"""

from __future__ import annotations

from collections.abc import Collection

import orjson

from sirocco.model.attributes import Filter
from sirocco.model.expression import Expression
from sirocco.model.folding.folded_terms import unmarked
from sirocco.model.geometry import Polygon, Rectangle
from sirocco.model.patterns import words_of
from sirocco.model.query import (
    ENDED,
    KnnQuery,
    Query,
    RangeQuery,
    RankedQuery,
    TermsQuery,
    canonical,
)

# Columns of a one-entry query; an index entry with its block; a use of a term.
QUERY_BYTES = 160
ENTRY_BYTES = 64
TERM_BYTES = 8
# A distinct word that nobody else may use, beside its bytes: its id, in tables that may be half
# empty.
WORD_BYTES = 76
# A word of a phrase, or a byte of a beginning: a node of the tree in which texts look for them.
NODE_BYTES = 300
BYTE_NODE_BYTES = 120
# Texts of phrases, beginnings and folded words are kept as the word and as the pattern.
PATTERN_FACTOR = 3
BOX_BYTES = 32
# A region that is no rectangle; the edge of a polygon, with its copy for exact tests, and a ring.
SHAPE_BYTES = 100
VERTEX_BYTES = 34
RING_BYTES = 32
# Conditions on attributes are held as Python values; their texts may take four bytes a character.
FILTER_FACTOR = 4
CONDITION_BYTES = 96
OPERAND_BYTES = 80
# Python objects of queries that are kept with their definitions, or whose end is reported.
DEFINITION_BYTES = 200
TRACKED_BYTES = 300
ENDED_BYTES = 350

# What a slot holds beside its columns: the definition, and the condition and schedule of steps.
KNN_BYTES = 900
TERMS_BYTES = 1_700
STEP_FILTER_FACTOR = 3
RANKED_BYTES = 3_300
# An entry of a list: 32 bytes in the slot, 40 in the merger, and an object's name there.
KNN_ENTRY_BYTES = 128
# An entry of a step: a term, or an object, from one slot until all have reported, and that of the
# list sent last.
STEP_ENTRY_BYTES = 64
# Counts of a sliding window, of lists that are short enough for it.
WINDOW_BYTES = 2_600
WINDOW_K_MAX = 32


def compiled_bytes(query: Query, subscriber: str = "") -> int:
    """Returns a query's approximate bytes: conjunctions × (terms + boxes), patterns, its list.

    Args:
        query: of a client.
        subscriber: receives its notifications.
    """
    region = None if isinstance(query, KnnQuery | RankedQuery) else query.region
    boxes = 1 if region is None else len(region.boxes())
    conjunctions, size = _text_bytes(query)
    size += QUERY_BYTES + conjunctions * boxes * ENTRY_BYTES
    size += boxes * BOX_BYTES + len(query.id.encode()) + len(subscriber.encode())
    if region is not None and not isinstance(region, Rectangle):
        size += SHAPE_BYTES
    has_steps = isinstance(query, TermsQuery | RankedQuery)
    if isinstance(region, Polygon):
        size += VERTEX_BYTES * sum(map(len, region.rings)) + RING_BYTES * len(region.rings)
    if query.where is not None:
        size += _filter_bytes(query.where) * (STEP_FILTER_FACTOR if has_steps else 1)
    return size + _list_bytes(query) + _definition_bytes(query, subscriber)


def _filter_bytes(where: Filter) -> int:
    size = FILTER_FACTOR * len(orjson.dumps(where.canonical()))
    size += CONDITION_BYTES * len(where.conditions)
    return size + OPERAND_BYTES * sum(len(each.operands) for each in where.conditions)


def _text_bytes(query: Query) -> tuple[int, int]:
    """Returns how many conjunctions a query has, and the bytes of their words and patterns."""
    if isinstance(query, RankedQuery):
        return 1, _words_bytes(query.keywords) + TERM_BYTES * len(query.keywords)
    if query.expression is None:
        return 1, 0
    each = query.expression.conjunctions
    uses = sum(len(one.positive) + len(one.negative) for one in each)
    words = {word for one in each for word in (*one.positive, *one.negative)}
    size = uses * TERM_BYTES + _words_bytes(words)
    return len(each), size + sum(map(_pattern_bytes, query.expression.patterns))


def _words_bytes(words: Collection[str]) -> int:
    return sum(len(word.encode()) for word in words) + WORD_BYTES * len(words)


def _pattern_bytes(pattern: str) -> int:
    """Returns what a phrase or beginning takes at most; a folded word counts as one node."""
    size = len(pattern.encode())
    if pattern.endswith("*"):
        return size * BYTE_NODE_BYTES
    return len(words_of(unmarked(pattern))) * NODE_BYTES + (PATTERN_FACTOR - 1) * size


def _definition_bytes(query: Query, subscriber: str) -> int:
    """Returns what a slot takes for the definition and the end that some queries are kept with."""
    size = 0
    if ENDED in query.events:
        size += ENDED_BYTES + len(query.id) + len(subscriber)
    match query:
        case RangeQuery(track=None, highlight=False):
            return size
        case RangeQuery(track=None, expression=Expression() as text):
            return size + DEFINITION_BYTES + len(text.source)
        case RangeQuery():
            size += TRACKED_BYTES
    return size + DEFINITION_BYTES + len(orjson.dumps(canonical(query)))


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
