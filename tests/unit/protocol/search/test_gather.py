"""The gathering of searches, with answers that are late, lost, moved, doubled or missing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from sirocco.model.attributes import Filter
from sirocco.model.errors import (
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    OutOfRange,
    PartialResult,
    ResourceExhausted,
    Unavailable,
)
from sirocco.model.query import KnnQuery, Query
from sirocco.protocol.search.gather_events import Ask, PartArrived, SendObjects
from sirocco.protocol.search.limits import LIMITS, SearchLimits
from sirocco.protocol.search.messages import DONE, MORE, MOVED, Part
from tests.support import gather_cluster
from tests.support.gather_cluster import (
    SLOTS,
    Searching,
    World,
    events_of,
    moved,
    objects_at,
    slots_of,
    snapshot,
)
from tests.support.seeds import drawn_seed

RANDOM_RUNS = 300


def scattered(seed: int, count: int = 60) -> World:
    rng = random.Random(seed)
    return World(objects_at([(rng.uniform(-180, 180), rng.uniform(-90, 90)) for _ in range(count)]))


EVERYWHERE = snapshot()
CORNER = snapshot(region={"rect": {"west": -179.0, "south": -89.0, "east": -178.0, "north": -88.0}})
NEAREST = snapshot(kind="knn", point={"lon": 10.0, "lat": 10.0}, k=5)
# All objects are assumed to hold it: these tests check who is asked.
NEAREST_FIRE = snapshot(kind="knn", point={"lon": 10.0, "lat": 10.0}, k=5, text="fire")


def nearest_ids(world: World, slots: Sequence[int] = range(SLOTS)) -> list[int]:
    assert isinstance(NEAREST, KnnQuery)
    return world.nearest(NEAREST, slots, None)[0].ids.tolist()


def test_a_single_evaluator_receives_one_request_and_its_answer_is_the_result() -> None:
    world = scattered(1)
    search = Searching(world, EVERYWHERE)
    (ask,) = search.begin()
    assert (ask.slots, ask.member, ask.answers) == (tuple(range(SLOTS)), "e", 1)
    search.answered(ask)
    assert search.finish is not None
    assert (search.finish.error, search.finish.missing) == (None, ())
    assert sorted(search.handed) == list(range(1, 61))


def test_only_slots_that_can_hold_answers_receive_requests() -> None:
    world = scattered(2)
    (ask,) = Searching(world, CORNER).begin()
    assert ask.slots == (int(slots_of(objects_at([(-178.5, -88.5)]))[0]),)


@pytest.mark.parametrize("query", [CORNER, NEAREST])
def test_all_slots_are_searched_when_one_was_filled_by_a_newer_map(query: Query) -> None:
    # init: this merger has not read that another map followed, which distributes objects
    # differently.
    world = scattered(2)
    search = Searching(world, query)
    (ask,) = search.begin()
    first, *parts = world.parts(query, ask)
    assert set(ask.slots) < set(range(SLOTS))

    # test
    newer = gather_cluster.ROUTING.version + 1
    others = search.came(ask, replace(first, map_version=newer))
    for part in parts:
        search.came(ask, replace(part, map_version=newer))

    # check
    asked = {slot for other in others for slot in other.slots}
    assert asked >= set(range(SLOTS)) - set(ask.slots)
    assert search.drive().error is None
    if query is NEAREST:
        assert search.finish is not None
        assert search.finish.answer.objects.ids.tolist() == nearest_ids(world)
    assert len(search.handed) == len(set(search.handed))
    assert search.gather.slots_total == SLOTS


def test_a_repeated_request_is_not_bound_by_discarded_answers() -> None:
    # init: the nearest slots have answered; one of the others was filled by a newer map.
    world = scattered(2, 200)
    search = Searching(world, NEAREST)
    (first,) = search.begin()
    (second,) = search.answered(first)
    assert second.radius_m is not None
    (part,) = world.parts(NEAREST, second)
    newer = gather_cluster.ROUTING.version + 1

    # test: the owners that had answered are gone.
    world.owners |= dict.fromkeys(first.slots, None)
    asked = search.came(second, replace(part, map_version=newer))
    finish = search.drive()

    # check
    assert [ask.radius_m for ask in asked] == [None]
    assert finish.missing == first.slots
    left = sorted(set(range(SLOTS)) - set(first.slots))
    assert finish.answer.objects.ids.tolist() == nearest_ids(world, left)


def test_objects_are_handed_on_before_the_others_have_answered() -> None:
    world = scattered(3)
    world.owners |= {0: "f", 1: "f"}
    search = Searching(world, EVERYWHERE)
    asks = {ask.member: ask for ask in search.begin()}
    assert {ask.answers for ask in asks.values()} == {3, 5}
    first, *_ = world.parts(search.query, asks["e"])
    search.came(asks["e"], first)
    assert search.handed == first.events.numbers.tolist() != []
    assert search.finish is None


def test_a_moved_slot_is_searched_again_at_its_new_owner() -> None:
    world = scattered(4)
    search = Searching(world, EVERYWHERE)
    (ask,) = search.begin()
    world.owners[2] = "f"
    search.answered(ask)
    (again,) = search.until_request()
    assert (again.member, again.slots) == ("f", (2,))
    search.answered(again)
    assert search.finish is not None
    assert search.finish.error is None
    assert sorted(search.handed) == list(range(1, 61))


def test_a_slot_that_is_nowhere_is_looked_for_less_and_less_often() -> None:
    # init: the evaluator denies ownership that control declares.
    search = Searching(scattered(5), CORNER, timeout_ms=60_000)
    (ask,) = search.begin()
    pauses_ms = []

    # test
    for _ in range(12):
        begin_ms = search.now_ms
        (slot,) = ask.slots
        search.came(ask, replace(moved(slot), is_last=True))
        (ask,) = search.until_request()
        pauses_ms.append(search.now_ms - begin_ms)

    # check
    assert LIMITS.retry_ms_min / 2 <= pauses_ms[0] <= 1.5 * LIMITS.retry_ms_min
    assert all(pause_ms <= 1.5 * LIMITS.retry_ms_max for pause_ms in pauses_ms)
    assert min(pauses_ms[-4:]) >= LIMITS.retry_ms_max / 2
    assert len(set(pauses_ms[-4:])) > 1, "searches that failed together must not come back so"


def test_a_lost_answer_continues_elsewhere_without_doubles() -> None:
    world = scattered(6)
    search = Searching(world, EVERYWHERE)
    (ask,) = search.begin()
    parts = world.parts(search.query, ask)
    cut = next(i for i, part in enumerate(parts) if MORE in part.states.tolist())
    for part in parts[: cut + 1]:
        search.came(ask, part)
    handed = list(search.handed)
    world.owners = dict.fromkeys(range(SLOTS), "f")
    assert search.came(ask, Unavailable("the stream broke")) == []
    assert search.drive().error is None
    assert {again.member for again in search.asks[1:]} == {"f"}
    assert search.handed[: len(handed)] == handed
    assert sorted(search.handed) == list(range(1, 61))


def test_one_answer_is_handed_on_as_it_is_however_many_parts_it_has() -> None:
    # A search for doubles among all rows that were passed on would cost their square.
    world = scattered(6, 200)
    search = Searching(world, EVERYWHERE)
    (ask,) = search.begin()
    parts = world.parts(search.query, ask)
    handed = [
        effect.objects
        for part in parts
        for effect in search.gather.step(PartArrived(ask.number, part), world.owner, search.now_ms)
        if isinstance(effect, SendObjects)
    ]
    assert len(handed) > SLOTS
    full = [part.objects for part in parts if len(part.objects)]
    assert all(mine is other for mine, other in zip(handed, full, strict=True))


def test_results_of_two_broken_answers_are_left_out_of_the_third() -> None:
    world = scattered(6, 200)
    search = Searching(world, EVERYWHERE)
    (ask,) = search.begin()
    for _ in range(2):
        for part in world.parts(search.query, ask)[:20]:
            search.came(ask, part)
        search.came(ask, Unavailable("the stream broke"))
        (ask,) = search.until_request()
    assert 0 < len(search.handed) < 200
    assert search.drive().error is None
    assert sorted(search.handed) == list(range(1, 201))


def test_an_answer_that_comes_late_is_not_counted_twice() -> None:
    # init: the owner changes while the former one is still answering.
    world = scattered(7)
    search = Searching(world, EVERYWHERE)
    (ask,) = search.begin()
    parts = world.parts(search.query, ask)
    search.came(ask, parts[0])
    world.owners = dict.fromkeys(range(SLOTS), "f")

    # test: that is noticed although the former owner reports nothing.
    search.passed(LIMITS.look_ms)
    assert search.stopped == [ask.number]
    again = search.until_request()
    for part in parts[1:]:
        search.came(ask, part)
    assert again
    search.drive()

    # check
    assert sorted(search.handed) == list(range(1, 61))


def test_what_is_missing_at_the_deadline_is_named() -> None:
    world = scattered(8)
    world.owners[3] = "f"
    search = Searching(world, EVERYWHERE, timeout_ms=500)
    asks = {ask.member: ask for ask in search.begin()}
    search.answered(asks["e"])
    search.came(asks["f"], Unavailable("evaluator f cannot be reached"))
    while search.finish is None:
        for ask in search.until_request():
            search.came(ask, Unavailable("evaluator f cannot be reached"))
    assert search.now_ms == 1_500
    error = search.finish.error
    assert isinstance(error, PartialResult)
    assert (error.missing_slots, search.finish.missing) == ((3,), (3,))
    assert "slots 3" in error.message
    assert "cannot be reached" in error.message
    elsewhere = world.objects.ids[slots_of(world.objects) != 3]
    assert sorted(search.handed) == elsewhere.tolist()


def test_a_deadline_that_is_too_short_names_the_missing_slots() -> None:
    search = Searching(scattered(9), EVERYWHERE, timeout_ms=20)
    (ask,) = search.begin()
    search.passed(20)
    assert search.finish is not None
    error = search.finish.error
    assert isinstance(error, DeadlineExceeded)
    assert "slots 0, 1, 2, 3, 4, 5 gave no answer within 20 ms" in error.message
    assert search.stopped == [ask.number]
    assert search.finish.missing == tuple(range(SLOTS))


def test_a_search_that_waits_for_a_position_flushes_routers_once() -> None:
    search = Searching(scattered(10), EVERYWHERE, timeout_ms=50)
    (ask,) = search.begin()
    search.came(ask, Part(is_waiting=True))
    search.came(ask, Part(is_waiting=True))
    assert search.hurries == 1
    search.passed(50)
    assert search.finish is not None
    assert isinstance(search.finish.error, DeadlineExceeded)
    assert "position token" in search.finish.error.message


def test_without_an_owner_the_answer_is_partial() -> None:
    world = scattered(11)
    world.owners = dict.fromkeys(range(SLOTS))
    search = Searching(world, EVERYWHERE, timeout_ms=100)
    assert search.begin() == []
    assert search.until_request() == []
    assert search.finish is not None
    assert isinstance(search.finish.error, PartialResult)
    assert "has no owner" in search.finish.error.message


def test_a_full_evaluator_is_retried_after_the_time_that_it_gives() -> None:
    pauses_ms = []
    for seed in range(8):
        search = Searching(scattered(12), EVERYWHERE, timeout_ms=5_000, seed=seed)
        (ask,) = search.begin()
        search.came(ask, ResourceExhausted("full", retry_after_ms=700))
        begin_ms = search.now_ms
        search.until_request()
        pauses_ms.append(search.now_ms - begin_ms)
    assert all(700 <= pause_ms <= 1_100 for pause_ms in pauses_ms)
    assert len(set(pauses_ms)) > 1, "searches that failed together must not come back so"


@pytest.mark.parametrize("error", [OutOfRange("too long", field="window"), Internal("defect")])
def test_what_will_not_pass_ends_the_search_at_once(error: OutOfRange | Internal) -> None:
    world = scattered(13)
    world.owners[0] = "f"
    search = Searching(world, EVERYWHERE)
    asks = {ask.member: ask for ask in search.begin()}
    search.came(asks["e"], error)
    assert search.finish is not None
    assert search.finish.error is error
    assert search.stopped == [asks["e"].number, asks["f"].number] or search.stopped == [
        asks["f"].number,
        asks["e"].number,
    ]


def test_answers_about_slots_not_requested_are_refused() -> None:
    world = scattered(14)
    world.owners[0] = "f"
    search = Searching(world, EVERYWHERE)
    asks = {ask.member: ask for ask in search.begin()}
    search.came(asks["f"], world.parts(search.query, asks["e"])[0])
    assert search.finish is not None
    assert isinstance(search.finish.error, Internal)


def test_a_slot_with_too_many_rows_to_exclude_is_not_searched_twice() -> None:
    limits = SearchLimits(repeatable_rows_max=3)
    world = scattered(15)
    search = Searching(world, EVERYWHERE, timeout_ms=60_000, limits=limits)
    (ask,) = search.begin()
    parts = [part for part in world.parts(search.query, ask) if part.slots.tolist() == [0]]
    assert sum(len(part.objects) for part in parts[:2]) > 3
    for part in parts[:2]:
        search.came(ask, part)
    search.came(ask, Unavailable("the stream broke"))
    finish = search.drive()
    assert isinstance(finish.error, PartialResult)
    assert finish.missing == (0,)
    # It does not wait for impossible answers.
    assert search.now_ms < 5_000
    assert len(search.handed) == len(set(search.handed))


# --- the k nearest


def test_the_nearest_are_looked_for_where_the_point_lies_then_within_the_radius() -> None:
    # init: some near the point, one a little nearer beyond the border of its tile.
    home = int(slots_of(objects_at([(10.0, 10.0)]))[0])
    world = scattered(16, 400)
    world.owners = {slot: f"e{slot}" for slot in range(SLOTS)}
    search = Searching(world, NEAREST)

    # test
    (first,) = search.begin()
    assert (first.slots, first.radius_m, first.answers) == ((home,), None, 1)
    rest = search.answered(first)
    (radius_m,) = {ask.radius_m for ask in rest} or {0.0}
    for ask in rest:
        search.answered(ask)

    # check
    assert search.finish is not None
    assert radius_m is not None
    assert search.finish.answer.objects.ids.tolist() == nearest_ids(world)
    assert (np.diff(search.finish.answer.values) >= 0).all()
    assert home not in {slot for ask in rest for slot in ask.slots}


def test_too_few_results_near_the_point_search_all_slots() -> None:
    world = World(objects_at([(10.0, 10.0), (170.0, 80.0), (-170.0, -80.0), (100.0, -5.0)]))
    world.owners = {slot: f"e{slot}" for slot in range(SLOTS)}
    search = Searching(world, NEAREST)
    (first,) = search.begin()
    rest = search.answered(first)
    assert {slot for ask in rest for slot in ask.slots} == set(range(SLOTS)) - set(first.slots)
    assert {ask.radius_m for ask in rest} == {None}
    for ask in rest:
        search.answered(ask)
    assert search.finish is not None
    assert search.finish.answer.objects.ids.tolist() == nearest_ids(world)
    assert len(search.finish.answer.values) == 4


def test_other_slots_are_searched_while_the_first_is_silent() -> None:
    world = scattered(17, 100)
    world.owners = {slot: f"e{slot}" for slot in range(SLOTS)}
    search = Searching(world, NEAREST, timeout_ms=1_000)
    (first,) = search.begin()
    rest = search.until_request()
    assert search.now_ms == 1_500
    for ask in rest:
        search.answered(ask)
    search.until_request()
    assert search.finish is not None
    assert isinstance(search.finish.error, PartialResult)
    assert search.finish.missing == first.slots
    others = [slot for slot in range(SLOTS) if slot not in first.slots]
    assert search.finish.answer.objects.ids.tolist() == nearest_ids(world, others)


def test_a_word_is_looked_for_in_all_slots_of_the_first_evaluator_at_once() -> None:
    world = World(objects_at([(10.0, 10.0), (170.0, 80.0), (-170.0, -80.0), (100.0, -5.0)]))
    search = Searching(world, NEAREST_FIRE)
    (first,) = search.begin()
    assert len(first.slots) == 1
    assert {*first.slots, *first.nearby} == set(range(SLOTS))
    search.answered(first)
    assert search.finish is not None
    assert search.finish.answer.objects.ids.tolist() == nearest_ids(world)
    assert len(search.asks) == 1


def test_slots_left_out_of_an_answer_are_searched_if_near_enough() -> None:
    world = scattered(16, 6)
    world.cheap = frozenset({0, 3})
    world.owners = {slot: "e" if slot < 4 else "f" for slot in range(SLOTS)}
    search = Searching(world, NEAREST_FIRE)
    (first,) = search.begin()
    rest = search.answered(first)
    assert search.finish is None
    assert not any(ask.nearby for ask in rest)
    asked = {slot for ask in rest for slot in ask.slots}
    assert asked
    assert asked <= set(range(SLOTS)) - {*first.slots, 0, 3}
    assert search.drive().answer.objects.ids.tolist() == nearest_ids(world)


def test_an_answer_that_nearby_slots_have_moved_counts_as_answer() -> None:
    world = scattered(16, 6)
    world.cheap = frozenset()
    search = Searching(world, NEAREST_FIRE)
    (first,) = search.begin()
    (part,) = world.parts(NEAREST_FIRE, first)
    slots = np.array([*first.slots, *first.nearby], np.uint32)
    states = np.array([DONE] + [MOVED] * len(first.nearby), np.uint8)
    search.came(first, replace(part, slots=slots, states=states))
    assert search.drive().answer.objects.ids.tolist() == nearest_ids(world)


@pytest.mark.parametrize("query", [NEAREST, replace(NEAREST_FIRE, where=Filter.parse({"a": 1}))])
def test_without_a_word_and_with_a_filter_only_the_points_slot_is_looked_into(query: Query) -> None:
    (first,) = Searching(scattered(16), query).begin()
    assert first.nearby == ()


def test_nearest_objects_reported_by_two_evaluators_count_once() -> None:
    # init: the first is slow, so that others are asked for slots that it then answers, too.
    world = scattered(17, 12)
    search = Searching(world, NEAREST_FIRE, timeout_ms=1_000)
    (first,) = search.begin()
    late = world.parts(NEAREST_FIRE, first)
    world.owners = {**dict.fromkeys(range(SLOTS), "f"), first.slots[0]: "e"}
    rest = search.until_request()
    assert {slot for ask in rest for slot in ask.slots} == set(first.nearby)

    # test: of two owners, the former one answers last.
    for ask in rest:
        search.answered(ask)
    for part in late:
        search.came(first, part)

    # check
    assert search.drive().answer.objects.ids.tolist() == nearest_ids(world)


def test_an_answer_in_parts_counts_when_the_last_is_there() -> None:
    world = scattered(18, 100)
    search = Searching(world, NEAREST)
    (ask,) = search.begin()
    half = objects_at([(10.0, 10.0)], first_id=900)
    early = Part(objects=half, events=events_of(half), distances_m=np.zeros(1))
    search.came(ask, early)
    search.came(ask, Unavailable("the stream broke"))
    assert search.drive().answer.objects.ids.tolist() == nearest_ids(world)


def test_a_list_that_is_too_large_is_refused() -> None:
    world = scattered(19, 100)
    search = Searching(world, NEAREST, limits=SearchLimits(kept_bytes_max=100))
    search.begin()
    error = search.drive().error
    assert isinstance(error, InvalidArgument)
    assert error.field == "k"


# --- random


@pytest.mark.parametrize("kind", ["range", "knn", "knn with a word"])
def test_answers_at_random_are_whole_or_name_missing_slots(kind: str) -> None:
    for _ in range(RANDOM_RUNS):
        seed = drawn_seed()
        try:
            one_random_search(kind, random.Random(seed))
        except AssertionError as error:
            raise AssertionError(f"one_random_search({kind!r}, random.Random({seed}))") from error


def one_random_search(kind: str, rng: random.Random) -> None:
    world = scattered(rng.randrange(1 << 32), rng.randrange(1, 80))
    world.rows_a_part = rng.randrange(1, 20)
    members = [f"e{i}" for i in range(rng.randrange(1, 5))]
    world.owners = {slot: rng.choice(members) for slot in range(SLOTS)}
    world.cheap = frozenset(slot for slot in range(SLOTS) if rng.random() < 0.7)
    query = {"range": EVERYWHERE, "knn": NEAREST, "knn with a word": NEAREST_FIRE}[kind]
    search = Searching(world, query, timeout_ms=2_000, seed=rng.randrange(1 << 32))
    trouble = rng.random() * 0.3
    # Parts on their way; those of one request in order.
    next_routing = {ask.number: world.parts(query, ask) for ask in search.begin()}
    late: list[tuple[Ask, Part]] = []
    asks = {ask.number: ask for ask in search.asks}
    while search.finish is None:
        asked: list[Ask] = []
        roll = rng.random()
        if roll < trouble / 4:
            world.owners[rng.randrange(SLOTS)] = rng.choice([*members, None])
        elif roll < trouble / 2 and next_routing:
            number = rng.choice(list(next_routing))
            del next_routing[number]
            asked = search.came(asks[number], Unavailable("the stream broke"))
        elif roll < trouble and late:
            asked = search.came(*rng.choice(late))
        elif next_routing and rng.random() < 0.8:
            number = rng.choice(list(next_routing))
            part = next_routing[number].pop(0)
            if not next_routing[number]:
                del next_routing[number]
            if number not in search.open:
                late.append((asks[number], part))
            asked = search.came(asks[number], part)
        else:
            wait_ms = max(1, search.gather.deadline_ms() - search.now_ms)
            asked = search.passed(rng.randrange(1, wait_ms + 1))
        for ask in asked:
            asks[ask.number] = ask
            next_routing[ask.number] = world.parts(query, ask)
    missing = set(search.finish.missing)
    assert (search.finish.error is None) == (not missing)
    slots = slots_of(world.objects)
    if kind == "range":
        assert len(search.handed) == len(set(search.handed))
        whole = [
            i
            for i, slot in zip(world.objects.ids.tolist(), slots, strict=True)
            if slot not in missing
        ]
        assert set(whole) <= set(search.handed)
    elif not missing:
        assert search.finish.answer.objects.ids.tolist() == nearest_ids(world)
