"""Which live queries a change of the map makes unplaced."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest

from sirocco.model.geometry import Rectangle
from sirocco.model.query import RangeQuery
from sirocco.model.quotas.footprint import compiled_bytes
from sirocco.protocol.contract.messages import NEVER_MS
from sirocco.protocol.router.queries.live_queries import LiveQueries
from sirocco.protocol.router.queries.place_sets import LEAVES_MAX, LOCATED_MAX, PlaceSets
from sirocco.schemes.map.map_difference import MapDifference
from sirocco.schemes.map.routing import QueryRoutes

SLOT_SETS: list[tuple[int, ...]] = [(0,), (1,), (1, 2), (0, 1, 2, 3), (3,)]


def some_live() -> LiveQueries:
    live = LiveQueries()
    count = len(SLOT_SETS)
    handles = np.arange(10, 10 + count, dtype=np.uint64)
    live.put(handles, list(range(count)), [0] * count, np.full(count, NEVER_MS), SLOT_SETS)
    return live


def change_of(slots: set[int], leaves: set[int] | None = None, **renamed: int) -> MapDifference:
    """A change that concerns leaves in some slots; `renamed`: _OLD=NEW."""
    names = {int(old[1:]): new for old, new in renamed.items()}
    return MapDifference(frozenset(leaves or ()), frozenset(slots), names)


def unplaced(live: LiveQueries) -> list[int]:
    assert live.unplaced == len(live.unplaced_rows())
    return live.handles[live.unplaced_rows()].tolist()


def test_queries_in_slots_of_the_change_may_move_and_those_in_all_slots_stay() -> None:
    live = some_live()
    live.unplace(change_of({1}), 4)
    assert unplaced(live) == [11, 12]
    assert not live.is_overdue


def test_nothing_moves_where_no_slot_changes() -> None:
    live = some_live()
    live.unplace(change_of(set()), 4)
    assert unplaced(live) == []


def test_all_queries_may_move_where_slots_report_nothing() -> None:
    live = some_live()
    live.unplace(None, 4)
    assert unplaced(live) == [10, 11, 12, 13, 14]


def test_what_was_unplaced_before_stays_so_and_removed_queries_do_not_count() -> None:
    live = some_live()
    live.drop(np.array([11], np.uint64))
    live.lose(np.array([14], np.uint64), (0, 3))
    live.unplace(change_of({1}), 4)
    assert unplaced(live) == [12, 14]
    assert live.is_overdue


def test_a_query_that_is_in_all_slots_for_a_change_alone_may_move() -> None:
    live = some_live()
    live.placed(np.array([1], np.int32), [(0, 1, 2, 3)], [(1,)])
    live.unplace(change_of({1}), 4)
    assert unplaced(live) == [11, 12]


def located(leaves: list[tuple[int, ...] | None]) -> LiveQueries:
    """Queries 10, 11, ... of slot 1 in these leaves."""
    live = LiveQueries()
    count = len(leaves)
    handles = np.arange(10, 10 + count, dtype=np.uint64)
    slots: list[tuple[int, ...]] = [(1,)] * count
    ends = np.full(count, NEVER_MS)
    live.put(handles, [7] * count, [0] * count, ends, slots, leaves=leaves)
    return live


def test_of_a_slot_only_queries_in_leaves_of_the_change_move() -> None:
    live = located([(4,), (4, 5), (6,), None])
    live.unplace(change_of({1}, {5}, _4=4, _6=6), 4)
    assert unplaced(live) == [11, 13]


def test_leaves_have_the_names_of_the_map_that_follows() -> None:
    live = located([(4,), (5,), (6,)])
    live.unplace(change_of({1}, {4}, _5=4, _6=9), 4)
    assert unplaced(live) == [10]
    live.placed(np.array([0], np.int32), [(1,)], [(1,)], [(5,)])
    live.unplace(change_of({1}, {5}, _4=4, _9=9), 4)
    assert unplaced(live) == [10]
    live.placed(np.array([0], np.int32), [(1,)], [(1,)], [(5,)])
    live.unplace(change_of({1}, {9}, _4=4, _5=5), 4)
    assert unplaced(live) == [12]


def test_leaves_outlive_a_checkpoint_and_are_unknown_after_one_of_an_older_version() -> None:
    live = located([(4,), (4, 5), None, (6,)])
    live.drop(np.array([10], np.uint64))
    successors = LiveQueries(), LiveQueries()
    state = live.state()
    successors[0].restore(state)
    successors[1].restore({name: state[name] for name in state if not name.startswith("leaf_")})
    for successor in successors:
        successor.unplace(change_of({1}, {6}, _4=4, _5=5), 4)
    assert [unplaced(each) for each in successors] == [[12, 13], [11, 12, 13]]


def test_a_query_in_another_slot_for_a_change_keeps_its_leaves() -> None:
    live = located([(4,), (5,)])
    live.unplace(change_of({1}, {4}, _5=5), 4)
    live.placed(np.array([0], np.int32), [(1, 2)], [(2,)], [(4,)])
    assert live.slots(0) == (1, 2)
    live.unplace(change_of({1, 2}, {5}, _4=4), 4)
    assert unplaced(live) == [11]
    live.has_surplus = True
    assert live.take_surplus(9) == [(10, 7, (1,))]
    assert live.slots(0) == (2,)


def test_places_are_forgotten_with_their_queries_and_bounded() -> None:
    places = PlaceSets()
    for leaf in range(LOCATED_MAX + 5):
        places.number((leaf % 3,), (leaf,))
    assert places.are_located().sum() == LOCATED_MAX
    assert places.number((0,), tuple(range(LEAVES_MAX + 1))) == places.number((0,), None)
    is_used = np.zeros(len(places), np.bool_)
    is_used[places.number((1,), (1,))] = True
    numbers = places.follow(change_of(set(), set(), _1=8), is_used)
    assert (len(places), np.count_nonzero(numbers)) == (2, 1)
    assert places.number((1,), (8,)) == numbers.max()
    assert not places.touch(frozenset({1})).any()


def test_places_keep_their_slots_and_leaves() -> None:
    random = np.random.default_rng(5)
    places = PlaceSets()
    expected: list[tuple[int, ...]] = [()]
    for _ in range(200):
        slots = tuple(np.flatnonzero(random.random(256) < random.random() ** 3).tolist())
        leaves = tuple(np.sort(random.choice(9_000, random.integers(0, 17), False)).tolist())
        known = leaves if random.random() < 0.5 else None
        number = places.number(slots, known)
        if number == len(expected):
            expected.append(slots)
        assert places.slots(number) == slots
        assert places.are_located()[number] == (known is not None)
        assert known is None or not known or places.touch(frozenset(known[-1:]))[number]
        assert places.number(slots, known) == number
    numbers = random.integers(0, len(expected), 300).astype(np.int32)
    flat, begins = places.slots_of(numbers)
    found = [tuple(flat[begin:end].tolist()) for begin, end in pairwise(begins.tolist())]
    assert found == [expected[number] for number in numbers.tolist()]


def test_places_of_routes_are_those_of_single_queries() -> None:
    random = np.random.default_rng(7)
    slots = [np.flatnonzero(random.random(70) < p) for p in random.random(50) ** 4]
    leaves = [random.choice(900, random.integers(1, 20), replace=False) for _ in slots]
    ends, leaf_ends = (np.cumsum([0, *map(len, each)]) for each in (slots, leaves))
    flat, flat_leaves = (np.concatenate(each).astype(np.int32) for each in (slots, leaves))
    places = PlaceSets()
    numbers = places.numbers(QueryRoutes(ends, flat, leaf_ends, flat_leaves, flat_leaves))
    assert numbers.tolist() == [
        places.number(tuple(own.tolist()), tuple(sorted(touched.tolist())))
        for own, touched in zip(slots, leaves, strict=True)
    ]


def test_places_are_forgotten_while_one_query_moves_for_ever() -> None:
    """Each place of one query stayed until the map changed, and none was left for others."""
    live = LiveQueries()
    handles = np.array([7, 8], np.uint64)
    live.put(handles[1:], [0], [0], np.array([NEVER_MS]), [(3,)], None, None, [(1,)])
    for number in range(40_000):
        slots = tuple(slot for slot in range(16) if number >> slot & 1)
        live.put(handles[:1], [number], [0], np.array([NEVER_MS]), [slots], None, None, [(number,)])
    assert len(live._places) < 8_200
    rows = live.rows_of(handles).tolist()
    assert [live.slots(row) for row in rows] == [slots, (3,)]
    assert live._places.are_located()[live.wanted_sets[rows]].all()


@pytest.mark.parametrize("slots_total", [16, 64, 256])
def test_a_place_of_each_query_takes_less_than_the_query_counts(slots_total: int) -> None:
    """In tuples each took a kilobyte and more, of which a tenant's bytes of queries counted none.

    As ids, in maps of 256 slots, half of these took 610 bytes.
    """
    rectangle = Rectangle(0, 0, 1, 1)
    counted = compiled_bytes(RangeQuery(id="q", mode="continuous", region=rectangle), "s")
    random = np.random.default_rng(3)
    places = PlaceSets()
    count = 2_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            slots = tuple(np.flatnonzero(random.random(slots_total) < 0.8).tolist())
            leaves = tuple(np.sort(random.choice(9_000, LEAVES_MAX, replace=False)).tolist())
            places.number(slots, leaves)
        taken = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
    assert len(places) == count + 1
    # With the columns of `LiveQueries`, within the same bound as in a slot.
    assert taken + 68 < 1.6 * counted
