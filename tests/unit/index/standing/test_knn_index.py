"""The kNN index against the plain lists of `knn_oracle`."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sirocco.index.base.query_rows import NEVER_MS
from sirocco.index.standing.knn_index import KnnIndex
from sirocco.index.standing.limits import LIMITS, StandingLimits
from tests.support.knn_oracle import (
    KnnObject,
    KnnQuery,
    Stream,
    distance_mm,
    entries_of,
    expected,
    insert,
    match,
    random_knn,
)
from tests.support.range_oracle import ObjectColumns, PlainObject, PlainQuery, columns

VOCABULARY = 20
EXTENTS = [(-180.0, -90.0, 180.0, 90.0), (-10.0, -10.0, 30.0, 20.0), (170.0, 60.0, 180.0, 90.0)]


class Life:
    """An index beside its oracle, with the events of a slot's log: changes, objects, time."""

    def __init__(
        self,
        seed: int,
        extent: tuple[float, float, float, float],
        limits: StandingLimits = LIMITS,
    ) -> None:
        self.limits = limits
        self.rng = random.Random(seed)
        self.extent = extent
        self.index = KnnIndex(extent, limits=limits)
        self.live: dict[int, KnnQuery] = {}
        self.places: list[tuple[float, float]] = []
        self.stream = Stream(self.rng, VOCABULARY, self.places)
        self.position = 0

    def alive(self) -> list[int]:
        return [row for row, query in self.live.items() if query.dead == NEVER_MS]

    def insert(self, count: int) -> None:
        queries = [random_knn(self.rng, VOCABULARY, self.places) for _ in range(count)]
        for row, query in zip(insert(self.index, queries, self.position), queries, strict=True):
            assert row not in self.live, f"row {row} given twice"
            self.live[row] = query

    def remove(self, rows: list[int]) -> None:
        self.index.remove(np.array(rows, np.int32), self.position)
        for row in rows:
            self.live[row].dead = self.position

    def reclaim(self) -> None:
        while self.index.reclaim(self.position, rows_max=17):
            pass
        self.live = {row: q for row, q in self.live.items() if q.dead > self.position}

    def match(self, begin: int) -> None:
        objects = [self.stream.next(p) for p in range(begin, self.position, 2)]
        got, want = match(self.index, objects, self.live), expected(objects, self.live)
        assert got == want, f"missing {set(want) - set(got)}, in vain {set(got) - set(want)}"

    def expire(self) -> None:
        now_ms = (self.position - 1) * 100
        ended = self.index.expire(now_ms).tolist()
        due = [row for row in self.alive() if self.live[row].text.expires_ms <= now_ms]
        assert sorted(ended) == sorted(due)
        self.remove(due)

    def seed(self) -> None:
        """Adds past objects for a few queries, some of them twice or beyond the last."""
        for row in self.rng.sample(self.alive(), min(4, len(self.live))):
            query = self.live[row]
            past = [
                (self.rng.randrange(30) * 10**9, self.rng.randrange(4), 7, number)
                for number in self.rng.sample(range(100), self.rng.randrange(1, 12))
            ]
            for entry in past:
                query.put(entry)
            mm, ids, sessions, numbers = (np.array(c, np.uint64) for c in zip(*past, strict=True))
            self.index.seed(row, ids, sessions, numbers, mm / 1000.0)

    def draw_in(self) -> None:
        """Another slot knows that nothing farther than a distance counts, for a few queries."""
        rows = [*self.rng.sample(self.alive(), min(9, len(self.alive()))), -1]
        bounds = [self.rng.randrange(1, 10 ** self.rng.randrange(2, 11)) for _ in rows]
        for row, bound in zip(rows[:-1], bounds, strict=False):
            self.live[row].bound_mm = min(self.live[row].bound_mm, bound)
        self.index.draw_in(np.array(rows, np.int32), np.array(bounds, np.int64))

    def restart(self) -> None:
        """Continues with a successor that has other rows."""
        before = sorted(self.live)
        state = self.index.state(np.array(before, np.int32))
        assert {k: v.dtype.kind in "iuf" for k, v in state.items()} == dict.fromkeys(state, True)
        self.index = KnnIndex(self.extent, limits=self.limits)
        after = self.index.restore(state).tolist()
        self.live = {new: self.live[old] for old, new in zip(before, after, strict=True)}

    def check(self) -> None:
        for row, query in self.live.items():
            assert entries_of(self.index, row) == query.entries, row
        assert self.index.live_queries == len(self.alive())

    def step(self) -> None:
        rng, begin = self.rng, self.position
        for _ in range(rng.randrange(1, 4)):
            self.position += rng.randrange(20)
            if rng.random() < 0.7:
                self.insert(rng.randrange(1, 40))
            else:
                alive = self.alive()
                self.remove(rng.sample(alive, len(alive) // 3))
        self.position += rng.choice([30, 30, 200])
        self.match(begin)
        self.expire()
        if rng.random() < 0.5:
            self.seed()
        if rng.random() < 0.3:
            self.draw_in()
        if rng.random() < 0.6:
            self.reclaim()
        if rng.random() < 0.2:
            self.restart()


@pytest.fixture(params=["as it is", "listed at once", "stopped often"])
def tuning(request: pytest.FixtureRequest) -> StandingLimits:
    """Returns limits; lower ones than only large indexes reach otherwise."""
    if request.param == "as it is":
        return LIMITS
    if request.param == "listed at once":
        return StandingLimits(knn_due_min=1)
    return StandingLimits(knn_due_min=1, knn_due_max=1, knn_scanned_max=1, knn_undecided_max=1)


@pytest.mark.parametrize("extent", EXTENTS)
@pytest.mark.parametrize("seed", range(5))
def test_random_life_equals_oracle(
    tuning: StandingLimits, extent: tuple[float, float, float, float], seed: int
) -> None:
    """Changes, seeds, feedback, restarts, between and across batches."""
    print(f"seed={seed} extent={extent} tuning={tuning}")
    life = Life(seed, extent, tuning)
    for _ in range(12):
        life.step()
        life.check()


def test_growth_keeps_every_hit() -> None:
    """Thousands of queries: tables double, lists are rebuilt and moved together."""
    seed = 7
    print(f"seed={seed}")
    rng = np.random.default_rng(seed)
    centres = rng.uniform([-180, -80], [180, 80], (12, 2))

    def places(count: int) -> np.ndarray:
        near = centres[rng.integers(12, size=count)] + rng.normal(0, 0.3, (count, 2))
        return np.clip(near, [-180, -90], [180, 90])

    points, spots = places(300), places(300)
    table = np.array([[distance_mm(*a, *b) for b in spots.tolist()] for a in points.tolist()])
    q, n, k = 3_000, 4_000, 4
    at_point, at_spot = rng.integers(300, size=q), rng.integers(300, size=n)
    query_term, object_terms = rng.integers(0, 4, q), rng.integers(1, 4, (n, 2))
    ids = rng.permutation(n)

    index = KnnIndex(limits=StandingLimits(knn_repacked_min=64))
    texts = [PlainQuery() if t == 0 else PlainQuery([([10 + t], [])]) for t in query_term.tolist()]
    rows = index.insert(columns(texts), points[at_point], np.full(q, k, np.int32), 0)
    assert rows.tolist() == list(range(q))
    # The k least keys (distance, id) of each query, unsorted.
    nearest = np.full((q, k), np.iinfo(np.int64).max)
    for begin in range(0, n, 500):
        want = set()
        for o in range(begin, begin + 500):
            keys = table[at_point, at_spot[o]] * n + ids[o]
            last = nearest.argmax(1)
            holds = (query_term == 0) | np.isin(query_term, object_terms[o])
            enters = np.flatnonzero(holds & (keys < nearest[np.arange(q), last]))
            nearest[enters, last[enters]] = keys[enters]
            want |= {(o - begin, row) for row in enters.tolist()}
        objects = [
            PlainObject(*spots[at_spot[o]].tolist(), tuple({*(10 + object_terms[o]).tolist()}))  # type: ignore[call-arg]
            for o in range(begin, begin + 500)
        ]
        numbers = np.arange(begin, begin + 500, dtype=np.uint64)
        found = index.match(  # type: ignore[call-arg]
            *ObjectColumns.of(objects).arguments(),
            ids[begin : begin + 500].astype(np.uint64), numbers, numbers,
        )  # fmt: skip
        got = list(zip(found.object_rows.tolist(), found.query_rows.tolist(), strict=True))
        assert len(got) == len(set(got)), f"begin={begin}"
        assert set(got) == want, f"begin={begin}"
    # Circles shrink, and queries are in cells where few objects check them.
    assert index.statistics().postings_tested < q * n / 8
    for row in range(0, q, 37):
        near = index.near(row)
        assert (np.rint(near.distances_m * 1000) * n + near.ids).tolist() == sorted(nearest[row])


def test_order_of_lists_by_distance_id_session_number() -> None:
    """A thousand objects at few places, with few ids and sessions; k above and below that."""
    seed = 5
    print(f"seed={seed}")
    rng = random.Random(seed)
    index = KnnIndex()
    queries = [KnnQuery(lon=0.0, lat=0.0, k=k) for k in (1, 10, 300, 1_000, 10_000)]
    live = dict(zip(insert(index, queries, 0), queries, strict=True))
    objects = [
        KnnObject(
            PlainObject(0.0, rng.choice([-1.0, 0.5, 1.0, 2.0]), ()),
            rng.choice([3, 1 << 63]),
            rng.randrange(3),
            number,
        )
        for number in rng.sample(range(1_000), 1_000)
    ]
    assert match(index, objects, live) == expected(objects, live)
    for row, query in live.items():
        assert entries_of(index, row) == query.entries


def test_poles_and_antimeridian() -> None:
    index = KnnIndex()
    places = [(0.0, 90.0), (123.0, -90.0), (180.0, 0.0), (-180.0, 60.0), (179.999, -89.9)]
    queries = [KnnQuery(lon=lon, lat=lat, k=2) for lon, lat in places]
    live = dict(zip(insert(index, queries, 0), queries, strict=True))
    rng = random.Random(1)
    stops = [(90.0, 89.999), (-90.0, 89.999), (0.0, -89.999), (-180.0, 0.0), (179.9999, 0.0)]
    stops += [(-179.9999, 60.0), (180.0, 60.0), (0.001, -89.9), (-77.0, 90.0), (5.0, -90.0)]
    for number in range(60):
        lon, lat = rng.choice(stops)
        step = 10.0 ** -(number / 10)
        item = KnnObject(PlainObject(lon, max(-90.0, min(90.0, lat + step)), ()), 1, 1, number)
        assert match(index, [item], live) == expected([item], live), number
    assert [q.entries[0][0] < 10**9 for q in queries] == [True] * 5


def test_one_object_may_enter_more_lists_than_the_output_held() -> None:
    index = KnnIndex()
    queries = [KnnQuery(lon=0.0, lat=0.0, k=1, text=PlainQuery([([10], []), ([11], [])]))] * 20_000
    rows = insert(index, queries, 0)
    plain = PlainObject(1.0, 1.0, (10, 11))
    hits = match(index, [KnnObject(plain, 1, 1, 1), KnnObject(plain, 0, 1, 2)], {})
    assert [hit[:2] for hit in hits] == [(o, row) for o in (0, 1) for row in sorted(rows)]


def test_all_memory_comes_back() -> None:
    """All memory of queries is free after they were removed and reclaimed, in any cells."""
    life = Life(11, EXTENTS[0])
    for _ in range(6):
        life.step()
    life.remove(life.alive())
    life.position += 1
    life.reclaim()
    before = life.index.statistics()
    assert (before.keys, before.postings, before.full_lists, before.dead_queries) == (0, 0, 0, 0)
    assert len(life.index._rows.vocabulary) == 0
    assert life.index._rows.store.in_use == 0
    life.insert(20)
    after = life.index.statistics()
    assert after.live_queries == 20
    assert after.list_bytes_total <= before.list_bytes_total + 32 * 20 * 100


def test_a_state_is_the_state_of_what_was_restored() -> None:
    life = Life(21, EXTENTS[0])
    for _ in range(8):
        life.step()
    state = life.index.state()
    successor = KnnIndex()
    rows = successor.restore(state)
    again = successor.state(rows)
    assert len(rows) == life.index.live_queries + life.index._lifetimes.dead_queries > 20
    assert again.keys() == state.keys()
    for name, column in state.items():
        if name != "pos_terms":  # the order within a conjunction may differ
            assert (again[name] == column).all(), name
            assert again[name].dtype == column.dtype, name
    assert successor.live_queries == life.index.live_queries
    empty = KnnIndex().state()
    assert KnnIndex().restore(empty).tolist() == []


def test_earlier_positions_after_later_ones_are_exact() -> None:
    index = KnnIndex()
    (row,) = insert(index, [KnnQuery(lon=0.0, lat=0.0, k=5)], 5)
    for position, is_met in ((9, True), (4, False), (5, True)):
        item = KnnObject(PlainObject(0.0, 0.0, (), 0, position), 1, 1, position)
        assert match(index, [item], {}) == [(0, row, 0)] * is_met, position


def test_the_last_query_is_met_up_to_its_removal() -> None:
    """Also if no query is alive when the batch arrives, and none remains after reclaim."""
    index = KnnIndex()
    (row,) = insert(index, [KnnQuery(lon=0.0, lat=0.0, k=5)], 0)
    index.remove(np.array([row], np.int32), 3)
    objects = [KnnObject(PlainObject(1.0, 0.0, (), 0, p), p, 1, p) for p in range(6)]
    assert [hit[0] for hit in match(index, objects, {})] == [0, 1, 2]
    assert index.reclaim(6) == 1
    assert match(index, objects, {}) == []


def test_only_what_was_reported_since_the_registration_is_told_to_other_slots() -> None:
    index = KnnIndex()
    queries = [KnnQuery(lon=0.0, lat=0.0, k=2) for _ in range(3)]
    live = dict(zip(insert(index, queries, 0), queries, strict=True))
    rows = np.array(list(live), np.int32)
    one = np.ones(1, np.uint64)
    index.seed(int(rows[0]), one, one, one, np.full(1, 4.0))

    def shared(lat: float, number: int) -> tuple[list[int], list[int]]:
        match(index, [KnnObject(PlainObject(0.0, lat, ()), number, 1, number)], live)
        found, bounds_mm = index.take_shrunk(np.concatenate([rows, rows]))
        return sorted(set(found.tolist())), sorted(set(bounds_mm.tolist()))

    # Not before the lists are full, and never with objects of the past.
    assert shared(1.0, 1) == ([], [])
    assert shared(0.9, 2) == (rows[1:].tolist(), [distance_mm(0.0, 0.0, 0.0, 1.0)])
    # Nor for a little less, or what another slot has told.
    assert shared(0.89, 3) == ([], [])
    index.draw_in(rows[2:], np.full(1, distance_mm(0.0, 0.0, 0.0, 0.5), np.int64))
    assert shared(0.45, 4)[0] == []
    assert shared(0.44, 5)[0] == rows[1:2].tolist()
    # A successor and the first one share again what a slot that arrives does not know.
    index.send_again()
    successor = KnnIndex()
    others = successor.restore(index.state(rows))
    assert index.take_shrunk(rows)[0].tolist() == rows[1:].tolist()
    assert successor.take_shrunk(others)[0].tolist() == others[1:].tolist()
    # An earlier version has not noted which lists began with the past.
    former = {name: column for name, column in index.state(rows).items() if name != "tells"}
    successor = KnnIndex()
    assert successor.take_shrunk(successor.restore(former))[0].tolist() == []


def test_empty_batches_and_read_only_inputs() -> None:
    index = KnnIndex()
    assert insert(index, [], 0) == []
    assert match(index, [], {}) == []
    (row,) = insert(index, [KnnQuery(lon=0.0, lat=0.0, k=1)], 0)
    zero = np.frombuffer(b"\0" * 8, np.float64)
    whole, natural = np.frombuffer(b"\0" * 8, np.int64), np.frombuffer(b"\0" * 8, np.uint64)
    offsets = np.frombuffer(b"\0" * 16, np.int64)
    found = index.match(
        zero, zero, offsets, np.frombuffer(b"", np.uint64), whole, whole,
        natural, natural, natural,
    )  # fmt: skip
    assert (found.query_rows.tolist(), found.distances_m.tolist()) == ([row], [0.0])


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="extent"):
        KnnIndex((10.0, 0.0, 10.0, 1.0))
    index = KnnIndex()
    for k in (0, -1, 1 << 16):
        with pytest.raises(ValueError, match="k: must lie in"):
            insert(index, [KnnQuery(lon=0.0, lat=0.0, k=k)], 0)
    insert(index, [KnnQuery(lon=0.0, lat=0.0, k=1, tint=1)], 0)
    plain = ObjectColumns.of([PlainObject(0.0, 0.0, ())])
    one = np.ones(1, np.uint64)
    with pytest.raises(ValueError, match="accepts"):
        index.match(*plain.arguments(), one, one, one)  # type: ignore[call-arg]
