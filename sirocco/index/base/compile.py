"""Queries (values of the model) → the columns for slots and indexes.

For every kind the columns define which objects count: where (a ranked query in its circle, a knn
query in the whole world), with which text (a ranked query with any: objects without its keywords
count in its statistics), until when.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.query_rows import (
    FLAG_RESIDUAL,
    NEVER_MS,
    SHAPE_BOX,
    SHAPE_CIRCLE,
    SHAPE_POLYGON,
    TEXT_COLUMNS,
    QueryRows,
)
from sirocco.index.base.ragged import take_ragged
from sirocco.model.expression import Conjunction
from sirocco.model.geometry import Circle, Polygon, Rectangle, Region
from sirocco.model.objects import pack_bytes
from sirocco.model.patterns import is_pattern, phrase
from sirocco.model.query import KnnQuery, Query, RankedQuery
from sirocco.model.term_hashing import TermHashing
from sirocco.model.text import hash_rows, tokens_of

# Columns of queries with unknown words.
NO_WORDS: dict[str, NDArray[Any]] = {
    "words": np.empty(0, np.uint8),
    "word_offsets": np.zeros(1, np.int64),
    "pos_word_rows": np.empty(0, np.int32),
    "neg_word_rows": np.empty(0, np.int32),
}

_ASCII_END = 128

_ANY_TEXT = (Conjunction(()),)

WORLD = (-180.0, -90.0, 180.0, 90.0)


class _Ragged:
    """A ragged column being built."""

    def __init__(self) -> None:
        self.ends = [0]
        self.flat: list[object] = []

    def close(self) -> None:
        self.ends.append(len(self.flat))

    def offsets(self) -> NDArray[np.int64]:
        return np.array(self.ends, np.int64)


def compile_queries(queries: Sequence[Query], starts_ms: Sequence[int]) -> QueryRows:
    """Compiles queries, each with the start of its lifetime (epoch ms)."""
    boxes, polygons, rings = _Ragged(), _Ragged(), _Ragged()
    each = [_conjunctions_of(query) for query in queries]
    conjunctions = [conjunction for some in each for conjunction in some]
    distinct: dict[str, int] = {}
    positives = _rows_of_words(distinct, [one.positive for one in conjunctions])
    negatives = _rows_of_words(distinct, [one.negative for one in conjunctions])
    circles = np.zeros((len(queries), 3))
    shapes = np.full(len(queries), SHAPE_BOX, np.uint8)
    for row, query in enumerate(queries):
        region = region_of(query)
        boxes.flat.extend(box_rows_of(region))
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
    words, word_offsets = pack_bytes([word.encode() for word in distinct])
    hashes = hash_rows(words, word_offsets)
    return QueryRows(
        conj_offsets=_ends_of(each),
        pos_offsets=_ends_of([one.positive for one in conjunctions]),
        pos_terms=hashes[positives],
        neg_offsets=_ends_of([one.negative for one in conjunctions]),
        neg_terms=hashes[negatives],
        words=words,
        word_offsets=word_offsets,
        pos_word_rows=positives,
        neg_word_rows=negatives,
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


def region_of(query: Query) -> Region | None:
    """Returns where a query looks for objects; None for the whole world."""
    if isinstance(query, RankedQuery):
        return Circle(query.lon, query.lat, query.radius_m)
    return None if isinstance(query, KnnQuery) else query.region


def box_rows_of(region: Region | None) -> Sequence[Sequence[float]]:
    """Returns the boxes that cover a region, None for the whole world: west, south, east, north."""
    if region is None:
        return (WORLD,)
    return region.box_rows() if isinstance(region, Rectangle) else region.boxes().tolist()


def _conjunctions_of(query: Query) -> Sequence[Conjunction]:
    """Returns the conjunctions of a query's text; one without terms if any text matches."""
    expression = None if isinstance(query, RankedQuery) else query.expression
    return _ANY_TEXT if expression is None else expression.conjunctions


def _rows_of_words(known: dict[str, int], groups: Sequence[Iterable[str]]) -> NDArray[np.int32]:
    """Returns i4[t], the row of each word of all groups; adds new words to `known`."""
    return np.array(
        [known.setdefault(word, len(known)) for words in groups for word in words], np.int32
    )


def _ends_of(groups: Sequence[Sequence[object]]) -> NDArray[np.int64]:
    """Returns i8[g + 1], the starts of consecutive groups and the end of the last."""
    ends = np.zeros(len(groups) + 1, np.int64)
    np.cumsum([len(group) for group in groups], out=ends[1:])
    return ends


def with_numbers(rows: QueryRows, hashing: TermHashing) -> QueryRows:
    """Returns queries with the process's term numbers.

    Terms with unknown words keep their wire hash.
    """
    if not hashing.is_keyed or not rows.has_words:
        return rows
    numbers = hashing.numbers_of_rows(rows.words, rows.word_offsets)
    return replace(
        rows,
        pos_terms=numbers_or(rows.pos_terms, numbers, rows.pos_word_rows),
        neg_terms=numbers_or(rows.neg_terms, numbers, rows.neg_word_rows),
    )


def analysed_anew(rows: QueryRows) -> QueryRows:
    """Returns queries whose words an earlier analysis made, as this one analyses these words.

    What it dropped from the text is lost: a word that is no token any more matches nothing.
    """
    if not rows.has_words or (rows.words < _ASCII_END).all():
        return rows
    found = []
    for begin, end in pairwise(rows.word_offsets.tolist()):
        word = rows.words[begin:end].tobytes().decode()
        tokens = [word] if is_pattern(word) else tokens_of(word)
        found.append(phrase(tokens) if len(tokens) > 1 else (tokens or [word])[0])
    words, word_offsets = pack_bytes([word.encode() for word in found])
    hashes = hash_rows(words, word_offsets)
    return replace(
        rows,
        pos_terms=numbers_or(rows.pos_terms, hashes, rows.pos_word_rows),
        neg_terms=numbers_or(rows.neg_terms, hashes, rows.neg_word_rows),
        words=words,
        word_offsets=word_offsets,
    )


def with_texts(rows: QueryRows, texts: QueryRows, places: NDArray[np.intp]) -> QueryRows:
    """Returns queries, some of which take the texts of others.

    Args:
        rows: n queries.
        texts: k queries, whose words are known.
        places: i8[k], the row of `rows` that takes the text of each.
    """
    taken = np.arange(len(rows))
    taken[places] = len(rows) + np.arange(len(texts))
    joined = take_queries(_joined_texts(rows, texts), taken)
    return replace(rows, **{name: getattr(joined, name) for name in TEXT_COLUMNS})


def _joined_texts(first: QueryRows, second: QueryRows) -> QueryRows:
    """Returns the texts of two lots of queries, in the whole world; words may be unknown."""
    count = len(first) + len(second)
    known = len(first.word_offsets) - 1
    columns: dict[str, NDArray[Any]] = {
        "words": np.concatenate([first.words, second.words]),
        "word_offsets": _joined_offsets(first.word_offsets, second.word_offsets),
        "conj_offsets": _joined_offsets(first.conj_offsets, second.conj_offsets),
    }
    for sign in ("pos", "neg"):
        terms = getattr(first, f"{sign}_terms")
        own = getattr(first, f"{sign}_word_rows")
        own = own if first.has_words else np.full(len(terms), -1, np.int32)
        others = getattr(second, f"{sign}_word_rows") + np.int32(known)
        columns[f"{sign}_word_rows"] = np.concatenate([own, others])
        columns[f"{sign}_terms"] = np.concatenate([terms, getattr(second, f"{sign}_terms")])
        columns[f"{sign}_offsets"] = _joined_offsets(
            getattr(first, f"{sign}_offsets"), getattr(second, f"{sign}_offsets")
        )
    one_each, none = np.arange(count + 1, dtype=np.int64), np.zeros(count + 1, np.int64)
    return QueryRows(
        **columns,
        box_offsets=one_each,
        boxes=np.tile(np.array(WORLD), (count, 1)),
        shape=np.full(count, SHAPE_BOX, np.uint8),
        circles=np.zeros((count, 3)),
        polygon_offsets=none,
        ring_offsets=np.zeros(1, np.int64),
        vertices=np.empty((0, 2)),
        expires_ms=np.full(count, NEVER_MS, np.int64),
        flags=np.zeros(count, np.uint8),
    )


def _joined_offsets(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([first, second[1:] + first[-1]])


def without_text(rows: QueryRows) -> QueryRows:
    """Returns the queries without their text conditions."""
    n = len(rows)
    nothing = np.zeros(n + 1, np.int64)
    return replace(
        rows,
        conj_offsets=np.arange(n + 1, dtype=np.int64),
        pos_offsets=nothing,
        pos_terms=np.empty(0, np.uint64),
        neg_offsets=nothing,
        neg_terms=np.empty(0, np.uint64),
        **NO_WORDS,
    )


def numbers_or(
    wires: NDArray[np.uint64], numbers: NDArray[np.uint64], rows: NDArray[np.int32]
) -> NDArray[np.uint64]:
    """Returns u8[t], the number of each term's row, or its wire hash if it has none."""
    if not len(numbers):
        return wires
    taken = numbers[rows]
    return np.where(rows < 0, wires, taken) if (rows < 0).any() else taken


def take_queries(rows: QueryRows, wanted: NDArray[np.integer]) -> QueryRows:
    """Returns some of the queries, in the given order."""
    conj_offsets, conjunctions = take_ragged(rows.conj_offsets, wanted)
    pos_offsets, positive = take_ragged(rows.pos_offsets, conjunctions)
    neg_offsets, negative = take_ragged(rows.neg_offsets, conjunctions)
    box_offsets, boxes = take_ragged(rows.box_offsets, wanted)
    polygon_offsets, rings = take_ragged(rows.polygon_offsets, wanted)
    ring_offsets, vertices = take_ragged(rows.ring_offsets, rings)
    words = NO_WORDS
    if rows.has_words:
        words = _taken_words(rows, rows.pos_word_rows[positive], rows.neg_word_rows[negative])
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
        **words,
    )


def _taken_words(
    rows: QueryRows, positive: NDArray[np.int32], negative: NDArray[np.int32]
) -> dict[str, NDArray[Any]]:
    """Returns the columns of words for some terms, with only their words."""
    used = np.zeros(len(rows.word_offsets), np.bool_)
    # Unknown words are -1, the place after the last word.
    used[positive] = used[negative] = True
    kept = np.flatnonzero(used[:-1])
    place = np.full(len(used), -1, np.int32)
    place[kept] = np.arange(len(kept))
    word_offsets, places = take_ragged(rows.word_offsets, kept)
    return {
        "words": rows.words[places],
        "word_offsets": word_offsets,
        "pos_word_rows": place[positive],
        "neg_word_rows": place[negative],
    }
