"""The size of standing queries, which tenants' limits count."""

from __future__ import annotations

from typing import Any

from sirocco.index.base.compile import compile_queries
from sirocco.index.standing.range_index import RangeIndex
from sirocco.model.access import read_access
from sirocco.model.footprint import compiled_bytes
from sirocco.model.query import Query, parse_query

RECT = {"rect": {"west": -74.1, "south": 40.6, "east": -73.7, "north": 40.9}}
RING = [[2.2 + i / 5_000, 48.8 + i % 2 / 10] for i in range(2_000)]


def query(**members: Any) -> Query:
    return parse_query({"id": "q", "kind": "range", "mode": "continuous", **members})


def test_the_size_follows_what_an_index_takes() -> None:
    """Within a factor of four, for small and for large ones."""
    alternatives = "ANY(" + " ".join(f"a{i}" for i in range(256)) + ")"
    common = " ".join(f"c{i}" for i in range(30))
    for each in (
        query(text="fire", region=RECT),
        query(text=f"{common} {alternatives}"),
        query(text=f"{common} {alternatives}", region=RECT),
        query(text="fire", region={"polygon": [RING]}),
    ):
        index = RangeIndex()
        before = index.bytes_total
        for position in range(40):
            index.insert(compile_queries([each], [0]), position)
        taken = (index.bytes_total - before) / 40
        assert taken / 4 < compiled_bytes(each) < 4 * taken + 400


def test_filters_and_ids_count() -> None:
    plain = query(text="fire")
    assert compiled_bytes(query(text="fire", where={"a": {"in": ["x" * 90]}})) > (
        compiled_bytes(plain) + 90
    )
    assert compiled_bytes(query(text="fire", id="q" * 200)) == compiled_bytes(plain) + 199


def test_tenants_have_a_limit_of_bytes() -> None:
    access = read_access('{"tenant": "acme", "query_bytes": 1000}\n')
    assert access.limits["acme"].query_bytes == 1_000
