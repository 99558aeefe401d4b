"""Sealed slices: nothing is lost, and the columns for searches agree with the rows."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.active_slice import ActiveView
from sirocco.index.store.gathering import gather_rows, slice_rows
from sirocco.index.store.sealing import seal
from sirocco.index.store.slices import (
    BLOCK_ROWS,
    FANOUT,
    TERM_MASK,
    SealedSlice,
)
from sirocco.index.store.store import SlotStore
from sirocco.kernels.store.slice_curve import curve_keys
from tests.support.store_rows import assert_equal_rows, random_rows

SIZES = [1, 2, BLOCK_ROWS, BLOCK_ROWS + 1, 700, BLOCK_ROWS * FANOUT * 2 + 3]


def gathered(slice_: SealedSlice, rows: np.ndarray) -> StoredRows:
    return gather_rows([slice_], np.zeros(len(rows), np.int64), rows)


def in_log_order(slice_: SealedSlice) -> StoredRows:
    return gathered(slice_, np.argsort(slice_.seqs))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("seed", range(3))
def test_rows_come_out_as_they_went_in(size: int, seed: int) -> None:
    rows = random_rows(random.Random(seed), size, first_seq=seed * 2**33)
    sealed = seal(rows)
    print(f"seed={seed} size={size}")
    assert_equal_rows(in_log_order(sealed), rows)
    assert (sealed.first_seq, sealed.last_seq) == (seed * 2**33, seed * 2**33 + size - 1)
    assert sealed.arrival_first_ms == rows.arrivals_ms.min()
    assert sealed.arrival_last_ms == rows.arrivals_ms.max()


@pytest.mark.parametrize("seed", range(3))
def test_rows_without_their_terms_are_otherwise_the_same(seed: int) -> None:
    stored = random_rows(random.Random(seed), 300)
    store = SlotStore()
    store.append_rows(stored.take(np.arange(250)))
    store.seal()
    store.append_rows(stored.take(np.arange(250, 300)))
    view = store.view()
    sources: list[SealedSlice | ActiveView] = [*view.sealed, view.active]
    numbers = np.repeat(np.arange(len(sources)), [len(source) for source in sources])
    rows = np.concatenate([np.arange(len(source)) for source in sources])
    assert len(view.sealed) > 0
    assert len(view.active) > 0
    want = gather_rows(sources, numbers, rows)
    got = gather_rows(sources, numbers, rows, terms=False)
    assert len(want.terms) > 0
    assert len(got.terms) == len(got.counts) == got.term_offsets.max() == 0
    without = {name: getattr(got, name) for name in ("term_offsets", "terms", "counts")}
    assert_equal_rows(got, replace(want, **without))


@pytest.mark.parametrize("seed", range(3))
def test_sealing_the_rows_of_a_slice_gives_the_slice(seed: int) -> None:
    sealed = seal(random_rows(random.Random(seed), 500))
    again = seal(StoredRows.from_columns(slice_rows(sealed).columns()))
    for name in set(SealedSlice.__slots__) - {"table_row"}:
        mine, other = getattr(sealed, name), getattr(again, name)
        if isinstance(mine, tuple):
            assert all(np.array_equal(a, b) for a, b in zip(mine, other, strict=True)), name
        else:
            assert np.array_equal(mine, other), name


@pytest.mark.parametrize("size", SIZES)
def test_rows_follow_the_curve_and_ties_the_log(size: int) -> None:
    sealed = seal(random_rows(random.Random(size), size))
    keys = np.empty(size, np.uint64)
    curve_keys(sealed.lon, sealed.lat, keys)
    pairs = list(zip(keys.tolist(), sealed.seqs.tolist(), strict=True))
    assert pairs == sorted(pairs)


@pytest.mark.parametrize("size", SIZES)
def test_postings_invert_the_terms(size: int) -> None:
    sealed = seal(random_rows(random.Random(size), size))
    want: dict[int, list[int]] = {}
    for row in range(size):
        words = sealed.terms[sealed.term_offsets[row] : sealed.term_offsets[row + 1]]
        numbers = (words & TERM_MASK).tolist()
        assert numbers == sorted(set(numbers))
        for number in numbers:
            want.setdefault(number, []).append(row)
    got = {
        number: sealed.postings[begin:end].tolist()
        for number, (begin, end) in enumerate(
            zip(sealed.posting_offsets[:-1], sealed.posting_offsets[1:], strict=True)
        )
    }
    assert got == want
    assert (np.diff(sealed.vocabulary.astype(object)) > 0).all()


@pytest.mark.parametrize("size", SIZES)
def test_boxes_of_nodes_hold_their_rows_closely(size: int) -> None:
    sealed = seal(random_rows(random.Random(size), size))
    span = BLOCK_ROWS
    for first, last in zip(sealed.levels[:-1], sealed.levels[1:], strict=True):
        assert last - first == -(-size // span)
        for node in range(first, last):
            rows = slice((node - first) * span, (node - first + 1) * span)
            lon, lat = sealed.lon[rows], sealed.lat[rows]
            box = sealed.boxes[4 * node : 4 * node + 4].astype(np.float64)
            exact = np.array([lon.min(), lat.min(), -lon.max(), -lat.max()])
            assert (box <= exact).all()
            assert np.allclose(box, exact, rtol=1e-6, atol=1e-30)
        span *= FANOUT
    assert sealed.levels[-1] - sealed.levels[-2] == 1
    sums = [int(sealed.lengths[:at].sum()) for at in range(0, size, BLOCK_ROWS)]
    assert sealed.block_lengths.tolist() == [*sums, int(sealed.lengths.sum())]


def test_gathered_rows_may_repeat_and_stand_in_any_order() -> None:
    rows = random_rows(random.Random(5), 100)
    sealed = seal(rows)
    wanted = np.array([7, 3, 3, 99, 0])
    assert_equal_rows(gathered(sealed, wanted), slice_rows(sealed).take(wanted))
    assert len(gathered(sealed, np.empty(0, np.int64))) == 0


def test_columns_that_are_empty_take_no_memory() -> None:
    rows = random_rows(random.Random(6), 50)
    rows.objects.ts[:] = rows.arrivals_ms
    sealed = seal(rows)
    assert sealed.ts is None
    assert_equal_rows(in_log_order(sealed), rows)
    rows.objects.ts[:] = rows.arrivals_ms - 10
    sealed = seal(rows)
    assert sealed.ts is not None
    assert sealed.ts.dtype == np.int32
    assert_equal_rows(in_log_order(sealed), rows)
