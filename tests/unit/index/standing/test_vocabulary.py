"""The vocabulary against dict and Counter; the array that grows in place."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from sirocco.index.base.growable import HUGE_PAGES_BYTES_MIN, GrowableArray
from sirocco.index.standing.vocabulary import Vocabulary
from sirocco.kernels.standing.term_ids import UNKNOWN


def as_hashes(terms: list[int]) -> np.ndarray:
    return np.array(terms, np.uint64)


@pytest.mark.parametrize("seed", range(3))
def test_ids_are_stable_while_used_and_given_again_after(seed: int) -> None:
    rng = random.Random(seed)
    vocabulary, most = Vocabulary(), 0
    uses: Counter[Any] = Counter()
    ids: dict[Any, Any] = {}
    held: list[tuple[int, int]] = []
    for step in range(200):
        terms = [rng.randrange(5_000) for _ in range(rng.randrange(200))]
        for term, term_id in zip(terms, vocabulary.acquire(as_hashes(terms)).tolist(), strict=True):
            assert ids.setdefault(term, term_id) == term_id, f"seed={seed} step={step}"
            held.append((term, term_id))
            uses[term] += 1
        most = max(most, len(+uses))
        rng.shuffle(held)
        cut = rng.randrange(len(held) + 1)
        removed, held = held[:cut], held[cut:]
        vocabulary.release(np.array([term_id for _, term_id in removed], np.int32))
        uses.subtract(term for term, _ in removed)
        ids = {term: term_id for term, term_id in ids.items() if uses[term] > 0}
        assert len(vocabulary) == len(ids), f"seed={seed} step={step}"
        assert len(set(ids.values())) == len(ids), f"seed={seed} step={step}"
        assert not ids or max(ids.values()) < most + 2 + 200, f"seed={seed}: ids are not reused"
        asked = list(range(0, 5_000, 37))
        want = [ids.get(term, UNKNOWN) for term in asked]
        assert vocabulary.look_up(as_hashes(asked)).tolist() == want, f"seed={seed} step={step}"


def test_frequencies_follow_objects_once_enough_were_seen() -> None:
    vocabulary = Vocabulary()
    often, seldom = vocabulary.acquire(as_hashes([7, 8])).tolist()
    vocabulary.acquire(as_hashes([8]))
    assert vocabulary.frequencies[often] < vocabulary.frequencies[seldom]
    vocabulary.observe(np.array([often, often, UNKNOWN], np.int32), 0, 3, 5_000)
    assert vocabulary.frequencies[often] > vocabulary.frequencies[seldom]
    vocabulary.seed_frequencies(as_hashes([8, 9]), np.array([100, 5]), 1_000)
    assert vocabulary.frequencies[seldom] > vocabulary.frequencies[often]


def test_growable_array_keeps_its_elements() -> None:
    array = GrowableArray(np.int32, 10)
    array.array[:10] = np.arange(10)
    assert array.reserve(HUGE_PAGES_BYTES_MIN)
    assert not array.reserve(HUGE_PAGES_BYTES_MIN)
    assert array.array[:10].tolist() == list(range(10))
    assert not array.array[10:5_000].any()
    assert len(array.array) >= HUGE_PAGES_BYTES_MIN
