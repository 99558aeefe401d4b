"""Where hits count: the table of locators and its kernel, compared with the rule for each pair."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from sirocco.index.standing.locators import (
    HOME,
    HOME_LOCATOR,
    Alternative,
    LocatorTable,
    read_locator,
    write_locator,
)
from sirocco.index.standing.range_index import RangeIndex
from sirocco.kernels.standing.locate import are_locators
from tests.support.range_oracle import PlainObject, PlainQuery, columns, random_object, random_query

VOCABULARY = 12


def derived(query: PlainQuery) -> list[Alternative]:
    """Returns the rule for a query without a locator of its own."""
    return [
        Alternative(min(positive, default=0), tuple(positive), tuple(negative))
        for positive, negative in query.conjunctions
    ]


def random_locator(rng: random.Random, query: PlainQuery) -> list[Alternative]:
    """Returns the query's conjunctions under other keys, after others, or before the home."""
    foreign = random_query(rng, VOCABULARY)
    alternatives = derived(foreign)[: rng.randrange(3)] + derived(query)
    alternatives = [
        replace(one, key=rng.choice(one.positive)) if one.positive else one for one in alternatives
    ]
    return [*alternatives, HOME] if rng.random() < 0.2 else alternatives


def counts(
    alternatives: list[Alternative], item: PlainObject, via: dict[int, bool], is_home: bool
) -> bool:
    """The rule: the first alternative that the object satisfies decides where it counts."""
    terms = set(item.terms)
    for one in alternatives:
        if set(one.positive) <= terms and not set(one.negative) & terms:
            return via[one.key] if one.key else is_home
    return is_home


@pytest.mark.parametrize("seed", range(12))
def test_hits_count_where_the_first_alternative_leads(seed: int) -> None:
    rng = random.Random(seed)
    index, table = RangeIndex(), LocatorTable()
    live: dict[int, tuple[PlainQuery, list[Alternative]]] = {}
    position = 0
    for step in range(8):
        fresh = [random_query(rng, VOCABULARY) for _ in range(rng.randrange(1, 60))]
        rows = index.insert(columns(fresh), position).tolist()
        own = [random_locator(rng, one) if rng.random() < 0.5 else None for one in fresh]
        if step == 0:
            own = [None] * len(fresh)
        locators = [b"" if each is None else write_locator(each) for each in own]
        table.put(np.array(rows, np.int32), locators if any(locators) else None)
        for row, query, each in zip(rows, fresh, own, strict=True):
            live[row] = query, derived(query) if each is None else each
        assert table.get(np.array(rows, np.int32)) == locators
        check(rng, index, table, live, position, f"seed={seed} step={step}")
        removed = rng.sample(sorted(live), len(live) // 3)
        position += 10
        index.remove(np.array(removed, np.int32), position)
        while index.reclaim(position):
            pass
        for row in removed:
            del live[row]


def check(
    rng: random.Random,
    index: RangeIndex,
    table: LocatorTable,
    live: dict[int, tuple[PlainQuery, list[Alternative]]],
    position: int,
    description: str,
) -> None:
    queries = [query for query, _ in live.values()]
    items = [
        replace(random_object(rng, VOCABULARY, i, queries), position=position) for i in range(150)
    ]
    items = [replace(item, terms=tuple(sorted(set(item.terms)))) for item in items]
    offsets = np.cumsum([0, *(len(item.terms) for item in items)]).astype(np.int64)
    terms = np.array([term for item in items for term in item.terms], np.uint64)
    hits = index.match(
        np.array([item.lon for item in items]),
        np.array([item.lat for item in items]),
        offsets,
        terms,
        np.array([item.arrival_ms for item in items]),
        np.array([item.position for item in items]),
    )
    homes = np.array([rng.random() < 0.5 for _ in items])
    via = np.array([rng.random() < 0.5 for _ in terms], np.bool_)
    found = table.counted(
        index, hits.object_rows, hits.query_rows, homes, offsets, terms, via, offsets, terms
    )
    for row, query, is_counted in zip(
        hits.object_rows.tolist(), hits.query_rows.tolist(), found.tolist(), strict=True
    ):
        leads = dict(
            zip(items[row].terms, via[offsets[row] : offsets[row + 1]].tolist(), strict=True)
        )
        wanted = counts(live[query][1], items[row], leads, bool(homes[row]))
        assert is_counted == wanted, description
    assert len(hits) > 0


def test_words_of_ended_rows_are_taken_again() -> None:
    table = LocatorTable()
    rows = np.arange(100, dtype=np.int32)
    for number in range(400):
        own = [Alternative(number + 1, (number + 1, row)) for row in range(100)]
        locators = [write_locator([one]) for one in own]
        table.put(rows, locators)
        assert table.get(rows) == locators
    assert table.bytes_total < 1 << 20
    table.put(rows, None)
    assert table.get(rows) == [b""] * 100


def test_nothing_is_kept_where_no_query_has_a_locator() -> None:
    table = LocatorTable()
    before = table.bytes_total
    table.put(np.arange(1 << 20, dtype=np.int32), None)
    assert table.is_empty
    assert table.bytes_total == before


def test_locators_are_read_as_written() -> None:
    alternatives = (Alternative(7, (7, (1 << 64) - 1), (3,)), Alternative(5, (5,)), HOME)
    assert read_locator(write_locator(alternatives)) == alternatives
    assert read_locator(HOME_LOCATOR) == (HOME,)
    assert read_locator(b"") == ()


@pytest.mark.parametrize(
    ("words", "is_sound"),
    [
        ([], True),
        ([0, 0], True),
        ([1, 5, 5], True),
        ([2, 6, 5, 6, 1 | 1 << 32, 5, 5, 9, 0, 0], True),
        ([0], False),
        ([0, 5], False),
        ([1, 6, 5], False),
        ([1, 5], False),
        ([1 << 32, 0, 5], False),
        ([2, 5, 5], False),
        ([1 | 0xFFFFFFFF << 32, 5, 5], False),
    ],
)
def test_damaged_locators_are_found(words: list[int], *, is_sound: bool) -> None:
    column = np.array([0, 0, *words], np.uint64)
    assert are_locators(column, np.array([0, 2, 2 + len(words)])) == is_sound
