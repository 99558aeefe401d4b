"""Tracked values that enter after a while inside, and leave after a while outside."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.protocol.contract.columns import ENTERS, LEAVES, STAYS
from sirocco.protocol.contract.messages import NO_REVISION, Installed, Routed
from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.slot.checkpoint import restore_slot, slot_state
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.router.objects.track_copies import followed
from tests.oracle import Objects
from tests.oracle.ranges import changes
from tests.support.values import installed_of, routed_of

EVENTS = {ENTERS: "enter", STAYS: "inside", LEAVES: "exit"}
START_MS = 1_000

# (object, event)
Event = tuple[int, str]
# With its position in the slot's log.
Reported = tuple[int, Event]


def tracker(**more: Any) -> dict[str, Any]:
    region = {"rect": {"west": 0, "south": -10, "east": 10, "north": 10}}
    query = {"id": "q", "kind": "range", "mode": "continuous", "region": region, "track": "bus"}
    return query | {"events": ["enter", "inside", "exit"]} | more


def at(number: int, time_ms: int, lon: float, bus: str = "a") -> dict[str, Any]:
    return {"id": number, "ts": START_MS + time_ms, "lon": lon, "lat": 0.0, "bus": bus}


class Log:
    """A slot's log with one intake partition; times count from `START_MS` on."""

    def __init__(self) -> None:
        self.records: list[tuple[int, Routed | Installed]] = []
        self._routed = 0

    def install(self, revision: int, query: dict[str, Any], since: int = NO_REVISION) -> None:
        message = installed_of(0, [(revision, query, "s", START_MS)])
        self._add(replace(message, sinces=np.array([since], np.int64)))

    def remove(self, revision: int) -> None:
        self._add(installed_of(0, [], [("q", revision)]))

    def route(self, *objects: dict[str, Any], time_ms: int | None = None) -> None:
        """Appends a record of copies; its time is that of the last one, or later."""
        until_ms = objects[-1]["ts"] if time_ms is None else START_MS + time_ms
        arrivals_ms = [one["ts"] for one in objects]
        begin = None if self._routed else 0
        routed = routed_of(0, self._routed, objects, arrivals_ms, begin=begin, time_ms=until_ms)
        self._routed += 1
        if objects:
            copies = followed(routed.objects, {"bus"}, 1)
            assert copies is not None
            routed = copies.mark(routed, np.arange(len(objects)), 0)
        self._add(routed)

    def _add(self, message: Routed | Installed) -> None:
        self.records.append((len(self.records), message))

    def reported(self, sizes: list[int], *, restarts: bool) -> list[tuple[bool, list[Reported]]]:
        """Returns what a slot reports that reads so; and whether it has one position."""
        slot = opened(0)
        found: list[tuple[bool, list[Reported]]] = []
        while slot.offset < len(self.records):
            begin = slot.offset
            size = sizes[begin % len(sizes)]
            reports = slot.take(self.records[begin : begin + size], steps_max=1)
            while slot.is_stepping:
                reports += slot.continue_steps()
            for report in reports:
                assert isinstance(report, Report)
                if len(report.object_rows):
                    found.append((report.pinned is not None, events_of(report)))
            if restarts:
                state = dict(read_state(write_state(slot_state(slot, 0, ()))))
                slot = opened(slot.offset)
                restore_slot(slot, state, ())
        return found

    def events(self, sizes: list[int] | None = None) -> list[Event]:
        """Returns the events; they are reported in the same pieces however the log is read."""
        reported = self.reported([1], restarts=False)
        assert self.reported([1], restarts=True) == reported
        again = self.reported(sizes or [len(self.records)], restarts=False)
        # Those of objects are joined, those of one position are not.
        assert [piece for piece in again if piece[0]] == [piece for piece in reported if piece[0]]
        events = [event for _, piece in reported for event in piece]
        assert [event for _, piece in again for event in piece] == events
        assert [position for position, _ in events] == sorted(position for position, _ in events)
        return [event for _, event in events]


def opened(offset: int) -> Slot:
    slot = Slot(0, 1)
    slot.open(offset, offset, 1, 0)
    return slot


def events_of(report: Report) -> list[Reported]:
    assert report.changes is not None
    return [
        (int(report.positions[row]), (int(report.objects.ids[row]), EVENTS[int(change)]))
        for row, change in zip(report.object_rows.tolist(), report.changes.tolist(), strict=True)
    ]


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_value_enters_when_it_was_inside_for_so_long(log: Log) -> None:
    log.install(5, tracker(dwell="100ms"))
    log.route(at(1, 0, lon=5))
    log.route(at(2, 60, lon=6))
    log.route(time_ms=100)
    assert log.events() == []
    log.route(time_ms=101)
    assert log.events() == [(2, "enter")]
    log.route(at(3, 150, lon=7), at(4, 160, lon=20))
    assert log.events() == [(2, "enter"), (3, "inside"), (4, "exit")]


def test_an_object_outside_breaks_the_dwell(log: Log) -> None:
    log.install(5, tracker(dwell="100ms"))
    log.route(at(1, 0, lon=5), at(2, 100, lon=20), at(3, 101, lon=5))
    log.route(time_ms=201)
    assert log.events() == []
    log.route(time_ms=202)
    assert log.events() == [(3, "enter")]


def test_a_dwell_that_one_record_holds_is_told(log: Log) -> None:
    log.install(5, tracker(dwell="100ms"))
    log.route(at(1, 0, lon=5), at(2, 50, lon=6), at(3, 101, lon=20), at(4, 102, lon=5))
    assert log.events() == [(2, "enter"), (3, "exit")]


def test_a_value_leaves_when_none_was_inside_for_so_long(log: Log) -> None:
    log.install(5, tracker(leave_after="100ms"))
    log.route(at(1, 0, lon=5), at(2, 10, lon=20), at(3, 110, lon=6))
    assert log.events() == [(1, "enter"), (3, "inside")]
    log.route(at(4, 120, lon=20), at(5, 180, lon=30))
    log.route(time_ms=221)
    assert log.events() == [(1, "enter"), (3, "inside"), (3, "exit")]
    log.route(at(6, 300, lon=5), at(7, 310, lon=20), at(8, 411, lon=6))
    rest = [(6, "enter"), (6, "exit"), (8, "enter")]
    assert log.events() == [(1, "enter"), (3, "inside"), (3, "exit"), *rest]


def test_without_enter_the_first_after_the_dwell_is_inside(log: Log) -> None:
    log.install(5, tracker(dwell="100ms", events=["inside"]))
    log.route(at(1, 0, lon=5), at(2, 90, lon=5), at(3, 150, lon=5))
    assert log.events() == [(2, "inside"), (3, "inside")]


def test_at_its_end_a_query_tells_exits_of_what_has_entered(log: Log) -> None:
    log.install(5, tracker(dwell="100ms", leave_after="1h"))
    log.route(at(1, 0, lon=5, bus="a"), at(2, 50, lon=5, bus="b"))
    log.route(at(3, 120, lon=20, bus="a"))
    log.remove(9)
    log.route(time_ms=900)
    assert log.events() == [(1, "enter"), (1, "exit")]


@pytest.mark.parametrize(("ttl", "events"), [("100ms", []), ("101ms", [(1, "enter"), (1, "exit")])])
def test_a_dwell_ends_before_the_lifetime(log: Log, ttl: str, events: list[Event]) -> None:
    log.install(5, tracker(dwell="100ms", ttl=ttl))
    log.route(at(1, 0, lon=5))
    log.route(time_ms=900)
    assert log.events() == events


def test_an_update_keeps_since_when_and_what_was_told(log: Log) -> None:
    log.install(5, tracker(dwell="100ms"))
    log.route(at(1, 0, lon=5, bus="a"), at(2, 50, lon=5, bus="b"))
    log.route(time_ms=101)
    log.install(9, tracker(dwell="200ms", leave_after="100ms"), since=5)
    log.route(at(3, 240, lon=20, bus="a"))
    log.route(time_ms=251)
    assert log.events() == [(1, "enter"), (2, "enter")]
    log.route(time_ms=341)
    assert log.events() == [(1, "enter"), (2, "enter"), (1, "exit")]


def test_an_update_without_waits_tells_what_was_waited_for(log: Log) -> None:
    log.install(5, tracker(dwell="100ms", leave_after="1h"))
    log.route(at(1, 0, lon=5, bus="a"))
    log.route(at(2, 150, lon=20, bus="a"), at(3, 160, lon=5, bus="b"), time_ms=170)
    log.install(9, tracker(), since=5)
    assert log.events() == [(1, "enter"), (1, "exit"), (3, "enter")]
    log.route(at(4, 200, lon=20, bus="b"), at(5, 210, lon=5, bus="b"))
    assert log.events()[3:] == [(4, "exit"), (5, "enter")]


def test_an_update_that_moves_away_tells_no_exit_of_what_dwells(log: Log) -> None:
    log.install(5, tracker(dwell="100ms"))
    log.route(at(1, 0, lon=5))
    moved = {"rect": {"west": 40, "south": -10, "east": 50, "north": 10}}
    log.install(9, tracker(dwell="100ms", region=moved), since=5)
    log.route(time_ms=900)
    assert log.events() == []


def test_what_a_query_waits_for_counts_as_room(log: Log) -> None:
    log.install(5, tracker(dwell="100ms"))
    log.route(*(at(number, number, lon=5, bus=f"b{number}") for number in range(1, 10)))
    slot = opened(0)
    slot.take(log.records)
    held = slot.standing.tracked.held_bytes
    plain = opened(0)
    other = Log()
    other.install(5, tracker())
    plain.take(other.records + log.records[1:])
    assert held == plain.standing.tracked.held_bytes + 9 * 80
    slot.take([(2, installed_of(0, [], [("q", 9)]))])
    assert slot.standing.tracked.held_bytes == 0
    assert slot.standing.tracked.next_due_ms == np.iinfo(np.int64).max


moves = st.tuples(st.integers(0, 60), st.sampled_from([5.0, 5.0, 6.0, 20.0]), st.sampled_from("ab"))
waits = st.sampled_from(["1ms", "40ms", "100ms", "1h"])
queries = st.fixed_dictionaries(
    {"events": st.sampled_from([["enter", "inside", "exit"], ["enter", "exit"], ["inside"]])},
    optional={
        "dwell": waits,
        "leave_after": waits,
        "ttl": st.sampled_from(["50ms", "100ms", "300ms"]),
    },
)


@settings(max_examples=60, deadline=None)
@given(
    queries,
    st.lists(moves, min_size=1, max_size=40),
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
def test_any_movements_are_told_as_the_oracle_says(
    members: dict[str, Any],
    steps: list[tuple[int, float, str]],
    record_sizes: list[int],
    take_sizes: list[int],
) -> None:
    log, time_ms = Log(), 0
    query = tracker(**members)
    log.install(5, query)
    objects = []
    for number, (later_ms, lon, bus) in enumerate(steps):
        # The lifetime begins with the first object.
        time_ms += later_ms if number else 0
        objects.append(at(number, time_ms, lon, bus))
    begin = 0
    while begin < len(objects):
        end = begin + record_sizes[begin % len(record_sizes)]
        log.route(*objects[begin:end])
        begin = end
    # A replay ends with a time after all objects.
    log.route(time_ms=time_ms + 1)
    # Of each value in order.
    want: dict[str, list[Any]] = {"a": [], "b": []}
    got: dict[str, list[Any]] = {"a": [], "b": []}
    for place, event, bus in changes(Objects(objects), query):
        want[bus].append((place, event))
    for place, event in log.events(take_sizes):
        got[objects[place]["bus"]].append((place, event))
    assert got == want


def test_states_are_given_back_and_the_others_go_on(log: Log) -> None:
    log.install(5, tracker(dwell="1h"))
    count = 5_000
    for lon in (5.0, 20.0):
        # The last ten stay inside.
        left = count if lon < 10 else count - 10
        objects = [at(number, number % 7, lon, f"bus {number}") for number in range(left)]
        for begin in range(0, left, 1_000):
            log.route(*sorted(objects[begin : begin + 1_000], key=lambda one: int(one["ts"])))
    slot = opened(0)
    slot.take(log.records)
    assert slot.standing.tracked._values.sets.stays.end < 100
    log.route(time_ms=3_600_007)
    assert sorted(number for number, _ in log.events([3])) == [*range(count - 10, count)]
