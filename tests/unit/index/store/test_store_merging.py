"""Merging: a merged slice is the slice of all rows; which slices are merged, and when."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.merging import choose_merge, merge_slices
from sirocco.index.store.sealing import seal
from sirocco.index.store.slices import SealedSlice
from sirocco.model.objects import MISSING_TS
from tests.support.store_rows import random_rows


def assert_same_slice(got: SealedSlice, want: SealedSlice) -> None:
    for name in set(SealedSlice.__slots__) - {"table_row"}:
        mine, other = getattr(got, name), getattr(want, name)
        if isinstance(mine, tuple):
            assert all(np.array_equal(a, b) for a, b in zip(mine, other, strict=True)), name
        else:
            assert type(mine) is type(other), name
            if isinstance(mine, np.ndarray):
                assert mine.dtype == other.dtype, name
            assert np.array_equal(mine, other), name


@pytest.mark.parametrize("seed", range(12))
def test_merged_is_sealed_at_once(seed: int) -> None:
    rng = random.Random(seed)
    parts = []
    seq = rng.choice([0, 77, 2**40])
    for _ in range(rng.randrange(2, 6)):
        size = rng.choice([1, 3, 40, 600])
        parts.append(random_rows(rng, size, seq, vocabulary=rng.choice([5, 60, 400])))
        seq += size
    if seed % 3 == 1:
        for part in parts:
            part.objects.ts[:] = part.arrivals_ms if seed % 2 else MISSING_TS
    want = seal(StoredRows.concat(parts))
    got = merge_slices([seal(part) for part in parts])
    print(f"seed={seed}")
    assert_same_slice(got, want)


def sized(*sizes: int) -> list[SealedSlice]:
    rng, seq, slices = random.Random(1), 0, []
    for size in sizes:
        slices.append(seal(random_rows(rng, size, seq, vocabulary=9)))
        seq += size
    return slices


def test_few_slices_are_left_alone() -> None:
    assert choose_merge(sized(1, 2, 3), 3, 100) is None
    assert choose_merge([], 0, 100) is None


def test_small_neighbours_are_merged_first() -> None:
    slices = sized(40, 30, 2, 2, 2)
    chosen = choose_merge(slices, 4, 1000)
    assert chosen is not None
    assert [len(s) for s in chosen] == [2, 2, 2]


def test_full_slices_do_not_count_and_are_not_merged() -> None:
    slices = sized(50, 60, 4, 5, 50)
    assert choose_merge(slices, 2, 100) is None
    chosen = choose_merge(slices, 1, 100)
    assert chosen is not None
    assert [len(s) for s in chosen] == [4, 5]


def test_nothing_is_merged_across_a_gap() -> None:
    slices = sized(4, 5, 6)
    assert choose_merge([slices[0], slices[2]], 1, 100) is None


def test_every_object_is_merged_a_few_times_however_many_come() -> None:
    """The rows that merges write stay a small multiple of all rows, and slices few."""

    class Sized:
        def __init__(self, first: int, rows: int) -> None:
            self.first_seq, self.last_seq = first, first + rows - 1
            self.terms = self.vocabulary = range(10 * rows)
            self.content_bytes = 70 * rows

        def __len__(self) -> int:
            return self.last_seq - self.first_seq + 1

    slices: list[Sized] = []
    written = 0
    for number in range(1_000):
        slices.append(Sized(number * 16_384, 16_384))
        while chosen := choose_merge(slices, 8, 1 << 20):  # type: ignore[arg-type]
            at = slices.index(chosen[0])  # type: ignore[arg-type]
            merged = Sized(chosen[0].first_seq, sum(map(len, chosen)))
            slices[at : at + len(chosen)] = [merged]
            written += len(merged)
        full = sum(1 for s in slices if 2 * len(s) >= 1 << 20)
        assert len(slices) - full <= 8
    assert full * (1 << 19) <= 1_000 * 16_384
    assert written < 3 * 1_000 * 16_384
