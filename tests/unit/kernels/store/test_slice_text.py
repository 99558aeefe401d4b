"""Texts of conditions, compared with rows of terms."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sirocco.kernels.store.slice_text import (
    choose_anchors,
    find_term,
    first_holding_hashes,
    number_hashes,
    only_term,
    text_holds,
)


@pytest.mark.parametrize("size", [0, 1, 2, 63, 64, 65, 1_000, 20_000])
@pytest.mark.parametrize("spread", ["even", "low", "high", "steps"])
def test_terms_are_found_however_hashes_are_spread(size: int, spread: str) -> None:
    """The expected place is right for even hashes; others only take longer."""
    rng = np.random.default_rng(size)
    if spread == "even":
        values = rng.integers(0, 2**64, size, np.uint64)
    elif spread == "low":
        values = rng.integers(0, 5 * size + 1, size).astype(np.uint64)
    elif spread == "high":
        values = np.uint64(2**64 - 1) - rng.integers(0, 5 * size + 1, size).astype(np.uint64)
    else:
        values = (rng.integers(0, 8, size).astype(np.uint64) << np.uint64(61)) + rng.integers(
            0, size + 1, size
        ).astype(np.uint64)
    vocabulary = np.unique(np.concatenate([values, np.array([0, 2**64 - 1], np.uint64)[:size]]))
    known = {int(term): place for place, term in enumerate(vocabulary)}
    some = [int(term) for term in vocabulary[:: max(1, size // 200)]]
    for term in {*some, *(t + 1 for t in some), *(t - 1 for t in some), 0, 2**64 - 1}:
        if 0 <= term < 2**64:
            assert find_term(vocabulary, np.uint64(term)) == known.get(term, -1), term


@pytest.mark.parametrize("seed", range(8))
def test_texts_match_as_sets_of_terms(seed: int) -> None:
    rng = random.Random(seed)
    vocabulary = np.arange(10, 30, dtype=np.uint64) * np.uint64(3)
    rows = [sorted(rng.sample(range(20), rng.choice([0, 1, 4, 9]))) for _ in range(60)]
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.uint32)
    words = np.array([n | rng.randrange(1, 256) << 24 for row in rows for n in row], np.uint32)
    counts = np.bincount([n for row in rows for n in row], minlength=20)
    posting_offsets = np.cumsum([0, *counts]).astype(np.uint32)
    for _ in range(200):
        conjunctions = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            # Number 20 and above are not in the slice.
            wanted = rng.sample(range(22), rng.choice([1, 1, 2, 3]))
            refused = [
                n for n in rng.sample(range(22), rng.choice([0, 0, 1, 2])) if n not in wanted
            ]
            conjunctions.append((wanted, refused))
        heads, flat = [0], []
        for wanted, refused in conjunctions:
            flat += wanted
            heads.append(len(flat))
            flat += refused
            heads.append(len(flat))
        hashes = np.array([(10 + n) * 3 for n in flat], np.uint64)
        words_of = np.array([0, 0, 0, len(conjunctions), 5, *heads], np.int64)
        numbers, anchors = np.empty(len(flat), np.int64), np.empty(len(conjunctions), np.int64)
        number_hashes(vocabulary, hashes, numbers)
        assert numbers.tolist() == [n if n < 20 else -1 for n in flat]
        total = choose_anchors(words_of, 5, len(conjunctions), numbers, posting_offsets, anchors)
        rarest = [
            min(counts[n] for n in wanted) if max(wanted) < 20 else 0 for wanted, _ in conjunctions
        ]
        assert total == sum(rarest)
        only = only_term(words_of, 5, len(conjunctions), numbers)
        assert (only >= 0) == (flat == conjunctions[0][0][:1] and flat[0] < 20)
        for row, own in enumerate(rows):
            want = [
                set(wanted) <= set(own) and not set(refused) & set(own)
                for wanted, refused in conjunctions
            ]
            if only < 0 and flat == conjunctions[0][0][:1]:
                continue  # the slice lacks the only term: no row is examined
            common = (words_of, len(conjunctions), numbers, anchors, only, offsets, words, row)
            assert bool(text_holds(*common, -1)) == any(want), f"seed={seed} {conjunctions} {own}"
            # By an anchor's list a row counts once, for the first conjunction that holds.
            for i, anchor in enumerate(anchors.tolist()):
                if anchor >= 0 and flat[anchor] in own:
                    found = bool(text_holds(*common, i))
                    assert found == (any(want) and want.index(True) == i)
            terms = np.array([(10 + n) * 3 for n in own], np.uint64)
            first = first_holding_hashes(words_of, 5, len(conjunctions), hashes, terms, 0, len(own))
            assert first == (want.index(True) if any(want) else -1)
