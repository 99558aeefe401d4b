"""How much a turn takes, from what turns have cost."""

from __future__ import annotations

from sirocco.runtime.loop.turn_size import FACTOR_MAX, TurnSize


def test_cheap_full_turns_are_followed_by_larger_ones() -> None:
    size = TurnSize(100, 1_000, 0.05)
    assert (size.records_max, size.bytes_wanted) == (100, 1_000)
    size.note(0.01, was_full=True)
    assert (size.records_max, size.bytes_wanted) == (200, 2_000)
    for _ in range(20):
        size.note(0.01, was_full=True)
    assert (size.records_max, size.bytes_wanted) == (100 * FACTOR_MAX, 1_000 * FACTOR_MAX)


def test_a_dear_turn_is_followed_by_smaller_ones() -> None:
    size = TurnSize(100, 1_000, 0.05)
    for _ in range(2):
        size.note(0.01, was_full=True)
    size.note(0.06, was_full=False)
    assert size.records_max == 200
    for _ in range(20):
        size.note(0.06, was_full=True)
    assert (size.records_max, size.bytes_wanted) == (100, 1_000)


def test_after_a_very_dear_turn_all_begins_anew() -> None:
    size = TurnSize(100, 1_000, 0.05)
    for _ in range(2):
        size.note(0.01, was_full=True)
    assert size.records_max == 400
    size.note(0.5, was_full=True)
    assert size.records_max == 100


def test_turns_that_take_all_there_is_change_nothing() -> None:
    size = TurnSize(100, 1_000, 0.05)
    size.note(0.0, was_full=False)
    assert size.records_max == 100
    # Twice as many would be too dear.
    size.note(0.03, was_full=True)
    assert size.records_max == 100
