"""A condition made directly from a query, compared with the one by way of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sirocco.index.base.compile import compile_queries, with_numbers
from sirocco.index.store.store_condition import Condition, compile_condition, condition_of
from sirocco.model.query import parse_query
from sirocco.model.term_hashing import SECRET_BYTES, WIRE_TERMS, TermHashing

REGIONS: list[dict[str, Any] | None] = [
    None,
    {"rect": {"west": 1.0, "south": -2.5, "east": 3.0, "north": 4.0}},
    {"rect": {"west": 170.0, "south": -2.5, "east": -170.0, "north": 4.0}},
    {"rect": {"west": -180.0, "south": -2.5, "east": -170.0, "north": 4.0}},
    {"rect": {"west": -180.0, "south": -90.0, "east": 180.0, "north": 90.0}},
    {"circle": {"lon": 13.4, "lat": 52.5, "radius_m": 1_000.0}},
    {"circle": {"lon": 179.99, "lat": -5.0, "radius_m": 90_000.0}},
    {"circle": {"lon": 0.0, "lat": 89.9, "radius_m": 50_000.0}},
    {"circle": {"lon": 0.0, "lat": 0.0, "radius_m": 30_000_000.0}},
    {"polygon": [[[0.0, 0.0], [2.0, 0.0], [1.0, 2.0]]]},
]
TEXTS = [
    None,
    "fire",
    "fire flood",
    "fire -water",
    "ANY(fire flood) NOT(smoke drill)",
    '"big fire"',
    "evacuat* NOT(drill)",
    "火",
    "火事",
    "café",
]
HASHINGS = [WIRE_TERMS, TermHashing("5a" * SECRET_BYTES)]


def assert_same(one: Condition, other: Condition) -> None:
    for name in ("words", "values", "quads", "hashes"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine.dtype == theirs.dtype, name
        assert np.array_equal(mine, theirs), name
    assert (one.expires_ms, one.where) == (other.expires_ms, other.where)
    assert (one.text is None) == (other.text is None)
    assert one.is_exact == other.is_exact


@pytest.mark.parametrize("hashing", HASHINGS, ids=["wire", "keyed"])
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("region", REGIONS, ids=str)
def test_a_condition_is_that_of_the_columns(
    region: dict[str, Any] | None, text: str | None, hashing: TermHashing
) -> None:
    given = {"region": region, "text": text, "where": {"a": {"gte": 1}} if text == "fire" else None}
    members = {name: value for name, value in given.items() if value is not None}
    if not members:
        members = {"text": "anything"}
    query = parse_query({"id": "q", "kind": "range", "mode": "snapshot", **members})
    rows = with_numbers(compile_queries([query], [0]), hashing)
    want = compile_condition(rows, query.where, hashing=hashing)
    assert_same(condition_of(query, hashing), want)


@pytest.mark.parametrize("hashing", HASHINGS, ids=["wire", "keyed"])
@pytest.mark.parametrize(
    "members",
    [
        {"kind": "knn", "point": {"lon": 1.0, "lat": 2.0}, "k": 3, "text": "fire flood"},
        {"kind": "knn", "point": {"lon": 1.0, "lat": 2.0}, "k": 3},
        {"kind": "terms", "k": 3},
        {
            "kind": "ranked", "point": {"lon": 180.0, "lat": 2.0}, "k": 3, "radius_m": 5e4,
            "keywords": ["fire"], "where": {"a": 1},
        },
    ],
    ids=["knn", "knn without text", "terms", "ranked"],
)  # fmt: skip
def test_a_condition_of_another_kind_is_that_of_the_columns(
    members: dict[str, Any], hashing: TermHashing
) -> None:
    query = parse_query({"id": "q", "mode": "snapshot", **members})
    rows = with_numbers(compile_queries([query], [0]), hashing)
    want = compile_condition(rows, query.where, hashing=hashing)
    assert_same(condition_of(query, hashing), want)
