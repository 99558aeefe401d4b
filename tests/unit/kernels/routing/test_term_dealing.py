"""Terms assigned to children, compared with the definition term by term."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.kernels.routing.term_dealing import deal_terms

SEEDS = st.integers(0, 2**32 - 1)


def load(seekers, queries, costs):
    check, handling, update = costs
    return check * len(seekers) * queries + handling * len(seekers) + update * queries


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_each_term_goes_where_the_squared_loads_grow_least(seed):
    rng = np.random.default_rng(seed)
    terms, objects, children = (int(rng.integers(1, n)) for n in (12, 15, 6))
    rows = [np.flatnonzero(rng.random(objects) < 0.4) for _ in range(terms)]
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.int64)
    holders = np.concatenate(rows).astype(np.int32)
    queries = rng.integers(0, 5, terms).astype(np.float64)
    costs = (0.25, 1.0, 0.5)
    order = rng.permutation(terms)
    child = np.empty(terms, np.int32)
    seekers, keyed = np.zeros(children), np.zeros(children)
    deal_terms(order, offsets, holders, queries, objects, *costs, child, seekers, keyed)
    sought: list[set[Any]] = [set() for _ in range(children)]
    asked = [0.0] * children
    for term in order:
        growths = []
        for at in range(children):
            after = load(sought[at] | set(rows[term]), asked[at] + queries[term], costs)
            growths.append(after**2 - load(sought[at], asked[at], costs) ** 2)
        assert growths[child[term]] == min(growths), f"seed {seed}, term {term}"
        sought[child[term]] |= set(rows[term])
        asked[child[term]] += queries[term]
    assert seekers.tolist() == [len(one) for one in sought], f"seed {seed}"
    assert keyed.tolist() == asked, f"seed {seed}"
