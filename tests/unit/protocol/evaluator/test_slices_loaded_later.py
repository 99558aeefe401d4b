"""A slot whose past objects are loaded while it is read: what goes on meanwhile, and what waits."""

from __future__ import annotations

from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store import StoreLimits
from sirocco.protocol.contract.control_records import Attempted, Granted
from sirocco.protocol.contract.effects import (
    Compute,
    Computed,
    Effect,
    Follow,
    Load,
    Loaded,
    LoadSlices,
    SaveCheckpoint,
    SaveRequest,
    SlicesLoaded,
    Unfollow,
)
from sirocco.protocol.contract.messages import SLOTS
from sirocco.protocol.evaluator.limits import LIMITS
from tests.support.values import installed_of, routed_of
from tests.unit.protocol.evaluator.test_evaluator_machine import (
    ANN,
    BEGIN_MS,
    COFFEE,
    Evaluator,
    objects,
    pairs,
    saves,
    taken,
    wants_coffee,
)

STORE = StoreLimits(active_rows=4)
# In the checkpoint: seven objects in slices, and some in the active slice.
PAST = ("coffee one", "two", "coffee three", "four", "five", "six", "seven", "eight", "nine")
TERMS = {"id": "words", "kind": "terms", "k": 3, "step": "1s", "window": "1h"}
TERMS |= {
    "mode": "continuous",
    "region": {"rect": {"west": 0, "south": 0, "east": 2, "north": 2}},
}


class Successor:
    """An evaluator that takes over slot 0 from a checkpoint with slices, which it lacks yet."""

    def __init__(self, query: dict[str, object] | None = None) -> None:
        former = Evaluator(store_limits=STORE)
        former.own(0)
        install = wants_coffee() if query is None else installed_of(0, [(0, query, ANN, 0)])
        effects = former.poll((0, 0, install), (0, 1, objects(0, *PAST)))
        while jobs := [each for each in effects if isinstance(each, Compute)]:
            effects = [e for job in jobs for e in former.step(Computed(job.key, job.job()))]
        (save,) = saves(former.step(SaveRequest((0,))))
        self.slices: tuple[SealedSlice, ...] = tuple(slice_ for _, slice_ in save.slices)
        assert len(self.slices) == 2
        self.save: SaveCheckpoint = save
        self.evaluator = Evaluator(store_limits=STORE)
        self.evaluator.control(taken(save))
        self.effects = self._load(self.evaluator.grant(0))

    def _load(self, granted: list[Effect]) -> list[Effect]:
        (load,) = granted
        assert isinstance(load, Load)
        assert not load.is_whole
        self.epoch = load.epoch
        loaded = Loaded(
            topic=SLOTS,
            partition=0,
            epoch=load.epoch,
            offset=self.save.offset,
            state=self.save.state,
            slices=None,
        )
        return self.evaluator.step(loaded)

    @property
    def slot(self):  # type: ignore[no-untyped-def]
        return self.evaluator.machine.slots[0]

    def complete(self) -> list[Effect]:
        effects = self.evaluator.step(SlicesLoaded(0, self.epoch, self.slices))
        return [each for each in effects if not isinstance(each, Compute)]


def test_a_slot_matches_before_its_past_is_loaded_and_is_searched_only_after() -> None:
    one = Successor()
    names = tuple(name for name, _ in one.save.slices)
    assert one.effects == [Follow(SLOTS, 0, 2), LoadSlices(0, one.epoch, names)]
    assert pairs(one.evaluator.poll((0, 2, objects(1, "more coffee", number=20)))) == [
        (0, "coffee", 20)
    ]
    assert one.slot.is_catching_up
    assert one.evaluator.machine.searchable == {}
    assert not one.evaluator.machine.is_complete
    assert one.complete() == []
    assert one.evaluator.machine.searchable == {0: one.slot}
    assert one.evaluator.machine.is_complete
    assert one.slot.past.store.objects_total == len(PAST) + 1
    assert one.slot.past.manifest.archived.keys() == {(s.first_seq, s.last_seq) for s in one.slices}


def test_a_slot_is_not_saved_before_its_past_is_loaded() -> None:
    one = Successor()
    one.evaluator.poll((0, 2, objects(1, "more", number=20)))
    assert saves(one.evaluator.step(SaveRequest((0,)))) == []
    assert saves(one.evaluator.tick(LIMITS.checkpoint_interval_ms)) == []
    one.complete()
    (save,) = saves(one.evaluator.tick(LIMITS.checkpoint_spacing_ms))
    assert save.offset == 3
    # It relies on the slices of the checkpoint before, which need not be written again.
    assert save.slices == ()
    assert len(save.state["slices"]) == 2


def test_a_query_with_history_and_later_records_wait_for_past_objects() -> None:
    one = Successor()
    past = installed_of(0, [(1, {**COFFEE, "id": "past"}, ANN, 0)], past_ms=1 << 40)
    effects = one.evaluator.poll(
        (0, 2, objects(1, "coffee", number=20)), (0, 3, past), (0, 4, objects(2, "no", number=21))
    )
    assert pairs([each for each in effects if not isinstance(each, Unfollow)]) == [
        (0, "coffee", 20)
    ]
    assert effects[-1] == Unfollow(SLOTS, 0)
    assert one.slot.offset == 3
    assert one.complete() == [Follow(SLOTS, 0, 3)]
    effects = one.evaluator.poll((0, 3, past), (0, 4, objects(2, "no", number=21)))
    assert pairs(effects) == [(0, "past", 1), (0, "past", 3), (0, "past", 20)]


def test_steps_wait_for_the_past() -> None:
    one = Successor(TERMS)
    later = routed_of(0, 1, [], [], time_ms=BEGIN_MS + 60_000)
    effects = one.evaluator.poll((0, 2, later), (0, 3, objects(2, "tea", number=21)))
    assert Unfollow(SLOTS, 0) in effects
    assert one.slot.awaits_slices
    # Nothing can be done: the loop need not turn for it.
    assert one.evaluator.machine.deadline_ms() is None
    assert one.slot.steps_total == 0
    one.evaluator.tick()
    assert one.slot.steps_total == 0
    one.complete()
    assert one.evaluator.machine.deadline_ms() == 0
    assert Follow(SLOTS, 0, 3) in one.evaluator.tick()
    assert one.slot.steps_total > 0


def test_the_past_of_a_lost_slot_is_dropped() -> None:
    one = Successor()
    one.evaluator.grant(0, "other")
    assert one.complete() == []
    # Granted again, it is another slot: what was loaded for the first one does not count.
    former, one.effects = one.epoch, one._load(one.evaluator.grant(0))
    assert one.evaluator.step(SlicesLoaded(0, former, one.slices)) == []
    assert one.slot.past.lacks_slices
    one.complete()
    assert not one.slot.past.lacks_slices


def test_a_grant_without_a_loss_before_it_changes_nothing() -> None:
    one = Successor()
    assert one.evaluator.grant(0) == []
    jobs = [
        each
        for each in one.evaluator.step(SlicesLoaded(0, one.epoch, one.slices))
        if isinstance(each, Compute)
    ]
    assert not one.slot.past.lacks_slices
    # The same holds for a merge that was begun before.
    for job in jobs:
        one.evaluator.grant(0)
        one.evaluator.step(Computed(job.key, job.job()))
        assert not one.slot._is_working


def test_records_that_may_end_their_reader_are_taken_with_the_past_at_hand() -> None:
    one = Evaluator()
    one.grant(0, "first")
    one.control(Attempted(SLOTS, 0, 2, 0, 3))
    (load,) = one.control(Granted(0, SLOTS, 0, "m", has_ended=True))
    assert isinstance(load, Load)
    assert load.is_whole
