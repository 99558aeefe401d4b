"""Which positions are accepted (rule R2): every row counts once, and none is skipped."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from sirocco.protocol.contract.positions import (
    NO_TIME_MS,
    ROW_BITS,
    Intervals,
    Reached,
    offset_of,
    position_of,
)

BEYOND = np.iinfo(np.int64).max


def one(begin: int, end: int, time_ms: int = 0, source: int = 0) -> Intervals:
    return Intervals.of([(source, begin, end, time_ms)])


def test_positions_order_offsets_then_rows() -> None:
    assert position_of(3) < position_of(3, 1) < position_of(3, (1 << ROW_BITS) - 1) < position_of(4)
    assert offset_of(position_of(3, (1 << ROW_BITS) - 1)) == 3


def test_r2_a_following_interval_is_taken_whole() -> None:
    reached = Reached()
    assert reached.accept(one(0, 10)).tolist() == [0]
    assert reached.accept(one(10, 25)).tolist() == [10]
    assert reached.positions == {0: 25}


def test_r2_what_was_taken_is_a_repeat() -> None:
    reached = Reached({0: 25})
    assert reached.accept(one(10, 25)).tolist() == [BEYOND]
    assert reached.accept(one(10, 20)).tolist() == [BEYOND]
    assert reached.positions == {0: 25}
    assert reached.repeats == 1  # the equal end is a mark, not a repeat


def test_r2_an_overlap_is_trimmed() -> None:
    reached = Reached({0: 25})
    assert reached.accept(one(10, 40)).tolist() == [25]
    assert reached.positions == {0: 40}


def test_r2_after_a_gap_nothing_is_taken_not_even_the_time() -> None:
    reached = Reached({0: 25}, {0: 5})
    assert reached.accept(one(26, 40, time_ms=99)).tolist() == [BEYOND]
    assert (reached.positions, reached.times_ms, reached.gaps) == ({0: 25}, {0: 5}, 1)


def test_r2_an_equal_end_brings_a_later_time() -> None:
    reached = Reached({0: 25}, {0: 5})
    reached.accept(one(25, 25, time_ms=9))
    assert reached.times_ms == {0: 9}
    reached.accept(one(25, 25, time_ms=7))
    assert reached.times_ms == {0: 9}


def test_the_time_is_the_least_of_all_sources_and_none_may_be_missing() -> None:
    reached = Reached()
    reached.accept(Intervals.of([(0, 0, 1, 50), (2, 0, 1, 30)]))
    assert reached.time_ms(3) == NO_TIME_MS
    reached.accept(one(0, 1, time_ms=40, source=1))
    assert reached.time_ms(3) == 30


def test_a_number_beyond_the_sources_stands_for_none_of_them() -> None:
    reached = Reached()
    reached.accept(Intervals.of([(0, 0, 1, 50), (9, 0, 1, 30)]))
    assert reached.time_ms(2) == NO_TIME_MS


class Source:
    """The true events of a source: a number of rows, in this order."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.end = int(rng.integers(1, 400))

    def cut(self, rng: np.random.Generator, begin: int) -> list[tuple[int, int]]:
        """Splits all rows from `begin` on into chained intervals, as one producer does."""
        bounds = [begin]
        while bounds[-1] < self.end:
            bounds.append(min(self.end, bounds[-1] + int(rng.integers(0, 40))))
        return list(pairwise(bounds))


@pytest.mark.parametrize("seed", range(60))
def test_r2_a_zombie_and_its_successor_together_report_every_row_once(seed: int) -> None:
    # init: two producers of one source, of which the second begins at an earlier checkpoint and
    # splits differently; the log interleaves them in any way, and the zombie stops somewhere.
    rng = np.random.default_rng(seed)
    source = Source(rng)
    zombie = source.cut(rng, 0)
    zombie = zombie[: int(rng.integers(0, len(zombie) + 1))]
    checkpoint = int(rng.choice([begin for begin, _ in zombie])) if zombie else 0
    successor = source.cut(rng, checkpoint)
    # The successor's starting state was sent by the zombie: the checkpoint's barrier.
    before = [each for each in zombie if each[1] <= checkpoint]
    rest = [each for each in zombie if each[1] > checkpoint]
    log = list(before)
    while rest or successor:
        take_zombie = rest and (not successor or rng.random() < 0.5)
        log.append((rest if take_zombie else successor).pop(0))

    # test: a consumer takes the rows of each interval that are new to it.
    reached, seen = Reached(), []
    for begin, end in log:
        (fresh_from,) = reached.accept(one(begin, end)).tolist()
        seen += [row for row in range(begin, end) if row >= fresh_from]

    # check: compared with the set of rows.
    assert seen == list(range(source.end)), f"seed={seed}"
    assert reached.gaps == 0, f"seed={seed}"


@pytest.mark.parametrize("seed", range(40))
def test_r2_whatever_is_lost_and_repeated_rows_stay_in_order_and_unique(seed: int) -> None:
    rng = np.random.default_rng(seed)
    reached = Reached()
    seen: dict[int, list[Any]] = {0: [], 1: []}
    for _ in range(200):
        source = int(rng.integers(2))
        begin = int(rng.integers(0, 300))
        end = begin + int(rng.integers(0, 60))
        (fresh_from,) = reached.accept(one(begin, end, source=source)).tolist()
        seen[source] += [row for row in range(begin, end) if row >= fresh_from]
    for source, rows in seen.items():
        assert rows == list(range(reached.positions.get(source, 0))), f"seed={seed}"
