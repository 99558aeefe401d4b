"""Values inside tracked queries when these change, move away, or are removed."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.index.standing.limits import LIMITS, StandingLimits
from sirocco.protocol.contract.columns import ENTERS, LEAVES
from sirocco.protocol.contract.messages import NO_REVISION, Installed, Routed
from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.slot.checkpoint import restore_slot, slot_state
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.router.objects.track_copies import followed
from tests.support.values import installed_of, routed_of

EVENTS = {ENTERS: "enter", LEAVES: "exit"}

# (position, subscriber, object, event), as a merger would take them.
ReportedEvent = tuple[int, str, int, str]


def tracker(west: float = 0, east: float = 10, **more: Any) -> dict[str, Any]:
    region = {"rect": {"west": west, "south": -10, "east": east, "north": 10}}
    return {"id": "q", "kind": "range", "mode": "continuous", "region": region} | (
        {"track": "bus"} | more
    )


def installed(
    revision: int,
    members: dict[str, Any],
    since: int = NO_REVISION,
    subscriber: str = "s",
    start_ms: int = 0,
    **more: Any,
) -> Installed:
    message = installed_of(0, [(revision, members, subscriber, start_ms)], **more)
    return replace(message, sinces=np.array([since], np.int64))


class Log:
    """A slot's log, and the results of slots that read it in different ways."""

    def __init__(self) -> None:
        self.limits = LIMITS
        self.records: list[tuple[int, Routed | Installed]] = []
        self._objects = 0

    def install(self, message: Installed) -> None:
        self.records.append((len(self.records), message))

    def move(self, number: int, lon: float, bus: str = "a", **more: Any) -> None:
        """Appends a copy of the next object of a value."""
        one = {"id": number, "lon": lon, "lat": 0.0, "bus": bus, **more}
        begin = None if self._objects else 0
        routed = routed_of(0, self._objects, [one], [1_000 + self._objects], begin=begin)
        self._objects += 1
        copies = followed(routed.objects, {"bus"}, 1)
        assert copies is not None
        self.records.append((len(self.records), copies.mark(routed, np.arange(1), 0)))

    def all_reported(self, way: str = "one by one") -> list[ReportedEvent]:
        slot = Slot(0, 3, standing_limits=self.limits)
        slot.open(0, 0, 1, 0)
        size = len(self.records) if way == "at once" else 1
        reported: list[ReportedEvent] = []
        # A start takes as long as a hundred records.
        restarts_after = 1 if len(self.records) < 50 else 7
        for begin in range(0, len(self.records), size):
            for report in slot.take(self.records[begin : begin + size]):
                assert isinstance(report, Report)
                reported += events_of(report)
            if way == "with restarts" and begin % restarts_after == 0:
                state = dict(read_state(write_state(slot_state(slot, 0, ()))))
                slot = Slot(0, 3, standing_limits=self.limits)
                slot.open(begin + size, begin + size, 1, 0)
                restore_slot(slot, state, ())
        return reported

    def events(self) -> list[tuple[str, int, str]]:
        """Returns the events; they are the same however the log is read."""
        reported = self.all_reported()
        for way in ("at once", "with restarts"):
            assert self.all_reported(way) == reported
        positions = [position for position, *_ in reported]
        assert positions == sorted(positions)
        return [rest for _, *rest in reported]  # type: ignore[misc]


def events_of(report: Report) -> list[ReportedEvent]:
    names = report.table.names(report.query_rows)
    return [
        (
            int(report.positions[row]),
            report.table.subscriber_names[int(names.subscribers[i])],
            int(report.objects.ids[row]),
            EVENTS[0 if report.changes is None else int(report.changes[i])],
        )
        for i, row in enumerate(report.object_rows.tolist())
    ]


@pytest.fixture
def log() -> Log:
    return Log()


def test_an_update_leaves_inside_what_both_versions_hold(log: Log) -> None:
    log.install(installed(5, tracker()))
    log.move(1, lon=5)
    log.install(installed(9, tracker(ttl="1h"), since=5))
    log.move(2, lon=6)
    log.move(3, lon=20)
    assert log.events() == [["s", 1, "enter"], ["s", 3, "exit"]]


def test_a_region_that_moves_away_reports_exits_of_members_inside(log: Log) -> None:
    log.install(installed(5, tracker()))
    log.move(1, lon=1, bus="a")
    log.move(2, lon=9, bus="b")
    log.move(3, lon=9, bus="c")
    log.move(4, lon=30, bus="c")
    log.install(installed(9, tracker(west=5, east=15), since=5))
    log.move(5, lon=1, bus="a")
    log.move(6, lon=20, bus="b")
    assert log.events() == [
        *(["s", 1, "enter"], ["s", 2, "enter"], ["s", 3, "enter"], ["s", 4, "exit"]),
        *(["s", 1, "exit"], ["s", 6, "exit"]),
    ]


@pytest.mark.parametrize(
    "later",
    [
        tracker(text="red"),
        tracker(where={"line": 7}),
        tracker(track="line"),
        {"id": "q", "kind": "range", "mode": "continuous"},
        {"id": "q", "kind": "knn", "mode": "continuous", "point": {"lon": 0, "lat": 0}, "k": 3},
    ],
    ids=["text", "where", "track", "plain", "knn"],
)
def test_the_changed_condition_of_a_new_version_decides_which_members_are_inside(
    later: dict[str, Any], log: Log
) -> None:
    log.install(installed(5, tracker()))
    log.move(1, lon=1, bus="a", text="red", line=7)
    log.move(2, lon=1, bus="b", text="blue", line=3)
    log.install(installed(9, later, since=5))
    stays = "text" in later or "where" in later
    exits = [["s", 2, "exit"]] if stays else [["s", 1, "exit"], ["s", 2, "exit"]]
    reported = log.events()
    assert reported[:2] == [["s", 1, "enter"], ["s", 2, "enter"]]
    assert sorted(reported[2:]) == exits


def test_a_former_subscriber_receives_the_exit_and_the_next_begins_anew(log: Log) -> None:
    log.install(installed(5, tracker()))
    log.move(1, lon=1)
    log.install(installed(9, tracker(), since=5, subscriber="t"))
    log.move(2, lon=2)
    assert log.events() == [["s", 1, "enter"], ["s", 1, "exit"], ["t", 2, "enter"]]


@pytest.mark.parametrize("since", [NO_REVISION, 7, 9])
def test_a_query_that_is_registered_again_starts_from_nothing(since: int, log: Log) -> None:
    log.install(installed(5, tracker()))
    log.move(1, lon=1)
    # Removed and registered in one batch, or another life that was skipped.
    log.install(installed(9, tracker(), since=since))
    log.move(2, lon=2)
    assert log.events() == [["s", 1, "enter"], ["s", 1, "exit"], ["s", 2, "enter"]]


def test_a_removed_query_reports_exits_of_members_inside(log: Log) -> None:
    log.install(installed(5, tracker()))
    log.move(1, lon=1)
    log.move(2, lon=4)
    log.install(installed_of(0, [], removed=[("q", 9)]))
    log.install(installed_of(0, [], removed=[("q", 9)]))
    log.move(3, lon=4)
    # The exit is of the object with which it was last seen inside.
    assert log.events() == [["s", 1, "enter"], ["s", 2, "exit"]]


def test_exits_are_reported_where_they_are_requested(log: Log) -> None:
    log.install(installed(5, tracker(events=["enter"])))
    log.move(1, lon=1)
    log.install(installed(9, tracker(west=5, events=["enter"]), since=5))
    log.install(installed_of(0, [], removed=[("q", 11)]))
    assert log.events() == [["s", 1, "enter"]]


def test_no_member_is_inside_before_a_later_begin(log: Log) -> None:
    log.install(installed(5, tracker()))
    log.move(1, lon=1)
    log.install(installed(9, tracker(), since=5, start_ms=1_002, is_start_given=True))
    log.move(2, lon=1)
    log.move(3, lon=1)
    assert log.events() == [["s", 1, "enter"], ["s", 1, "exit"], ["s", 3, "enter"]]


def test_a_checkpoint_of_an_earlier_version_holds_members_inside_without_places(log: Log) -> None:
    slot = Slot(0, 3)
    slot.open(0, 0, 1, 0)
    log.install(installed(5, tracker()))
    log.move(1, lon=1)
    slot.take(log.records)
    state = dict(read_state(write_state(slot_state(slot, 0, ()))))
    newer = [n for n in state if n.startswith(("tracked.last.", "tracked.member_objects"))]
    assert len(newer) > 1
    successor = Slot(0, 3)
    successor.open(2, 2, 1, 0)
    restore_slot(successor, {n: column for n, column in state.items() if n not in newer}, ())
    log.install(installed(9, tracker(west=5), since=5))
    log.move(2, lon=1)
    reports = [report for report in successor.take(log.records[2:]) if isinstance(report, Report)]
    reported = [each for report in reports for each in events_of(report)]
    # Whether it is inside the new region is decided by its next object.
    assert [rest for _, *rest in reported] == [["s", 2, "exit"]]


def test_values_without_room_are_reported_equally_after_restarts(log: Log) -> None:
    """Room is a matter of the log: no enter is lost or doubled with an owner."""
    log.limits = StandingLimits(tracked_bytes_max=2_500)
    rng = random.Random(5)
    log.install(installed(5, tracker()))
    log.install(installed(6, tracker(id="r", west=5, east=15)))
    for number in range(300):
        log.move(number, lon=rng.uniform(-5, 20), bus=f"b{rng.randrange(25)}", text="a " * 20)
        if number % 50 == 49:
            west = rng.uniform(0, 5)
            log.install(installed(10 + number, tracker(west=west), since=5))
    log.install(installed_of(0, [], removed=[("q", 900), ("r", 900)]))
    reported = log.events()
    inside: dict[str, int] = {"enter": 0, "exit": 0}
    for _, _, event in reported:
        inside[event] += 1
    # Everything that entered has left, and nothing else.
    assert inside["enter"] == inside["exit"] > 20
    log.limits = StandingLimits(tracked_bytes_max=1 << 20)
    assert len(reported) < len(log.events())


VALUES, QUERIES = 60, 200


def trackers(revision: int, since: int = NO_REVISION, **more: Any) -> Installed:
    """Returns many queries in one place, with consecutive revisions."""
    every = [(revision + i, tracker(id=f"q{i}", **more), "s", 0) for i in range(QUERIES)]
    sinces = np.full(QUERIES, since, np.int64)
    return replace(installed_of(0, every), sinces=sinces)


def crowded(first: Installed) -> tuple[Slot, Log]:
    """Returns a slot with many values inside many queries, and its log."""
    log = Log()
    log.install(first)
    for number in range(VALUES):
        log.move(number, lon=5, bus=f"bus-{number}", text="word " * 400)
    slot = Slot(0, 3)
    slot.open(0, 0, 1, 0)
    list(slot.take(log.records))
    return slot, log


def peak_bytes(action: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_an_update_in_bulk_takes_grows_with_what_is_inside_alone(log: Log) -> None:
    """Linear, not quadratic: one row for each object, and no pair that is not needed."""
    slot, log = crowded(trackers(5, events=["ended"]))
    update = trackers(1_000, since=5, ttl="1h", events=["exit"])
    at = len(log.records)
    assert peak_bytes(lambda: list(slot.take([(at, update)]))) < 16 << 20
    # They are still inside.
    leaving = trackers(3_000, since=1_000, west=6)
    reports = (each for each in slot.take([(at + 1, leaving)]) if isinstance(each, Report))
    (report,) = (each for each in reports if len(each.object_rows))
    assert len(report.object_rows) == VALUES * QUERIES


def test_an_object_that_leaves_many_queries_is_reported_once() -> None:
    slot, log = crowded(trackers(5, events=["exit"]))
    removed = np.array(trackers(5).names.handles)
    ended = replace(installed_of(0, []), removed=removed, removed_revisions=np.full(QUERIES, 1_000))
    (report,) = (
        each
        for each in slot.take([(len(log.records), ended)])
        if isinstance(each, Report) and len(each.object_rows)
    )
    assert len(report.objects) == VALUES
    assert len(report.object_rows) == VALUES * QUERIES
    assert (np.diff(report.object_rows) >= 0).all()
