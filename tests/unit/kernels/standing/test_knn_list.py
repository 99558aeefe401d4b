"""Lists of bounded length, compared with sorted Python lists."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from sirocco.kernels.base.geometry import distance_m
from sirocco.kernels.standing.knn_list import (
    ENTRY_WORDS,
    comes_before_last,
    millimetres,
    put_entries,
    put_entry,
    round_mm,
)

U8 = np.uint64
BEGIN = 3
GUARD = 77


def entries_of(words: np.ndarray, count: int) -> list[tuple[int, ...]]:
    held = words[BEGIN * ENTRY_WORDS :][: count * ENTRY_WORDS].reshape(-1, ENTRY_WORDS)
    return sorted(map(tuple, held.tolist()))


def random_entry(rng: random.Random) -> tuple[int, int, int, int]:
    """Returns few different values, so that every word decides at times; some negative as i8."""
    return (
        rng.randrange(5),
        rng.choice([0, 1, (1 << 64) - 1, 1 << 63]),
        rng.choice([0, 5, 1 << 63]),
        rng.randrange(40),
    )


@pytest.mark.parametrize("k", [1, 2, 3, 10, 40])
def test_single_entries_equal_a_sorted_list(k: int) -> None:
    seed = k
    print(f"seed={seed}")
    rng = random.Random(seed)
    words = np.full((BEGIN + k + 1) * ENTRY_WORDS, GUARD, U8)
    held: list[tuple[int, ...]] = []
    count = 0
    for _ in range(400):
        entry = random_entry(rng)
        if entry in held:
            continue
        args = [U8(part) for part in entry]
        is_taken = len(held) < k or entry < held[-1]
        if len(held) == k:
            assert bool(comes_before_last(words, BEGIN, *args)) == is_taken
        if is_taken:
            count = put_entry(words, BEGIN, count, k, *args)
            held = sorted([*held, entry])[:k]
        assert entries_of(words, count) == held
        assert tuple(words[BEGIN * ENTRY_WORDS :][:ENTRY_WORDS].tolist()) == held[-1]
    assert (words[: BEGIN * ENTRY_WORDS] == GUARD).all()
    assert (words[(BEGIN + k) * ENTRY_WORDS :] == GUARD).all()


@pytest.mark.parametrize("seed", range(5))
def test_many_entries_equal_a_sorted_list(seed: int) -> None:
    """Entries are added in batches, some of them again."""
    print(f"seed={seed}")
    rng = random.Random(seed)
    k = rng.choice([1, 4, 25])
    words = np.full((BEGIN + k) * ENTRY_WORDS, GUARD, U8)
    held: list[tuple[int, ...]] = []
    count = 0
    for _ in range(40):
        lot = sorted({random_entry(rng) for _ in range(rng.randrange(12))} | set(held[:2]))
        rng.shuffle(lot)
        columns = np.array(lot, U8).reshape(-1, 4).T
        count = put_entries(
            words, BEGIN, count, k, columns[0].astype(np.int64),
            *(np.ascontiguousarray(column) for column in columns[1:]),
        )  # fmt: skip
        held = sorted({*held, *lot})[:k]
        assert entries_of(words, count) == held


def test_rounding_is_that_of_distances() -> None:
    """One rounding everywhere: whole millimetres, ties to even, f8 metres back."""
    seed = 4
    print(f"seed={seed}")
    rng = random.Random(seed)
    for _ in range(20_000):
        metres = rng.choice([10.0, 1e4, 1e7, 2.0015e7]) * rng.random()
        rounded = float(round_mm(metres))
        assert rounded == float(np.rint(metres * 1000.0) / 1000.0)
        assert abs(Fraction(rounded) - Fraction(metres)) <= Fraction(1, 2000) + Fraction(1, 10**8)
        assert float(round_mm(rounded)) == rounded
        assert int(millimetres(rounded)) == int(millimetres(metres))
        assert int(millimetres(metres)) / 1000.0 == rounded
        place = (rng.uniform(-180, 180), rng.uniform(-90, 90))
        other = (place[0] + rng.uniform(-1, 1) * metres / 1e8, rng.uniform(-90, 90))
        distance = float(distance_m(*place, *other))
        assert float(round_mm(distance)) == distance
    assert [int(millimetres(x)) for x in (0.0005, 0.0015, 0.0025)] == [0, 2, 2]
