"""Actions that wait for acknowledgements run in order, and not before."""

from __future__ import annotations

import random

import pytest

from sirocco.runtime.loop.barriers import Barriers


def test_without_appends_an_action_is_due_at_once() -> None:
    barriers, ran = Barriers(), []
    barriers.after_all(lambda: ran.append(1))
    assert ran == []
    barriers.run_due()
    assert ran == [1]


@pytest.mark.parametrize("seed", range(50))
def test_an_action_runs_when_all_before_it_is_acknowledged_in_any_order(seed: int) -> None:
    rng = random.Random(seed)
    barriers = Barriers()
    open_numbers: set[int] = set()
    ran: list[int] = []
    needed: list[set[int]] = []
    for _ in range(200):
        step = rng.random()
        if step < 0.4:
            open_numbers.add(barriers.begin())
        elif step < 0.7 and open_numbers:
            number = rng.choice(sorted(open_numbers))
            open_numbers.remove(number)
            barriers.end(number)
        elif step < 0.85:
            place = len(needed)
            needed.append(set(open_numbers))
            barriers.after_all(lambda place=place: ran.append(place))
        else:
            barriers.run_due()
            due = 0
            while due < len(needed) and not needed[due] & open_numbers:
                due += 1
            assert ran == list(range(due)), f"seed={seed}"
    for number in open_numbers:
        barriers.end(number)
    barriers.run_due()
    assert (ran, barriers.unacknowledged) == (list(range(len(needed))), 0), f"seed={seed}"
