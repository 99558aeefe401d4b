"""Frequent terms of a sliding window, compared with counting each window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store import sliding_term_counts as kept_terms
from sirocco.index.store.sliding_term_counts import (
    NOTHING_FORGOTTEN,
    ForgottenSlices,
    SlidingTermCounts,
)
from sirocco.index.store.store import SlotStore, StoreLimits
from sirocco.index.store.store_condition import ANY_OBJECT, Bounds
from sirocco.index.store.term_codes import TermCodes
from sirocco.index.store.terms_search import TermCounts, count_terms
from sirocco.kernels.store.sliding_term_counts import BUCKETS
from sirocco.model.geometry import Circle, Rectangle
from tests.support.seeds import drawn_seed
from tests.unit.index.store.test_frequent_terms import (
    ROWS,
    condition_of,
    random_box,
    random_rows,
    rows_of,
)


class Looked:
    """Counts how often a whole window was counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.times = 0
        count_anew = SlidingTermCounts._recount

        def counting(self_: SlidingTermCounts, *args: Any) -> kept_terms.Counts:
            self.times += 1
            return count_anew(self_, *args)

        monkeypatch.setattr(SlidingTermCounts, "_recount", counting)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    return Looked(monkeypatch)


def append(store: SlotStore, rows: StoredRows, begin: int, end: int) -> None:
    first, last = int(rows.term_offsets[begin]), int(rows.term_offsets[end])
    store.append_rows(
        replace(
            rows,
            objects=rows.objects.slice(begin, end),
            sessions=rows.sessions[begin:end],
            numbers=rows.numbers[begin:end],
            arrivals_ms=rows.arrivals_ms[begin:end],
            seqs=rows.seqs[begin:end],
            lengths=rows.lengths[begin:end],
            term_offsets=rows.term_offsets[begin : end + 1] - first,
            terms=rows.terms[first:last],
            counts=rows.counts[first:last],
        )
    )


def work(store: SlotStore) -> None:
    while job := store.next_job():
        job.run()
        store.install(job)


def counted(rows: StoredRows, is_in: np.ndarray) -> dict[int, int]:
    """Returns in how many rows each term is."""
    terms = rows.terms[np.repeat(is_in, np.diff(rows.term_offsets))]
    return dict(zip(*(each.tolist() for each in np.unique(terms, return_counts=True)), strict=True))


def most_frequent(found: dict[int, int], k: int) -> dict[int, int]:
    least = min(sorted(found.values(), reverse=True)[:k], default=0)
    return {term: count for term, count in found.items() if count >= least}


def counts_of(found: TermCounts, k: int) -> dict[int, int]:
    """Returns the k most frequent with all ties, from a list that may hold more."""
    pairs = zip(found.hashes.tolist(), found.counts.tolist(), strict=True)
    counts = dict(pairs)
    assert len(counts) == len(found)
    return most_frequent(counts, k)


@pytest.mark.parametrize("trial", range(4))
def test_windows_that_slide_are_counted_as_by_hand(trial: int, looked: Looked) -> None:
    seed = drawn_seed()
    print(f"seed {seed}, trial {trial}")
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, float(rng.choice([3.0, 6.0])), int(rng.choice([300, 3_000])))
    # Objects of several publishers do not arrive in order.
    late = rng.integers(0, 40, ROWS)
    arrivals_ms = 1_000 + np.arange(ROWS) - late
    rows = replace(rows, arrivals_ms=arrivals_ms)
    store = SlotStore(
        StoreLimits(
            active_rows=int(rng.choice([500, 3_000])),
            slices=int(rng.choice([1, 3, 8])),
            slice_rows=int(rng.choice([4_000, 1 << 20])),
        )
    )
    window, step = int(rng.choice([3_000, 12_000])), int(rng.integers(300, 2_000))
    # A slice that is forgotten before the window has passed it makes a query count anew, and so
    # does a lack of numbers: with small slices or few numbers at every step. In the first trial
    # slices stay for longer than a step, and all terms have room.
    is_easy = trial == 0
    keeps_ms = window + (3_000 if is_easy else int(rng.choice([-800, 10, 3_000])))
    queries = []
    # Numbers for all terms, for some, for hardly any: those that no query counts are reused.
    room = 65_024 if is_easy else int(rng.choice([65_024, 400, 150, 5]))
    codes = TermCodes(BUCKETS + room)
    for number in range(6):
        box: Rectangle | None = random_box(rng, rows) if number else None
        condition = ANY_OBJECT if box is None else condition_of(box)
        # The first terms of all objects are far more frequent than terms that share a counter.
        k = int(rng.choice([1, 3, 10, 32])) if number else 3
        queries.append((box, condition, k, SlidingTermCounts(k, codes)))
    lon, lat = rows.objects.lon, rows.objects.lat
    is_here = np.zeros(ROWS, np.bool_)
    removed, taken, steps = NOTHING_FORGOTTEN, 0, 0
    for at_ms in range(1_000 + step, 1_000 + ROWS - 50, step):
        # Some objects after the step are already there.
        end = min(ROWS, at_ms - 1_000 + 50 + int(rng.integers(0, 300)))
        append(store, rows, taken, end)
        is_here[taken:end] = True
        taken = end
        if rng.random() < 0.7:
            work(store)
        for slice_ in store.forget(at_ms - keeps_ms):
            removed = removed.and_slice(slice_)
            is_here[slice_.first_seq : slice_.last_seq + 1] = False
        view, bounds = store.view(), Bounds(at_ms - window + 1, at_ms)
        for box, condition, k, kept in queries:
            if rng.random() < 0.05:
                # Some steps are left out.
                continue
            if rng.random() < 0.02:
                kept.forget()
            is_in = is_here & (arrivals_ms > at_ms - window) & (arrivals_ms <= at_ms)
            if box is not None:
                is_in &= (lon >= box.west) & (lon <= box.east)
                is_in &= (lat >= box.south) & (lat <= box.north)
            found = kept.count(view, condition, bounds, removed)
            assert counts_of(found, k) == most_frequent(counted(rows, is_in), k)
            steps += 1
    assert looked.times < steps or not is_easy, "nothing was counted on"


def test_a_lifetime_and_a_window_without_limit() -> None:
    rng = np.random.default_rng(11)
    rows = random_rows(rng, 4.0, 300)
    store = SlotStore(StoreLimits(active_rows=3_000))
    condition = replace(condition_of(Circle(0.0, 0.0, 8_000_000.0)), expires_ms=21_000)
    kept = SlidingTermCounts(5)
    everything = SlidingTermCounts(5)
    for taken in range(0, ROWS, 4_000):
        append(store, rows, taken, taken + 4_000)
        bounds = Bounds(3_000, 1_000 + taken + 3_500)
        view = store.view()
        found = kept.count(view, condition, bounds, NOTHING_FORGOTTEN)
        want = count_terms(view, condition, bounds)
        assert counts_of(found, 5) == counts_of(want, 5)
        is_in = (rows.arrivals_ms >= 3_000) & (rows.arrivals_ms <= bounds.arrival_to_ms)
        found = everything.count(view, ANY_OBJECT, bounds, NOTHING_FORGOTTEN)
        assert counts_of(found, 5) == most_frequent(counted(rows, is_in), 5)


def test_a_term_that_becomes_frequent_is_noticed(looked: Looked) -> None:
    # Forty words with equal counts, then one that was not used before.
    rng = np.random.default_rng(12)
    words = np.arange(ROWS)[:, None] * 2 % 40 + np.arange(2)
    words[ROWS // 2 :, 0] = 1_000
    rows = rows_of(rng.uniform(-50, 50, ROWS), rng.uniform(-50, 50, ROWS), words)
    store = SlotStore(StoreLimits(active_rows=3_000))
    kept = SlidingTermCounts(3)
    for taken in range(0, ROWS, 1_000):
        append(store, rows, taken, taken + 1_000)
        bounds = Bounds(taken - 5_000, 1_000 + taken + 999)
        found = kept.count(store.view(), ANY_OBJECT, bounds, NOTHING_FORGOTTEN)
        is_in = (rows.arrivals_ms >= bounds.arrival_from_ms) & (np.arange(ROWS) < taken + 1_000)
        assert counts_of(found, 3) == most_frequent(counted(rows, is_in), 3)
    assert looked.times == 2


def test_terms_of_one_bucket_and_the_greatest_hashes() -> None:
    # Five frequent terms share a counter: only two can be kept, so bounds do not help.
    rng = np.random.default_rng(13)
    width = 2**64 // BUCKETS
    own = np.array([0, 1, 2, 3, 4, 2**64 - 1, 2**64 - 2, width, width - 1], np.uint64)
    places = np.sort(rng.integers(0, len(own), (ROWS, 1)) % rng.integers(1, 10, (ROWS, 1)))
    rows = rows_of(rng.uniform(-50, 50, ROWS), rng.uniform(-50, 50, ROWS), places)
    rows = replace(rows, terms=own[places[:, 0]])
    for k in (1, 2, 4, 9, 20):
        store = SlotStore(StoreLimits(active_rows=3_000))
        kept = SlidingTermCounts(k)
        for taken in range(0, ROWS, 2_500):
            append(store, rows, taken, taken + 2_500)
            bounds = Bounds(taken - 6_000, 1_000 + taken + 2_400)
            found = kept.count(store.view(), ANY_OBJECT, bounds, NOTHING_FORGOTTEN)
            is_in = (rows.arrivals_ms >= bounds.arrival_from_ms) & (
                rows.arrivals_ms <= bounds.arrival_to_ms
            )
            assert counts_of(found, k) == most_frequent(counted(rows, is_in), k)


def test_windows_of_nothing() -> None:
    store = SlotStore()
    kept = SlidingTermCounts(10)
    for at_ms in (1_000, 2_000, 3_000):
        assert not len(
            kept.count(store.view(), ANY_OBJECT, Bounds(at_ms - 1_500, at_ms), ForgottenSlices())
        )


def test_numbers_of_terms_that_no_query_counts_are_given_again(looked: Looked) -> None:
    # Forty words in the west, forty others in the east, and numbers for fifty.
    rng = np.random.default_rng(14)
    lon = rng.uniform(-50, 50, ROWS)
    words = rng.integers(0, 40, (ROWS, 2)) + np.where(lon < 0, 0, 100)[:, None]
    rows = rows_of(lon, rng.uniform(-50, 50, ROWS), np.sort(words))
    store, codes = SlotStore(StoreLimits(active_rows=3_000)), TermCodes(BUCKETS + 50)
    west, east = (condition_of(Rectangle(*box)) for box in ((-50, -50, -1, 50), (1, -50, 50, 50)))
    first, second = SlidingTermCounts(30, codes), SlidingTermCounts(30, codes)
    counted_anew = []
    for taken in range(0, 20_000, 1_000):
        append(store, rows, taken, taken + 1_000)
        bounds = Bounds(taken - 5_000, 1_000 + taken + 999)
        is_here = (rows.arrivals_ms >= bounds.arrival_from_ms) & (np.arange(ROWS) < taken + 1_000)
        if taken < 10_000:
            found = first.count(store.view(), west, bounds, NOTHING_FORGOTTEN)
            assert counts_of(found, 30) == most_frequent(counted(rows, is_here & (lon < -1)), 30)
        elif taken == 10_000:
            first.forget()
            assert first.bytes_total == 0
        looked.times = 0
        found = second.count(store.view(), east, bounds, NOTHING_FORGOTTEN)
        assert counts_of(found, 30) == most_frequent(counted(rows, is_here & (lon > 1)), 30)
        counted_anew.append(looked.times)
    assert all(counted_anew[:10]), "there were no numbers left"
    assert sum(counted_anew[11:]) < 3
