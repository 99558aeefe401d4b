"""A slot, compared with the simple rules: its results depend on its log only."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sirocco.codec.checkpoint import read_state, write_state
from sirocco.index.standing.limits import LIMITS, StandingLimits
from sirocco.index.store.slices import SealedSlice
from sirocco.protocol.contract.messages import Installed, Routed
from sirocco.protocol.contract.positions import NO_TIME_MS, Intervals, position_of
from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.slot.checkpoint import restore_slot, slot_state
from sirocco.protocol.evaluator.slot.slot import Slot
from tests.support.slot_log import INTAKE_PARTITIONS, Match, SlotLog, expected_matches
from tests.support.values import installed_of, routed_of

PARTIALS = 3


def opened(
    offset: int = 0,
    state: dict[str, np.ndarray] | None = None,
    slices: tuple[SealedSlice, ...] = (),
    limits: StandingLimits = LIMITS,
) -> Slot:
    slot = Slot(4, PARTIALS, standing_limits=limits)
    slot.open(offset, offset, INTAKE_PARTITIONS, 0)
    if state is not None:
        restore_slot(slot, state, slices)
    return slot


def take_one(slot: Slot, records: list[tuple[int, Routed | Installed]]) -> Report:
    """Returns the reports of a stretch of the log in which no report has a place of its own."""
    (report,) = slot.take(records)
    assert isinstance(report, Report)
    return report


def again(slot: Slot, limits: StandingLimits = LIMITS) -> Slot:
    """Returns a successor that begins at a checkpoint of this one."""
    state = dict(read_state(write_state(slot_state(slot, 0, ()))))
    return opened(slot.offset, state, slot.past.store.slices, limits)


def matches_of(report: Report) -> list[Match]:
    names = report.table.names(report.query_rows)
    ids, bounds = names.ids.tobytes(), names.id_offsets.tolist()
    return [
        (
            int(report.positions[row]),
            ids[bounds[i] : bounds[i + 1]].decode(),
            report.table.subscriber_names[int(names.subscribers[i])],
            int(report.objects.ids[row]),
        )
        for i, row in enumerate(report.object_rows.tolist())
    ]


def query(query_id: str = "q", **more: object) -> dict[str, object]:
    return {"id": query_id, "kind": "range", "mode": "continuous", **more}


def one(number: int, **more: object) -> dict[str, object]:
    return {"id": number, "lon": 1.0, "lat": 1.0, **more}


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("way", ["one by one", "at once", "in batches", "with restarts"])
def test_a_slot_finds_what_the_plain_rules_find(seed: int, way: str) -> None:
    # init: ids of ended queries are reclaimed at every chance.
    limits = StandingLimits(ids_garbage_bytes_min=0)
    log = SlotLog(seed)
    rng = np.random.default_rng(seed)
    slot, found = opened(limits=limits), []

    # test
    begin = 0
    while begin < len(log.records):
        end = {"one by one": begin + 1, "at once": len(log.records)}.get(
            way, begin + int(rng.integers(1, 12))
        )
        found += matches_of(take_one(slot, log.records[begin:end]))
        if rng.random() < 0.3:
            slot.expire()
        if way == "with restarts" and rng.random() < 0.4:
            slot = again(slot, limits)
        begin = end

    # check
    assert sorted(found) == expected_matches(log.records), f"seed={seed}"
    assert slot.offset == log.records[-1][0] + 1


def test_random_logs_hold_matches_repeats_and_gaps() -> None:
    found = repeats = gaps = 0
    for seed in range(12):
        log = SlotLog(seed)
        slot = opened()
        slot.take(log.records)
        found += len(expected_matches(log.records))
        repeats += slot.reached.repeats
        gaps += slot.reached.gaps
    assert found > 250
    assert repeats > 15
    assert gaps > 5


def test_r3_a_repeated_removal_does_not_reopen_the_door_to_older_versions() -> None:
    # init: registered, removed, registered, removed.
    slot = opened()
    first = installed_of(0, [(1, query(), "s", 0)])
    third = installed_of(0, [(3, query(), "s", 0)])
    records: list[Installed] = [
        first,
        installed_of(0, [], [("q", 2)]),
        third,
        installed_of(0, [], [("q", 4)]),
    ]
    slot.take(list(enumerate(records)))

    # test: a successor repeats all of it, an object arrives in between.
    slot.take([(4, records[1]), (5, third)])
    report = take_one(slot, [(6, routed_of(0, 0, [one(1)], [5]))])

    # check
    assert matches_of(report) == []
    assert len(slot.standing) == 0


def test_r3_below_the_floor_repeats_are_dropped_and_removals_forgotten() -> None:
    slot = opened()
    slot.take([(0, installed_of(0, [(1, query(), "s", 0)]))])
    slot.take([(1, installed_of(0, [], [("q", 2)]))])
    slot.take([(2, installed_of(0, [(7, query("other"), "s", 0)], floor=7))])
    assert len(slot_state(slot, 0, ())["removed"]) == 0
    slot.take([(3, installed_of(0, [(1, query(), "s", 0)]))])
    assert len(slot.standing) == 1
    # Another partition's floor does not affect this one.
    slot.take([(4, installed_of(1, [(1, query(), "s", 0)]))])
    assert len(slot.standing) == 2


def test_changes_and_objects_of_one_batch_meet_in_log_order() -> None:
    slot = opened()
    report = take_one(
        slot,
        [
            (0, routed_of(0, 0, [one(1)], [1])),
            (1, installed_of(0, [(1, query(text="coffee"), "s", 0)])),
            (2, routed_of(0, 1, [one(2, text="coffee"), one(3, text="tea")], [2, 2])),
            (3, installed_of(0, [(2, query(text="tea"), "t", 0)])),
            (4, routed_of(0, 2, [one(4, text="coffee"), one(5, text="tea")], [3, 3])),
            (5, installed_of(0, [], [("q", 3)])),
            (6, routed_of(0, 3, [one(6, text="tea")], [4])),
        ],
    )
    found = [(name, subscriber, number) for _, name, subscriber, number in matches_of(report)]
    assert found == [("q", "s", 2), ("q", "t", 5)]


def test_a_lifetime_ends_to_the_millisecond_and_the_query_leaves_with_slot_time() -> None:
    slot = opened()
    slot.take([(0, installed_of(0, [(1, query(ttl="100ms"), "s", 1_000)]))])
    before = take_one(slot, [(1, routed_of(0, 0, [one(1), one(2)], [1_099, 1_100]))])
    assert [number for *_, number in matches_of(before)] == [1]
    slot.expire()
    assert len(slot.standing) == 1  # the other intake partition has not reported its time yet
    slot.take([(2, routed_of(1, 0, [], [], time_ms=1_099))])
    slot.expire()
    assert len(slot.standing) == 1
    slot.take([(3, routed_of(1, 1, [], [], time_ms=1_100))])
    slot.expire()
    assert len(slot.standing) == 0


def test_a_registration_that_is_repeated_after_its_lifetime_finds_the_past_no_more() -> None:
    # init: a query with history, whose lifetime is over in the slot's time.
    slot = opened()
    slot.take([(0, routed_of(0, 0, [one(1)], [990]))])
    asking = installed_of(0, [(1, query(ttl="100ms"), "s", 1_000)], past_ms=500)
    first = take_one(slot, [(1, asking)])
    assert [number for *_, number in matches_of(first)] == [1]
    for source in range(INTAKE_PARTITIONS):
        slot.take([(2 + source, routed_of(source, 1 - source, [], [], time_ms=2_000))])
    slot.expire()
    assert len(slot.standing) == 0

    # test: a new owner of the registry partition repeats what it cannot know to be sent.
    reported = [report for report in slot.take([(9, asking)]) if isinstance(report, Report)]
    assert [match for report in reported for match in matches_of(report)] == []
    assert len(slot.standing) == 0

    # check: another registration gets the history again.
    anew = installed_of(0, [(7, query(ttl="100ms"), "s", 2_050)], past_ms=1_500)
    assert [number for *_, number in matches_of(take_one(slot, [(10, anew)]))] == [1]


def test_the_time_of_a_report_is_the_least_mark() -> None:
    slot = opened()
    assert slot.report().time_ms == NO_TIME_MS
    slot.take([(0, routed_of(0, 0, [], [], time_ms=50))])
    report = take_one(slot, [(1, routed_of(1, 0, [], [], time_ms=20))])
    assert (report.time_ms, report.end) == (20, position_of(2))


def test_a_slot_knows_the_newest_map_that_anything_came_by_also_after_a_take_over() -> None:
    slot = opened()
    slot.take([(0, replace(routed_of(0, 0, [], [], time_ms=50), map_version=3))])
    slot.take([(1, replace(routed_of(1, 0, [], [], time_ms=20), map_version=2))])
    assert again(slot).map_version == slot.map_version == 3


def marked(source: int, begin: int, end: int, least_version: int) -> Routed:
    intervals = Intervals.of([(source, begin, end, 50)])
    return replace(
        routed_of(source, 0, [], [], time_ms=50), intervals=intervals, least_version=least_version
    )


def test_a_slot_knows_by_which_maps_later_objects_come_at_least() -> None:
    slot = opened()
    assert slot.least_version == 0
    slot.take([(0, marked(0, 0, 10, 3))])
    assert slot.least_version == 0
    slot.take([(1, marked(1, 0, 10, 2))])
    assert slot.least_version == 2
    # What lies before a mark that was dropped may still come by an older map.
    slot.take([(2, marked(1, 20, 30, 4))])
    assert slot.least_version == 2
    slot.take([(3, marked(1, 10, 20, 4)), (4, marked(0, 0, 10, 1))])
    assert slot.least_version == 3
    # A process that takes the slot over waits for marks of its own.
    assert again(slot).least_version == 0


def test_a_slot_knows_from_which_object_on_none_came_by_an_older_map() -> None:
    slot, at = opened(), position_of
    slot.take([(0, marked(0, 0, at(1), 3)), (1, routed_of(0, 1, [one(1), one(2)], [1, 1]))])
    assert slot.settled == (0, 0)
    # Objects of the same turn may have come before the mark.
    slot.take([(2, marked(1, 0, at(1), 2)), (3, routed_of(1, 1, [one(3)], [1]))])
    assert slot.settled == (2, 3)
    slot.take([(4, routed_of(0, 2, [one(4)], [1]))])
    assert slot.settled == (2, 3)
    slot.take([(5, marked(1, at(2), at(3), 3))])
    assert slot.settled == (3, 4)
    assert again(slot).settled == (3, 4)


def test_objects_whose_attributes_are_damaged_have_none() -> None:
    slot = opened()
    slot.take([(0, installed_of(0, [(1, query(where={"a": 1}), "s", 0)]))])
    routed = routed_of(0, 0, [one(1, a=1), one(2, a=1)], [1, 1])
    damaged = routed.objects.attributes.copy()
    damaged[0] = ord("[")
    fields = {name: getattr(routed.objects, name) for name in routed.objects.__slots__}
    objects = type(routed.objects)(**fields | {"attributes": damaged})
    broken = Routed(
        map_version=1,
        intervals=routed.intervals,
        objects=objects,
        events=routed.events,
        positions=routed.positions,
        interval_rows=routed.interval_rows,
        terms=routed.terms,
    )
    assert [number for *_, number in matches_of(take_one(slot, [(1, broken)]))] == [2]


@pytest.mark.parametrize("seed", range(5))
def test_a_checkpoint_of_a_restored_slot_is_the_same_checkpoint(seed: int) -> None:
    slot = opened()
    slot.take(SlotLog(seed).records)
    first, second = slot_state(slot, 0, ()), slot_state(again(slot), 0, ())
    assert first.keys() == second.keys()
    # Rows may be numbered differently: queries are compared by their handles.
    assert dict(
        zip(first["range.handles"].tolist(), first["range.revisions"].tolist(), strict=True)
    ) == dict(
        zip(second["range.handles"].tolist(), second["range.revisions"].tolist(), strict=True)
    )
    for name in ("sources", "positions", "times_ms", "floors", "removed", "removed_by"):
        assert first[name].tolist() == second[name].tolist(), f"seed={seed}: {name}"
