"""Queries of all kinds as columns: which objects count, and until when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sirocco.index.base.compile import compile_queries, take_queries
from sirocco.index.base.kinds import (
    KIND_KNN,
    KIND_RANGE,
    KIND_RANKED,
    KIND_TERMS,
    KIND_TRACKED,
    kind_number,
)
from sirocco.index.base.query_rows import (
    FLAG_RESIDUAL,
    NEVER_MS,
    SHAPE_BOX,
    SHAPE_CIRCLE,
    QueryRows,
)
from sirocco.model.geometry import Circle
from sirocco.model.query import Query, parse_query
from sirocco.model.text import term_hash

WORLD = [-180, -90, 180, 90]
POINT = {"lon": 170.0, "lat": 60.0}
RECT = {"west": 1.0, "south": 2.0, "east": 3.0, "north": 4.0}
KNN: dict[str, Any] = {"kind": "knn", "point": POINT, "k": 3}
TERMS: dict[str, Any] = {"kind": "terms", "k": 3, "step": "1m"}
RANKED: dict[str, Any] = {
    "kind": "ranked", "point": POINT, "radius_m": 900_000, "k": 3, "keywords": ["a"]
}  # fmt: skip


def parsed(members: dict[str, Any]) -> Query:
    return parse_query({"id": "q", "mode": "continuous"} | members)


def compiled(members: dict[str, Any]) -> QueryRows:
    """Returns the columns of one query, taken from between two others."""
    between = [parsed({"kind": "range", "text": "x OR y"}), parsed(members), parsed(RANKED)]
    return take_queries(compile_queries(between, [5, 5, 5]), np.array([1]))


@pytest.mark.parametrize(
    ("members", "number"),
    [
        ({"kind": "range"}, KIND_RANGE),
        ({"kind": "range", "track": "vehicle"}, KIND_TRACKED),
        (KNN, KIND_KNN),
        (TERMS, KIND_TERMS),
        (RANKED, KIND_RANKED),
    ],
)
def test_every_kind_has_its_number(members: dict[str, Any], number: int) -> None:
    assert kind_number(parsed(members)) == number


@pytest.mark.parametrize("members", [KNN, TERMS, {"kind": "range"}], ids=str)
def test_without_region_and_text_all_objects_count(members: dict[str, Any]) -> None:
    rows = compiled(members)
    assert rows.boxes.tolist() == [WORLD]
    assert rows.shape.tolist() == [SHAPE_BOX]
    assert rows.conj_offsets.tolist() == [0, 1]
    assert (len(rows.pos_terms), len(rows.neg_terms)) == (0, 0)


@pytest.mark.parametrize("members", [KNN, TERMS, {"kind": "range"}], ids=str)
def test_text_filters_and_lifetime_are_those_of_the_query(members: dict[str, Any]) -> None:
    rows = compiled(members | {"text": "a AND NOT b", "where": {"x": 1}, "ttl": "10s"})
    assert rows.pos_terms.tolist() == [term_hash("a")]
    assert rows.neg_terms.tolist() == [term_hash("b")]
    assert rows.flags.tolist() == [FLAG_RESIDUAL]
    assert rows.expires_ms.tolist() == [10_005]
    assert compiled(members).expires_ms.tolist() == [NEVER_MS]


def test_a_terms_query_counts_within_its_region() -> None:
    rows = compiled(TERMS | {"region": {"rect": RECT}})
    assert rows.boxes.tolist() == [list(RECT.values())]


def test_a_ranked_query_counts_all_of_its_circle_whatever_their_text() -> None:
    rows = compiled(RANKED | {"where": {"x": 1}})
    assert rows.shape.tolist() == [SHAPE_CIRCLE]
    assert rows.circles.tolist() == [[170.0, 60.0, 900_000.0]]
    # Across the antimeridian: two boxes.
    assert rows.boxes.tolist() == Circle(170.0, 60.0, 900_000.0).boxes().tolist()
    assert len(rows.boxes) == 2
    assert len(rows.pos_terms) == 0
    assert rows.flags.tolist() == [FLAG_RESIDUAL]
