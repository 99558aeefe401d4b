"""The queries of a range index, as the columns from which they were inserted.

A checkpoint writes them (docs/adr/0012): the index keeps everything needed to restore a query, so
that no second copy is necessary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.range_index import RangeIndex
from sirocco.index.standing.row_store import RowStore
from sirocco.index.standing.vocabulary import Vocabulary
from sirocco.kernels.standing.range_export import measure_rows, read_rows
from sirocco.model.objects import pack_bytes

__all__ = ["export_queries", "export_rows"]


def export_queries(index: RangeIndex, rows: npt.NDArray[np.int32]) -> QueryRows:
    """Returns queries of an index; inserting them into another one gives the same matches.

    Args:
        index: the index.
        rows: i4[k], rows returned by `insert`, including removed ones until they are reclaimed.

    Returns:
        k queries in the order of `rows`. The conjunctions of each keep their order; the positive
        terms of one may be in a different order. `flags` are 0: the index does not keep them, since
        the caller itself knows its checks after a hit.
    """
    return export_rows(index._rows, index.vocabulary, rows)


def export_rows(store: RowStore, vocabulary: Vocabulary, rows: npt.NDArray[np.int32]) -> QueryRows:
    """Returns the queries of rows as `export_queries` does; arguments as there.

    Args:
        store: holds the rows; vocabulary: their terms.
        rows: i4[k].
    """
    rows = np.ascontiguousarray(rows, np.int32)
    n = len(rows)
    # Ids first if words have to be found too.
    hash_of = vocabulary.wire_of
    if vocabulary.is_keyed:
        hash_of = np.arange(len(hash_of), dtype=np.uint64)
    words, state, terms, shapes = store.words, store.state, store.terms_words, store.shapes_values
    conj_offsets = np.empty(n + 1, np.int64)
    box_offsets = np.empty(n + 1, np.int64)
    polygon_offsets = np.empty(n + 1, np.int64)
    positives, negatives, vertices = measure_rows(
        rows, words, state, terms, shapes, conj_offsets, box_offsets, polygon_offsets
    )
    conjunctions = int(conj_offsets[-1])
    queries = QueryRows(
        conj_offsets=conj_offsets,
        pos_offsets=np.empty(conjunctions + 1, np.int64),
        pos_terms=np.empty(positives, np.uint64),
        neg_offsets=np.empty(conjunctions + 1, np.int64),
        neg_terms=np.empty(negatives, np.uint64),
        box_offsets=box_offsets,
        boxes=np.empty((int(box_offsets[-1]), 4), np.float64),
        shape=np.empty(n, np.uint8),
        circles=np.empty((n, 3), np.float64),
        polygon_offsets=polygon_offsets,
        ring_offsets=np.empty(int(polygon_offsets[-1]) + 1, np.int64),
        vertices=np.empty((vertices, 2), np.float64),
        expires_ms=np.empty(n, np.int64),
        flags=np.zeros(n, np.uint8),
    )
    read_rows(
        rows,
        words,
        store.boxes,
        state,
        terms,
        shapes,
        hash_of,
        conj_offsets,
        box_offsets,
        polygon_offsets,
        queries.pos_offsets,
        queries.pos_terms,
        queries.neg_offsets,
        queries.neg_terms,
        queries.boxes,
        queries.shape,
        queries.circles,
        queries.ring_offsets,
        queries.vertices,
        queries.expires_ms,
    )
    if vocabulary.is_keyed:
        return _named(queries, vocabulary)
    patterns = vocabulary.patterns
    return queries if patterns is None else _with_patterns(queries, patterns.known)


def _with_patterns(queries: QueryRows, known: Mapping[str, int]) -> QueryRows:
    """Adds the words of phrases and beginnings: their hashes alone do not find them in texts."""
    numbers = np.array(list(known.values()), np.uint64)
    order = np.argsort(numbers).astype(np.int32)
    words, word_offsets = pack_bytes([pattern.encode() for pattern in known])
    rows = []
    for terms in (queries.pos_terms, queries.neg_terms):
        places = np.searchsorted(numbers, terms, sorter=order).clip(max=len(order) - 1)
        found = order[places]
        rows.append(np.where(numbers[found] == terms, found, np.int32(-1)))
    return replace(
        queries,
        words=words,
        word_offsets=word_offsets,
        pos_word_rows=rows[0],
        neg_word_rows=rows[1],
    )


def _named(queries: QueryRows, vocabulary: Vocabulary) -> QueryRows:
    """Replaces ids by the wire's hashes and the words."""
    positive, negative = queries.pos_terms.astype(np.int64), queries.neg_terms.astype(np.int64)
    distinct, places = np.unique(np.concatenate([positive, negative]), return_inverse=True)
    words, word_offsets = vocabulary.words.of(distinct)
    rows = np.arange(len(distinct), dtype=np.int32)
    rows[word_offsets[1:] == word_offsets[:-1]] = -1
    word_rows = rows[places]
    return replace(
        queries,
        pos_terms=vocabulary.wire_of[positive],
        neg_terms=vocabulary.wire_of[negative],
        words=words,
        word_offsets=word_offsets,
        pos_word_rows=word_rows[: len(positive)],
        neg_word_rows=word_rows[len(positive) :],
    )
