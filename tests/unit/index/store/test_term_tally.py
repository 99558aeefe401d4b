"""Terms counted in one table, compared with counting them one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.store import SlotStore, StoreLimits
from sirocco.index.store.store_condition import ANY_OBJECT, Condition
from sirocco.index.store.store_search import scan_range
from sirocco.index.store.term_tally import TermTally
from tests.support.seeds import drawn_seed
from tests.unit.index.store.test_frequent_terms import (
    condition_of,
    counted,
    most_frequent,
    random_box,
    random_rows,
)


def slots_of(rows: StoredRows, rng: np.random.Generator) -> list[SlotStore]:
    """Returns two stores that share the rows, each with sealed slices and an active one."""
    stores = []
    is_first = rng.random(len(rows)) < rng.uniform(0.05, 0.95)
    for own in (np.flatnonzero(is_first), np.flatnonzero(~is_first)):
        store = SlotStore(StoreLimits(active_rows=int(rng.choice([500, 4_000, 15_000]))))
        store.append_rows(replace(rows.take(own), seqs=np.arange(len(own))))
        stores.append(store)
    return stores


def tally_of(stores: list[SlotStore], condition: Condition) -> TermTally:
    tally = TermTally()
    for store in stores:
        tally.add(scan_range(store.view(), condition))
    return tally


def as_dict(counts: tuple[np.ndarray, np.ndarray]) -> dict[int, int]:
    hashes, sums = counts
    assert (np.diff(hashes.astype(object)) > 0).all()
    return dict(zip(hashes.tolist(), sums.tolist(), strict=True))


@pytest.mark.parametrize("trial", range(4))
def test_a_tally_is_what_one_by_one_is_counted(trial: int) -> None:
    seed = drawn_seed()
    print(f"seed {seed}, trial {trial}")
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, float(rng.choice([1.0, 3.0, 6.0])), int(rng.choice([30, 300, 3_000])))
    stores = slots_of(rows, rng)
    lon, lat = rows.objects.lon, rows.objects.lat
    for _ in range(10):
        box = random_box(rng, rows)
        is_in = (lon >= box.west) & (lon <= box.east) & (lat >= box.south) & (lat <= box.north)
        want = counted(rows, is_in)
        tally = tally_of(stores, condition_of(box))
        for k in rng.choice([1, 3, 10, 64, 300], 2).tolist():
            found, is_whole = tally.most_frequent(k)
            assert as_dict(found) == most_frequent(want, k), f"k = {k}"
            assert is_whole <= (len(found[0]) == len(want))
            asked = rng.permutation(np.array(sorted(want), np.uint64))[:50]
            unknown = np.array([1, 2, 1 << 63], np.uint64)
            assert tally.count_of(asked).tolist() == [want[term] for term in asked.tolist()]
            assert tally.count_of(unknown).tolist() == [0, 0, 0]
        assert as_dict(tally.all()) == want
        if rng.random() < 0.5:
            # After all were added up, the most frequent are still the same.
            assert as_dict(tally.most_frequent(5)[0]) == most_frequent(want, 5)


def test_rare_terms_stay_out_of_the_table() -> None:
    rng = np.random.default_rng(3)
    store = SlotStore(StoreLimits(active_rows=15_000))
    store.append_rows(random_rows(rng, 6.0, 3_000))
    store.seal()
    tally = tally_of([store], ANY_OBJECT)
    tally.most_frequent(10)
    listed = tally.added
    tally.all()
    assert listed < tally.added / 4


def test_counts_without_a_bin_of_their_own_are_told_apart() -> None:
    rng = np.random.default_rng(5)
    rows = random_rows(rng, 6.0, 300)
    want = counted(rows, np.ones(len(rows), np.bool_))
    assert sorted(want.values())[-3] > 4_096
    store = SlotStore(StoreLimits(active_rows=len(rows)))
    store.append_rows(rows)
    tally = TermTally()
    tally.add(scan_range(store.view()))
    for k in (1, 2, 3):
        assert as_dict(tally.most_frequent(k)[0]) == most_frequent(Counter(want), k)


def test_nothing_is_counted_without_rows() -> None:
    found, is_whole = TermTally().most_frequent(3)
    assert len(found[0]) == len(TermTally().all()[0]) == 0
    assert is_whole
