"""The evaluator as one machine: slots owned, loaded, matched, marked, saved, lost."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from sirocco.index.store.store import StoreLimits
from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
)
from sirocco.protocol.contract.effects import (
    Append,
    Compute,
    Computed,
    ControlRead,
    Discard,
    Draining,
    Effect,
    Entry,
    Event,
    FlushRequest,
    Follow,
    Load,
    Loaded,
    Polled,
    SaveCheckpoint,
    SaveRequest,
    State,
    Sweep,
    Tick,
    Truncate,
    Unfollow,
)
from sirocco.protocol.contract.messages import INTAKE, PARTIALS, SLOTS, Found, Installed, Routed
from sirocco.protocol.contract.partition_ownership import checkpoint_name, checkpoint_prefix
from sirocco.protocol.contract.positions import offset_of, position_of
from sirocco.protocol.contract.record_sizes import partition_of
from sirocco.protocol.evaluator.limits import LIMITS, EvaluatorLimits
from sirocco.protocol.evaluator.machine import (
    EvaluatorMachine,
    EvaluatorSettings,
)
from sirocco.protocol.evaluator.slot.archived_slices import slice_name, slice_prefix
from tests.support.values import installed_of, map_activated, routed_of

PARTIALS_COUNT = 2
BEGIN_MS = 1_000_000

# One subscriber of each Kafka partition of `partials`.
ANN, BOB = (
    next(name for name in map(str, range(100)) if partition_of(name, PARTIALS_COUNT) == target)
    for target in range(PARTIALS_COUNT)
)

COFFEE = {"id": "coffee", "kind": "range", "mode": "continuous", "text": "coffee"}


class Evaluator:
    """A machine `m` with a clock and a `control` topic of its own, after a leader and a map."""

    def __init__(self, **more: Any) -> None:
        settings = EvaluatorSettings(
            intake_partitions=1, partials_partitions=PARTIALS_COUNT, **more
        )
        self.machine = EvaluatorMachine("m", settings)
        self.now_ms = BEGIN_MS
        self._control = 0
        for declaration in (LeaderElected("c"), map_activated(0)):
            assert self.control(declaration) == []
        # Work that is due at the first look is no part of a test.
        self.tick()

    def step(self, event: Event) -> list[Effect]:
        return self.machine.step(event, self.now_ms)

    def control(self, declaration: Declaration) -> list[Effect]:
        self._control += 1
        return self.step(ControlRead(self._control - 1, declaration))

    def grant(self, slot: int, member: str = "m") -> list[Effect]:
        return self.control(Granted(0, SLOTS, slot, member))

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

    def own(self, slot: int, offset: int = 0, state: State | None = None) -> None:
        (load,) = self.grant(slot)
        assert self.load(load, offset, state) == [Follow(SLOTS, slot, offset)]

    def poll(self, *entries: tuple[int, int, Routed | Installed]) -> list[Effect]:
        """Reads entries (slot, offset, message)."""
        return self.step(
            Polled(tuple(Entry(SLOTS, slot, at, message) for slot, at, message in entries))
        )

    def tick(self, after_ms: int = 0) -> list[Effect]:
        self.now_ms += after_ms
        return self.step(Tick())


def wants_coffee(subscriber: str = ANN, revision: int = 0, query_id: str = "coffee") -> Installed:
    return installed_of(0, [(revision, {**COFFEE, "id": query_id}, subscriber, 0)])


def objects(source_offset: int, *texts: str, number: int = 1) -> Routed:
    """Returns the objects of one intake record, at increasing times."""
    members = [
        {"id": number + row, "lon": 1.0, "lat": 1.0, "text": text} for row, text in enumerate(texts)
    ]
    return routed_of(0, source_offset, members, [BEGIN_MS + source_offset] * len(texts))


def mark(source_offset: int) -> Routed:
    return routed_of(0, source_offset, [], [], time_ms=BEGIN_MS + source_offset)


def found(effects: list[Effect]) -> list[tuple[int, Found]]:
    """Returns the records for the targets, marks included; there may be no other effects."""
    reported = []
    for effect in effects:
        assert isinstance(effect, Append)
        assert effect.topic == PARTIALS
        assert isinstance(effect.message, Found)
        reported.append((effect.partition, effect.message))
    return reported


def pairs(effects: list[Effect]) -> list[tuple[int, str, int]]:
    """Returns (target, query id, object id) of all matches."""
    reported = []
    for target, record in found(effects):
        data, bounds = record.queries.ids.tobytes(), record.queries.id_offsets.tolist()
        ids = [data[a:b].decode() for a, b in pairwise(bounds)]
        reported += [
            (target, ids[query], int(record.objects.ids[row]))
            for row, query in zip(
                record.matches.objects.tolist(), record.matches.queries.tolist(), strict=True
            )
        ]
    return sorted(reported)


def intervals(record: Found) -> list[tuple[int, int, int]]:
    """Returns (slot, first offset, offset after the last) of each interval."""
    table = record.intervals
    return [
        (slot, offset_of(begin), offset_of(end))
        for slot, begin, end in zip(
            table.sources.tolist(), table.begins.tolist(), table.ends.tolist(), strict=True
        )
    ]


def taken(save: SaveCheckpoint) -> CheckpointTaken:
    """Returns the declaration that follows the write."""
    name = checkpoint_name(save.topic, save.partition, save.offset, save.epoch)
    return CheckpointTaken(save.topic, save.partition, save.epoch, save.offset, name)


def saves(effects: list[Effect]) -> list[SaveCheckpoint]:
    return [effect for effect in effects if isinstance(effect, SaveCheckpoint)]


# --- ownership


def test_a_slot_is_followed_once_it_is_loaded_and_taken_from_there_on() -> None:
    one = Evaluator()
    (load,) = one.grant(3)
    assert load == Load(SLOTS, 3, 2, "", 0)
    assert one.poll((3, 0, wants_coffee()), (3, 1, objects(0, "coffee"))) == []
    assert one.load(load) == [Follow(SLOTS, 3, 0)]
    effects = one.poll((3, 0, wants_coffee()), (3, 1, objects(0, "coffee")))
    assert pairs(effects) == [(0, "coffee", 1)]


def test_a_grant_loads_the_newest_checkpoint() -> None:
    one = Evaluator()
    one.control(CheckpointTaken(SLOTS, 3, 1, 70, "name"))
    assert one.grant(3) == [Load(SLOTS, 3, 3, "name", 70)]


def test_what_others_own_and_other_topics_are_no_business_of_an_evaluator() -> None:
    one = Evaluator()
    assert one.grant(0, "other") == []
    assert one.control(Granted(0, INTAKE, 0, "m")) == []
    assert one.poll((0, 0, wants_coffee()), (0, 1, objects(0, "coffee"))) == []


def test_a_slot_lags_until_it_has_read_the_log_end_of_its_load() -> None:
    evaluator = Evaluator()
    (load,) = evaluator.grant(3)
    assert isinstance(load, Load)
    evaluator.step(
        Loaded(
            topic=SLOTS, partition=3, epoch=load.epoch, offset=2, state=None, slices=(), log_end=5
        )
    )
    slot = evaluator.machine.slots[3]
    assert slot.is_catching_up
    evaluator.poll((3, 2, objects(0, "one")), (3, 3, mark(1)))
    assert slot.is_catching_up
    evaluator.poll((3, 4, mark(2)))
    assert not slot.is_catching_up
    # Later records are written while it is searched: their presence was not reported yet.
    evaluator.poll((3, 6, mark(3)))
    assert not slot.is_catching_up


def test_a_lost_slot_is_dropped_and_loaded_again_when_it_returns() -> None:
    one = Evaluator()
    one.own(0)
    one.poll((0, 0, wants_coffee()))
    assert one.grant(0, "other") == [Unfollow(SLOTS, 0)]
    assert one.poll((0, 1, objects(0, "coffee"))) == []
    assert one.machine.slots == {}
    (load,) = one.grant(0)
    # Nothing of the former state is left: the query is unknown until it is read or loaded again.
    one.load(load, 1)
    assert pairs(one.poll((0, 1, objects(0, "coffee")))) == []


def test_an_answer_to_an_earlier_grant_is_stale() -> None:
    one = Evaluator()
    (early,) = one.grant(0)
    one.grant(0, "other")
    (late,) = one.grant(0)
    assert one.load(early) == []
    assert one.machine.slots == {}
    assert one.load(late) == [Follow(SLOTS, 0, 0)]


# --- matching


def test_the_order_of_the_log_decides_within_a_poll() -> None:
    one = Evaluator()
    one.own(0)
    removal = installed_of(0, [], [("coffee", 5)])
    effects = one.poll(
        (0, 0, objects(0, "coffee", number=1)),
        (0, 1, wants_coffee()),
        (0, 2, objects(1, "coffee", "tea", number=2)),
        (0, 3, removal),
        (0, 4, objects(2, "coffee", number=4)),
    )
    assert pairs(effects) == [(0, "coffee", 2)]
    assert (one.machine.objects_total, one.machine.matches_total) == (4, 1)


def test_each_target_gets_its_subscribers_matches_of_all_slots_in_one_record() -> None:
    one = Evaluator()
    one.own(0)
    one.own(1)
    queries = [(slot, 0, wants_coffee(ANN)) for slot in (0, 1)]
    queries += [(slot, 1, wants_coffee(BOB, 1, "bobs")) for slot in (0, 1)]
    assert one.poll(*queries) == []
    effects = one.poll((0, 2, objects(0, "coffee")), (1, 2, objects(0, "coffee", number=9)))
    assert [target for target, _ in found(effects)] == [0, 1]
    assert pairs(effects) == [
        (0, "coffee", 1),
        (0, "coffee", 9),
        (1, "bobs", 1),
        (1, "bobs", 9),
    ]


def test_r2_repeated_records_are_not_reported_again() -> None:
    one = Evaluator()
    one.own(0)
    one.poll((0, 0, wants_coffee()))
    record = objects(0, "coffee")
    assert len(pairs(one.poll((0, 1, record)))) == 1
    # A restarted router, or a zombie, repeats the same further on in the log.
    assert one.poll((0, 2, record)) == []


def test_intervals_that_were_dropped_stay_counted_when_their_slot_goes() -> None:
    one = Evaluator()
    for slot in (0, 1):
        one.own(slot)
        one.poll((slot, 0, objects(0, "tea")), (slot, 1, objects(1, "tea")))
        # A repeat, and a record after a gap.
        one.poll((slot, 2, objects(0, "tea")), (slot, 3, objects(5, "tea")))
    assert (one.machine.repeats_total, one.machine.gaps_total) == (2, 2)
    one.grant(0, "other")
    # Counters: a reader of their increase would take a lower value for a restart.
    assert (one.machine.repeats_total, one.machine.gaps_total) == (2, 2)


def test_r2_silence_needs_no_record_and_the_next_one_covers_it() -> None:
    one = Evaluator()
    one.own(0)
    one.poll((0, 0, wants_coffee()))
    assert one.poll((0, 1, objects(0, "tea"))) == []
    ((_, record),) = found(one.poll((0, 2, objects(1, "coffee"))))
    assert intervals(record) == [(0, 0, 3)]
    ((_, record),) = found(one.poll((0, 3, objects(2, "coffee"))))
    assert intervals(record) == [(0, 3, 4)]


# --- reported times


def test_marks_of_routers_are_passed_on_to_every_target_at_a_pace() -> None:
    one = Evaluator()
    one.own(0)
    one.own(1)
    assert one.tick(LIMITS.mark_interval_ms) == [], "nothing came, nothing is to be reported"
    assert one.poll((0, 0, mark(0)), (1, 0, mark(0))) == []
    reported = found(one.tick())
    assert [target for target, _ in reported] == list(range(PARTIALS_COUNT))
    for _, record in reported:
        assert intervals(record) == [(0, 0, 1), (1, 0, 1)]
        assert record.intervals.times_ms.tolist() == [BEGIN_MS] * 2
        assert len(record.matches) == 0
    one.poll((0, 1, mark(1)))
    assert one.tick(LIMITS.mark_interval_ms - 1) == []
    assert len(found(one.tick(1))) == PARTIALS_COUNT
    assert one.tick(LIMITS.mark_interval_ms) == []


def test_nothing_waits_for_a_time() -> None:
    one = Evaluator()
    one.own(0)
    one.poll((0, 0, mark(0)))
    assert one.machine.deadline_ms() is None


# --- checkpoints


def test_slices_stay_that_a_checkpoint_of_a_former_owner_may_stand_on() -> None:
    # init: two checkpoints, and slices that are merged meanwhile.
    one = Evaluator(store_limits=StoreLimits(active_rows=4, slices=1, slice_rows=16))
    one.own(0)
    offsets = iter(range(1_000))

    def feed() -> None:
        for offset in [next(offsets) for _ in range(5)]:
            effects = one.poll((0, offset, objects(offset, "coffee", number=offset)))
            while effects:
                each = effects.pop()
                if isinstance(each, Compute):
                    effects += one.step(Computed(each.key, each.job()))

    def save() -> list[Discard]:
        feed()
        (saved,) = saves(one.step(SaveRequest((0,))))
        return [each for each in one.control(taken(saved)) if isinstance(each, Discard)]

    for _ in range(2):
        save()
    # test: one that was written long after its owner had lost the slot is the farthest.
    one.control(CheckpointTaken(SLOTS, 0, 1, 500, checkpoint_name(SLOTS, 0, 500, 1)))
    discarded = [each for _ in range(6) for each in save()]
    assert [each.name for each in discarded if each.name.startswith("slices/")] == []


def test_expired_slices_leave_with_those_that_no_list_names() -> None:
    one = Evaluator(archive_ms=10_000, retention_ms=5_000, store_limits=StoreLimits(active_rows=2))
    one.own(0)
    (sealing,) = [e for e in one.poll((0, 0, objects(0, "a", "b"))) if isinstance(e, Compute)]
    one.step(Computed(sealing.key, sealing.job()))
    (saved,) = saves(one.step(SaveRequest((0,))))
    one.control(taken(saved))
    one.tick(LIMITS.tidy_interval_ms)
    # Ten seconds and more later by the slot's time.
    members = [{"id": 9 + row, "lon": 1.0, "lat": 1.0, "text": "c"} for row in range(2)]
    later = routed_of(0, 1, members, [BEGIN_MS + 20_000] * 2)
    (sealing,) = [e for e in one.poll((0, 1, later)) if isinstance(e, Compute)]
    one.step(Computed(sealing.key, sealing.job()))
    (saved,) = saves(one.step(SaveRequest((0,))))
    one.control(taken(saved))
    left = [e for e in one.tick(LIMITS.tidy_interval_ms) if isinstance(e, Discard | Sweep)]
    old, new = slice_name(0, (0, 1)), slice_name(0, (2, 3))
    assert left == [Discard(old), Sweep(slice_prefix(0), new)]


def test_r2_a_checkpoint_follows_marks_to_every_target_and_only_movement() -> None:
    one = Evaluator()
    one.own(0)
    one.poll((0, 0, wants_coffee()), (0, 1, objects(0, "tea")))
    assert one.tick(LIMITS.checkpoint_interval_ms - 1) == []
    effects = one.tick(1)
    (saved,) = saves(effects)
    assert (saved.topic, saved.partition, saved.epoch, saved.offset) == (SLOTS, 0, 2, 2)
    before = found(effects[: effects.index(saved)])
    assert [target for target, _ in before] == list(range(PARTIALS_COUNT))
    assert {tuple(intervals(record)) for _, record in before} == {((0, 0, 2),)}
    assert saves(one.tick(10 * LIMITS.checkpoint_interval_ms)) == []


def test_slots_are_saved_evenly_over_the_interval_the_longest_unsaved_first() -> None:
    one = Evaluator()
    for slot in (2, 0, 1):
        one.own(slot)
        one.now_ms += 10
        one.poll((slot, 0, wants_coffee()))
    one.now_ms += LIMITS.checkpoint_interval_ms
    order = []
    for _ in range(4):
        order += [save.partition for save in saves(one.tick())]
        assert saves(one.tick(LIMITS.checkpoint_interval_ms // 3 - 1)) == []
        one.now_ms += 1
    assert order == [2, 0, 1]


def test_nothing_is_read_while_memory_is_full_of_what_the_archive_lacks() -> None:
    # init: two slots, one of which has sealed more than may be in memory.
    one = Evaluator(store_bytes_max=1, store_limits=StoreLimits(active_rows=2))
    one.own(0)
    one.own(1)
    assert one.tick(LIMITS.tidy_interval_ms) == []
    (sealing,) = [e for e in one.poll((0, 0, objects(0, "a", "b"))) if isinstance(e, Compute)]
    one.step(Computed(sealing.key, sealing.job()))
    slot = one.machine.slots[0]
    assert slot.past.unarchived_bytes > 1

    # test
    effects = one.tick(LIMITS.tidy_interval_ms)
    paused = [each for each in effects if isinstance(each, Unfollow)]
    assert paused == [Unfollow(SLOTS, 0), Unfollow(SLOTS, 1)]
    assert one.machine.is_paused
    assert not [e for e in one.tick(LIMITS.tidy_interval_ms) if isinstance(e, Follow | Unfollow)]
    # A slot that another process owns now is not read again.
    assert one.grant(1, "other") == [Unfollow(SLOTS, 1)]

    # check: it is saved at once, out of turn, and read from its last position.
    (save,) = saves(effects)
    assert (save.partition, len(save.slices)) == (0, 1)
    one.control(taken(save))
    assert slot.past.unarchived_bytes == 0
    assert one.tick(LIMITS.tidy_interval_ms) == [Follow(SLOTS, 0, 1)]
    assert not one.machine.is_paused


def test_slices_sealed_after_the_last_checkpoint_block_reading_only_for_a_time() -> None:
    # init: it is saved while the rows that fill its memory are not sealed yet.
    one = Evaluator(store_bytes_max=1, store_limits=StoreLimits(active_rows=2))
    one.own(0)
    (sealing,) = [e for e in one.poll((0, 0, objects(0, "a", "b"))) if isinstance(e, Compute)]
    one.now_ms += LIMITS.checkpoint_interval_ms
    (early,) = saves(one.tick())
    assert early.slices == ()
    one.step(Computed(sealing.key, sealing.job()))
    slot = one.machine.slots[0]

    # test: it waits while the checkpoint is on its way; then it does not.
    assert Unfollow(SLOTS, 0) in one.tick(LIMITS.tidy_interval_ms)
    one.control(taken(early))
    assert slot.past.unarchived_bytes > 1
    assert one.tick(LIMITS.tidy_interval_ms) == [Follow(SLOTS, 0, 1)]

    # check: the next one has it.
    one.poll((0, 1, objects(1, "c")))
    effects = one.tick(LIMITS.tidy_interval_ms)
    assert Unfollow(SLOTS, 0) in effects
    (late,) = saves(effects)
    assert len(late.slices) == 1
    one.control(taken(late))
    assert slot.past.unarchived_bytes == 0
    assert one.tick(LIMITS.tidy_interval_ms) == [Follow(SLOTS, 0, 2)]


def test_many_changes_are_saved_early() -> None:
    one = Evaluator(limits=EvaluatorLimits(checkpoint_changes=3))
    one.own(0)
    one.now_ms += LIMITS.checkpoint_spacing_ms
    one.poll((0, 0, wants_coffee()), (0, 1, wants_coffee(ANN, 1, "b")))
    assert saves(one.tick()) == []
    one.poll((0, 2, wants_coffee(ANN, 2, "c")))
    assert [save.offset for save in saves(one.tick())] == [3]


def test_a_successor_finds_from_a_checkpoint_what_its_predecessor_would_have() -> None:
    first = Evaluator()
    first.own(0)
    first.poll((0, 0, wants_coffee(ANN)), (0, 1, wants_coffee(BOB, 1, "bobs")))
    first.poll((0, 2, objects(0, "coffee")), (0, 3, installed_of(0, [], [("bobs", 2)])))
    (saved,) = saves(first.step(Draining()))
    # The first record partly repeats records from before the checkpoint.
    rest = [(0, 4, objects(0, "coffee")), (0, 5, objects(1, "coffee", "coffee", number=5))]

    second = Evaluator()
    second.own(0, saved.offset, saved.state)
    again, wanted = second.poll(*rest), first.poll(*rest)

    assert pairs(again) == pairs(wanted) == [(0, "coffee", 5), (0, "coffee", 6)]
    for (_, mine), (_, theirs) in zip(found(again), found(wanted), strict=True):
        assert mine.positions.tolist() == theirs.positions.tolist()
        assert intervals(mine) == intervals(theirs) == [(0, 4, 6)]


def test_a_checkpoint_that_is_declared_frees_what_is_below_it() -> None:
    one = Evaluator()
    one.own(0)
    one.poll((0, 0, wants_coffee()), (0, 1, objects(0, "tea")))
    assert one.control(CheckpointTaken(SLOTS, 0, 2, 1, "c")) == [Truncate(SLOTS, 0, 1)]
    # A former owner's checkpoint is ahead of this process's reading.
    assert one.control(CheckpointTaken(SLOTS, 0, 1, 90, "d")) == [
        Sweep(checkpoint_prefix(SLOTS, 0), "c"),
        Truncate(SLOTS, 0, 2),
    ]
    # Nothing of other owners' partitions is freed.
    assert one.control(CheckpointTaken(SLOTS, 1, 2, 9, "e")) == []


def test_one_that_is_to_end_saves_what_has_moved() -> None:
    one = Evaluator()
    for slot in (0, 1, 2):
        one.own(slot)
    one.poll((0, 0, wants_coffee()), (2, 0, wants_coffee()))
    assert [(s.partition, s.offset) for s in saves(one.step(Draining()))] == [(0, 1), (2, 1)]
    one.poll((2, 1, objects(0, "tea")))
    assert [(s.partition, s.offset) for s in saves(one.step(Draining()))] == [(2, 2)]


# --- what it does not take


def wants_words(number: int) -> Installed:
    query = {"id": f"q{number}", "kind": "terms", "mode": "continuous", "k": 1}
    return installed_of(0, [(number, {**query, "window": "1s", "step": "1s"}, ANN, BEGIN_MS)])


def test_steps_of_an_outage_are_taken_in_turns_and_nothing_is_read_before_the_last() -> None:
    # init: two slots with a terms query each; no more than five steps are taken at once.
    one = Evaluator(limits=EvaluatorLimits(turn_steps_max=5, report_steps_max=5))
    for slot in (0, 1):
        one.own(slot)
        one.poll((slot, 0, wants_words(slot)), (slot, 1, mark(0)))
    assert one.machine.deadline_ms() is None

    # test: the time passes twelve steps at once; later records are read again.
    late = routed_of(0, 1, [], [], time_ms=BEGIN_MS + 12_001)
    behind_it = routed_of(0, 2, [], [], time_ms=BEGIN_MS + 12_002)
    effects = one.poll(
        *((slot, 2 + i, each) for slot in (0, 1) for i, each in enumerate((late, behind_it)))
    )
    assert [each for each in effects if isinstance(each, Unfollow)] == [
        Unfollow(SLOTS, 0),
        Unfollow(SLOTS, 1),
    ]
    assert [one.machine.slots[slot].offset for slot in (0, 1)] == [3, 3]
    assert one.poll((0, 3, behind_it)) == []
    assert one.step(Draining()) == []
    reported, followed, turns = steps_of(effects), [], 0
    saved: list[int] = []
    while one.machine.deadline_ms() is not None:
        # The slot that lags is next, and both report their progress.
        effects = one.tick(LIMITS.mark_interval_ms)
        saved += [effect.partition for effect in effects if isinstance(effect, SaveCheckpoint)]
        assert not set(saved) & one.machine.stepping
        followed += [effect for effect in effects if isinstance(effect, Follow)]
        reported += steps_of(effects)
        turns += 1

    # check: each reported its steps in order; then both are read on, and saved as requested.
    assert turns == 4
    for slot in (0, 1):
        steps = [at_ms - BEGIN_MS for source, at_ms in reported if source == slot]
        assert steps == [1_000 * number for number in range(1, 13)]
    assert followed == [Follow(SLOTS, 0, 3), Follow(SLOTS, 1, 3)]
    effects = one.tick(LIMITS.checkpoint_spacing_ms)
    saved += [effect.partition for effect in effects if isinstance(effect, SaveCheckpoint)]
    assert sorted(saved) == [0, 1]


def steps_of(effects: list[Effect]) -> list[tuple[int, int]]:
    """Returns (slot, time) of the reported steps."""
    records = [e.message for e in effects if isinstance(e, Append) and e.topic == PARTIALS]
    return [
        (int(record.intervals.sources[row]), at_ms)
        for record in records
        if isinstance(record, Found) and record.steps is not None
        for row, at_ms in zip(
            record.steps.interval_rows.tolist(), record.steps.at_ms.tolist(), strict=True
        )
    ]


def test_slots_with_due_steps_read_skipped_records_again_and_may_be_lost() -> None:
    far = routed_of(0, 1, [], [], time_ms=BEGIN_MS + 9_001)
    one = Evaluator(limits=EvaluatorLimits(turn_steps_max=1, report_steps_max=1))
    one.own(0)
    effects = one.poll((0, 0, wants_words(0)), (0, 1, mark(0)), (0, 2, far))
    # Without further records nothing has to be read again.
    assert not any(isinstance(effect, Unfollow) for effect in effects)
    assert not any(isinstance(effect, Follow) for effect in one.tick())
    assert one.machine.deadline_ms() == 0
    assert one.poll((0, 3, mark(2))) == [Unfollow(SLOTS, 0)]
    assert one.poll((0, 4, mark(3))) == []
    one.grant(0, "other")
    assert one.machine.deadline_ms() is None
    assert one.machine.stepping == set()
    # It returns, from the first record on.
    one.own(0)
    one.poll((0, 0, wants_words(0)), (0, 1, mark(0)))
    assert one.machine.deadline_ms() is None


def test_an_event_of_another_service_raises_and_changes_nothing() -> None:
    one = Evaluator()
    one.own(0)
    one.poll((0, 0, wants_coffee()))
    with pytest.raises(TypeError, match="FlushRequest"):
        one.step(FlushRequest())
    assert pairs(one.poll((0, 1, objects(0, "coffee")))) == [(0, "coffee", 1)]


def test_positions_in_records_are_those_of_the_slot() -> None:
    one = Evaluator()
    one.own(0)
    one.poll((0, 0, wants_coffee()))
    ((_, record),) = found(one.poll((0, 7, objects(0, "coffee"))))
    (position,) = record.positions.tolist()
    assert position_of(7) <= position < position_of(8)


def test_the_kinds_of_effects_are_those_of_an_evaluator() -> None:
    one = Evaluator()
    one.own(0)
    effects: list[Any] = one.poll((0, 0, wants_coffee()), (0, 1, objects(0, "coffee")))
    effects += one.poll((0, 2, mark(1)))
    effects += one.tick(60_000)
    assert {type(effect) for effect in effects} == {Append, SaveCheckpoint}
    assert {effect.topic for effect in effects} == {PARTIALS, SLOTS}
