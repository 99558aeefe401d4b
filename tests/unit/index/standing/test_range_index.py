"""The range index against the plain matcher of `range_oracle`."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from sirocco.index.base.query_rows import NEVER_MS
from sirocco.index.standing.range_index import Grid, RangeIndex
from tests.support.range_oracle import (
    PlainObject,
    PlainQuery,
    columns,
    holds,
    pairs_of,
    random_object,
    random_query,
)

VOCABULARY = 30
GRIDS = [
    Grid(),
    Grid(finest_level=3),
    Grid(-10.0, -10.0, 30.0, 20.0, finest_level=8),
    Grid(finest_level=12, list_length=0.1),
]


def expected(
    live: dict[int, tuple[PlainQuery, int, int]], objects: list[PlainObject]
) -> Counter[tuple[int, int]]:
    return Counter(
        (number, row)
        for number, item in enumerate(objects)
        for row, (query, born, dead) in live.items()
        if born <= item.position < dead and holds(query, item)
    )


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("seed", range(6))
def test_random_life_equals_oracle(grid: Grid, seed: int) -> None:
    """Inserts, removals, expiry and reclaim, between and across batches."""
    rng = random.Random(seed)
    index = RangeIndex(grid)
    live: dict[int, tuple[PlainQuery, int, int]] = {}
    position = 0
    for step in range(12):
        batch_begin = position
        for _ in range(rng.randrange(1, 4)):
            position += rng.randrange(20)
            if rng.random() < 0.7:
                queries = [random_query(rng, VOCABULARY) for _ in range(rng.randrange(1, 60))]
                rows = index.insert(columns(queries), position)
                assert len(set(rows.tolist())) == len(rows)
                for row, query in zip(rows.tolist(), queries, strict=True):
                    assert row not in live, f"seed={seed} step={step}: row {row} given twice"
                    live[row] = (query, position, NEVER_MS)
            else:
                alive = [row for row, entry in live.items() if entry[2] == NEVER_MS]
                removed = rng.sample(alive, len(alive) // 3)
                index.remove(np.array(removed, np.int32), position)
                for row in removed:
                    live[row] = (*live[row][:2], position)
        position += 30
        some = [entry[0] for entry in live.values()]
        objects = [random_object(rng, VOCABULARY, p, some) for p in range(batch_begin, position, 2)]
        got = pairs_of(index, objects)
        want = expected(live, objects)
        assert got == want, f"seed={seed} step={step}: {(got - want)} {(want - got)}"
        now_ms = (position - 1) * 100
        ended = index.expire(now_ms)
        due = {r for r, (q, _, dead) in live.items() if dead == NEVER_MS and q.expires_ms <= now_ms}
        assert set(ended.tolist()) == due, f"seed={seed} step={step}"
        index.remove(ended, position)
        for row in due:
            live[row] = (*live[row][:2], position)
        if rng.random() < 0.6:
            while index.reclaim(position, rows_max=17):
                pass
            live = {row: entry for row, entry in live.items() if entry[2] > position}
        assert index.live_queries == sum(entry[2] == NEVER_MS for entry in live.values())
    index.remove(np.array([r for r, e in live.items() if e[2] == NEVER_MS], np.int32), position)
    while index.reclaim(position):
        pass
    statistics = index.statistics()
    assert (statistics.keys, statistics.postings, statistics.terms) == (0, 0, 0), f"seed={seed}"


def test_growth_keeps_every_pair() -> None:
    """Thousands of keys: the table doubles several times between batches."""
    seed = 11
    rng = random.Random(seed)
    index = RangeIndex(Grid(0.0, 0.0, 1.0, 1.0, finest_level=9))
    queries: list[PlainQuery] = []
    rows: list[int] = []
    for step in range(40):
        fresh = []
        for _ in range(250):
            x, y = rng.random() * 0.99, rng.random() * 0.99
            terms = rng.sample(range(10, 400), rng.choice([1, 2]))
            fresh.append(PlainQuery([(terms, [])], [(x, y, x + 0.01, y + 0.01)]))
        rows += index.insert(columns(fresh), step).tolist()
        queries += fresh
        if step % 8 == 7:
            objects = [
                PlainObject(
                    rng.random(), rng.random(), tuple(rng.sample(range(10, 400), 20)), 0, step
                )
                for _ in range(200)
            ]
            # All but some of a million pairs are far apart, which arrays say sooner.
            west, south, east, north = np.array([query.boxes[0] for query in queries]).T
            want = Counter(
                (number, rows[at])
                for number, item in enumerate(objects)
                for at in np.flatnonzero(
                    (west <= item.lon)
                    & (item.lon <= east)
                    & (south <= item.lat)
                    & (item.lat <= north)
                )
                if holds(queries[at], item)
            )
            assert pairs_of(index, objects) == want, f"seed={seed} step={step}"


def test_output_grows_and_keeps_pairs_single() -> None:
    """One object meets more queries than fit the first output, each in several ways."""
    index = RangeIndex()
    query = PlainQuery(
        [([10], []), ([11], [])], [(-180.0, -90.0, 0.0, 90.0), (0.0, -90.0, 180.0, 90.0)]
    )
    count = 40_000
    rows = index.insert(columns([query] * count), 0)
    objects = [PlainObject(0.0, 0.0, (10, 11)), PlainObject(180.0, 0.0, (10, 11))]
    got = pairs_of(index, objects)
    assert got == Counter((o, r) for o in range(2) for r in rows.tolist())


def test_objects_on_the_antimeridian_meet_both_sides() -> None:
    index = RangeIndex()
    queries = [
        PlainQuery([([10], [])], [(170.0, 0.0, 180.0, 10.0)]),
        PlainQuery([([10], [])], [(-180.0, 0.0, -170.0, 10.0)]),
        PlainQuery([([10], [])], [(-180.0, -90.0, 180.0, 90.0)]),
        PlainQuery([([10], [])], [(170.0, 0.0, 180.0, 10.0), (-180.0, 0.0, -170.0, 10.0)]),
        PlainQuery([([10], [])], [(170.0, 0.0, 179.0, 10.0)]),
    ]
    rows = index.insert(columns(queries), 0).tolist()
    objects = [PlainObject(180.0, 10.0, (10,)), PlainObject(-180.0, 0.0, (10,))]
    want = Counter((o, rows[q]) for o in range(2) for q in range(4))
    assert pairs_of(index, objects) == want


def test_earlier_positions_after_later_ones_are_exact() -> None:
    index = RangeIndex()
    rows = index.insert(columns([PlainQuery([([10], [])])]), 5).tolist()
    assert pairs_of(index, [PlainObject(0.0, 0.0, (10,), 0, 9)]) == Counter({(0, rows[0]): 1})
    assert not pairs_of(index, [PlainObject(0.0, 0.0, (10,), 0, 4)])


def test_read_only_inputs_and_empty_batches() -> None:
    index = RangeIndex()
    assert len(index.insert(columns([]), 0)) == 0
    assert pairs_of(index, []) == Counter()
    index.insert(columns([PlainQuery([([10], [])])]), 0)
    empty = np.frombuffer(b"", np.float64)
    whole = np.frombuffer(b"\0" * 8, np.int64)
    found = index.match(
        np.frombuffer(b"\0" * 8, np.float64), np.frombuffer(b"\0" * 8, np.float64),
        np.frombuffer(b"\0" * 8 + b"\1" + b"\0" * 7, np.int64),
        np.frombuffer(b"\x0a" + b"\0" * 7, np.uint64), whole, whole,
    )  # fmt: skip
    assert (found.object_rows.tolist(), found.query_rows.tolist()) == ([0], [0])
    assert len(empty) == 0
