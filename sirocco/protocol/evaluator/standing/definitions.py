"""Reads the queries of a slot, or parts of them, from their specs and filters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import orjson
from numpy.typing import NDArray

from sirocco.index.base.compile import compile_queries, with_numbers
from sirocco.index.base.query_rows import NEVER_MS, QueryRows
from sirocco.index.standing.query_table import NamedQueries
from sirocco.index.store.store_condition import Condition, compile_condition
from sirocco.model.attributes import Filter
from sirocco.model.query import KnnQuery, Query, RankedQuery, TermsQuery
from sirocco.model.term_hashing import TermHashing
from sirocco.protocol.contract.query_definitions import outline_of, query_of
from sirocco.protocol.contract.query_specs import definition_of_spec, versioned_spec
from sirocco.protocol.evaluator.standing.step_schedule import StepKind


def conditions_of(
    queries: QueryRows, filters: list[str] | None, hashing: TermHashing
) -> list[Condition]:
    """Returns the conditions of queries for searches; their lifetimes are steps, not arrivals."""
    queries = with_numbers(queries, hashing)
    lasting = replace(queries, expires_ms=np.full(len(queries), NEVER_MS, np.int64))
    wheres = filters_of(filters, len(queries))
    return [compile_condition(lasting, where, row, hashing) for row, where in enumerate(wheres)]


def condition_of_spec(
    spec: str, filter_text: str, start_ms: int, hashing: TermHashing
) -> Condition:
    """Returns the condition of a query by its spec, for searches."""
    queries = compile_queries([spec_query(spec)], [start_ms])
    return conditions_of(queries, [filter_text], hashing)[0]


def filters_of(texts: list[str] | None, count: int) -> list[Filter | None]:
    """Returns the filters of queries, from their JSON."""
    if texts is None:
        return [None] * count
    return [Filter.parse(orjson.loads(text)) if text else None for text in texts]


def named_revisions(names: NamedQueries, revisions: NDArray[np.int64]) -> NamedQueries:
    """Returns the names with specs as mergers get them, which distinguish versions."""
    pairs = zip(names.specs or (), revisions.tolist(), strict=True)
    return replace(names, specs=tuple(versioned_spec(spec, revision) for spec, revision in pairs))


def spec_query(spec: str) -> Query:
    """Returns the query of a spec, as received or as sent to mergers."""
    return query_of(definition_of_spec(spec))


def tracked_member(spec: str) -> str:
    """Returns the member by whose value a tracked query follows objects.

    Its expression is not parsed: the hardest takes 7 ms, and a slot has many queries.
    """
    return str(orjson.loads(definition_of_spec(spec))["track"])


def spec_outline(spec: str) -> Query:
    """Returns the query of a spec without what slots have in columns."""
    return outline_of(definition_of_spec(spec))


def knn_of(spec: str) -> KnnQuery:
    """Returns the outline of a knn query."""
    query = spec_outline(spec)
    assert isinstance(query, KnnQuery)
    return query


def step_kind(spec: str) -> StepKind:
    """Returns the outline of a terms or ranked query."""
    query = spec_outline(spec)
    assert isinstance(query, TermsQuery | RankedQuery)
    return query
