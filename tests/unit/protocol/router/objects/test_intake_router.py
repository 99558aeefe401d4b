"""From intake to slots (rules R1, R2): each object once, in order, on chained intervals."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from sirocco.protocol.contract.columns import EventColumns, event_keys
from sirocco.protocol.contract.effects import Append, Effect
from sirocco.protocol.contract.messages import INTAKE, SLOTS, IntakeObjects, Routed
from sirocco.protocol.contract.positions import NO_TIME_MS, ROW_BITS, position_of
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.objects.intake_router import (
    IntakeRouter,
)
from tests.support.values import columns_of, random_members, taken_of, uniform_routing

SLOTS_COUNT = 5


def router(
    *partitions: int, event_time: bool = False, limits: RouterLimits = LIMITS
) -> IntakeRouter:
    made = IntakeRouter(slots=SLOTS_COUNT, event_time=event_time, limits=limits)
    made.use({1: uniform_routing(SLOTS_COUNT, 24)}, 1)
    for partition in partitions:
        made.own(partition, 0, None, 0)
    return made


def routed_in(effects: list[Effect]) -> list[tuple[int, Routed]]:
    """Returns the slot and message of each append."""
    found = []
    for effect in effects:
        assert isinstance(effect, Append)
        assert effect.topic == SLOTS
        assert isinstance(effect.message, Routed)
        found.append((effect.partition, effect.message))
    return found


class SlotRecords:
    """The records for the slots: checks the chain of intervals, keeps the rows."""

    def __init__(self, begin: int = 0) -> None:
        self.ends: dict[tuple[int, int], int] = defaultdict(lambda: begin)
        self.times_ms: dict[tuple[int, int], int] = {}
        # (slot, partition) → (position, session, number, arrival_ms, object id)
        self.rows: dict[tuple[int, int], list[tuple[int, ...]]] = defaultdict(list)

    def take(self, effects: list[Effect]) -> None:
        for slot, message in routed_in(effects):
            intervals = message.intervals
            assert len(set(intervals.sources.tolist())) == len(intervals)
            for i, source in enumerate(intervals.sources.tolist()):
                key = (slot, source)
                assert int(intervals.begins[i]) == self.ends[key]
                self.ends[key] = int(intervals.ends[i])
                self.times_ms[key] = int(intervals.times_ms[i])
            for row in range(len(message.objects)):
                at = int(message.interval_rows[row])
                position = int(message.positions[row])
                assert intervals.begins[at] <= position < intervals.ends[at]
                events = message.events
                self.rows[slot, int(intervals.sources[at])].append(
                    (
                        position,
                        int(events.sessions[row]),
                        int(events.numbers[row]),
                        int(events.arrivals_ms[row]),
                        int(message.objects.ids[row]),
                    )
                )


def random_log(rng: np.random.Generator, partition: int, records: int) -> list[IntakeObjects]:
    """Returns records of three sessions with resends, gaps and refused numbers; ids are unique."""
    next_number = {1: 1, 2: 1, 3: 1}
    members: dict[tuple[int, int], dict[str, Any] | None] = {}
    log = []
    now_ms = 1_000
    for _ in range(records):
        now_ms += int(rng.integers(-20, 60))
        if rng.random() < 0.1:
            log.append(
                IntakeObjects(
                    session=0,
                    first_number=1,
                    span=0,
                    acknowledged_to=0,
                    received_ms=now_ms,
                    objects=columns_of([]),
                    number_deltas=None,
                )
            )
            continue
        session = int(rng.integers(1, 4))
        first = max(1, next_number[session] + int(rng.choice([0, 0, 0, 0, -3, -8, 2])))
        span = int(rng.integers(1, 12))
        rows = []
        for number in range(first, first + span):
            key = (session, number)
            if key not in members:
                object_id = partition * 1_000_000 + session * 100_000 + number
                refused = rng.random() < 0.1
                members[key] = None if refused else random_members(rng, object_id)
            rows.append(members[key])
        log.append(taken_of(session, first, rows, received_ms=now_ms))
        if first <= next_number[session]:
            next_number[session] = max(next_number[session], first + span)
    return log


def expected_rows(log: list[IntakeObjects]) -> list[tuple[int, int, int, int]]:
    """Returns (position, session, number, id) of every object that counts, by the simple rule."""
    last: dict[int, int] = defaultdict(int)
    rows = []
    for offset, taken in enumerate(log):
        deltas = range(taken.span) if taken.number_deltas is None else taken.number_deltas.tolist()
        if taken.first_number > last[taken.session] + 1:
            continue
        for row, delta in enumerate(deltas):
            number = taken.first_number + delta
            if number > last[taken.session]:
                rows.append(
                    (position_of(offset, row), taken.session, number, int(taken.objects.ids[row]))
                )
        last[taken.session] = max(last[taken.session], taken.first_number + taken.span - 1)
    return rows


def slots_of(made: IntakeRouter, members: dict[int, tuple[float, float]]) -> dict[int, int]:
    """Returns object id → slot, looked up one by one."""
    assert made.routing is not None
    found = {}
    nothing = np.empty(0, np.uint64)
    for object_id, (lon, lat) in members.items():
        routes = made.routing.route_objects(
            np.array([lon]), np.array([lat]), np.zeros(2, np.int64), nothing, np.zeros(1, np.uint64)
        )
        (found[object_id],) = routes.slot.tolist()
    return found


@pytest.mark.parametrize("event_time", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_r1_each_object_reaches_its_slot_once_and_in_order(seed: int, event_time: bool) -> None:
    # init: two intake partitions.
    rng = np.random.default_rng(seed)
    logs = {partition: random_log(rng, partition, 60) for partition in (0, 3)}
    made, published = router(0, 3, event_time=event_time), SlotRecords()

    # test: records arrive interleaved; flushes and marks at random times.
    now_ms, heads = 0, dict.fromkeys(logs, 0)
    while any(heads[p] < len(log) for p, log in logs.items()):
        partition = int(rng.choice([p for p, log in logs.items() if heads[p] < len(log)]))
        made.add(partition, heads[partition], logs[partition][heads[partition]], now_ms)
        heads[partition] += 1
        now_ms += int(rng.integers(0, 30))
        published.take(made.flush(now_ms, at_once=rng.random() < 0.2))
        if rng.random() < 0.1:
            published.take(made.flush(now_ms, at_once=True))
            published.take(made.marks([0, 3]))
    published.take(made.flush(now_ms, at_once=True))
    published.take(made.marks([0, 3]))

    # check: compared with the simple rule, by slot and source; and every slot knows the end.
    places = {
        int(taken.objects.ids[row]): (float(taken.objects.lon[row]), float(taken.objects.lat[row]))
        for log in logs.values()
        for taken in log
        for row in range(len(taken.objects))
    }
    slot_of = slots_of(made, places)
    for partition, log in logs.items():
        wanted = expected_rows(log)
        for slot in range(SLOTS_COUNT):
            rows = [(p, s, n, i) for p, s, n, _, i in published.rows[slot, partition]]
            assert rows == [row for row in wanted if slot_of[row[3]] == slot], f"seed={seed}"
            assert published.ends[slot, partition] == position_of(len(log)), f"seed={seed}"
    assert made.objects_total == int(made.slot_objects.sum()) == int(made.arrivals.objects.sum())


@pytest.mark.parametrize("event_time", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_arrival_never_goes_back_and_marks_never_promise_too_much(
    seed: int, event_time: bool
) -> None:
    rng = np.random.default_rng(seed)
    log = random_log(rng, 0, 80)
    made, published = router(0, event_time=event_time), SlotRecords()
    arrivals: dict[int, int] = {}
    for offset, taken in enumerate(log):
        promised = dict(published.times_ms)
        seen = {key: len(rows) for key, rows in published.rows.items()}
        made.add(0, offset, taken, 0)
        published.take(made.flush(0, at_once=True))
        for key, rows in published.rows.items():
            for position, _, _, arrival_ms, _ in rows[seen.get(key, 0) :]:
                assert arrival_ms >= promised.get(key, NO_TIME_MS), f"seed={seed}"
                arrivals[position] = arrival_ms
        if rng.random() < 0.3:
            published.take(made.marks([0]))
    in_order = [arrivals[position] for position in sorted(arrivals)]
    assert in_order == sorted(in_order), f"seed={seed}"
    if event_time:
        assert in_order == event_arrivals(log), f"seed={seed}"


def event_arrivals(log: list[IntakeObjects]) -> list[int]:
    """By the contract: max(ts, all earlier arrivals); a missing one takes the last."""
    ts_of = {
        (offset, row): int(taken.objects.ts[row])
        for offset, taken in enumerate(log)
        for row in range(len(taken.objects))
    }
    arrivals: list[int] = []
    newest_ms, received_ms = None, NO_TIME_MS
    for position, *_ in expected_rows(log):
        offset, row = position >> ROW_BITS, position & ((1 << ROW_BITS) - 1)
        ts = ts_of[offset, row]
        received_ms = max(received_ms, *(taken.received_ms for taken in log[: offset + 1]))
        if newest_ms is None:
            newest_ms = received_ms if ts == NO_TIME_MS else ts
        newest_ms = max(newest_ms, ts)
        arrivals.append(newest_ms)
    return arrivals


@pytest.mark.parametrize("seed", range(10))
def test_r1_a_successor_repeats_exactly_the_rows_of_its_predecessor(seed: int) -> None:
    # init: a router that left a checkpoint somewhere and continued.
    rng = np.random.default_rng(seed)
    log = random_log(rng, 0, 50)
    first, published = router(0), SlotRecords()
    at = int(rng.integers(0, len(log)))
    state, reached = None, 0
    for offset, taken in enumerate(log):
        if offset == at and at > 0:
            published.take(first.marks([0]))
            state, reached = first.sources[0].state(), first.sources[0].offset
        first.add(0, offset, taken, 0)
        published.take(first.flush(0, at_once=True))

    # test: its successor splits by other flushes.
    second, again = (
        IntakeRouter(slots=SLOTS_COUNT, event_time=False),
        SlotRecords(position_of(reached)),
    )
    second.use({1: uniform_routing(SLOTS_COUNT, 24)}, 1)
    second.own(0, reached, state, 0)
    for offset in range(reached, len(log)):
        second.add(0, offset, log[offset], 0)
        again.take(second.flush(0, at_once=rng.random() < 0.3))
    again.take(second.flush(0, at_once=True))

    # check: positions, keys, arrivals and slots are the same.
    for slot in range(SLOTS_COUNT):
        wanted = [row for row in published.rows[slot, 0] if row[0] >= position_of(reached)]
        assert again.rows[slot, 0] == wanted, f"seed={seed}"


def test_r2_marks_reach_every_slot_also_those_without_objects() -> None:
    made = router(0, 1)
    made.add(0, 0, taken_of(1, 1, [{"id": 1, "lon": 1, "lat": 1}]), 0)
    made.flush(0, at_once=True)
    marks = routed_in(made.marks([0, 1]))
    assert [slot for slot, _ in marks] == list(range(SLOTS_COUNT))
    for _, mark in marks:
        assert mark.intervals.sources.tolist() == [0, 1]
        assert mark.intervals.ends.tolist() == [position_of(1), 0]
        assert len(mark.objects) == 0


def test_a_long_flush_is_cut_by_bytes_and_the_cuts_chain() -> None:
    limits = RouterLimits(slot_bytes_max=100)
    made, published = router(0, 1, limits=limits), SlotRecords()
    members = [{"id": i, "lon": 1, "lat": 1, "text": "x" * 30} for i in range(20)]
    members[7]["text"] = "y" * 500  # longer than a record by itself
    made.add(0, 0, taken_of(1, 1, members[:12]), 0)
    made.add(1, 0, taken_of(2, 1, members[12:]), 0)
    effects = made.flush(0, at_once=True)
    published.take(effects)
    sizes = [len(message.objects.text) for _, message in routed_in(effects)]
    assert sorted(size for size in sizes if size > 100) == [500]
    ids = [row[-1] for key in sorted(published.rows) for row in published.rows[key]]
    assert ids == list(range(20))
    assert {published.ends[key] for key in published.rows} == {position_of(1)}


def test_a_long_flush_is_cut_by_rows_and_the_cuts_chain() -> None:
    limits = RouterLimits(slot_rows_max=3)
    made, published = router(0, limits=limits), SlotRecords()
    made.add(0, 0, taken_of(1, 1, [{"id": i, "lon": 1, "lat": 1} for i in range(10)]), 0)
    effects = made.flush(0, at_once=True)
    published.take(effects)
    assert [len(message.objects) for _, message in routed_in(effects)] == [3, 3, 3, 1]
    ((_, rows),) = published.rows.items()
    assert [row[-1] for row in rows] == list(range(10))


def flushed(made: IntakeRouter, now_ms: int, *members: dict[str, Any]) -> int:
    """Flushes these objects at once; returns the number of records."""
    source = made.sources[0]
    session = source.offset + 1
    made.add(0, source.offset, taken_of(session, 1, members), now_ms)
    return len(made.flush(now_ms, at_once=True))


def test_after_a_pause_the_first_objects_go_at_once_and_the_next_wait_for_company() -> None:
    made = router(0)
    one = {"id": 1, "lon": 1, "lat": 1}
    assert made.deadline_ms() is None
    made.add(0, 0, taken_of(1, 1, [one]), 1_000)
    assert len(made.flush(1_000)) == 1
    made.add(0, 1, taken_of(1, 2, [one]), 1_001)
    assert made.deadline_ms() == 1_000 + LIMITS.flush_interval_ms_min
    assert made.flush(999 + LIMITS.flush_interval_ms_min) == []
    assert len(made.flush(1_000 + LIMITS.flush_interval_ms_min)) == 1


def test_the_more_records_a_flush_makes_the_longer_is_the_wait() -> None:
    limits = RouterLimits(records_per_s_max=100)
    made = router(0, limits=limits)
    one = {"id": 1, "lon": 1, "lat": 1}
    everywhere = [(lon, lat) for lon in range(-175, 180, 20) for lat in range(-80, 90, 20)]
    spread = [{"id": i, "lon": lon, "lat": lat} for i, (lon, lat) in enumerate(everywhere)]
    for now_ms, members, records in ((1_000, [one], 1), (2_000, spread, SLOTS_COUNT)):
        assert flushed(made, now_ms, *members) == records
        made.add(0, made.sources[0].offset, taken_of(99, 1, [one]), now_ms + 1)
        interval_ms = min(
            max(10 * records, LIMITS.flush_interval_ms_min), LIMITS.flush_interval_ms_max
        )
        assert made.deadline_ms() == now_ms + interval_ms
        made.flush(now_ms + interval_ms)


def test_a_full_flush_does_not_wait() -> None:
    limits = RouterLimits(flush_objects=4)
    made = router(0, limits=limits)
    one = {"id": 1, "lon": 1, "lat": 1}
    flushed(made, 50, one)
    made.add(0, 1, taken_of(9, 1, [one] * 3), 50)
    assert not made.is_full
    assert made.flush(50) == []
    made.add(0, 2, taken_of(9, 4, [one]), 50)
    assert made.is_full
    assert len(made.flush(50)) == 1


def test_time_continues_in_the_log_of_idle_sources_by_the_wall_clock_alone() -> None:
    made = router(0, 1)
    made.add(0, 0, taken_of(1, 1, [{"id": 1, "lon": 1, "lat": 1}]), LIMITS.mark_interval_ms - 1)
    (beat,) = made.beats(LIMITS.mark_interval_ms)
    assert isinstance(beat, Append)
    assert (beat.topic, beat.partition) == (INTAKE, 1)
    assert made.beats(LIMITS.mark_interval_ms) == []
    assert router(0, event_time=True).beats(1 << 40) == []


def test_a_beat_moves_the_time_and_no_session() -> None:
    made = router(0)
    (beat,) = made.beats(5_000)
    assert isinstance(beat, Append)
    assert isinstance(beat.message, IntakeObjects)
    made.add(0, 0, beat.message, 5_000)
    assert made.flush(5_000, at_once=True) == []
    _, mark = routed_in(made.marks([0]))[0]
    assert mark.intervals.times_ms.tolist() == [5_000]
    assert len(made.sources[0].sessions) == 0


def test_a_mark_holds_the_oldest_map_of_its_sources() -> None:
    made = router(0, 1)
    made.sources[0].map_version, made.sources[1].map_version = 5, 4
    _, mark = routed_in(made.marks([0, 1]))[0]
    assert (mark.map_version, mark.least_version) == (5, 4)
    _, mark = routed_in(made.marks([0]))[0]
    assert mark.least_version == 5


def test_what_waits_of_a_lost_partition_is_dropped_and_the_rest_routed() -> None:
    made = router(0, 1)
    made.add(0, 0, taken_of(1, 1, [{"id": 1, "lon": 1, "lat": 1}]), 0)
    made.add(1, 0, taken_of(2, 1, [{"id": 2, "lon": 1, "lat": 1}]), 0)
    made.disown(0)
    ((_, message),) = routed_in(made.flush(0, at_once=True))
    assert message.objects.ids.tolist() == [2]


def test_ties_are_broken_by_session_and_number() -> None:
    sessions = np.repeat(np.arange(50, dtype=np.uint64), 50)
    numbers = np.tile(np.arange(50, dtype=np.uint64), 50)
    keys = event_keys(EventColumns(sessions, numbers, np.zeros(2_500, np.int64)))
    assert len(np.unique(keys)) == 2_500


def test_arrivals_are_those_of_the_map_in_force() -> None:
    made, published = router(0), SlotRecords()
    assert made.arrivals.report().version == made.map_version
    for offset, taken in enumerate(random_log(np.random.default_rng(1), 0, 40)):
        made.add(0, offset, taken, 0)
    published.take(made.flush(0, at_once=True))
    before = made.arrivals.report()
    assert before.objects.sum() == made.objects_total > 0

    version = made.map_version + 1
    made.use({**made.routings, version: made.routings[made.map_version]}, version)

    assert made.arrivals.report().version == version
    assert made.arrivals.report().objects.sum() == 0
    # A process that had read it before sees the former content.
    assert before.version < version
