"""The size of standing queries, which tenants' limits count."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from sirocco.index.base.compile import compile_queries
from sirocco.index.standing.range_index import RangeIndex
from sirocco.kernels.standing.knn_list import ENTRY_WORDS
from sirocco.model.access import read_access
from sirocco.model.query import Query, parse_query
from sirocco.model.quotas.footprint import KNN_ENTRY_BYTES, compiled_bytes
from sirocco.model.term_hashing import TermHashing
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.merger.list_entries import Entries
from tests.support.values import installed_of

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


def test_patterns_count_by_their_nodes() -> None:
    """Beginnings counted 8 bytes each whatever their length, and phrases as one word."""
    for text in (
        "first{0}beginning* second{0}beginning*",
        f"of{{0}}many{'letters' * 100}*",
        f"NOT {' NOT '.join(f'x{{0}}y{i}z*' for i in range(30))} fire",
        f'"{" ".join(f"w{{0}}x{i}" for i in range(64))}"',
        " OR ".join(f'"a{{0}} b{i} c{i}"' for i in range(200)),
    ):
        index, counted = RangeIndex(), 0
        before = index.bytes_total
        for position in range(100):
            each = query(text=text.format(position), region=RECT)
            counted += compiled_bytes(each)
            index.insert(compile_queries([each], [0]), position)
        taken = index.bytes_total - before
        assert taken / 4 < counted < 4 * taken


HERE = {"point": {"lon": 0.0, "lat": 0.0}}
STEPS = {"window": "1h", "step": "10m"}
LISTS: dict[str, dict[str, Any]] = {
    "knn": HERE,
    "terms": STEPS,
    "ranked": {**HERE, **STEPS, "radius_m": 1_000.0, "keywords": ["fire", "smoke"]},
}


def slot_bytes(members: dict[str, Any], count: int) -> float:
    """Returns what a slot takes for each of many such queries: indexes and Python objects."""
    return bytes_of([members] * count)


def bytes_of(queries: list[dict[str, Any]], subscriber: str = "s") -> float:
    """Returns what a slot takes for each of some queries; `{}` in a subscriber is the number."""
    count = len(queries)
    slot = Slot(0, 3, hashing=TermHashing("5a" * 16))
    slot.open(0, 0, 1, 0)
    slot.take([(0, installed_of(0, [(1, {**queries[0], "id": "first"}, "s", 0)]))])
    changes = [
        (2 + i, {**members, "id": f"q{i}"}, subscriber.format(i), 0)
        for i, members in enumerate(queries)
    ]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0] + slot.standing.bytes_total
        slot.take([(1, installed_of(0, changes))])
        return (tracemalloc.get_traced_memory()[0] + slot.standing.bytes_total - before) / count
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", list(LISTS))
@pytest.mark.parametrize("k", [1, 10, 10_000])
def test_lists_count_as_they_may_become(kind: str, k: int) -> None:
    """Each counted some 160 bytes, whatever its k."""
    members = {"kind": kind, "mode": "continuous", "k": k, **LISTS[kind]}
    counted = compiled_bytes(parse_query({"id": "q", **members}))
    assert counted >= 64 * k
    taken = slot_bytes(members, 50)
    # Lists of steps are in mergers alone, and one of knn there too.
    assert taken / 2 < counted < 8 * taken + 64 * k


def rare(number: int, count: int, length: int = 0) -> list[str]:
    """Returns words that no other query has."""
    return [f"w{number}x{word}".ljust(length, "q") for word in range(count)]


IN_STEPS: dict[str, Any] = {"kind": "terms", "k": 1, **STEPS}
PLAIN: dict[str, Any] = {"kind": "range", "mode": "continuous"}
KINDS: dict[str, Callable[[int], dict[str, Any]]] = {
    "a long word": lambda i: {"text": rare(i, 1, 5_000)[0]},
    "words": lambda i: {"text": " ".join(rare(i, 500))},
    "words that must not be there": lambda i: {"text": "fire NOT " + " NOT ".join(rare(i, 250))},
    "alternatives": lambda i: {"text": " OR ".join(rare(i, 200))},
    "a phrase": lambda i: {"text": '"' + " ".join(rare(i, 64)) + '"'},
    "a phrase of long words": lambda i: {"text": '"' + " ".join(rare(i, 64, 200)) + '"'},
    "a long folded word": lambda i: {"text": rare(i, 1, 5_000)[0], "fold": True},
    "alternatives of a condition": lambda i: {"where": {"a": {"in": rare(i, 500)}}},
    "numbers of a condition": lambda i: {"where": {"a": {"in": list(range(i, i + 500))}}},
    "conditions": lambda i: {"where": {f"a{n}": n + i for n in range(64)}},
    "a polygon": lambda i: {"region": {"polygon": [RING]}},
    "rings": lambda i: {"region": {"polygon": [RING[n : n + 3] for n in range(0, 900, 3)]}},
    "tracked values": lambda i: {"region": RECT, "track": "v" * 200},
    "steps in a polygon": lambda i: {**IN_STEPS, "region": {"polygon": [RING]}},
    "a condition of steps": lambda i: {**IN_STEPS, "where": {"b": {"in": rare(i, 500)}}},
    "an end": lambda i: {"text": "fire", "events": ["ended"], "ttl": "900d"},
    "shown words": lambda i: {"text": " ".join(["fire"] * 1_000), "highlight": True},
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_bytes_are_counted_as_they_are_taken(kind: str) -> None:
    """Words counted 8 bytes whatever their lengths, and took up to 2,000 times as much."""
    count = 100
    queries = [{**PLAIN, **KINDS[kind](number)} for number in range(count)]
    parsed = [parse_query({**members, "id": "q"}) for members in queries]
    counted = sum(compiled_bytes(each, "s") for each in parsed) / count
    taken = bytes_of(queries)
    # Tables of so few queries have room for more.
    assert counted / 2.5 < taken < 1.6 * counted + 200


def test_the_names_of_subscribers_count() -> None:
    queries = [{**PLAIN, "text": "fire"}] * 500
    subscriber = "s" * 240 + "{}"
    counted = compiled_bytes(parse_query({**queries[0], "id": "q"}), subscriber)
    assert bytes_of(queries, subscriber) < 1.5 * counted


def test_an_entry_of_a_knn_list_counts_for_slot_and_merger() -> None:
    in_merger = sum(getattr(Entries.empty(1), name).dtype.itemsize for name in Entries.__slots__)
    in_slot = 8 * ENTRY_WORDS
    assert in_slot + in_merger < KNN_ENTRY_BYTES


def test_filters_and_ids_count() -> None:
    plain = query(text="fire")
    assert compiled_bytes(query(text="fire", where={"a": {"in": ["x" * 90]}})) > (
        compiled_bytes(plain) + 90
    )
    assert compiled_bytes(query(text="fire", id="q" * 200)) == compiled_bytes(plain) + 199


def test_tenants_have_a_limit_of_bytes() -> None:
    access = read_access('{"tenant": "acme", "query_bytes": 1000}\n')
    assert access.limits["acme"].query_bytes == 1_000
