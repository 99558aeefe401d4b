"""Memory for lists: no two overlap, and returned memory is reused."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from sirocco.index.standing.list_store import ListStore


@pytest.mark.parametrize("seed", range(4))
def test_lists_never_overlap(seed: int) -> None:
    print(f"seed={seed}")
    rng = random.Random(seed)
    store = ListStore()
    held: dict[int, int] = {}
    total_max = 0
    for _ in range(200):
        if rng.random() < 0.55:
            lengths = np.array([rng.choice([1, 2, 7, 100]) for _ in range(rng.randrange(9))])
            begins = store.take(lengths.astype(np.int64))
            for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True):
                assert begin not in held
                held[begin] = length
        else:
            removed = rng.sample(sorted(held), len(held) // 2)
            lengths = np.array([held.pop(begin) for begin in removed], np.int64)
            store.free(np.array(removed, np.int64), lengths)
        places = sorted(held.items())
        for (begin, length), (following, _) in pairwise(places):
            assert begin + length <= following
        if places:
            assert 4 * sum(places[-1]) <= len(store.words)
        total_max = max(total_max, sum(held.values()))
    assert store.bytes_total <= 32 * 4 * total_max  # each length may have had its own peak


def test_room_is_given_again() -> None:
    store = ListStore()
    first = store.take(np.full(10, 5, np.int64))
    store.free(first[3:8], np.full(5, 5, np.int64))
    again = store.take(np.full(3, 5, np.int64))
    assert set(again.tolist()) <= set(first[3:8].tolist())
    more = store.take(np.full(3, 5, np.int64))
    assert len({*first[:3].tolist(), *first[8:].tolist(), *again.tolist(), *more.tolist()}) == 11
    assert store.bytes_total == 32 * 55
