"""Minimum Cost Migration: DP compared with all subsets, GR with its definition, SI and RA."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.balance.ps2stream.migration import (
    at_random,
    by_size,
    dynamic_programming,
    greedy,
)

SEEDS = st.integers(0, 2**32 - 1)
ALL = (dynamic_programming, greedy, by_size, at_random)


def random_cells(rng):
    count = int(rng.integers(0, 9))
    size = rng.integers(0, 12, count)
    load = rng.integers(0, 12, count).astype(np.float64)
    return size, load, float(rng.integers(0, int(load.sum()) + 2)) if count else 1.0


def least_size(size, load, wanted):
    """Returns the least size of all sets; None if none reaches the wanted load."""
    rows = range(len(size))
    sets = itertools.chain.from_iterable(
        itertools.combinations(rows, n) for n in range(len(size) + 1)
    )
    fits = [sum(size[i] for i in one) for one in sets if sum(load[i] for i in one) >= wanted]
    return min(fits, default=None)


@settings(max_examples=200, deadline=None)
@given(SEEDS)
def test_dp_is_optimal(seed):
    rng = np.random.default_rng(seed)
    size, load, wanted = random_cells(rng)
    best = least_size(size, load, wanted)
    chosen = dynamic_programming(size, load, wanted)
    if best is None:
        assert load[chosen].sum() == load.sum(), f"seed {seed}"
    elif wanted > 0:
        assert load[chosen].sum() >= wanted, f"seed {seed}"
        assert size[chosen].sum() == best, f"seed {seed} {size} {load} {wanted}"


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_dp_with_coarse_units_still_reaches_what_is_wanted(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 12))
    size, load = rng.integers(1, 10**6, count), rng.random(count)
    wanted = float(load.sum() * rng.random())
    chosen = dynamic_programming(size, load, wanted, table_bytes_max=4096)
    assert load[chosen].sum() >= wanted * (1 - 1e-9), f"seed {seed}"
    exact = least_size(size, load, wanted)
    unit = -(-int(size[greedy(size, load, wanted)].sum() + 1) * count // 4096)
    assert exact <= size[chosen].sum() <= exact + unit * count, f"seed {seed}"


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_gr_takes_the_best_of_the_candidates_of_figure_5(seed):
    rng = np.random.default_rng(seed)
    size, load, wanted = random_cells(rng)
    order = sorted(
        (i for i in range(len(size)) if load[i] > 0), key=lambda i: (size[i] / load[i], i)
    )
    gathered: list[Any] = []
    candidates: list[Any] = []
    for cell in order:
        if sum(load[i] for i in gathered) + load[cell] < wanted:
            gathered.append(cell)
        else:
            candidates.append(sum(size[i] for i in gathered) + size[cell])
    chosen = greedy(size, load, wanted)
    expected = min(candidates) if candidates else sum(size[i] for i in gathered)
    assert size[chosen].sum() == expected, f"seed {seed}"
    if candidates:
        assert load[chosen].sum() >= wanted, f"seed {seed}"


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_all_reach_what_is_wanted_and_none_is_better_than_dp(seed):
    rng = np.random.default_rng(seed)
    size, load, wanted = random_cells(rng)
    sizes = []
    for select in ALL:
        chosen = select(size, load, wanted)
        assert len(set(chosen.tolist())) == len(chosen)
        assert (load[chosen] > 0).all()
        assert load[chosen].sum() >= min(wanted, load.sum()), f"seed {seed}, {select.__name__}"
        sizes.append(int(size[chosen].sum()))
    if wanted > 0:
        assert sizes[0] <= min(sizes), f"seed {seed}"


def test_on_many_cells_gr_moves_less_than_si_and_ra():
    """PS2Stream VI.D: GR incurs 30 to 40 % less migration cost than both."""
    rng = np.random.default_rng(3)
    ratios = []
    for _ in range(20):
        size = rng.integers(1, 10_000, 400)
        load = rng.lognormal(0, 1, 400)
        wanted = float(load.sum()) / 4
        costs = [float(size[select(size, load, wanted)].sum()) for select in ALL]
        assert costs[0] <= costs[1] <= 1.1 * costs[0]
        ratios.append((costs[1] / costs[2], costs[1] / costs[3]))
    assert (np.mean(ratios, 0) < 0.6).all()


def test_ra_repeats_itself_and_differs_by_seed():
    size, load = np.ones(50, np.int64), np.ones(50)
    assert at_random(size, load, 9.0, 5).tolist() == at_random(size, load, 9.0, 5).tolist()
    assert at_random(size, load, 9.0, 5).tolist() != at_random(size, load, 9.0, 6).tolist()
