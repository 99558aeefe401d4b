"""Which slots may answer a request with a position token."""

from __future__ import annotations

from sirocco.protocol.contract.positions import Reached, position_of
from sirocco.protocol.evaluator.search_visibility import TokenCheck


class Slot:
    """The attributes of a slot that a request reads."""

    def __init__(self, offset: int) -> None:
        self.reached = Reached()
        self.reached.positions[0] = position_of(offset)


def test_the_slot_that_was_seen_to_have_come_far_enough_answers() -> None:
    slots = {3: Slot(12)}
    arrived = TokenCheck(slots.get, [3], {0: 11})
    assert arrived.check()
    assert arrived.slot(3) is slots[3]


def test_a_search_waits_for_a_slot_that_lags() -> None:
    slots = {3: Slot(12)}
    arrived = TokenCheck(slots.get, [3], {0: 12})
    assert not arrived.check()
    slots[3].reached.positions[0] = position_of(13)
    assert arrived.check()


def test_a_slot_that_came_after_the_look_does_not_answer() -> None:
    slots: dict[int, Slot] = {}
    arrived = TokenCheck(slots.get, [3], {0: 11})
    assert arrived.check()
    slots[3] = Slot(0)
    assert arrived.slot(3) is None


def test_a_slot_that_was_lost_and_returned_does_not_answer_from_its_former_state() -> None:
    slots = {3: Slot(12)}
    arrived = TokenCheck(slots.get, [3], {0: 11})
    assert arrived.check()
    slots.pop(3)
    assert arrived.slot(3) is None
    slots[3] = Slot(20)
    assert arrived.slot(3) is None
    assert arrived.check()
    assert arrived.slot(3) is slots[3]
