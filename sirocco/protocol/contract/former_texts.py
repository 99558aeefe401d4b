"""Queries whose text an earlier analysis may have read otherwise, by their definitions.

Compiled plain queries of revision 6b00d7a and before are hashes of words: what `火事` was there, no
text has now. Only the registry has their texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.compile import compile_queries, with_texts
from sirocco.index.base.query_rows import QueryRows
from sirocco.model.expression import plain_terms
from sirocco.model.limits import STORED_LIMITS
from sirocco.model.query import Query, RankedQuery
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import Change

# By handle and revision.
Definitions: TypeAlias = Mapping[tuple[int, int], Query]


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
