"""How much a merger does at once: what clients make due together is done some at a time."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import orjson
import pytest

from sirocco.model.query import RankedQuery, parse_query
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.control_records import Declaration, Granted, LeaderElected
from sirocco.protocol.contract.effects import (
    ControlRead,
    Entry,
    Follow,
    Loaded,
    Polled,
    Tick,
    Unfollow,
)
from sirocco.protocol.contract.messages import PARTIALS, Found
from sirocco.protocol.contract.positions import position_of
from sirocco.protocol.contract.query_specs import end_spec, read_spec
from sirocco.protocol.merger import pending_steps
from sirocco.protocol.merger.limits import MergerLimits
from sirocco.protocol.merger.list_batch import bytes_of_objects
from sirocco.protocol.merger.machine import MergerMachine, MergerSettings
from sirocco.protocol.merger.query_ends import QueryEnds
from sirocco.protocol.search.ranked_merge import Candidates, best
from tests.support.list_records import (
    End,
    ListChange,
    ListVersion,
    Match,
    QueryEnd,
    Ranked,
    Seen,
    Terms,
    found_of,
    knn_spec,
    ranked_spec,
    terms_spec,
    version,
)
from tests.support.merger_slots import BEST, Slots, sent_lists
from tests.support.merger_states import state_of
from tests.support.values import columns_of, map_activated

WORDS = [ListVersion(f"words{i}", terms_spec(f"words{i}", 2)) for i in range(40)]
NEAR = [ListVersion(f"near{i}", knn_spec(f"near{i}", 2)) for i in range(40)]
PLACE = (0, 5)


def limits(**more: Any) -> MergerLimits:
    return MergerLimits(forget_interval_ms=1, **more)


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """Counts the lines of Python that are executed meanwhile."""
    lines = [0]

    def count(*_: Any) -> Any:
        lines[0] += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        yield lines
    finally:
        sys.settrace(before)


# --- steps


def test_steps_that_are_due_at_once_are_sent_some_at_a_time() -> None:
    slots = Slots(limits=limits(turn_weight_max=8))
    cluster = slots.cluster
    steps = cluster.machine.windows[0].lists.steps
    for slot in (0, 1):
        slots.report(slot, *(Terms(each, 100, (("a", 1),)) for each in WORDS), time_ms=99)
    slots.report(0, time_ms=101)
    slots.take_sent()
    assert steps.pending_steps == 40
    slots.report(1, time_ms=101)
    cluster.step(Polled((Entry(PARTIALS, 0, 3, cluster.log[3]),)))
    cluster.now_ms += 1_000
    left = [steps.pending_steps]
    while cluster.machine.deadline_ms() == 0:
        # A progress of the record that completes them would say that all of them were sent.
        assert cluster.transact is None
        cluster.step(Tick())
        left.append(steps.pending_steps)
    assert max(np.diff(left) * -1) <= 8
    assert left[0] >= 32
    assert left[-1] == 0
    sent = sent_lists(cluster.commit())
    assert sorted(sent) == sorted((each.id, (("a", 2.0),)) for each in WORDS)


def test_first_steps_for_which_nothing_more_is_waited_are_sent_some_at_a_time() -> None:
    slots = Slots(limits=limits(turn_weight_max=8))
    cluster = slots.cluster
    steps = cluster.machine.windows[0].lists.steps
    slots.report(0, *(Terms(each, 100, (("a", 1),), slot_count=2) for each in WORDS), time_ms=500)
    slots.report(1, time_ms=500)
    slots.take_sent()
    assert steps.pending_steps == 40
    for slot in (0, 1):
        slots.report(slot, time_ms=99_999)
    entries = tuple(Entry(PARTIALS, 0, at, cluster.log[at]) for at in (2, 3))
    left: list[tuple[int, int]] = []
    cluster.step(Polled(entries))
    while cluster.machine.deadline_ms() == 0:
        cluster.step(Tick())
        left.append((len(list(steps._first_steps)), steps.pending_steps))
    assert np.diff(left, axis=0).min() >= -8
    assert left[0][0] >= 24
    assert left[-1] == (0, 0)
    cluster.now_ms += 1_000
    cluster.step(Tick())
    sent = cluster.commit()
    assert [isinstance(each, ListChange) and each.is_partial for each in sent] == [True] * 40


def machine_of(partitions: int, **more: Any) -> MergerMachine:
    """Returns a merger that owns some Kafka partitions."""
    machine = MergerMachine("m", MergerSettings(1, limits=limits(**more)))
    control: list[Declaration] = [LeaderElected("c"), map_activated(0)]
    control += [Granted(0, PARTIALS, partition, "m") for partition in range(partitions)]
    for offset, declaration in enumerate(control):
        machine.step(ControlRead(offset, declaration), 0)
    for partition in range(partitions):
        epoch = machine.holdings.held[PARTIALS, partition].epoch
        loaded = Loaded(topic=PARTIALS, partition=partition, epoch=epoch, offset=0, state=None)
        machine.step(loaded, 0)
    return machine


def record(at: int, *items: Any, time_ms: int = 50) -> Found:
    begin, end = position_of(at), position_of(at + 1)
    return found_of([(0, begin, end, time_ms)], [(0, begin, each) for each in items])


def test_a_partition_with_many_steps_leaves_turns_to_others() -> None:
    machine = machine_of(2, turn_weight_max=8)
    many = [record(at, *(Terms(each, 100, (("a", 1),)) for each in WORDS)) for at in range(20)]
    entries = [Entry(PARTIALS, 0, at, found) for at, found in enumerate(many)]
    other = Entry(PARTIALS, 1, 0, record(0, Match(ListVersion("q"), 1)))
    machine.step(Polled((*entries, other)), 0)
    busy, own = machine.windows[0], machine.windows[1]
    turns = 0
    while not own.input_offset:
        machine.step(Tick(), 0)
        turns += 1
    assert turns <= 1
    assert busy.input_offset <= 2
    assert machine.deadline_ms() == 0
    while machine.deadline_ms() == 0:
        machine.step(Tick(), 0)
        turns += 1
    assert busy.input_offset == 20
    assert turns >= 18


def test_what_is_read_and_not_taken_is_bounded() -> None:
    machine = machine_of(1, turn_weight_max=8, waiting_bytes_max=100_000)
    many = [record(at, *(Terms(each, 100, (("a", 1),)) for each in WORDS)) for at in range(20)]
    entries = tuple(Entry(PARTIALS, 0, at, found) for at, found in enumerate(many))
    assert Unfollow(PARTIALS, 0) in machine.step(Polled(entries), 0)
    effects = []
    while machine.deadline_ms() == 0:
        effects += [each for each in machine.step(Tick(), 0) if isinstance(each, Follow)]
    # What was read is taken first.
    assert effects == [Follow(PARTIALS, 0, 20)]
    assert machine.windows[0].input_offset == 20


def test_candidates_that_wait_for_a_transaction_stop_the_reading() -> None:
    slots = Slots(1, limits=limits(waiting_bytes_max=30_000))
    cluster = slots.cluster
    slots.report(0, *(Match(each, 1, 50.0) for each in NEAR))
    cluster.read(1, np.random.default_rng(0))
    assert cluster.transact is not None
    # `deliveries` is away.
    effects: list[Any] = []
    for at in range(1, 40):
        slots.report(0, *(Match(each, at, 50.0 - at) for each in NEAR))
        entry = Entry(PARTIALS, 0, at, cluster.log[at])
        effects += cluster.machine.step(Polled((entry,)), cluster.now_ms)
    assert effects == [Unfollow(PARTIALS, 0)]


# --- ends


def test_a_lifetime_of_all_slots_is_due_once() -> None:
    known = QueryEnds()
    spec = read_spec(end_spec(PLACE, 1_000, has_expired=False))
    for slot in range(64):
        known.take_report(spec, "q", "s", slot, 64)
    assert len(known._due) == 1
    restored = QueryEnds()
    restored.restore(state_of(known))
    restored.take_report(spec, "q", "s", 0, 64)
    assert len(restored._due) == 1


def test_lifetimes_that_end_together_are_ended_some_at_a_time() -> None:
    known = QueryEnds()
    for revision in range(50):
        spec = read_spec(end_spec((0, revision), 1_000, has_expired=False))
        known.take_report(spec, f"q{revision}", "s", 0, 1)
    sent = []
    for looks in (20, 20, 20, 20, 20):
        assert known.complete(1_001, lambda *_: False, looks) <= looks
        sent += [len(each) for each in known.flush()]
    assert sum(sent) == 50
    assert max(sent) <= 20


def test_an_end_looks_at_the_steps_of_its_query_alone() -> None:
    slots = Slots(2)
    lists = slots.cluster.machine.windows[0].lists
    waiting = [version(each, 3) for each in WORDS]
    slots.report(0, *(Terms(each, 100, (("a", 1),)) for each in waiting), time_ms=50)
    for slot in (0, 1):
        slots.report(slot, QueryEnd(ListVersion("q"), PLACE))
    with counted_lines() as few:
        lists._awaits_steps("q", "s", 9)
    slots.take_sent()
    assert len(lists.steps._pending) == 40
    with counted_lines() as many:
        assert not lists._awaits_steps("q", "s", 9)
        assert lists._awaits_steps("words0", "ann", 3)
        assert not lists._awaits_steps("words0", "ann", 2)
    assert many[0] < 5 * few[0]
    slots.report(0, End(waiting[0], 60, by=(0, 9)))
    slots.take_sent()
    assert not lists._awaits_steps("words0", "ann", 3)


def test_an_end_that_waits_is_looked_at_when_a_step_was_sent() -> None:
    slots = Slots(2)
    best_one = version(BEST, 6)
    step = Ranked(asked=best_one, at_ms=100, total=5, tokens=50, holders=(2, 1), seen=())
    for slot in (0, 1):
        slots.report(slot, step, time_ms=99)
    slots.report(0, QueryEnd(best_one, (0, 6)))
    slots.report(1, QueryEnd(best_one, (0, 6)))
    assert slots.take_sent() == []
    ends = slots.cluster.machine.windows[0].lists.ends
    looks: list[str] = []

    def awaits(query: str, subscriber: str, revision: int) -> bool:
        looks.append(query)
        return True

    assert ends.complete(99, awaits, 10, looks_again=False) == 0
    assert ends.complete(99, awaits, 10, looks_again=True) == 1
    assert looks == ["best"]
    for slot in (0, 1):
        slots.report(slot, time_ms=101)
    assert [(each.query, each.ended) for each in slots.take_sent()] == [("best", 2)]


# --- knn lists


@pytest.mark.parametrize("is_continued", [False, True])
def test_a_query_that_ends_does_not_look_through_the_candidates_of_others(
    is_continued: bool,
) -> None:
    def lines(records: int) -> int:
        slots = Slots(1)
        lists = slots.cluster.machine.windows[0].lists
        asked = [version(each, 3) for each in NEAR[:2]]
        slots.report(0, *(Match(each, 1, 50.0) for each in asked))
        slots.take_sent()
        for at in range(records):
            slots.report(0, Match(asked[1], at, 9.0))
        entries = [
            Entry(PARTIALS, 0, at, slots.cluster.log[at]) for at in range(1, len(slots.cluster.log))
        ]
        slots.cluster.machine.step(Polled(tuple(entries)), slots.cluster.now_ms)
        assert lists.knn.has_candidates
        spec = read_spec(asked[0].spec)
        query = int(lists.knn._lists["queries"][lists.knn.rows_of(*_key_of(spec))[0]])
        with counted_lines() as count:
            lists.knn.end(query, 9, is_continued=is_continued)
        return count[0]

    assert lines(200) == lines(2)


def _key_of(spec: Any) -> tuple[Any, Any]:
    return np.array([spec.key], np.uint64), np.array([spec.k], np.int32)


def test_one_object_that_enters_many_lists_is_merged_in_several_turns() -> None:
    slots = Slots(1, limits=limits(merged_entries_max=4))
    cluster = slots.cluster
    window = cluster.machine.windows[0]
    slots.report(0, *(Match(each, 1, 50.0) for each in NEAR))
    slots.take_sent()
    candidates = [Match(each, 2, 40.0) for each in NEAR]
    slots.report(0, *candidates, QueryEnd(ListVersion("q"), PLACE))
    slots.report(0, Match(ListVersion("q"), 9))
    cluster.now_ms += 1_000
    cluster.step(Polled(tuple(Entry(PARTIALS, 0, at, cluster.log[at]) for at in (1, 2))))
    counts = [0]
    while cluster.machine.deadline_ms() == 0:
        assert cluster.transact is None
        counts.append(sum(len(each.lists or ()) for each in window.closed))  # type: ignore[union-attr]
        cluster.step(Tick())
    assert max(np.diff(counts)) <= 8
    sent = cluster.commit()
    lists = [each for each in sent_lists(sent) if each[1]]
    assert sorted(lists) == sorted((each.id, ((2, 40.0), (1, 50.0))) for each in NEAR)
    # The end comes after all of them, and before what is found for the next query of that name.
    *_, end, match = sent
    assert isinstance(end, ListChange)
    assert end.ended
    assert match[2] == 9  # type: ignore[index]


def test_lists_that_are_merged_count_as_what_waits() -> None:
    slots = Slots(1, limits=limits(merged_entries_max=4, waiting_bytes_max=30_000))
    cluster = slots.cluster
    slots.report(0, *(Match(each, 1, 50.0) for each in NEAR))
    cluster.read(1, np.random.default_rng(0))
    assert cluster.transact is not None
    effects: list[Any] = []
    for at in range(1, 20):
        slots.report(0, *(Match(each, at, 50.0 - at) for each in NEAR))
        entry = Entry(PARTIALS, 0, at, cluster.log[at])
        effects += cluster.machine.step(Polled((entry,)), cluster.now_ms)
        while cluster.machine.deadline_ms() == 0:
            effects += cluster.machine.step(Tick(), cluster.now_ms)
    assert Unfollow(PARTIALS, 0) in effects
    assert not any(isinstance(each, Follow) for each in effects)


def test_candidates_of_an_ended_query_do_not_enter_the_list_of_the_next() -> None:
    slots = Slots(1)
    slots.report(0, Match(version(NEAR[0], 3), 1, 5.0))
    slots.take_sent()
    slots.report(0, Match(version(NEAR[0], 3), 2, 4.0))
    slots.report(0, End(version(NEAR[0], 3), 50, by=(0, 9)))
    slots.report(0, Match(version(NEAR[1], 12), 3, 9.0))
    assert sent_lists(slots.take_sent()) == [("near1", ((3, 9.0),))]
    assert len(slots.cluster.machine.windows[0].lists.knn) == 1


# --- ranked lists


def test_a_part_of_a_step_is_weighed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed: list[int] = []

    def count(objects: Any) -> Any:
        weighed.append(len(objects))
        return bytes_of_objects(objects)

    monkeypatch.setattr(pending_steps, "bytes_of_objects", count)
    slots = Slots(2)
    for at in range(30):
        seen = (Seen(at, (1, at), 50, 3, 10.0, (1, 1)),)
        slots.report(0, Ranked(asked=BEST, at_ms=100, total=1, tokens=3, holders=(1, 1), seen=seen))
    slots.take_sent()
    assert len(weighed) == 30


def test_scores_take_little_memory_beside_their_candidates() -> None:
    keywords, count = [f"w{i}" for i in range(60)], 20_000
    query = parse_query({**_query_of("best"), "keywords": keywords})
    assert isinstance(query, RankedQuery)
    rng = np.random.default_rng(0)
    found = Candidates(
        slot=0,
        total=count,
        tokens=20 * count,
        holders=np.full(60, count // 2, np.uint64),
        objects=columns_of([{"id": 1, "lon": 1, "lat": 2}]).take(np.zeros(count, np.int64)),
        events=EventColumns(
            np.ones(count, np.uint64),
            np.arange(count, dtype=np.uint64),
            np.full(count, 1_000, np.int64),
        ),
        lengths=np.full(count, 20, np.uint32),
        distances_m=rng.random(count) * 1_000,
        frequencies=rng.integers(0, 3, (count, 60)).astype(np.uint16),
    )
    best(query, 5_000, found)
    tracemalloc.start()
    best(query, 5_000, found)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The frequencies alone take 2.4 MB, and as numbers of 8 bytes 9.6.
    assert most < 6_000_000


def _query_of(name: str) -> dict[str, Any]:
    members: dict[str, Any] = orjson.loads(ranked_spec(name, 10))
    return members
