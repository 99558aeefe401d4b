"""Lists of versions that continue others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sirocco.protocol.merger.live_lists import LiveLists
from tests.support.list_records import (
    End,
    ListChange,
    ListVersion,
    Match,
    Ranked,
    Seen,
    version,
)
from tests.support.merger_slots import BEST, NEAR, Slots
from tests.support.merger_states import state_of


def changes(sent: list[Any]) -> list[tuple[list[Any], list[Any], list[Any]]]:
    """Returns of each list what is new in it, what has left, and the whole."""
    return [
        (
            [name for name, _ in each.new],
            list(each.removed),
            [name for name, _ in each.entries],
        )
        for each in sent
        if isinstance(each, ListChange)
    ]


FIRST, SECOND, THIRD = (version(NEAR, number) for number in (5, 9, 12))


def send_first(slots: Slots) -> None:
    slots.report(0, Match(FIRST, 1, 10.0), Match(FIRST, 2, 20.0))
    assert changes(slots.take_sent()) == [([1, 2], [], [1, 2])]


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_version_that_continues_leads_on_from_the_last_list_sent(
    is_taken_over: bool,
) -> None:
    slots = Slots()
    send_first(slots)
    slots.report(0, End(FIRST, by=(0, 9), is_continued=True))
    if is_taken_over:
        # A successor that begins here knows this.
        window = slots.cluster.machine.windows[0]
        assert slots.take_sent() == []
        restored = LiveLists(slots=2)
        restored.restore(state_of(window.lists))
        window.lists = restored
    slots.report(0, Match(SECOND, 3, 30.0))
    # The other slot has yet to reach the update: its findings belong to the former version.
    slots.report(1, Match(FIRST, 4, 1.0))
    slots.report(1, End(FIRST, by=(0, 9), is_continued=True))
    slots.report(1, Match(SECOND, 5, 40.0))
    assert changes(slots.take_sent()) == [([3, 5], [1, 2], [3, 5])]
    slots.report(1, Match(SECOND, 6, 5.0))
    assert changes(slots.take_sent()) == [([6], [5], [6, 3])]


def test_a_query_that_is_registered_again_starts_its_list_from_nothing() -> None:
    slots = Slots()
    send_first(slots)
    slots.report(0, End(FIRST, by=(0, 9)))
    slots.report(0, Match(SECOND, 3, 30.0))
    assert changes(slots.take_sent()) == [([3], [], [3])]


def test_a_slot_that_passes_over_a_version_does_not_break_the_lists_of_others() -> None:
    slots = Slots()
    send_first(slots)
    slots.report(0, End(FIRST, by=(0, 9), is_continued=True))
    slots.report(0, Match(SECOND, 3, 30.0))
    assert changes(slots.take_sent()) == [([3], [1, 2], [3])]
    # It received only the third version.
    slots.report(1, End(FIRST, by=(0, 12), is_continued=True))
    slots.report(1, Match(THIRD, 4, 1.0))
    slots.report(0, Match(SECOND, 5, 2.0))
    assert changes(slots.take_sent()) == [([4], [3], [4])]
    slots.report(0, End(SECOND, by=(0, 12), is_continued=True))
    slots.report(0, Match(THIRD, 6, 3.0))
    assert changes(slots.take_sent()) == [([6], [], [4, 6])]
    slots.report(0, End(THIRD, by=(0, 20)))
    assert len(slots.known().knn) == 0


def test_results_of_a_version_are_sent_before_the_next_version_continues_them() -> None:
    """A process that reads the records again finds the same list, whenever others reported it."""
    slots = Slots()
    slots.report(0, Match(FIRST, 1, 10.0))
    slots.report(1, Match(FIRST, 2, 20.0))
    slots.report(0, End(FIRST, by=(0, 9), is_continued=True))
    slots.report(0, Match(SECOND, 3, 30.0))
    assert changes(slots.take_sent()) == [([1, 2], [], [1, 2]), ([3], [1, 2], [3])]


def test_a_successor_continues_lists_sent_in_windows_that_it_does_not_know() -> None:
    slots = Slots()
    send_first(slots)
    slots.report(0, End(FIRST, by=(0, 9), is_continued=True))
    assert slots.take_sent() == []
    # It reads all of it at once, and reports nothing.
    slots.cluster.start()
    slots.report(0, Match(SECOND, 3, 30.0))
    assert changes(slots.take_sent()) == [([3], [1, 2], [3])]


def test_another_subscriber_of_a_query_is_led_on_from_nothing() -> None:
    """A slot that did not hold the query reports nothing of the time before."""
    slots = Slots()
    send_first(slots)
    slots.report(1, Match(replace(SECOND, subscriber="bob"), 3, 30.0))
    slots.report(0, Match(FIRST, 4, 1.0))
    sent = {each.subscriber: each for each in slots.take_sent() if isinstance(each, ListChange)}
    assert changes([sent["bob"]]) == [([3], [], [3])]
    assert changes([sent["ann"]]) == [([4], [2], [4, 1])]


OLD, NEW = (version(BEST, number) for number in (5, 9))


def report_ranked(slots: Slots, asked: ListVersion, at_ms: int, *objects: int) -> None:
    """Appends a step that slot 0 reports alone, and that both have passed."""
    seen = tuple(Seen(number, (1, number), 50, 3, 10.0, (1, 1)) for number in objects)
    slots.report(
        0,
        Ranked(asked=asked, at_ms=at_ms, total=5, tokens=50, holders=(2, 1), seen=seen),
        time_ms=at_ms + 1,
    )
    slots.report(1, time_ms=at_ms + 1)


def ranked_lists(sent: list[Any]) -> list[tuple[int | None, list[int | str]]]:
    each_list = [each for each in sent if isinstance(each, ListChange)]
    return [(each.at_ms, [name for name, _ in each.entries]) for each in each_list]


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_a_ranked_version_without_results_empties_the_former_list(
    is_taken_over: bool,
) -> None:
    slots = Slots()
    report_ranked(slots, OLD, 100, 7)
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    for slot in (0, 1):
        slots.report(slot, End(OLD, 150, by=(0, 9), is_continued=True), time_ms=150)
    if is_taken_over:
        window = slots.cluster.machine.windows[0]
        assert slots.take_sent() == []
        restored = LiveLists(slots=2)
        restored.restore(state_of(window.lists))
        window.lists = restored
    report_ranked(slots, NEW, 200)
    report_ranked(slots, NEW, 300)
    assert ranked_lists(slots.take_sent()) == [(200, [])]
    report_ranked(slots, NEW, 400, 8)
    assert ranked_lists(slots.take_sent()) == [(400, [8])]


@pytest.mark.parametrize("late", [(6, 7), ()])
def test_a_later_ranked_version_repeats_its_list_after_a_step_of_the_version_before(
    late: tuple[int, ...],
) -> None:
    """Slots may lag: then the later version begins while steps of the earlier one are waiting."""
    slots = Slots()
    report_ranked(slots, OLD, 100, 7)
    report_ranked(slots, NEW, 110, 8)
    report_ranked(slots, OLD, 200, *late)
    assert ranked_lists(slots.take_sent()) == [(100, [7]), (110, [8]), (200, list(late))]
    # Without it, the subscriber would keep the list of the earlier version.
    report_ranked(slots, NEW, 210, 8)
    report_ranked(slots, NEW, 310, 8)
    assert ranked_lists(slots.take_sent()) == [(210, [8])]


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_a_slot_that_a_ranked_query_leaves_does_not_end_its_list(
    order: tuple[bool, bool],
) -> None:
    """It only learns that the query is no longer there."""
    slots = Slots()
    report_ranked(slots, OLD, 100, 7)
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    for slot, is_continued in enumerate(order):
        slots.report(slot, End(OLD, 150, by=(0, 9), is_continued=is_continued), time_ms=150)
    report_ranked(slots, NEW, 200)
    assert ranked_lists(slots.take_sent()) == [(200, [])]
    for slot in (0, 1):
        slots.report(slot, End(NEW, 250, by=(0, 20)), time_ms=250)
    slots.cluster.registry_saved(21)
    known = slots.known()
    assert (len(known.versions), len(known.steps), len(known.steps._sent_revisions)) == (0, 0, 0)


@pytest.mark.parametrize("is_continued", [True, False])
def test_a_ranked_version_of_which_an_end_was_the_first_word_is_led_on_from(
    is_continued: bool,
) -> None:
    """A slot that only held it for a change of the map may end it before others report a step."""
    slots = Slots()
    slots.report(1, End(OLD, 150, by=(0, 9), is_continued=is_continued), time_ms=150)
    seen = (Seen(7, (1, 7), 50, 3, 10.0, (1, 1)),)
    slots.report(
        0, Ranked(asked=OLD, at_ms=100, total=5, tokens=50, holders=(2, 1), seen=seen), time_ms=101
    )
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    slots.report(0, End(OLD, 150, by=(0, 9), is_continued=True), time_ms=150)
    report_ranked(slots, NEW, 200)
    assert ranked_lists(slots.take_sent()) == [(200, [])]


@pytest.mark.parametrize("order", [1, -1])
def test_a_ranked_query_that_moves_to_other_slots_only_empties_its_list(
    order: int,
) -> None:
    """The slots that it leaves get a removal with the revision of the next version."""
    slots = Slots()
    report_ranked(slots, OLD, 100, 7)
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    passed, last = version(BEST, 9), version(BEST, 12)
    for ended, by in [(OLD, 9), (passed, 12)][::order]:
        slots.report(0, End(ended, 150, by=(0, by)), time_ms=150)
    slots.report(1, time_ms=150)
    report_ranked(slots, last, 200)
    assert ranked_lists(slots.take_sent()) == [(200, [])]


def test_a_ranked_query_that_moves_after_a_new_registration_sends_nothing() -> None:
    slots = Slots()
    report_ranked(slots, OLD, 100, 7)
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    slots.report(0, End(OLD, 150, by=(0, 7)), time_ms=150)
    slots.report(1, time_ms=150)
    slots.report(0, End(NEW, 160, by=(0, 12)), time_ms=160)
    slots.report(1, time_ms=160)
    report_ranked(slots, version(BEST, 12), 200)
    assert ranked_lists(slots.take_sent()) == []


def test_a_ranked_query_registered_again_sends_no_missing_objects() -> None:
    slots = Slots()
    report_ranked(slots, OLD, 100, 7)
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    for slot in (0, 1):
        slots.report(slot, End(OLD, 150, by=(0, 7)), time_ms=150)
    report_ranked(slots, NEW, 200)
    assert ranked_lists(slots.take_sent()) == []
    for slot in (0, 1):
        slots.report(slot, End(NEW, 250, by=(0, 20)), time_ms=250)
    slots.cluster.registry_saved(21)
    # Nothing is kept of ended versions.
    known = slots.known()
    assert (len(known.versions), len(known.steps), len(known.steps._sent_revisions)) == (0, 0, 0)


def test_a_step_before_the_end_is_sent_after_a_slot_reported_the_removal() -> None:
    slots = Slots()
    report_ranked(slots, OLD, 100, 7)
    for slot in (0, 1):
        slots.report(slot, End(OLD, 150, by=(0, 9), is_continued=True), time_ms=150)
    slots.report(
        0, Ranked(asked=NEW, at_ms=200, total=5, tokens=50, holders=(2, 1), seen=()), time_ms=201
    )
    slots.report(0, End(NEW, 250, by=(0, 20)), time_ms=250)
    assert ranked_lists(slots.take_sent()) == [(100, [7])]
    slots.report(1, time_ms=201)
    assert ranked_lists(slots.take_sent()) == [(200, [])]
