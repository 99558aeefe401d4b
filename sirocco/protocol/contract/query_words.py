"""The words of the terms of compiled queries: evaluators match words, not their hashes.

Compiled plain queries of revision 6b00d7a and before are hashes of words: what `火事` was there, no
text has now. Only the registry has their texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.compile import compile_queries, with_texts
from sirocco.index.base.query_rows import QueryRows
from sirocco.model.expression import plain_terms
from sirocco.model.limits import STORED_LIMITS
from sirocco.model.query import Query, RankedQuery
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import Change
from sirocco.protocol.contract.query_definitions import (
    query_of,
)

# By handle and revision.
Definitions: TypeAlias = Mapping[tuple[int, int], Query]


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


def may_read_otherwise(query: Query) -> bool:
    """Whether another analysis may find other words in a query.

    Words of ASCII letters, digits and `_` between blanks are the same in all: lowered.
    """
    if isinstance(query, RankedQuery):
        return not all(word.isascii() for word in query.keywords)
    if query.expression is None:
        return False
    return query.expression.fold or plain_terms(query.expression.source, STORED_LIMITS) is None


def definition_key(offset: int, change: Change) -> tuple[int, int]:
    """Returns the handle and revision of the definition that a record of the registry holds."""
    return change.handle, change.expected_revision if change.is_republished else offset


def analysed_from(
    rows: QueryRows,
    handles: NDArray[np.uint64],
    revisions: NDArray[np.int64],
    definitions: Definitions,
) -> QueryRows:
    """Returns queries with the texts of their definitions, as far as these are there."""
    keys = zip(handles.tolist(), revisions.tolist(), strict=True)
    found = {row: definitions[key] for row, key in enumerate(keys) if key in definitions}
    return with_definitions(rows, found)


def with_definitions(rows: QueryRows, found: Mapping[int, Query]) -> QueryRows:
    """Returns queries, some of which, by row, take the texts of their definitions."""
    if not found:
        return rows
    texts = compile_queries(list(found.values()), [0] * len(found))
    return with_texts(rows, texts, np.array(list(found), np.intp))


def is_former(state: State, analysis: int) -> bool:
    """Whether an analysis before this one made the queries of a checkpoint."""
    return "analysis" not in state or int(state["analysis"][0]) < analysis
