"""The words of the terms of compiled queries: evaluators match words, not their hashes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.compile import compile_queries
from sirocco.index.base.query_rows import QueryRows
from sirocco.model.query import Query
from sirocco.protocol.contract.query_definitions import (
    query_of,
)


def with_words(rows: QueryRows, specs: list[str]) -> QueryRows:
    """Adds the words of terms where a router of an older version has left them out.

    Args:
        rows: compiled queries.
        specs: their definitions; nothing is known of one that is empty.
    """
    if rows.has_words or not all(specs):
        return rows
    columns = {name: getattr(rows, name) for name in QueryRows.__slots__}
    return replace(rows, **words_of([query_of(spec) for spec in specs], columns))


def words_of(queries: list[Query], columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Finds the words of terms in definitions, by their hashes.

    Args:
        queries: the definitions.
        columns: the same queries, as `QueryRows` names the columns of their text.

    Returns:
        The columns of `QueryRows` with the words of terms. If a query has two words of one hash,
        it is unknown which of them a term is.
    """
    compiled = compile_queries(queries, [0] * len(queries))
    known: dict[tuple[int, int], int] = {}
    for owners, terms, rows in (
        (
            _owners(compiled.conj_offsets, compiled.pos_offsets),
            compiled.pos_terms,
            compiled.pos_word_rows,
        ),
        (
            _owners(compiled.conj_offsets, compiled.neg_offsets),
            compiled.neg_terms,
            compiled.neg_word_rows,
        ),
    ):
        for owner, term, row in zip(owners, terms.tolist(), rows.tolist(), strict=True):
            if known.setdefault((owner, term), row) != row:
                known[owner, term] = -1
    found = {}
    for sign in ("pos", "neg"):
        owners = _owners(columns["conj_offsets"], columns[f"{sign}_offsets"])
        pairs = zip(owners, columns[f"{sign}_terms"].tolist(), strict=True)
        found[f"{sign}_word_rows"] = np.array([known.get(pair, -1) for pair in pairs], np.int32)
    return {"words": compiled.words, "word_offsets": compiled.word_offsets, **found}


def _owners(conj_offsets: NDArray[np.int64], term_offsets: NDArray[np.int64]) -> list[int]:
    """Returns the query of each term."""
    counts = np.diff(term_offsets[conj_offsets])
    owners: list[int] = np.repeat(np.arange(len(counts)), counts).tolist()
    return owners
