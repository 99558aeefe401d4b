"""Hypergraphs cut in two, compared with all cuts of small ones."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.kernels.routing.hypergraph_cut import cut_in_two

SEEDS = st.integers(0, 2**32 - 1)


def weight_of_cut(nets, weights, side):
    return sum(
        weight
        for net, weight in zip(nets, weights, strict=True)
        if len({side[vertex] for vertex in net}) == 2
    )


def cut(nets, weights, loads, wanted, slack, passes=8):
    offsets = np.cumsum([0, *map(len, nets)]).astype(np.int64)
    pins = np.concatenate(nets).astype(np.int32)
    net = np.repeat(np.arange(len(nets), dtype=np.int32), np.diff(offsets))
    ends = np.cumsum(np.bincount(pins, minlength=len(loads)))
    side = np.empty(len(loads), np.uint8)
    reported = cut_in_two(
        offsets,
        pins,
        weights,
        np.concatenate([[0], ends]).astype(np.int64),
        net[np.argsort(pins, kind="stable")],
        loads,
        wanted,
        slack,
        passes,
        side,
    )
    return reported, side


def random_nets(rng, vertices):
    nets = [
        np.sort(rng.choice(vertices, int(rng.integers(2, min(vertices, 5) + 1)), replace=False))
        for _ in range(int(rng.integers(1, 15)))
    ]
    return nets, rng.integers(1, 4, len(nets)).astype(np.float64)


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_the_reported_cut_is_real_and_within_the_balance(seed):
    rng = np.random.default_rng(seed)
    vertices = int(rng.integers(2, 11))
    nets, weights = random_nets(rng, vertices)
    reported, side = cut(nets, weights, np.ones(vertices), vertices / 2, 1.0)
    assert reported == weight_of_cut(nets, weights, side), f"seed {seed}"
    assert abs((side == 0).sum() - vertices / 2) <= 1, f"seed {seed}"


def test_most_small_cuts_are_the_best_there_are():
    best = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        vertices = int(rng.integers(2, 9))
        nets, weights = random_nets(rng, vertices)
        reported, _ = cut(nets, weights, np.ones(vertices), vertices / 2, 1.0)
        best += reported == min(
            weight_of_cut(nets, weights, side)
            for side in itertools.product((0, 1), repeat=vertices)
            if abs(side.count(0) - vertices / 2) <= 1
        )
    assert best >= 80


def test_two_cliques_are_distinguished_and_sides_follow_the_load_wanted():
    rng = np.random.default_rng(1)
    member = rng.permutation(90)
    nets = [np.sort(member[rng.choice(30, 3, replace=False)]) for _ in range(300)]
    nets += [np.sort(member[30 + rng.choice(60, 3, replace=False)]) for _ in range(600)]
    nets.append(np.array([member[0], member[89]]))
    reported, side = cut(nets, np.ones(len(nets)), np.ones(90), 30.0, 2.0)
    assert reported == 1
    assert (side == 0).sum() == 30


def test_loads_decide_where_nets_do_not():
    loads = np.random.default_rng(2).uniform(1.0, 5.0, 60)
    _, side = cut([np.array([0, 1])], np.ones(1), loads, 0.3 * loads.sum(), 5.0)
    assert abs(loads[side == 0].sum() - 0.3 * loads.sum()) <= 5.0
