"""The track index against plain sets of (key, value, query)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
import pytest

from sirocco.index.base.query_rows import FLAG_RESIDUAL, NEVER_MS
from sirocco.index.standing.limits import LIMITS, StandingLimits
from sirocco.index.standing.track.last_objects import NOT_KNOWN
from sirocco.index.standing.track.track_index import ENTERS, EXITS, INSIDE, TrackIndex
from sirocco.index.standing.track.track_pairs import Members
from tests.support.range_oracle import (
    ObjectColumns,
    PlainObject,
    PlainQuery,
    columns,
    holds,
    random_object,
    random_query,
)

VOCABULARY = 12
ALL = 1 << ENTERS | 1 << INSIDE | 1 << EXITS
WORLD = PlainQuery()


@dataclass(frozen=True)
class Moving:
    """An object for one of its attributes; `tint` stands for the others."""

    plain: PlainObject
    key: int
    value: int
    tint: int = 0


@dataclass
class Tracker:
    plain: PlainQuery
    key: int
    events: int = ALL
    tint: int | None = None
    born: int = 0
    dead: int = NEVER_MS

    def is_alive(self, item: Moving) -> bool:
        plain = item.plain
        return self.born <= plain.position < self.dead and plain.arrival_ms < self.plain.expires_ms

    def accepts(self, item: Moving) -> bool:
        return self.tint in (None, item.tint) and holds(self.plain, item.plain)


def insert(index: TrackIndex, queries: list[Tracker], position: int) -> list[int]:
    for query in queries:
        query.born = position
    rows = columns([query.plain for query in queries])
    flags = [FLAG_RESIDUAL * (query.tint is not None) for query in queries]
    return index.insert(
        replace(rows, flags=np.array(flags, np.uint8)),
        np.array([query.key for query in queries], np.uint64),
        np.array([query.events for query in queries], np.uint8),
        position,
    ).tolist()


def places_of(objects: list[Moving]) -> list[int]:
    """Returns the number of each object: values of one object share its properties."""
    steps = (item.plain is not before.plain for before, item in pairwise(objects))
    return list(accumulate(steps, initial=0)) if objects else []


def match(
    index: TrackIndex, objects: list[Moving], live: dict[int, Tracker]
) -> list[tuple[int, int, int]]:
    """Returns (object row, event, query row), those of one event sorted."""
    rows = places_of(objects)
    distinct = [objects[rows.index(row)] for row in sorted(set(rows))]
    found = index.match(  # type: ignore[call-arg]
        *ObjectColumns.of([item.plain for item in distinct]).arguments(),
        np.array(rows, np.int64),
        np.array([item.key for item in objects], np.uint64),
        np.array([item.value for item in objects], np.uint64),
        lambda object_row, query_row: distinct[object_row].tint == live[query_row].tint,
    )
    assert found.object_rows.tolist() == sorted(found.object_rows.tolist())
    if len(distinct) == len(objects):
        # For one value exits come first, then enters, then insides.
        place = {EXITS: 0, ENTERS: 1, INSIDE: 2}
        order = [(o, place[e]) for o, e in zip(found.object_rows, found.events, strict=True)]
        assert order == sorted(order)
    return sorted(
        zip(found.object_rows.tolist(), found.events.tolist(), found.query_rows.tolist(),
            strict=True)
    )  # fmt: skip


class Sets:
    """The queries that the newest object of each value satisfied."""

    def __init__(self) -> None:
        self.inside: dict[tuple[int, int], set[int]] = {}

    def take(self, objects: list[Moving], live: dict[int, Tracker]) -> list[tuple[int, int, int]]:
        events = []
        for number, item in enumerate(objects):
            before = self.inside.setdefault((item.key, item.value), set())
            for row, query in live.items():
                if query.key != item.key or not query.is_alive(item):
                    continue
                was, now = row in before, query.accepts(item)
                event = {(0, 1): ENTERS, (1, 1): INSIDE, (1, 0): EXITS}.get((was, now))
                before ^= {row} if was != now else set()
                if event == ENTERS and not query.events >> ENTERS & 1:
                    event = INSIDE
                if event is not None and query.events >> event & 1:
                    events.append((number, event, row))
        return sorted(events)

    def forget(self, rows: set[int]) -> None:
        for inside in self.inside.values():
            inside.difference_update(rows)

    def rename(self, names: dict[int, int]) -> None:
        self.inside = {
            value: {names[row] for row in inside} for value, inside in self.inside.items()
        }


class Life:
    """An index beside its oracle, with the events of a slot's log."""

    def __init__(self, seed: int, limits: StandingLimits = LIMITS) -> None:
        self.limits = limits
        self.rng = random.Random(seed)
        self.index = TrackIndex(limits=self.limits)
        self.sets = Sets()
        self.live: dict[int, Tracker] = {}
        self.position = 0

    def alive(self) -> list[int]:
        return [row for row, query in self.live.items() if query.dead == NEVER_MS]

    def insert(self, count: int) -> None:
        rng = self.rng
        queries = [
            Tracker(
                rng.choice([WORLD, random_query(rng, VOCABULARY), random_query(rng, VOCABULARY)]),
                rng.choice([1, 2, 1 << 63]),
                rng.choice([ALL, ALL, 1 << ENTERS | 1 << EXITS, 1 << INSIDE, 1 << EXITS, 0]),
                rng.randrange(3) if rng.random() < 0.3 else None,
            )
            for _ in range(count)
        ]
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
        removed = {row for row, query in self.live.items() if query.dead <= self.position}
        self.sets.forget(removed)
        self.live = {row: query for row, query in self.live.items() if row not in removed}

    def match(self, begin: int) -> None:
        rng = self.rng
        plain = [query.plain for query in self.live.values()]
        objects = [
            Moving(
                random_object(rng, VOCABULARY, position, plain),
                rng.choice([1, 1, 2, 1 << 63, 5]),
                rng.choice([rng.randrange(6), rng.randrange(6), rng.getrandbits(64)]),
                rng.randrange(3),
            )
            for position in range(begin, self.position)
        ]
        # Some arrive for other attributes, too.
        objects = [each for item in objects for each in [item, *self.others_of(item)]]
        got = match(self.index, objects, self.live)
        rows = places_of(objects)
        taken = self.sets.take(objects, self.live)
        want = sorted((rows[number], event, row) for number, event, row in taken)
        assert got == want, f"missing {set(want) - set(got)}, in vain {set(got) - set(want)}"

    def others_of(self, item: Moving) -> list[Moving]:
        rng = self.rng
        keys = rng.sample([key for key in (1, 2, 5) if key != item.key], rng.choice([0, 0, 1, 2]))
        return [replace(item, key=key, value=rng.randrange(6)) for key in keys]

    def expire(self) -> None:
        now_ms = (self.position - 1) * 100
        ended = self.index.expire(now_ms).tolist()
        due = [row for row in self.alive() if self.live[row].plain.expires_ms <= now_ms]
        assert sorted(ended) == sorted(due)
        self.remove(due)

    def restart(self) -> None:
        """Continues with a successor that has other rows."""
        before = sorted(self.live)
        state = self.index.state(np.array(before, np.int32))
        assert {k: v.dtype.kind in "iuf" for k, v in state.items()} == dict.fromkeys(state, True)
        self.index = TrackIndex(limits=self.limits)
        after = self.index.restore(state).tolist()
        names = dict(zip(before, after, strict=True))
        self.live = {names[row]: query for row, query in self.live.items()}
        self.sets.rename(names)

    def step(self) -> None:
        rng, begin = self.rng, self.position
        for _ in range(rng.randrange(1, 4)):
            self.position += rng.randrange(20)
            if rng.random() < 0.7:
                self.insert(rng.randrange(1, 25))
            else:
                alive = self.alive()
                self.remove(rng.sample(alive, len(alive) // 3))
        self.position += 40
        self.match(begin)
        self.expire()
        if rng.random() < 0.6:
            self.reclaim()
        if rng.random() < 0.2:
            self.restart()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("garbage_min", [0, 4_096])
def test_random_life_equals_oracle(seed: int, garbage_min: int) -> None:
    """Inserts, removals, expiry, sweeps, restarts between batches; values repeat in a batch."""
    print(f"seed={seed} garbage_min={garbage_min}")
    life = Life(seed, StandingLimits(track_garbage_min=garbage_min))
    for _ in range(14):
        life.step()
        inside = sum(len(rows) for rows in life.sets.inside.values())
        assert life.index._values.sets.entries_count >= inside
        assert life.index.live_queries == len(life.alive())
    # Without queries no value is inside, and a sweep leaves nothing.
    life.remove(life.alive())
    life.position += 1
    life.reclaim()
    life.index._values._sweep()
    assert (life.index.tracked_values, life.index._values.sets.entries_count) == (0, 0)


def box(west: float, east: float, expires_ms: int = NEVER_MS) -> PlainQuery:
    return PlainQuery(boxes=[(west, -10.0, east, 10.0)], expires_ms=expires_ms)


def at(lon: float, position: int, key: int = 1, value: int = 7, arrival_ms: int = 0) -> Moving:
    return Moving(PlainObject(lon, 0.0, (), arrival_ms, position), key, value)


def test_enter_inside_exit_of_one_value_in_one_batch() -> None:
    index = TrackIndex()
    live = {0: Tracker(box(0, 10), 1), 1: Tracker(box(5, 15), 1, 1 << ENTERS | 1 << EXITS)}
    assert insert(index, list(live.values()), 0) == [0, 1]
    path = [at(lon, number) for number, lon in enumerate([1.0, 6.0, 7.0, 12.0, 40.0, 5.0])]
    assert match(index, path, live) == [
        (0, ENTERS, 0),
        (1, ENTERS, 1), (1, INSIDE, 0),
        (2, INSIDE, 0),
        (3, EXITS, 0),
        (4, EXITS, 1),
        (5, ENTERS, 0), (5, ENTERS, 1),
    ]  # fmt: skip


def test_keys_and_values_are_apart() -> None:
    index = TrackIndex()
    live = {0: Tracker(box(0, 10), 1), 1: Tracker(box(0, 10), 2)}
    insert(index, list(live.values()), 0)
    steps = [at(1.0, 0, 1, 7), at(1.0, 1, 2, 7), at(50.0, 2, 1, 8), at(50.0, 3, 2, 7),
             at(50.0, 4, 1, 7), at(1.0, 5, 3, 7)]  # fmt: skip
    assert match(index, steps, live) == [
        (0, ENTERS, 0), (1, ENTERS, 1), (3, EXITS, 1), (4, EXITS, 0),
    ]  # fmt: skip


def test_values_of_two_keys_that_share_a_set_stay_apart() -> None:
    index = TrackIndex()
    live = {0: Tracker(box(0, 10), 1), 1: Tracker(box(0, 10), 2)}
    insert(index, list(live.values()), 0)
    handles = index._values.sets.handles_of
    one, two = np.array([1], np.uint64), np.array([2], np.uint64)
    value = np.array([7], np.uint64)
    second = int(handles(two, handles(one, value))[0])
    assert handles(two, np.array([second], np.uint64)) == handles(one, value)
    steps = [at(1.0, 0, 1, 7), at(1.0, 1, 2, second), at(50.0, 2, 2, second), at(1.0, 3, 1, 7),
             at(50.0, 4, 1, 7)]  # fmt: skip
    assert match(index, steps, live) == [
        (0, ENTERS, 0), (1, ENTERS, 1), (2, EXITS, 1), (3, INSIDE, 0), (4, EXITS, 0),
    ]  # fmt: skip


def test_an_expired_query_reports_nothing_and_changes_nothing() -> None:
    index = TrackIndex()
    live = {0: Tracker(box(0, 10, expires_ms=100), 1)}
    insert(index, list(live.values()), 0)
    assert match(index, [at(1.0, 0, arrival_ms=99)], live) == [(0, ENTERS, 0)]
    # Outside after the end: no exit. A late object that arrived before the end counts.
    assert match(index, [at(50.0, 1, arrival_ms=100)], live) == []
    assert match(index, [at(2.0, 2, arrival_ms=100)], live) == []
    assert match(index, [at(3.0, 3, arrival_ms=98)], live) == [(0, INSIDE, 0)]
    assert match(index, [at(50.0, 4, arrival_ms=99)], live) == [(0, EXITS, 0)]


def test_the_last_query_is_met_up_to_its_removal() -> None:
    index = TrackIndex()
    live = {0: Tracker(box(0, 10), 1)}
    insert(index, [live[0]], 0)
    index.remove(np.array([0], np.int32), 2)
    path = [at(lon, position) for position, lon in enumerate([1.0, 50.0, 1.0, 50.0])]
    assert match(index, path, live) == [(0, ENTERS, 0), (1, EXITS, 0)]
    assert index.reclaim(4) == 1
    assert match(index, path, {}) == []


def test_a_replaced_query_knows_nothing() -> None:
    index = TrackIndex()
    live = {0: Tracker(box(0, 10), 1)}
    insert(index, [live[0]], 0)
    assert match(index, [at(1.0, 1)], live) == [(0, ENTERS, 0)]
    index.remove(np.array([0], np.int32), 2)
    index.reclaim(2)
    live = {0: Tracker(box(-10, 10), 1)}
    assert insert(index, [live[0]], 2) == [0]
    assert match(index, [at(50.0, 3)], live) == []
    assert match(index, [at(-1.0, 4)], live) == [(0, ENTERS, 0)]


def test_values_without_further_objects_take_no_memory() -> None:
    """Also if the row of the query around them was reused for another query."""
    index = TrackIndex(limits=StandingLimits(track_garbage_min=10))
    for step in range(1, 4):
        live = dict.fromkeys([0, 1], Tracker(box(0, 10), 1))
        assert sorted(insert(index, [live[0], live[1]], 100 * step)) == [0, 1]
        seen = [at(1.0, 100 * step + v, value=100 * step + v) for v in range(50)]
        assert len(match(index, seen, live)) == 100
        assert index.tracked_values == 50, step
        index.remove(np.array([0, 1], np.int32), 100 * step + 50)
        # Row by row: the first sweep happens while the other row is still in use.
        assert index.reclaim(100 * step + 50, rows_max=1) == 1
        assert index.reclaim(100 * step + 50) == 1
    insert(index, [live[0], live[1]], 900)
    index._values._sweep()
    assert (index.tracked_values, index._values.sets.entries_count) == (0, 0)


def test_many_values_in_many_queries() -> None:
    """Sets grow through all sizes of blocks and shrink again."""
    seed = 3
    print(f"seed={seed}")
    rng = random.Random(seed)
    index, sets = TrackIndex(), Sets()
    queries = [Tracker(box(-2.0 * i, 2.0 * i), 1 + i % 2) for i in range(1, 81)]
    live = dict(zip(insert(index, queries, 0), queries, strict=True))
    for position in range(12):
        objects = [
            at(rng.choice([0.0, 170.0, rng.uniform(-180, 180)]), position, 1 + v % 2, v)
            for v in rng.choices(range(60), k=150)
        ]
        assert match(index, objects, live) == sets.take(objects, live)
        inside = sum(len(rows) for rows in sets.inside.values())
        assert index._values.sets.entries_count == inside
        assert index.tracked_values == sum(bool(rows) for rows in sets.inside.values())
    away = [at(-179.0, 99, 1 + v % 2, v) for v in range(60)]
    assert match(index, away, live) == sets.take(away, live)
    assert index.tracked_values == 0


def test_a_state_is_the_state_of_what_was_restored() -> None:
    life = Life(31)
    for _ in range(8):
        life.step()
    state = life.index.state()
    successor = TrackIndex()
    again = successor.state(successor.restore(state))
    assert len(state["member_values"]) > 20
    assert again.keys() == state.keys()
    for name, column in state.items():
        if name != "pos_terms":  # the order within a conjunction may differ
            assert (again[name] == column).all(), name
            assert again[name].dtype == column.dtype, name
    empty = TrackIndex().state()
    assert TrackIndex().restore(empty).tolist() == []


def put(index: TrackIndex, rows: list[int], values: np.ndarray) -> None:
    """Puts values inside each of some queries."""
    query_rows = np.repeat(np.array(rows, np.int32), len(values))
    numbers = np.full(len(query_rows), NOT_KNOWN, np.int32)
    index.put_members(Members(query_rows, np.tile(values.astype(np.uint64), len(rows)), numbers))


def test_taking_some_members_leaves_the_others() -> None:
    index = TrackIndex()
    rows = insert(index, [Tracker(WORLD, 1) for _ in range(5)], 0)
    put(index, rows, np.arange(20))
    put(index, rows[1:2], np.arange(20, 25))
    taken = index.take_members(np.array(rows[1:3], np.int32))
    assert taken.query_rows.tolist() == [rows[1]] * 25 + [rows[2]] * 20
    assert taken.values.tolist() == [*range(25), *range(20)]
    # No remaining value is lost, and values inside no other query are forgotten.
    assert index.tracked_values == 20
    assert len(index.take_members(np.array(rows[1:3], np.int32))) == 0
    for row in (rows[4], rows[0], rows[3]):
        assert index.take_members(np.array([row], np.int32)).values.tolist() == [*range(20)]
    assert index.tracked_values == 0


def test_a_query_with_one_value_is_changed_cheaply_beside_many_values_of_others() -> None:
    """The values of all were sorted and rewritten, at each change: 9 ms beside 300,000."""
    index = TrackIndex()
    own, other = insert(index, [Tracker(WORLD, 1), Tracker(WORLD, 2)], 0)
    put(index, [own], np.array([7]))
    values = np.random.default_rng(1).integers(0, 1 << 63, 300_000)
    put(index, [other], values)

    def least_s(work: Callable[[], object]) -> float:
        times = []
        for _ in range(7):
            begin_s = time.process_time()
            work()
            times.append(time.process_time() - begin_s)
        return min(times)

    def change() -> None:
        members = index.take_members(np.array([own], np.int32))
        assert members.values.tolist() == [7]
        index.put_members(members)

    assert least_s(change) < least_s(lambda: np.argsort(values))


def test_empty_batches_and_missing_answers() -> None:
    index = TrackIndex()
    assert insert(index, [], 0) == []
    assert match(index, [], {}) == []
    insert(index, [Tracker(box(0, 10), 1, tint=2)], 0)
    one = np.ones(1, np.uint64)
    with pytest.raises(ValueError, match="accepts"):
        index.match(  # type: ignore[call-arg]
            *ObjectColumns.of([at(1.0, 0).plain]).arguments(), np.zeros(1, np.int64), one, one
        )
