"""A merger's checkpoint is made some rows at a time, and is that of its transaction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sirocco.protocol.contract.effects import (
    Committed,
    Draining,
    Effect,
    Entry,
    Polled,
    SaveCheckpoint,
    State,
    Tick,
    Transact,
)
from sirocco.protocol.contract.messages import PARTIALS
from sirocco.protocol.merger.limits import MergerLimits
from sirocco.protocol.merger.live_lists import LiveLists
from tests.support.list_records import (
    End,
    ListVersion,
    Match,
    QueryEnd,
    Ranked,
    Seen,
    Terms,
    knn_spec,
    ranked_spec,
    terms_spec,
    version,
)
from tests.support.merger_slots import Slots
from tests.support.merger_states import state_of

NEAR = [ListVersion(f"near{i}", knn_spec(f"near{i}", 3)) for i in range(12)]
WORDS = [ListVersion(f"words{i}", terms_spec(f"words{i}", 2)) for i in range(30)]
BEST = [ListVersion(f"best{i}", ranked_spec(f"best{i}", 2)) for i in range(8)]

LIMITS = MergerLimits(forget_interval_ms=1, turn_weight_max=4, saved_rows_max=4, saved_bytes_max=64)


def ranked(asked: ListVersion, at: int) -> Ranked:
    seen = (Seen(at, (1, at), 50, 3, 10.0, (1, 1)),)
    return Ranked(asked=asked, at_ms=100, total=1, tokens=3, holders=(1, 1), seen=seen)


def filled(limits: MergerLimits = LIMITS) -> Slots:
    """Returns slots whose merger has state of every kind, all of it sent and committed."""
    slots = Slots(limits=limits)
    for at in range(1, 5):
        slots.report(0, *(Match(each, at, 50.0 - at) for each in NEAR[at:]))
    slots.report(0, *(Match(each, f"van {at}", 9.0) for at, each in enumerate(NEAR[6:])))
    for slot in (0, 1):
        slots.report(slot, *(ranked(each, at) for at, each in enumerate(BEST)), time_ms=99)
    for slot in (0, 1):
        slots.report(slot, time_ms=150)
    slots.report(0, *(Terms(each, 200, (("a", 1), ("bcd", 2))) for each in WORDS), time_ms=190)
    slots.report(0, *(ranked(version(each, 3), 3) for each in BEST[:3]))
    slots.report(
        0, *(Terms(version(each, 2), 200, (("a", 1),), slot_count=2) for each in WORDS[:9])
    )
    slots.report(0, *(End(each, 195, by=(0, 7)) for each in NEAR[:5]))
    slots.report(0, *(QueryEnd(each, (0, at)) for at, each in enumerate(NEAR)))
    slots.report(0, *(QueryEnd(each, (1, at), 500) for at, each in enumerate(WORDS)))
    slots.take_sent()
    return slots


def are_equal(one: State, other: State) -> bool:
    assert one.keys() == other.keys()
    unequal = [name for name in one if not np.array_equal(one[name], other[name])]
    unequal += [name for name in one if one[name].dtype != other[name].dtype]
    return not unequal


@pytest.mark.parametrize("rows_max", [1, 2, 7, 64])
def test_pieces_are_joined_to_the_columns_of_all_rows(rows_max: int) -> None:
    lists = filled().cluster.machine.windows[0].lists
    for key in list(lists.steps._first_steps)[:5]:
        lists.steps._first_steps.note_report(key, 1)
    lists.ends._awaiting += [(f"q{i}", "ann", 1, i) for i in range(9)]
    whole = state_of(lists, 1 << 20, 1 << 20)
    assert [name for name in whole if not len(whole[name])] == ["former.keys", "former.new_keys"]
    pieces = state_of(lists, rows_max, 1)
    assert are_equal(pieces, whole)
    restored = LiveLists(slots=2)
    restored.restore(pieces)
    assert are_equal(state_of(restored, 3, 100), whole)


def closed(slots: Slots) -> Transact:
    """Lets the merger write a window with which a checkpoint is due."""
    cluster = slots.cluster
    slots.report(0, Match(NEAR[7], 60, 1.0))
    entry = Entry(PARTIALS, 0, len(cluster.log) - 1, cluster.log[-1])
    cluster.position = len(cluster.log)
    cluster.now_ms += 100_000
    effects = cluster.machine.step(Polled((entry,)), cluster.now_ms)
    assert cluster.machine.windows[0].saving is not None
    (transact,) = [each for each in effects if isinstance(each, Transact)]
    return transact


def commit(slots: Slots, transact: Transact) -> list[Effect]:
    return slots.cluster.machine.step(Committed(0, transact.number, 9, 99), slots.cluster.now_ms)


def saves(effects: list[Effect]) -> list[SaveCheckpoint]:
    return [each for each in effects if isinstance(each, SaveCheckpoint)]


@pytest.mark.parametrize("is_committed_first", [False, True])
def test_a_checkpoint_is_made_in_turns_and_is_that_of_its_transaction(
    is_committed_first: bool,
) -> None:
    slots = filled()
    machine, now_ms = slots.cluster.machine, slots.cluster.now_ms + 100_000
    transact = closed(slots)
    window = machine.windows[0]
    offset, whole = window.written_offset, state_of(window.lists)
    effects: list[Effect] = commit(slots, transact) if is_committed_first else []
    # What is read meanwhile waits: it would change the lists.
    slots.report(0, Match(NEAR[8], 61, 1.0))
    slots.report(1, time_ms=400)
    entries = [Entry(PARTIALS, 0, at, slots.cluster.log[at]) for at in (offset, offset + 1)]
    effects += machine.step(Polled(tuple(entries)), now_ms)
    turns = 0
    while window.saving is not None:
        assert window.input_offset == offset
        assert machine.deadline_ms() == 0
        assert not saves(effects)
        effects += machine.step(Tick(), now_ms)
        turns += 1
    assert turns > 20
    while machine.deadline_ms() == 0:
        effects += machine.step(Tick(), now_ms)
    assert window.input_offset == offset + 2
    if not is_committed_first:
        assert not saves(effects)
        effects += commit(slots, transact)
    (save,) = saves(effects)
    assert save.offset == offset
    assert save.state["reached.positions"].tolist() == transact.messages[-1].positions.tolist()  # type: ignore[union-attr]
    assert are_equal({name: save.state[name] for name in whole}, whole)
    assert window.lists.knn.has_candidates


def test_nothing_is_forgotten_while_a_checkpoint_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    slots = filled()
    closed(slots)
    machine, window = slots.cluster.machine, slots.cluster.machine.windows[0]
    forgotten: list[bool] = []

    def forget(self: LiveLists, reached: Any) -> None:
        forgotten.append(window.saving is None)

    monkeypatch.setattr(LiveLists, "forget", forget)
    now_ms = slots.cluster.now_ms
    for _ in range(1_000):
        now_ms += 10
        machine.step(Tick(), now_ms)
    assert set(forgotten) == {True}


def test_a_checkpoint_leaves_turns_to_other_partitions() -> None:
    slots = filled()
    closed(slots)
    machine, window = slots.cluster.machine, slots.cluster.machine.windows[0]
    lists = window.lists
    for _ in range(5):
        machine.step(Tick(), slots.cluster.now_ms)
    assert window.saving is not None
    # A turn makes no more rows than its weight allows.
    weights = list(lists.state_in_turns(4, 64))
    assert max(weights) <= 2
    assert sum(weights) > 60


def test_a_merger_that_ends_finishes_its_checkpoint() -> None:
    slots = filled()
    transact = closed(slots)
    machine, window = slots.cluster.machine, slots.cluster.machine.windows[0]
    assert not saves(machine.step(Draining(), slots.cluster.now_ms))
    assert window.saving is None
    assert [each.offset for each in saves(commit(slots, transact))] == [window.written_offset]
