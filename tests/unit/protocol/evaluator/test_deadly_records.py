"""Records that end the evaluators that take them: found by trials, then skipped."""

from __future__ import annotations

from random import Random

import pytest

from sirocco.protocol.contract.control_records import (
    Attempted,
    CheckpointTaken,
    Declaration,
    Granted,
    LeaderElected,
    Skipped,
)
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.effects import (
    Append,
    ControlRead,
    Draining,
    Effect,
    Entry,
    Follow,
    Load,
    Loaded,
    Polled,
    SaveCheckpoint,
    SetAside,
    Tick,
    Unfollow,
)
from sirocco.protocol.contract.messages import CONTROL, SLOTS, Installed, Routed
from sirocco.protocol.contract.poison_trials import DEATHS_MAX, Trial
from sirocco.protocol.evaluator.careful_reading import CarefulReading, Records, without_skipped
from sirocco.protocol.evaluator.machine import EvaluatorMachine, EvaluatorSettings
from tests.support.values import installed_of, map_activated, routed_of

COFFEE = {"id": "coffee", "kind": "range", "mode": "continuous", "text": "coffee"}


def record(offset: int) -> Routed:
    """Returns the record of a slot at an offset: one object with the text coffee."""
    members = [{"id": offset, "lon": 1.0, "lat": 1.0, "text": "coffee"}]
    return routed_of(0, offset, members, [1_000 + offset])


class Log:
    """Topic `control`, and one slot, which is granted repeatedly."""

    def __init__(self) -> None:
        self.view = ControlView()
        self.records: list[tuple[int, Declaration]] = []
        self.say(LeaderElected("c"))
        self.say(map_activated(0))

    def say(self, declaration: Declaration) -> None:
        offset = self.view.next_offset
        self.view.apply(offset, declaration)
        self.records.append((offset, declaration))

    def grant(self, member: str, *, has_ended: bool = True) -> int:
        self.say(Granted(0, SLOTS, 0, member, has_ended))
        return self.view.owners[SLOTS, 0].epoch

    @property
    def trial(self) -> Trial:
        return self.view.trials[SLOTS, 0]


def say(log: Log, effects: list[Effect]) -> list[Declaration]:
    """Appends the declarations among the effects; returns them."""
    reported = []
    for effect in effects:
        assert isinstance(effect, Append)
        assert effect.topic == CONTROL
        assert isinstance(effect.message, Declaration)
        log.say(effect.message)
        reported.append(effect.message)
    return reported


def owner(log: Log, epoch: int, begin: int, until: int, ends_at: set[int], dice: Random) -> int:
    """One owner takes the slot's log to its end; returns its last offset, and whether it ended."""
    careful = CarefulReading()
    if log.trial.is_suspected:
        for attempted in say(log, careful.begin(0, epoch, begin, until, log.trial)):
            assert isinstance(attempted, Attempted)
            assert careful.read_back(attempted) == []
    # What is in the records makes no difference: it is made once.
    same, at = record(0), begin
    while at < until:
        polled = list(range(at, min(until, at + dice.randint(1, 50))))
        if careful.waits(0):
            effects = careful.next_piece(0, epoch, log.trial)
            if careful.needs_records(0):
                records: Records = [(offset, same) for offset in polled]
                effects = careful.attempt(0, epoch, log.trial, records)
            attempted = say(log, effects)[-1]
            assert isinstance(attempted, Attempted)
            held = careful.read_back(attempted)
            assert held
            polled = [offset for offset, _ in held]
        for offset in polled:
            if offset in ends_at and offset not in log.trial.skipped:
                return offset
        at = polled[-1] + 1
        for each in say(log, careful.note_taken(0, epoch, at)):
            assert isinstance(each, Attempted)
            careful.drop(0)
            assert careful.read_back(each) == []
            if each.begin == each.end:
                careful.end(0)
    return until


@pytest.mark.parametrize("seed", range(60))
def test_what_ends_all_is_skipped_and_nothing_else(seed: int) -> None:
    dice, log = Random(seed), Log()
    begin = dice.randrange(1_000)
    until = begin + dice.randint(1, 3_000)
    poison = set(dice.sample(range(begin, until), min(until - begin, dice.randint(1, 3))))
    ends, at = 0, begin
    while at < until:
        epoch = log.grant(f"m{ends}", has_ended=ends > 0)
        at = owner(log, epoch, begin, until, poison, dice)
        ends += at < until
        assert ends < 40, f"seed={seed}"
    assert log.trial.skipped == poison, f"seed={seed}"
    # One without a report, two or three that narrow it down, two at it alone; each time.
    assert ends <= (1 + 3 + DEATHS_MAX) * len(poison), f"seed={seed}"


def test_an_end_during_a_record_by_chance_skips_nothing() -> None:
    log = Log()
    log.grant("a", has_ended=False)
    epoch = log.grant("b")
    log.say(Attempted(SLOTS, 0, epoch, 7, 8))
    epoch = log.grant("c")
    assert (log.trial.suspects, log.trial.deaths) == ((7, 8), 1)
    assert log.trial.poison is None
    # The next one takes it, and is processing another.
    log.say(Attempted(SLOTS, 0, epoch, 8, 9))
    log.grant("d")
    assert (log.trial.suspects, log.trial.deaths, log.trial.poison) == ((8, 9), 1, None)


def test_whoever_only_gives_a_slot_away_has_not_ended() -> None:
    log = Log()
    for number in range(2 * DEATHS_MAX):
        epoch = log.grant(f"m{number}", has_ended=False)
        log.say(Attempted(SLOTS, 0, epoch, 7, 8))
    log.grant("last", has_ended=False)
    assert (log.trial.deaths, log.trial.is_suspected, log.trial.poison) == (0, False, None)


def test_attempts_of_a_former_owner_do_not_count() -> None:
    log = Log()
    former = log.grant("a", has_ended=False)
    log.grant("b")
    assert not log.view.apply(log.view.next_offset, Attempted(SLOTS, 0, former, 7, 8))
    assert log.trial.attempted == (0, 0)


def test_a_checkpoint_ends_all_suspicion_of_what_is_before_it() -> None:
    log = Log()
    log.grant("a", has_ended=False)
    for number in range(1 + DEATHS_MAX):
        log.say(Attempted(SLOTS, 0, log.grant(f"m{number}"), 7, 8))
    log.grant("b")
    assert log.trial.poison == 7
    for skipped in (7, 9):
        log.say(Skipped(SLOTS, 0, skipped))
    assert log.trial.poison is None
    log.say(CheckpointTaken(SLOTS, 0, 3, 8, "name"))
    assert (log.trial.skipped, log.trial.suspects, log.trial.is_suspected) == ({9}, (0, 0), False)
    # A late report of a record that is not read again has no effect.
    assert not log.view.apply(log.view.next_offset, Skipped(SLOTS, 0, 7))


def test_a_skipped_record_is_emptied_set_aside_and_leaves_no_gap() -> None:
    install = installed_of(0, [(4, COFFEE, "s", 0)])
    records: list[tuple[int, Routed | Installed]] = [(5, record(5)), (6, record(6)), (7, install)]
    kept, aside = without_skipped(3, records, {6, 7})
    assert [(each.offset, each.message) for each in aside if isinstance(each, SetAside)] == [
        (6, records[1][1]),
        (7, install),
    ]
    assert kept[0] == records[0]
    emptied = kept[1][1]
    assert isinstance(emptied, Routed)
    assert emptied.intervals is records[1][1].intervals  # type: ignore[union-attr]
    assert [len(each.objects) for _, each in kept[1:] if isinstance(each, Routed)] == [0, 0]


# --- the evaluator


class Evaluator:
    """A machine `m` whose slots belonged to an owner that ended while processing their records.

    Args:
        slots: how many.
        until: end of their logs.
        during: which records; None: it had not reported them.
    """

    def __init__(
        self, slots: int = 1, until: int = 20, during: tuple[int, int] | None = None
    ) -> None:
        settings = EvaluatorSettings(intake_partitions=1, partials_partitions=1)
        self.machine = EvaluatorMachine("m", settings)
        self.now_ms = 1_000_000
        self._control = 0
        self.declared: list[Declaration] = []
        self.control(LeaderElected("c"))
        self.control(map_activated(0))
        self.step(Tick())
        for slot in range(slots):
            self.control(Granted(0, SLOTS, slot, "a"))
            if during is not None:
                self.control(Attempted(SLOTS, slot, self.epoch(slot), *during))
            (load,) = self.control(Granted(0, SLOTS, slot, "m", has_ended=True))
            assert isinstance(load, Load)
            self.loaded = self.step(
                Loaded(
                    topic=SLOTS,
                    partition=slot,
                    epoch=load.epoch,
                    offset=0,
                    state=None,
                    slices=(),
                    log_end=until,
                )
            )

    def epoch(self, slot: int = 0) -> int:
        return self.machine.holdings.view.owners[SLOTS, slot].epoch

    def step(self, event: object) -> list[Effect]:
        effects = self.machine.step(event, self.now_ms)  # type: ignore[arg-type]
        self.declared += [
            effect.message
            for effect in effects
            if isinstance(effect, Append) and isinstance(effect.message, Declaration)
        ]
        return effects

    def control(self, declaration: Declaration) -> list[Effect]:
        self._control += 1
        return self.step(ControlRead(self._control - 1, declaration))

    def poll(self, begin: int, end: int, slot: int = 0) -> list[Effect]:
        entries = [Entry(SLOTS, slot, offset, record(offset)) for offset in range(begin, end)]
        return self.step(Polled(tuple(entries)))

    def read_back(self) -> list[Effect]:
        """Returns all declarations after reading them back."""
        reported, self.declared = self.declared, []
        return [effect for each in reported for effect in self.control(each)]


def test_a_successor_of_an_ended_process_reads_on_once_it_has_recorded_the_attempt() -> None:
    one = Evaluator(until=20)
    assert one.loaded == [Append(CONTROL, 0, Attempted(SLOTS, 0, one.epoch(), 0, 20))]
    assert one.read_back() == [Follow(SLOTS, 0, 0)]
    one.poll(0, 12)
    assert (one.machine.slots[0].offset, one.declared) == (12, [])
    one.poll(12, 25)
    assert one.declared == [Attempted(SLOTS, 0, one.epoch(), 25, 25)]
    one.poll(25, 27)
    assert one.machine.slots[0].offset == 27
    one.read_back()
    assert (0 in one.machine.careful_reading, one.declared) == (False, [])


def test_a_successor_takes_a_recorded_attempt_in_pieces() -> None:
    one = Evaluator(until=400, during=(0, 130))
    assert one.loaded == [Follow(SLOTS, 0, 0)]
    one.poll(0, 100)
    assert one.machine.slots[0].offset == 0
    assert one.declared == [Attempted(SLOTS, 0, one.epoch(), 0, 3)]
    # Further records are skipped, and read again when the held ones were taken.
    assert one.poll(100, 105) == [Unfollow(SLOTS, 0)]
    one.read_back()
    assert one.machine.slots[0].offset == 3
    assert one.declared == [Attempted(SLOTS, 0, one.epoch(), 3, 6)]
    for _ in range(32):
        one.read_back()
    assert one.machine.slots[0].offset == 99
    assert one.read_back() == [Follow(SLOTS, 0, 100)]
    # Later records are attempted as a whole, and read again if they were held.
    one.poll(100, 140)
    for _ in range(9):
        one.read_back()
    assert Unfollow(SLOTS, 0) in one.read_back()
    assert one.machine.slots[0].offset == 130
    assert one.declared == [Attempted(SLOTS, 0, one.epoch(), 130, 400)]
    assert one.read_back() == [Follow(SLOTS, 0, 130)]
    one.poll(130, 400)
    one.read_back()
    assert (0 in one.machine.careful_reading, one.machine.slots[0].offset) == (False, 400)


def test_nothing_is_saved_before_all_careful_records_are_taken_and_then_all_at_once() -> None:
    one = Evaluator(until=6, during=(0, 6))
    one.now_ms += 1_000_000
    for offset in range(6):
        one.poll(offset, 6)
        assert not any(isinstance(each, SaveCheckpoint) for each in one.step(Tick()))
        one.read_back()
    # The closing report is on its way: a process that has lost the slot would learn it before.
    assert one.machine.slots[0].offset == 6
    assert 0 in one.machine.careful_reading
    assert not any(isinstance(each, SaveCheckpoint) for each in one.step(Draining()))
    one.read_back()
    assert 0 not in one.machine.careful_reading
    saved = [each for each in one.step(Tick()) if isinstance(each, SaveCheckpoint)]
    assert [each.offset for each in saved] == [6]


def test_slots_are_attempted_one_after_the_other() -> None:
    one = Evaluator(slots=2, until=1, during=(0, 1))
    assert one.poll(0, 1, slot=1) == [Unfollow(SLOTS, 1)]
    one.poll(0, 1, slot=0)
    one.read_back()
    # Done with the first one: the other is read again.
    assert Follow(SLOTS, 1, 0) in one.read_back()
    one.poll(0, 1, slot=1)
    one.read_back()
    one.read_back()
    assert [one.machine.slots[slot].offset for slot in (0, 1)] == [1, 1]


def test_a_slot_that_is_lost_during_an_attempt_leaves_its_turn_to_others() -> None:
    one = Evaluator(slots=2, until=1, during=(0, 1))
    one.poll(0, 1, slot=1)
    one.poll(0, 1, slot=0)
    attempted, *_ = one.declared
    effects = one.control(Granted(0, SLOTS, 0, "other"))
    assert effects == [Unfollow(SLOTS, 0), Follow(SLOTS, 1, 0)]
    # A later return of it has no effect.
    assert one.control(attempted) == []


def test_the_record_that_ended_two_goes_to_dead_letters_and_the_next_is_matched() -> None:
    # init: two evaluators in a row ended at record 1.
    one = Evaluator(until=3)
    one.read_back()
    for member in ("c", "d", "m"):
        effects = one.control(Granted(0, SLOTS, 0, member, has_ended=True))
        epoch = one.epoch()
        if member != "m":
            one.control(Attempted(SLOTS, 0, epoch, 1, 2))
    (load,) = [each for each in effects if isinstance(each, Load)]
    one.step(
        Loaded(
            topic=SLOTS, partition=0, epoch=load.epoch, offset=0, state=None, slices=(), log_end=3
        )
    )

    # test
    one.poll(0, 3)
    assert one.declared == [Skipped(SLOTS, 0, 1), Attempted(SLOTS, 0, epoch, 0, 1)]
    effects = one.read_back()
    one.poll(1, 3)
    effects += one.read_back()
    assert one.read_back() == [Follow(SLOTS, 0, 2)]
    effects += one.poll(2, 3)

    # check
    aside = [(each.offset, each.message) for each in effects if isinstance(each, SetAside)]
    assert [offset for offset, _ in aside] == [1]
    assert one.machine.slots[0].offset == 3
    assert one.machine.objects_total == 2
    assert one.machine.slots[0].reached.gaps == 0
