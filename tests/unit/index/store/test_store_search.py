"""Searches over a store during appends, seals and merges, compared with the simple matcher."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.store import SlotStore, StoreLimits, StoreView
from sirocco.index.store.store_condition import ALL_TIME, Bounds, Condition, compile_condition
from sirocco.index.store.store_search import (
    Nearest,
    scan_range,
    search_knn,
    search_knn_of,
    search_range,
)
from sirocco.kernels.base.geometry import distance_m
from sirocco.model.attributes import Filter
from tests.support.range_oracle import (
    PlainObject,
    PlainQuery,
    columns,
    haversine_m,
    holds,
    is_past_rounding,
    random_place,
    random_query,
)
from tests.support.store_rows import assert_equal_rows, random_rows

VOCABULARY = 20
TERMS = range(10, 10 + VOCABULARY + 5)
FILTERS = [
    Filter.parse({"a": 1}),
    Filter.parse({"a": {"gte": 1}, "b": {"in": ["x", "y"]}}),
    Filter.parse({"c": 3}),
]


def place_among(queries: list[PlainQuery], rng: random.Random) -> tuple[float, float]:
    while True:
        lon, lat = random_place(rng, queries)
        if not any(is_past_rounding(lon, lat, query) for query in queries):
            return lon, lat


class Plain:
    """All objects that were ever stored, in a list."""

    def __init__(self) -> None:
        self.rows: list[tuple[PlainObject, dict[str, object], tuple[int, int, int]]] = []

    def add(self, rows: StoredRows) -> None:
        for i in range(len(rows)):
            own = rows.terms[rows.term_offsets[i] : rows.term_offsets[i + 1]].tolist()
            one = rows.objects.row(i)
            item = PlainObject(one.lon, one.lat, tuple(own), int(rows.arrivals_ms[i]))
            members: dict[bytes, dict[str, object]] = {
                b"": {},
                b'{"a":1}': {"a": 1},
                b'{"a":2,"b":"x"}': {"a": 2, "b": "x"},
            }
            key = one.id, int(rows.sessions[i]), int(rows.numbers[i])
            self.rows.append((item, members[one.attributes], key))

    def matching(
        self, query: PlainQuery, where: Filter | None, bounds: Bounds, first: int, total: int
    ) -> list[int]:
        return [
            seq
            for seq in range(first, min(total, bounds.seq_before))
            if holds(query, self.rows[seq][0])
            and bounds.arrival_from_ms <= self.rows[seq][0].arrival_ms <= bounds.arrival_to_ms
            and (where is None or where.matches(self.rows[seq][1]))
        ]

    def ranked(
        self, seqs: list[int], lon: float, lat: float, radius_m: float
    ) -> list[tuple[float, int, int, int, int]]:
        found = []
        for seq in seqs:
            item, _, key = self.rows[seq]
            distance = float(distance_m(lon, lat, item.lon, item.lat))
            exact = haversine_m(lon, lat, item.lon, item.lat)
            # Near the antipode an angle is the arcus sine of nearly 1.
            assert abs(distance - exact) < (0.002 if exact < 1.9e7 else 1.0)
            if distance <= radius_m:
                found.append((distance, *key, seq))
        return sorted(found)


def random_bounds(rng: random.Random, plain: Plain) -> Bounds:
    if rng.random() < 0.4 or not plain.rows:
        return ALL_TIME
    arrivals = [rng.choice(plain.rows)[0].arrival_ms for _ in range(2)]
    return Bounds(
        min(arrivals) if rng.random() < 0.7 else ALL_TIME.arrival_from_ms,
        max(arrivals) if rng.random() < 0.7 else ALL_TIME.arrival_to_ms,
        rng.randrange(len(plain.rows) + 2) if rng.random() < 0.3 else ALL_TIME.seq_before,
    )


def random_condition(
    rng: random.Random, queries: list[PlainQuery], span_ms: int
) -> tuple[PlainQuery, Filter | None, Condition]:
    query = rng.choice(queries)
    where = rng.choice(FILTERS) if rng.random() < 0.25 else None
    if query.expires_ms < 2**62:
        query = PlainQuery(
            query.conjunctions, query.boxes, query.circle, query.rings,
            1_000_000 + rng.randrange(span_ms + 1),
        )  # fmt: skip
    return query, where, compile_condition(columns([query]), where)


def check_range(
    rng: random.Random, view: StoreView, plain: Plain, queries: list[PlainQuery], label: str
) -> None:
    first = view.sealed[0].first_seq if view.sealed else view.active.first_seq
    bounds = random_bounds(rng, plain)
    query, where, condition = random_condition(rng, queries, 40 * (len(plain.rows) + 1))
    want = plain.matching(query, where, bounds, first, view.next_seq)
    found = search_range(view, condition, bounds)
    rows = found.gather()
    got = [] if rows is None else rows.seqs.tolist()
    assert sorted(got) == want, f"{label}: {query} {bounds} {where}"
    assert len(found) == len(want)
    if want:
        limit = rng.randrange(0, len(want) + 2)
        some = search_range(view, condition, bounds, limit)
        kept = some.gather()
        seqs = [] if kept is None else kept.seqs.tolist()
        assert len(seqs) == len(set(seqs)) == min(limit, len(want)), label
        assert set(seqs) <= set(want), label


def check_knn(
    rng: random.Random, view: StoreView, plain: Plain, queries: list[PlainQuery], label: str
) -> None:
    first = view.sealed[0].first_seq if view.sealed else view.active.first_seq
    bounds = random_bounds(rng, plain)
    query, where, condition = random_condition(rng, queries, 40 * (len(plain.rows) + 1))
    if rng.random() < 0.7:
        query = PlainQuery(query.conjunctions, expires_ms=query.expires_ms)
        condition = compile_condition(columns([query]), where)
    lon, lat = random_place(rng, queries)
    k = rng.choice([1, 2, 10, 100])
    radius = rng.choice([float("inf"), 0.0, 1e5, 1e7])
    seqs = plain.matching(query, where, bounds, first, view.next_seq)
    want = plain.ranked(seqs, lon, lat, radius)[:k]
    got = search_knn(view, lon, lat, k, condition, bounds, radius)
    assert listed(got) == want, f"{label}: {(lon, lat, k, radius)} {query} {bounds} {where}"


def listed(nearest: Nearest) -> list[tuple[float, int, int, int, int]]:
    rows = nearest.gather()
    if rows is None:
        assert len(nearest) == 0
        return []
    assert rows.objects.ids.tolist() == nearest.ids.tolist()
    assert rows.sessions.tolist() == nearest.sessions.tolist()
    columns_of = (nearest.distances_m, nearest.ids, nearest.sessions, nearest.numbers, rows.seqs)
    return list(zip(*(column.tolist() for column in columns_of), strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_random_life_equals_oracle(seed: int) -> None:
    """Searches between appends, seals, merges and evictions; old views do not change."""
    print(f"seed={seed}")
    rng = random.Random(seed)
    queries = [random_query(rng, VOCABULARY) for _ in range(25)]
    limits = StoreLimits(
        active_rows=rng.choice([1, 7, 40, 200]),
        slices=rng.choice([1, 2, 5]),
        slice_rows=rng.choice([50, 400, 5_000]),
    )
    store, plain = SlotStore(limits), Plain()
    merge = None
    kept: list[StoreView] = []
    for step in range(12):
        label = f"seed={seed} step={step}"
        count = rng.choice([0, 1, 5, 60, 150])
        batch = random_rows(
            rng, count, len(plain.rows), place=partial(place_among, queries), known=TERMS
        )
        store.append_rows(batch)
        plain.add(batch)
        if rng.random() < 0.2:
            store.seal()
        if merge is not None and rng.random() < 0.7:
            merge.run()
            store.install(merge)
            merge = None
        if merge is None:
            merge = store.next_job()
        if rng.random() < 0.1 and plain.rows:
            store.forget(rng.choice(plain.rows)[0].arrival_ms)
        kept.append(store.view())
        assert store.next_seq == len(plain.rows)
        for view in (kept[-1], rng.choice(kept)):
            for _ in range(4):
                check_range(rng, view, plain, queries, label)
                check_knn(rng, view, plain, queries, label)


@pytest.mark.parametrize("seed", range(4))
def test_large_slices_equal_oracle(seed: int) -> None:
    """Trees of several levels, and lists long enough for every way to read them."""
    print(f"seed={seed}")
    rng = random.Random(seed)
    queries = [random_query(rng, VOCABULARY) for _ in range(40)]
    queries += [
        PlainQuery([([rng.choice(TERMS)], [])], [(x, y, x + side, y + side)])
        for side in (0.02, 0.1, 1.0, 20.0)
        for x, y in [(rng.gauss(13.4, 0.05), rng.gauss(52.5, 0.05)) for _ in range(4)]
    ]
    store, plain = SlotStore(StoreLimits(active_rows=1_500, slices=1, slice_rows=1 << 20)), Plain()
    for _ in range(4):
        rows = random_rows(rng, 1_400, len(plain.rows), known=TERMS)
        store.append_rows(rows)
        plain.add(rows)
        while job := store.next_job():
            job.run()
            assert store.install(job)
    view = store.view()
    assert len(view.sealed[0].levels) == 4
    for number in range(40):
        check_range(rng, view, plain, queries, f"seed={seed} number={number}")
        check_knn(rng, view, plain, queries, f"seed={seed} number={number}")


@pytest.mark.parametrize("seed", range(6))
def test_several_stores_are_searched_as_one(seed: int) -> None:
    """The nearest of several stores are those of one store with all objects, however divided."""
    print(f"seed={seed}")
    rng = random.Random(seed)
    queries = [random_query(rng, VOCABULARY) for _ in range(25)]
    limits = StoreLimits(active_rows=rng.choice([7, 40, 300]), slices=2)
    whole, stores = SlotStore(limits), [SlotStore(limits) for _ in range(4)]
    total = 0
    for _ in range(12):
        batch = random_rows(rng, 60, total, place=partial(place_among, queries), known=TERMS)
        total += len(batch)
        whole.append_rows(batch)
        # One of them stays empty.
        store = rng.choice(stores[:3])
        store.append_rows(
            replace(batch, seqs=np.arange(store.next_seq, store.next_seq + len(batch)))
        )
    views = [store.view() for store in stores]
    for number in range(60):
        _, _, condition = random_condition(rng, queries, 40 * total)
        lon, lat = random_place(rng, queries)
        k, radius = rng.choice([1, 10, 100]), rng.choice([float("inf"), 1e5, 1e7])
        want = listed(search_knn(whole.view(), lon, lat, k, condition, radius_m_max=radius))
        got = listed(search_knn_of(views, lon, lat, k, condition, radius_m_max=radius))
        # Numbers within the store differ.
        assert [one[:4] for one in got] == [one[:4] for one in want], f"seed={seed} {number=}"


def test_ties_of_distance_are_ordered_by_id_session_number() -> None:
    rng = random.Random(3)
    rows = random_rows(rng, 400, place=lambda _: (10.0, 50.0), known=TERMS)
    for limits in (StoreLimits(active_rows=10_000), StoreLimits(active_rows=100, slices=1)):
        store, plain = SlotStore(limits), Plain()
        store.append_rows(rows)
        plain.add(rows)
        for k in (1, 7, 300, 500):
            want = plain.ranked(list(range(400)), 10.0, 50.1, float("inf"))[:k]
            got = listed(search_knn(store.view(), 10.0, 50.1, k))
            assert got == want, k


def test_found_objects_come_out_whole() -> None:
    rng = random.Random(8)
    rows = random_rows(rng, 300, known=TERMS)
    store = SlotStore(StoreLimits(active_rows=70))
    store.append_rows(rows)
    everything = search_range(store.view()).gather()
    assert everything is not None
    assert_equal_rows(everything.take(np.argsort(everything.seqs)), rows)
    streamed = [one.gather() for one in scan_range(store.view(), limit=100)]
    assert [len(part) for part in streamed] == [20, 70, 10]
    # The newest first.
    assert all(a.seqs.min() > b.seqs.max() for a, b in pairwise(streamed))


def test_objects_on_the_antimeridian_are_on_both_sides() -> None:
    rng = random.Random(4)
    rows = random_rows(rng, 64, place=lambda r: (r.choice([-180.0, 180.0]), 5.0), known=TERMS)
    for limits in (StoreLimits(), StoreLimits(active_rows=64)):
        store = SlotStore(limits)
        store.append_rows(rows)
        rings = [[(170.0, 0.0), (180.0, 0.0), (180.0, 10.0), (170.0, 10.0)]]
        for query, count in (
            (PlainQuery([([], [])], [(170.0, 0.0, 180.0, 10.0)]), 64),
            (PlainQuery([([], [])], [(-180.0, 0.0, -170.0, 10.0)]), 64),
            (PlainQuery([([], [])], [(-180.0, 6.0, -170.0, 10.0)]), 0),
            (PlainQuery([([], [])], [(170.0, 0.0, 180.0, 10.0)], None, rings), 64),
            (PlainQuery([([], [])], [(170.0, 0.0, 179.0, 10.0)]), 0),
        ):
            assert len(search_range(store.view(), compile_condition(columns([query])))) == count


def test_a_search_of_nothing_finds_nothing() -> None:
    view = SlotStore().view()
    assert search_range(view).gather() is None
    assert search_knn(view, 0.0, 0.0, 5).gather() is None
    rows = random_rows(random.Random(1), 5, known=TERMS)
    store = SlotStore()
    store.append_rows(rows)
    assert len(search_range(store.view(), limit=0)) == 0
    assert len(search_range(store.view(), bounds=Bounds(seq_before=0))) == 0


@pytest.mark.parametrize("seed", range(4))
def test_terms_that_share_a_tag_are_told_apart_in_active_slices(seed: int) -> None:
    rng = random.Random(seed)
    # The tag of a term is its lower 16 bits.
    known = [(high << 16) + low for high in (1, 2, 3) for low in (7, 8, 9)]
    store, plain = SlotStore(StoreLimits(active_rows=1 << 12)), Plain()
    rows = random_rows(rng, 1_000, known=known)
    plain.add(rows)
    store.append_rows(rows)
    view = store.view()
    for number in range(60):
        wanted = [(rng.sample(known, rng.choice([1, 2])), rng.sample(known, 1)) for _ in "ab"]
        query = PlainQuery(wanted[: rng.choice([1, 2])])
        found = search_range(view, compile_condition(columns([query]))).gather()
        got = [] if found is None else found.seqs.tolist()
        assert got == plain.matching(query, None, ALL_TIME, 0, len(rows)), (seed, number, query)
