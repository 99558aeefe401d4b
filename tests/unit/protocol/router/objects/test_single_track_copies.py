"""One copy of an object in a slot, whatever the number of its values there."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from sirocco.codec.hops import decode, encode
from sirocco.protocol.contract.effects import Append, Follow, Unfollow
from sirocco.protocol.contract.messages import INTAKE, SLOTS, Installed, Routed, TrackedMember
from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.objects.intake_router import IntakeRouter
from tests.support.values import installed_of, taken_of
from tests.unit.protocol.evaluator.slot.test_slot_values import EVENTS, tracker
from tests.unit.protocol.router.objects.test_intake_router import SLOTS_COUNT
from tests.unit.protocol.router.objects.test_intake_router import router as intake_router
from tests.unit.protocol.router.test_router_machine import router as machine_of_router

MEMBERS = tuple(f"m{i:04}" for i in range(1_400))


def follows(*members: str, limits: RouterLimits = LIMITS) -> IntakeRouter:
    made = intake_router(0, limits=limits)
    for i, name in enumerate(members):
        made.add(0, i, TrackedMember(name), 0)
    made.flush(0, at_once=True)
    return made


def routed_by(made: IntakeRouter, objects: list[dict[str, Any]]) -> list[tuple[int, Routed]]:
    """Returns the records for slots with objects, as slots read them."""
    made.add(0, made.sources[0].offset, taken_of(1, made.objects_total + 1, objects), 0)
    found = []
    for effect in made.flush(0, at_once=True):
        assert isinstance(effect, Append)
        assert effect.topic == SLOTS
        routed = decode(encode(effect.message)[1])
        assert isinstance(routed, Routed)
        found.append((effect.partition, routed))
    return found


def crowded(number: int, lon: float = 1.0) -> dict[str, Any]:
    """Returns an object of 16 KB with all tracked members."""
    return {"id": number, "lon": lon, "lat": 1.0, **dict.fromkeys(MEMBERS, number % 7)}


def values_in(routed: Routed) -> Counter[tuple[int, str]]:
    """Returns (object, member) of each value of the copies."""
    if routed.tracks is None:
        return Counter()
    rows = np.flatnonzero(routed.tracks)
    named = list(zip(rows.tolist(), routed.tracks[rows].tolist(), strict=True))
    if routed.further is not None:
        columns = routed.further.rows.tolist(), routed.further.tracks.tolist()
        named += zip(*columns, strict=True)
    return Counter(
        (int(routed.objects.ids[row]), routed.track_keys[track - 1]) for row, track in named
    )


def test_an_object_is_copied_once_to_a_slot_for_all_its_values() -> None:
    made = follows(*MEMBERS)
    records = routed_by(made, [crowded(number) for number in range(20)])
    copies: Counter[tuple[int, int]] = Counter()
    values: Counter[tuple[int, str]] = Counter()
    for slot, routed in records:
        assert routed.tracks is not None
        for row in np.flatnonzero(routed.tracks).tolist():
            copies[slot, int(routed.objects.ids[row])] += 1
        values += values_in(routed)
        _, request = encode(routed)
        assert request.ByteSize() < 2 * LIMITS.slot_bytes_max
    assert copies == {(slot, number): 1 for slot in range(SLOTS_COUNT) for number in range(20)}
    assert values == {(number, name): 1 for number in range(20) for name in MEMBERS}
    # The size grows with slots, not with members.
    own = len(taken_of(1, 1, [crowded(0)]).objects.attributes)
    assert made.copied_bytes_total <= 20 * SLOTS_COUNT * own
    assert sum(encode(routed)[1].ByteSize() for _, routed in records) < 20 * (SLOTS_COUNT + 3) * own


def test_values_of_one_copy_enter_and_leave_by_themselves() -> None:
    """Compares with plain sets of the values inside."""
    names = MEMBERS[:40]
    made = follows(*names)
    moves = [
        {"id": n, "lon": lon, "lat": 0.0, **dict.fromkeys(names[: 5 * n], n % 2)}
        for n, lon in enumerate([5.0, 5.0, 20.0, 5.0, 20.0, 20.0, 5.0, 20.0], 1)
    ]
    slots = [Slot(number, 3) for number in range(SLOTS_COUNT)]
    queries = [tracker(id=f"q{name}", track=name) for name in names]
    install = installed_of(0, [(5 + i, one, "s", 0) for i, one in enumerate(queries)])
    published: list[tuple[str, int, str]] = []
    for slot in slots:
        slot.open(0, 0, 1, 0)
        slot.take([(0, install)])
    for one in moves:
        for number, routed in routed_by(made, [one]):
            published += sent_by(slots[number], [(slots[number].offset, routed)])
    inside: set[tuple[str, int]] = set()
    wanted = []
    for number, one in enumerate(moves, 1):
        for name in names[: 5 * number]:
            place = name, number % 2
            event = "enter" if one["lon"] < 10 else "exit"
            if (event == "enter") != (place in inside):
                wanted.append((f"q{name}", number, event))
                inside ^= {place}
    assert sorted(published) == sorted(wanted)


def sent_by(
    slot: Slot, records: list[tuple[int, Routed | Installed]]
) -> list[tuple[str, int, str]]:
    found = []
    for report in slot.take(records):
        assert isinstance(report, Report)
        names = report.table.names(report.query_rows)
        ids, bounds = names.ids.tobytes(), names.id_offsets.tolist()
        for i, row in enumerate(report.object_rows.tolist()):
            name = ids[bounds[i] : bounds[i + 1]].decode()
            event = 0 if report.changes is None else int(report.changes[i])
            found.append((name, int(report.objects.ids[row]), EVENTS[event]))
    return found


def test_an_object_that_is_inside_by_many_values_is_kept_once() -> None:
    made = follows(*MEMBERS)
    slot = Slot(0, 3)
    slot.open(0, 0, 1, 0)
    queries = [tracker(id=f"q{name}", track=name) for name in MEMBERS]
    slot.take([(0, installed_of(0, [(5 + i, one, "s", 0) for i, one in enumerate(queries)]))])
    for number, routed in routed_by(made, [crowded(1)]):
        if number == 0:
            assert len(sent_by(slot, [(slot.offset, routed)])) > 200
    assert len(slot.standing.tracked._values.last) == 1


def test_no_turn_makes_more_than_may_be_made_at_once() -> None:
    made = follows(*MEMBERS, limits=RouterLimits(flush_bytes_max=1 << 20))
    for turn in range(40):
        objects = [crowded(5 * turn + number) for number in range(5)]
        made.add(0, len(MEMBERS) + turn, taken_of(1, 5 * turn + 1, objects), 0)
    found: list[int] = []
    turns = 0
    while turns == 0 or made.is_crowded:
        effects = made.flush(turns, at_once=True)
        sizes = [encode(e.message)[1].ByteSize() for e in effects if isinstance(e, Append)]
        # A record of five objects takes up to half a megabyte.
        assert 0 < sum(sizes) < 2 << 20
        for effect in effects:
            assert isinstance(effect, Append)
            routed = effect.message
            assert isinstance(routed, Routed)
            assert routed.tracks is not None
            found += routed.objects.ids[routed.tracks == 0].tolist()
        turns += 1
        assert made.is_crowded == (made.deadline_ms() is not None)
    assert turns > 10
    assert sorted(found) == list(range(200))


def test_nothing_is_read_while_more_waits_than_one_turn_takes() -> None:
    made = machine_of_router(RouterLimits(flush_bytes_max=2_000))
    made.own(INTAKE, 0)
    one = {"lon": 1, "lat": 1, "text": "x" * 900}
    entries = [(INTAKE, 0, n, taken_of(1, n + 1, [{"id": n, **one}])) for n in range(10)]
    effects = made.poll(*entries)
    made.now_ms += 100
    effects += made.tick()
    assert Unfollow(INTAKE, 0) in effects
    turns = 0
    while Follow(INTAKE, 0, 10) not in effects:
        effects = made.tick(1)
        turns += 1
    assert 3 <= turns <= 5
    assert made.machine.intake.objects_total == 10
    assert not any(isinstance(each, Unfollow | Follow) for each in made.tick(100))


def test_others_are_read_on_when_what_waited_is_lost() -> None:
    made = machine_of_router(RouterLimits(flush_bytes_max=2_000))
    made.own(INTAKE, 0)
    made.own(INTAKE, 1)
    one = {"lon": 1, "lat": 1, "text": "x" * 900}
    effects = made.poll(
        *((INTAKE, 0, n, taken_of(1, n + 1, [{"id": n, **one}])) for n in range(10))
    )
    made.now_ms += 100
    effects += made.tick()
    assert [each for each in effects if isinstance(each, Unfollow)] == [
        Unfollow(INTAKE, 0),
        Unfollow(INTAKE, 1),
    ]
    made.grant(INTAKE, 0, "another")
    assert Follow(INTAKE, 1, 0) in made.tick(1)
