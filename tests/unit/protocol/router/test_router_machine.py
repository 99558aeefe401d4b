"""The back of a router as one machine: owned, loaded, followed, routed, marked, saved, lost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.model.errors import Unavailable
from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
)
from sirocco.protocol.contract.effects import (
    Answer,
    Append,
    AppendChanges,
    ChangeRequest,
    ChangeRequests,
    ControlRead,
    Draining,
    Effect,
    Entry,
    Event,
    FlushRequest,
    Follow,
    Load,
    Loaded,
    MembersSeen,
    Outcome,
    Polled,
    SaveCheckpoint,
    State,
    Sweep,
    Tick,
    Truncate,
    Unfollow,
)
from sirocco.protocol.contract.messages import (
    CONTROL,
    INTAKE,
    NO_REVISION,
    PARTIALS,
    REGISTRY,
    SLOTS,
    Change,
    Installed,
    IntakeObjects,
    Message,
    Routed,
)
from sirocco.protocol.contract.partition_ownership import checkpoint_prefix
from sirocco.protocol.contract.positions import position_of
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.protocol.router.machine import (
    RouterMachine,
    RouterSettings,
)
from tests.support.values import map_activated, random_members, request_of, taken_of

SLOTS_COUNT = 4
BEGIN_MS = 1_000_000


class Router:
    """A machine `m` with a clock and a `control` topic of its own."""

    def __init__(
        self,
        *declarations: Declaration,
        event_time: bool = False,
        limits: RouterLimits = LIMITS,
    ) -> None:
        settings = RouterSettings(SLOTS_COUNT, event_time, limits=limits)
        self.machine = RouterMachine("m", settings)
        self.now_ms = BEGIN_MS
        self._control = 0
        for declaration in declarations:
            self.control(declaration)

    def step(self, event: Event) -> list[Effect]:
        return self.machine.step(event, self.now_ms)

    def control(self, declaration: Declaration) -> list[Effect]:
        self._control += 1
        return self.step(ControlRead(self._control - 1, declaration))

    def grant(self, topic: str, partition: int, member: str = "m") -> list[Effect]:
        return self.control(Granted(0, topic, partition, member))

    def load(self, effect: Effect, offset: int = 0, state: State | None = None) -> list[Effect]:
        assert isinstance(effect, Load)
        return self.step(
            Loaded(
                topic=effect.topic,
                partition=effect.partition,
                epoch=effect.epoch,
                offset=offset,
                state=state,
            )
        )

    def own(self, topic: str, partition: int, offset: int = 0, state: State | None = None) -> None:
        (load,) = self.grant(topic, partition)
        assert self.load(load, offset, state) == [Follow(topic, partition, offset)]

    def own_registry(self, offset: int = 0, state: State | None = None) -> None:
        """Makes it own the registry, and shows it its own record in the log."""
        self.own(REGISTRY, 0, offset, state)
        registry = self.machine.registries[0]
        registry.validation.epoch_seen = registry.epoch

    def poll(self, *entries: tuple[str, int, int, Message]) -> list[Effect]:
        return self.step(Polled(tuple(Entry(*entry) for entry in entries)))

    def objects(self, partition: int, offset: int, *numbers: int) -> list[Effect]:
        return self.poll((INTAKE, partition, offset, taken_for(numbers, self.now_ms)))

    def tick(self, after_ms: int = 0) -> list[Effect]:
        self.now_ms += after_ms
        return self.step(Tick())


def router(limits: RouterLimits = LIMITS) -> Router:
    """Returns one that has read of a leader and a map, and has just reported its time."""
    made = Router(LeaderElected("c"), map_activated(0, slots=SLOTS_COUNT), limits=limits)
    made.tick()
    return made


def taken_for(numbers: tuple[int, ...], now_ms: int) -> IntakeObjects:
    """Returns a record of a session with consecutive numbers, whose places depend only on them."""
    members = [random_members(np.random.default_rng(number), number) for number in numbers]
    return taken_of(7, numbers[0], members, received_ms=now_ms)


def routed(effects: list[Effect], *, marks: bool = False) -> dict[int, Routed]:
    """Returns the records of objects, or marks, for each slot."""
    found: dict[int, Routed] = {}
    for effect in effects:
        if isinstance(effect, Append) and isinstance(effect.message, Routed):
            if marks is (len(effect.message.objects) > 0):
                continue
            assert effect.partition not in found
            found[effect.partition] = effect.message
    return found


def numbers_of(records: dict[int, Routed]) -> list[int]:
    return sorted(int(n) for each in records.values() for n in each.events.numbers)


def saves(effects: list[Effect]) -> list[SaveCheckpoint]:
    return [effect for effect in effects if isinstance(effect, SaveCheckpoint)]


def plain(routed_record: Routed) -> list[Any]:
    """Returns all content of a record for a slot, comparable."""
    return [
        routed_record.map_version,
        *(getattr(routed_record.intervals, name).tolist() for name in ("sources", "begins")),
        *(getattr(routed_record.intervals, name).tolist() for name in ("ends", "times_ms")),
        routed_record.objects.ids.tolist(),
        routed_record.objects.text.tobytes(),
        routed_record.events.numbers.tolist(),
        routed_record.events.arrivals_ms.tolist(),
        routed_record.positions.tolist(),
        routed_record.terms.terms.tolist(),
    ]


# --- ownership


def test_a_partition_is_followed_once_it_is_loaded_and_routed_from_there_on() -> None:
    one = router()
    (load,) = one.grant(INTAKE, 2)
    assert load == Load(INTAKE, 2, 2, "", 0)
    assert one.objects(2, 0, 1, 2) == [], "what is not loaded yet is not routed"
    assert one.load(load, 5) == [Follow(INTAKE, 2, 5)]

    published = routed(one.objects(2, 5, 1, 2, 3))

    assert numbers_of(published) == [1, 2, 3]
    for record in published.values():
        assert record.intervals.sources.tolist() == [2]
        assert record.intervals.begins.tolist() == [position_of(5)]
        assert record.intervals.ends.tolist() == [position_of(6)]
        assert record.map_version == 1


def test_grants_wait_for_a_map() -> None:
    one = Router(LeaderElected("c"))
    assert one.grant(INTAKE, 0) == []
    (load,) = one.control(map_activated(0, slots=SLOTS_COUNT))
    one.load(load)
    assert {r.map_version for r in routed(one.objects(0, 0, 1, 2)).values()} == {1}


def test_what_others_own_and_other_topics_are_no_business_of_a_router() -> None:
    one = router()
    assert one.grant(INTAKE, 0, "other") == []
    assert one.grant(SLOTS, 0) == []
    assert one.grant(PARTIALS, 0) == []
    assert one.objects(0, 0, 1) == []


def test_what_is_lost_is_let_go_with_what_waits_of_it() -> None:
    one = router()
    one.own(INTAKE, 0)
    one.own(INTAKE, 1)
    one.objects(0, 0, 1)
    # Within the pace these wait.
    assert one.poll((INTAKE, 0, 1, taken_for((2,), one.now_ms))) == []
    assert one.poll((INTAKE, 1, 0, taken_for((1,), one.now_ms))) == []
    assert one.grant(INTAKE, 0, "other") == [Unfollow(INTAKE, 0)]
    assert numbers_of(routed(one.tick(LIMITS.flush_interval_ms_min))) == [1]
    assert one.objects(0, 2, 3) == []


def test_an_answer_to_an_earlier_grant_is_stale() -> None:
    one = router()
    (early,) = one.grant(INTAKE, 0)
    one.grant(INTAKE, 0, "other")
    (late,) = one.grant(INTAKE, 0)
    assert one.load(early, 3) == []
    assert one.load(late, 8) == [Follow(INTAKE, 0, 8)]


# --- routing


def test_after_a_pause_the_first_objects_go_at_once_and_the_next_at_a_pace() -> None:
    one = router()
    one.own(INTAKE, 0)
    assert one.machine.deadline_ms() is None
    assert numbers_of(routed(one.objects(0, 0, 1))) == [1]
    assert one.objects(0, 1, 2) == []
    assert one.machine.deadline_ms() == one.now_ms + LIMITS.flush_interval_ms_min
    assert one.tick(LIMITS.flush_interval_ms_min - 1) == []
    assert numbers_of(routed(one.tick(1))) == [2]
    assert one.machine.deadline_ms() is None


def test_much_goes_at_once_whatever_the_pace() -> None:
    one = router(RouterLimits(flush_objects=4))
    one.own(INTAKE, 0)
    one.objects(0, 0, 1)
    assert numbers_of(routed(one.objects(0, 1, 2, 3, 4, 5))) == [2, 3, 4, 5]


def test_r1_resent_objects_are_dropped_by_number() -> None:
    one = router()
    one.own(INTAKE, 0)
    one.objects(0, 0, 1, 2, 3)
    one.now_ms += 1_000
    published = routed(one.objects(0, 1, 2, 3, 4, 5))
    assert numbers_of(published) == [4, 5]
    # The interval covers the repeats, too.
    assert {end for r in published.values() for end in r.intervals.ends.tolist()} == {
        position_of(2)
    }


def test_r1_a_successor_repeats_from_a_checkpoint_what_its_predecessor_did() -> None:
    # init: two records, a checkpoint, two records of which one is a resend.
    first = router()
    first.own(INTAKE, 0)
    first.objects(0, 0, 1, 2, 3)
    first.now_ms += 1_000
    first.objects(0, 1, 4, 5, 6)
    (saved,) = saves(first.step(Draining()))
    records = [
        (2, taken_for((5, 6, 7, 8), first.now_ms + 50)),
        (3, taken_for((9, 10), first.now_ms - 500)),
    ]

    # test: the successor's clock differs, and it polls both records at once.
    published = []
    for offset, record in records:
        first.now_ms += 1_000
        published.append(routed(first.poll((INTAKE, 0, offset, record))))
    second = router()
    second.now_ms += 77_000
    second.own(INTAKE, 0, saved.offset, saved.state)
    again = []
    for offset, record in records:
        second.now_ms += 1_000
        again.append(routed(second.poll((INTAKE, 0, offset, record))))

    # check
    assert numbers_of(published[0]) == [7, 8]
    assert [{s: plain(r) for s, r in each.items()} for each in published] == [
        {s: plain(r) for s, r in each.items()} for each in again
    ]


# --- reported times


def test_marks_bring_each_slot_the_position_of_each_source() -> None:
    one = router()
    one.own(INTAKE, 0, 3)
    one.own(INTAKE, 1, 8)
    one.objects(0, 3, 1)
    # A mark covers only routed objects, so waiting ones are routed before it.
    one.objects(0, 4, 2)
    effects = one.tick(LIMITS.mark_interval_ms)
    assert numbers_of(routed(effects[:-SLOTS_COUNT])) == [2]
    marks = routed(effects[-SLOTS_COUNT:], marks=True)
    assert marks.keys() == set(range(SLOTS_COUNT))
    for mark in marks.values():
        assert mark.intervals.sources.tolist() == [0, 1]
        assert mark.intervals.ends.tolist() == [position_of(5), position_of(8)]
    assert routed(one.tick(LIMITS.mark_interval_ms - 1), marks=True) == {}
    assert len(routed(one.tick(1), marks=True)) == SLOTS_COUNT


def test_each_slots_records_join_without_gap_or_overlap() -> None:
    seed = 20261121
    rng = np.random.default_rng(seed)
    one = router()
    one.own(INTAKE, 0)
    reached = dict.fromkeys(range(SLOTS_COUNT), 0)
    number = 1
    for offset in range(60):
        count = int(rng.integers(1, 4))
        effects = one.objects(0, offset, *range(number, number + count))
        number += count
        effects += one.tick(int(rng.integers(0, 400)))
        for effect in effects:
            if isinstance(effect, Append) and effect.topic == SLOTS:
                assert isinstance(effect.message, Routed)
                (begin,) = effect.message.intervals.begins.tolist()
                (end,) = effect.message.intervals.ends.tolist()
                assert begin == reached[effect.partition], f"seed {seed}"
                reached[effect.partition] = end
    one.tick(LIMITS.mark_interval_ms)
    assert number > 60


def test_waiting_callers_are_answered_at_once() -> None:
    one = router()
    assert one.step(FlushRequest()) == []
    one.own(INTAKE, 0)
    one.objects(0, 0, 1)
    one.objects(0, 1, 2)
    effects = one.step(FlushRequest())
    assert numbers_of(routed(effects)) == [2]
    assert len(routed(effects, marks=True)) == SLOTS_COUNT


def beats(effects: list[Effect]) -> list[tuple[int, IntakeObjects]]:
    return [
        (effect.partition, effect.message)
        for effect in effects
        if isinstance(effect, Append) and isinstance(effect.message, IntakeObjects)
    ]


def test_an_idle_source_gets_a_beat_that_moves_its_time_and_routes_nothing() -> None:
    one = router()
    one.own(INTAKE, 0)
    one.own(INTAKE, 1)
    one.now_ms += LIMITS.mark_interval_ms // 2
    one.objects(1, 0, 1)
    ((partition, beat),) = beats(one.tick(LIMITS.mark_interval_ms // 2))
    assert (partition, beat.span, beat.received_ms) == (0, 0, one.now_ms)
    one.now_ms += 10
    assert routed(one.poll((INTAKE, 0, 0, beat))) == {}
    for mark in routed(one.step(FlushRequest()), marks=True).values():
        assert int(mark.intervals.times_ms[0]) == beat.received_ms


def test_under_event_time_time_stands_still_without_objects() -> None:
    one = Router(LeaderElected("c"), map_activated(0, slots=SLOTS_COUNT), event_time=True)
    one.own(INTAKE, 0)
    assert beats(one.tick(10 * LIMITS.mark_interval_ms)) == []


# --- checkpoints


def test_r2_a_checkpoint_follows_marks_to_every_slot_and_only_movement() -> None:
    one = router()
    one.own(INTAKE, 0)
    one.objects(0, 0, 1)
    assert saves(one.tick(LIMITS.checkpoint_interval_ms - 1)) == []
    # Marks have their own pace; the next comes with the checkpoint.
    effects = one.tick(LIMITS.mark_interval_ms)
    (saved,) = saves(effects)
    assert (saved.topic, saved.partition, saved.epoch, saved.offset) == (INTAKE, 0, 2, 1)
    before = effects[: effects.index(saved)]
    marks = routed(before, marks=True)
    assert marks.keys() == set(range(SLOTS_COUNT))
    assert {m.intervals.ends.tolist()[0] for m in marks.values()} == {position_of(1)}
    assert saves(one.tick(10 * LIMITS.checkpoint_interval_ms)) == []


def test_a_checkpoint_that_is_declared_frees_what_is_below_it() -> None:
    one = router()
    one.own(INTAKE, 0, 3)
    one.objects(0, 3, 1)
    one.objects(0, 4, 2)
    one.tick(LIMITS.mark_interval_ms)
    taken = CheckpointTaken(INTAKE, 0, 2, 4, "c")
    assert one.control(taken) == [Truncate(INTAKE, 0, 4)]
    # A former owner's checkpoint is ahead of this process's reading.
    ahead = CheckpointTaken(INTAKE, 0, 1, 90, "d")
    swept = Sweep(checkpoint_prefix(INTAKE, 0), "c")
    assert one.control(ahead) == [swept, Truncate(INTAKE, 0, 5)]
    # Nothing of other owners' partitions is freed.
    assert one.control(CheckpointTaken(INTAKE, 1, 2, 9, "e")) == []


def test_the_registry_is_compacted_and_never_truncated() -> None:
    one = router()
    one.own(REGISTRY, 0)
    assert one.control(CheckpointTaken(REGISTRY, 0, 2, 4, "c")) == []
    assert one.machine.registries[0].floor == 4


def test_a_router_that_is_to_end_gives_up_all_partitions() -> None:
    one = router()
    one.own(INTAKE, 0)
    one.own(INTAKE, 1)
    one.own(REGISTRY, 0)
    one.objects(0, 0, 1)
    one.objects(0, 1, 2)
    register(one, "q")
    effects = one.step(Draining())
    assert numbers_of(routed(effects)) == [2]
    found = saves(effects)
    assert [(s.topic, s.partition, s.offset) for s in found] == [(INTAKE, 0, 2), (REGISTRY, 0, 1)]
    assert len(routed(effects[: effects.index(found[0])], marks=True)) == SLOTS_COUNT


# --- queries


def request_changes(
    one: Router, token: int, *requests: ChangeRequest, partition: int = 0
) -> list[Effect]:
    return one.step(ChangeRequests(token, partition, requests))


def register(one: Router, query_id: str, offset: int = 0, **members: Any) -> list[Effect]:
    """Registers a query and reads the change back."""
    form = {"id": query_id, "kind": "range", "mode": "continuous", "text": "coffee", **members}
    (append,) = request_changes(one, 1, request_of("register", form, start_ms=one.now_ms))
    assert isinstance(append, Append)
    assert (append.topic, append.partition) == (REGISTRY, 0)
    assert isinstance(append.message, Change)
    return one.poll((REGISTRY, 0, offset, append.message))


def test_r3_a_registration_is_appended_read_back_forwarded_and_answered_in_this_order() -> None:
    one = router()
    one.own_registry()
    effects = register(one, "q")
    published = [e for e in effects if isinstance(e, Append)]
    assert {(e.topic, e.partition) for e in published} == {(SLOTS, s) for s in range(SLOTS_COUNT)}
    assert all(isinstance(e.message, Installed) for e in published)
    assert effects[len(published) :] == [Answer(1, (Outcome(0),))]


def test_a_request_for_what_is_not_owned_is_answered_so() -> None:
    one = router()
    requests = (request_of("unregister", "a"), request_of("unregister", "b"))
    (answer,) = request_changes(one, 5, *requests)
    assert isinstance(answer, Answer)
    assert answer.token == 5
    assert [outcome.revision for outcome in answer.outcomes] == [NO_REVISION] * 2
    assert all(isinstance(outcome.error, Unavailable) for outcome in answer.outcomes)


def test_callers_waiting_for_a_lost_registry_partition_are_answered() -> None:
    one = router()
    one.own(REGISTRY, 0)
    form = {"id": "q", "kind": "range", "mode": "continuous", "text": "coffee"}
    request_changes(one, 9, request_of("register", form))
    unfollow, answer = one.grant(REGISTRY, 0, "other")
    assert unfollow == Unfollow(REGISTRY, 0)
    assert isinstance(answer, Answer)
    assert answer.token == 9
    assert isinstance(answer.outcomes[0].error, Unavailable)


def test_a_registry_continues_from_its_checkpoint() -> None:
    first = router()
    first.own_registry()
    register(first, "q")
    (saved,) = saves(first.step(Draining()))
    second = router()
    second.own(REGISTRY, 0, saved.offset, saved.state)
    form = {"id": "q", "kind": "range", "mode": "continuous", "text": "coffee"}
    # Known already: decided by a probe, which changes nothing.
    (probe,) = request_changes(second, 2, request_of("register", form, start_ms=second.now_ms))
    assert isinstance(probe, Append)
    answered = second.poll((REGISTRY, 0, 1, probe.message))
    assert answered == [Answer(2, (Outcome(0),))]


def test_an_owner_that_was_deposed_by_the_log_saves_no_state_of_its_queries() -> None:
    one = router()
    one.own(INTAKE, 0)
    one.own(REGISTRY, 0)
    one.objects(0, 0, 1)
    register(one, "q")
    epoch = one.machine.registries[0].epoch
    successors = Change(
        handle=11,
        query=None,
        subscriber="",
        start_ms=one.now_ms,
        expected_revision=0,
        digest=0,
        epoch=epoch + 1,
    )
    one.poll((REGISTRY, 0, 1, successors))
    found = saves(one.step(Draining()))
    assert [(s.topic, s.partition, s.offset) for s in found] == [(INTAKE, 0, 1)]


def test_a_query_is_removed_a_while_after_its_lifetime() -> None:
    one = router()
    one.own_registry()
    register(one, "q", ttl="10s")
    for _ in range((10_000 + LIMITS.expiry_grace_ms) // LIMITS.expiry_interval_ms - 1):
        assert removals_of(one.tick(LIMITS.expiry_interval_ms)) == []
    (removal,) = removals_of(one.tick(LIMITS.expiry_interval_ms))
    assert removal.expected_revision == 0
    published = one.poll((REGISTRY, 0, 1, removal))
    assert {e.partition for e in published if isinstance(e, Append)} == set(range(SLOTS_COUNT))
    assert len(one.machine.registries[0].live) == 0


def test_changes_that_a_turn_leaves_are_taken_before_others_are_read() -> None:
    one = router(limits=replace(LIMITS, turn_bytes_max=1))
    one.own_registry()
    # Of 1 KB each, which take 60 KB in every slot.
    words = " OR ".join(f"w{number}" for number in range(128))
    text = f"({words}) AND " + " ".join(f"v{number}" for number in range(31))
    forms = [
        {"id": f"q{number}", "kind": "range", "mode": "continuous", "text": text}
        for number in range(30)
    ]
    requests = [request_of("register", form, start_ms=one.now_ms) for form in forms]
    appended = one.step(ChangeRequests(1, 0, tuple(requests)))
    changes = [each.message for each in appended if isinstance(each, Append)]
    read = one.poll(*((REGISTRY, 0, offset, each) for offset, each in enumerate(changes)))
    registry = one.machine.registries[0]
    assert registry.is_crowded
    assert one.machine.deadline_ms() == 0
    assert one.machine.waiting_for_map == 0
    found = [read, one.tick(), one.tick()]
    ways = [[e for e in each if isinstance(e, Follow | Unfollow)] for each in found]
    assert ways == [[], [Unfollow(REGISTRY, 0)], [Follow(REGISTRY, 0, 30)]]
    assert not registry.is_crowded
    assert registry.offset == 30
    assert [each for each in found[2] if isinstance(each, Answer)]


def test_lifetimes_that_end_together_do_not_wait_for_the_next_interval() -> None:
    one = router(limits=replace(LIMITS, expired_max=2))
    one.own_registry()
    for offset, name in enumerate("abc"):
        register(one, name, offset, ttl="10s")
    removed = []
    for _ in range((10_000 + LIMITS.expiry_grace_ms) // LIMITS.expiry_interval_ms):
        removed += removals_of(one.tick(LIMITS.expiry_interval_ms))
    assert len(removed) == 2
    one.poll(*((REGISTRY, 0, 3 + row, each) for row, each in enumerate(removed)))
    assert len(removals_of(one.tick())) == 1


def test_no_query_is_removed_while_a_router_may_lag_by_an_outage() -> None:
    # Objects acknowledged within the lifetime may still wait in `intake`: they were not routed
    # during the outage.
    one = router()
    one.own_registry()
    register(one, "q", ttl="10s")
    one.tick()
    assert removals_of(one.tick(600_000)) == []
    for _ in range(LIMITS.expiry_grace_ms // LIMITS.expiry_interval_ms - 1):
        assert removals_of(one.tick(LIMITS.expiry_interval_ms)) == []
    assert len(removals_of(one.tick(LIMITS.expiry_interval_ms))) == 1


def removals_of(effects: list[Effect]) -> list[Change]:
    """Returns the queries that these effects remove."""
    changes = [each.changes for each in effects if isinstance(each, AppendChanges)]
    return [each.change(row) for each in changes for row in range(len(each))]


# --- what it does not take


def test_an_event_of_another_service_raises_and_changes_nothing() -> None:
    one = router()
    one.own(INTAKE, 0)
    one.objects(0, 0, 1)
    deadline_ms = one.machine.deadline_ms()
    with pytest.raises(TypeError, match="MembersSeen"):
        one.step(MembersSeen((), False))
    assert one.machine.deadline_ms() == deadline_ms
    assert one.machine.holdings.owned(INTAKE) == [0]


def test_everything_appended_stands_on_a_topic_that_a_router_may_write() -> None:
    one = router()
    one.own(INTAKE, 0)
    one.own_registry()
    effects = one.objects(0, 0, 1) + register(one, "q") + one.tick(60_000)
    topics = {effect.topic for effect in effects if isinstance(effect, Append)}
    assert topics == {SLOTS, INTAKE}
    assert CONTROL not in topics


def test_partitions_whose_map_is_gone_are_counted_until_it_comes() -> None:
    # init: checkpoints of a later map than `control` has.
    made = router()
    made.own(INTAKE, 0)
    made.own_registry()
    assert made.machine.waiting_for_map == 0
    source = dict(made.machine.intake.sources[0].state())
    registry = dict(made.machine.registries[0].state())
    source["map_version"] = np.array([2], np.int64)
    registry["maps"] = np.array([2, 0, 0], np.int64)

    # test
    one = router()
    one.own(INTAKE, 0, 5, source)
    one.own_registry(5, registry)
    assert one.machine.waiting_for_map == 1
    assert routed(one.objects(0, 5, 1, 2)) == {}
    one.poll(
        (
            REGISTRY,
            0,
            5,
            Change(
                handle=11,
                query=None,
                subscriber="",
                start_ms=one.now_ms,
                expected_revision=0,
                digest=0,
                epoch=1,
            ),
        )
    )
    assert one.machine.waiting_for_map == 2

    # check: nothing is lost when that map arrives.
    one.control(map_activated(0, version=2, slots=SLOTS_COUNT))
    assert one.machine.waiting_for_map == 0
    assert numbers_of(routed(one.tick(LIMITS.flush_interval_ms_min))) == [1, 2]
