"""What one record makes of many lists is written in parts of one transaction, and not held."""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.protocol.contract.effects import (
    Committed,
    Effect,
    Entry,
    Fence,
    Fenced,
    Load,
    Polled,
    Tick,
    Transact,
    Written,
)
from sirocco.protocol.contract.messages import PARTIALS, Delivered, Progress
from sirocco.protocol.merger.limits import MergerLimits
from tests.support.list_records import ListVersion, Match, Terms, knn_spec, terms_spec
from tests.support.merger_slots import Slots, sent_lists

NEAR = [ListVersion(f"near{i}", knn_spec(f"near{i}", 2)) for i in range(40)]
WORDS = [ListVersion(f"words{i}", terms_spec(f"words{i}", 2)) for i in range(40)]
LIMITS = MergerLimits(
    forget_interval_ms=1, turn_weight_max=8, merged_entries_max=4, waiting_bytes_max=1_000
)


def entering() -> Slots:
    """Returns a slot whose last record has an object that enters all lists."""
    slots = Slots(1, limits=LIMITS)
    slots.report(0, *(Match(each, 1, 50.0) for each in NEAR))
    slots.take_sent()
    slots.cluster.parts.clear()
    slots.report(0, *(Match(each, 2, 40.0) for each in NEAR))
    return slots


class Log:
    """Answers the merger's writes one at a time, when asked to."""

    def __init__(self, slots: Slots) -> None:
        self.cluster = slots.cluster
        self.waiting: list[Transact] = []
        self.messages: list[Any] = []
        self.effects: list[Effect] = []
        self.largest = 0

    def step(self, event: Any) -> None:
        machine = self.cluster.machine
        self._take(machine.step(event, self.cluster.now_ms))
        while machine.deadline_ms() == 0:
            self._take(machine.step(Tick(), self.cluster.now_ms))

    def _take(self, effects: list[Effect]) -> None:
        self.effects += effects
        self.waiting += [each for each in effects if isinstance(each, Transact)]
        windows = self.cluster.machine.windows
        self.largest = max([self.largest, *(each.bytes_outgoing for each in windows.values())])

    def read(self) -> None:
        at = len(self.cluster.log) - 1
        self.cluster.now_ms += 1_000
        self.step(Polled((Entry(PARTIALS, 0, at, self.cluster.log[at]),)))

    def answer(self) -> Transact:
        (transact,) = self.waiting
        self.waiting = []
        self.messages += transact.messages
        if transact.is_last:
            self.step(Committed(0, transact.number, 9, 99))
        else:
            self.step(Written(0, transact.number, 9))
        return transact


def lists_in(messages: list[Any]) -> int:
    return sum(len(each.lists or ()) for each in messages if isinstance(each, Delivered))


def test_lists_that_one_object_enters_are_written_in_parts_of_one_transaction() -> None:
    log = Log(entering())
    log.read()
    # Nothing more is made until the log has the first part.
    assert lists_in(list(log.waiting[0].messages)) < 20
    written = [log.answer()]
    while log.waiting:
        written.append(log.answer())
    assert len(written) > 3
    assert {each.number for each in written} == {written[0].number}
    assert [each.is_first for each in written] == [True] + [False] * (len(written) - 1)
    assert [each.is_last for each in written] == [False] * (len(written) - 1) + [True]
    # The progress says that all is sent: it comes last.
    progress = [each for each in log.messages if isinstance(each, Progress)]
    assert progress == [written[-1].messages[-1]]
    assert lists_in(log.messages) == len(NEAR)
    assert log.largest < 6 * LIMITS.waiting_bytes_max
    (newest,) = list(log.cluster.machine.windows[0].retained)[-1:]
    assert newest == (99, 9 * len(written))


def test_parts_are_committed_in_time_even_if_nothing_follows_them() -> None:
    log = Log(entering())
    log.read()
    window = log.cluster.machine.windows[0]
    while not log.waiting[0].is_last:
        log.answer()
    # As it is where the last list was in the part before.
    window.begun, window.closed, window.committing = log.waiting[0].number, [], 0
    assert not window.parts
    assert not window.lists.has_output
    assert log.cluster.machine.deadline_ms() is not None


def test_r5_a_merger_that_ends_between_parts_leaves_nothing_of_them() -> None:
    slots = entering()
    cluster = slots.cluster
    cluster.read(2, np.random.default_rng(0))
    assert cluster.parts
    # Its transaction is never committed.
    cluster.start()
    cluster.read(2, np.random.default_rng(0))
    lists = sent_lists(cluster.commit())
    assert sorted(lists) == sorted((each.id, ((2, 40.0), (1, 50.0))) for each in NEAR)
    slots.report(0, Match(NEAR[0], 3, 30.0))
    assert sent_lists(slots.take_sent()) == [("near0", ((3, 30.0), (2, 40.0)))]


def test_r5_a_transaction_whose_first_parts_are_gone_begins_again_at_the_last_progress() -> None:
    log = Log(entering())
    log.read()
    log.answer()
    (part,) = log.waiting
    assert not part.is_first
    log.waiting, log.effects = [], []
    log.step(Fenced(0, part.number))
    assert not log.cluster.machine.windows
    assert [type(each) for each in log.effects if isinstance(each, Fence | Load)] == [Fence, Load]


def test_steps_that_are_due_at_once_are_written_in_parts() -> None:
    slots = Slots(limits=LIMITS)
    for slot in (0, 1):
        slots.report(slot, *(Terms(each, 100, (("a", 1),)) for each in WORDS), time_ms=99)
    slots.report(0, time_ms=101)
    slots.take_sent()
    slots.report(1, time_ms=101)
    log = Log(slots)
    log.read()
    written = [log.answer()]
    while log.waiting:
        written.append(log.answer())
    assert len(written) > 2
    assert written[-1].is_last
    assert not any(each.is_last for each in written[:-1])
    assert lists_in(log.messages) == len(WORDS)
