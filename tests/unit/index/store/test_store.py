"""The store's own life: its views, merges, evictions and restores."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.gathering import slice_rows
from sirocco.index.store.sealing import seal
from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store import (
    Job,
    SlotStore,
    StoreLimits,
    StoreView,
    slice_columns,
)
from sirocco.index.store.store_search import search_range
from sirocco.model.objects import ObjectColumns
from sirocco.model.term_hashing import WIRE_TERMS
from sirocco.model.text import TermColumns, analyse_batch
from tests.support.store_rows import assert_equal_rows, random_rows

SMALL = StoreLimits(active_rows=20, slices=2, slice_rows=100)


def content(view: StoreView) -> StoredRows:
    """Returns all rows of a view in log order."""
    parts = [slice_rows(s) for s in view.sealed] + [view.active.stored()]
    rows = StoredRows.concat(parts)
    return rows.take(np.argsort(rows.seqs))


def filled(rows: StoredRows, limits: StoreLimits = SMALL, seed: int = 0) -> SlotStore:
    """Returns a store of rows that arrived in random batches, merged meanwhile."""
    rng = random.Random(seed)
    store, begin = SlotStore(limits), 0
    while begin < len(rows):
        end = min(len(rows), begin + rng.randrange(1, 30))
        store.append_rows(rows.take(np.arange(begin, end)))
        begin = end
        while job := store.next_job():
            job.run()
            assert store.install(job)
    return store


def bounds_of(store: SlotStore) -> list[tuple[int, int]]:
    return [(s.first_seq, s.last_seq) for s in store.slices]


def test_nothing_is_lost_and_numbers_continue() -> None:
    rows = random_rows(random.Random(1), 333)
    store = filled(rows)
    assert_equal_rows(content(store.view()), rows)
    assert (store.next_seq, store.objects_total, store.first_seq) == (333, 333, 0)
    assert len(store.slices) - sum(2 * len(s) >= 100 for s in store.slices) <= 2
    assert [first for first, _ in bounds_of(store)[1:]] == [
        last + 1 for _, last in bounds_of(store)[:-1]
    ]


def test_columns_of_the_model_are_taken() -> None:
    rows = random_rows(random.Random(2), 50)
    store = SlotStore(SMALL)
    terms = analyse_batch(rows.objects.text, rows.objects.text_offsets)
    for begin in range(0, 50, 10):
        own = slice(terms.offsets[begin], terms.offsets[begin + 10])
        store.append(
            rows.objects.slice(begin, begin + 10),
            rows.sessions[begin : begin + 10],
            rows.numbers[begin : begin + 10],
            rows.arrivals_ms[begin : begin + 10],
            TermColumns(
                terms.terms[own],
                terms.offsets[begin : begin + 11] - terms.offsets[begin],
                terms.lengths[begin : begin + 10],
                terms.counts[own],
            ),
        )
    got = content(store.view())
    assert got.terms.tolist() == terms.terms.tolist()
    assert got.term_offsets.tolist() == terms.offsets.tolist()
    assert got.lengths.tolist() == terms.lengths.tolist()
    assert got.counts.tolist() == terms.counts.tolist()
    assert got.objects.text.tobytes() == rows.objects.text.tobytes()


@pytest.mark.parametrize("seed", range(5))
def test_where_slices_end_depends_on_the_log_alone(seed: int) -> None:
    rows = random_rows(random.Random(seed), 300)
    limits = StoreLimits(active_rows=17, slices=1_000, terms_max=80, bytes_max=120)
    whole, pieces = filled(rows, limits, seed), filled(rows, limits, seed + 100)
    at_once = SlotStore(limits)
    at_once.append_rows(rows)
    assert bounds_of(whole) == bounds_of(pieces) == bounds_of(at_once)
    assert min(len(s) for s in whole.slices) < 17
    assert max(len(s) for s in whole.slices) == 17
    assert_equal_rows(content(at_once.view()), rows)


def test_a_view_stays_as_it_was_taken() -> None:
    rows = random_rows(random.Random(3), 400)
    store = SlotStore(SMALL)
    views = []
    for begin in range(0, 400, 16):
        store.append_rows(rows.take(np.arange(begin, begin + 16)))
        views.append(store.view())
        while job := store.next_job():
            job.run()
            store.install(job)
        views.append(store.view())
    store.forget(int(rows.arrivals_ms[-1]))
    for number, view in enumerate(views):
        count = 16 * (number // 2 + 1)
        assert view.next_seq == count
        assert_equal_rows(content(view), rows.take(np.arange(count)))


def test_other_threads_read_while_one_writes() -> None:
    """Each view holds a complete beginning of the log, and never less than an earlier one."""
    rows = random_rows(random.Random(4), 3_000)
    store, done, failures = SlotStore(SMALL), threading.Event(), []

    def read() -> None:
        seen = 0
        try:
            while not done.is_set():
                view = store.view()
                found = search_range(view).gather()
                seqs = [] if found is None else sorted(found.seqs.tolist())
                assert seqs == list(range(view.next_seq))
                assert len(seqs) >= seen
                seen = len(seqs)
                if found is not None:
                    want = rows.take(np.array(found.seqs))
                    assert found.objects.text.tobytes() == want.objects.text.tobytes()
        except AssertionError as error:
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for begin in range(0, 3_000, 15):
        store.append_rows(rows.take(np.arange(begin, begin + 15)))
        while job := store.next_job():
            job.run()
            store.install(job)
    done.set()
    for reader in readers:
        reader.join()
    assert not failures


def test_merge_whose_sources_left_is_dropped() -> None:
    rows = random_rows(random.Random(5), 200)
    store = SlotStore(SMALL)
    store.append_rows(rows)
    job = store.next_job()
    assert job is not None
    with pytest.raises(ValueError, match="not run"):
        store.install(job)
    job.run()
    store.evict(0, lambda slice_: slice_ is not store.slices[-1])
    before = bounds_of(store)
    assert not store.install(job)
    assert bounds_of(store) == before


def test_appends_between_a_merge_and_its_installation_are_kept() -> None:
    rows = random_rows(random.Random(6), 400)
    store = SlotStore(SMALL)
    store.append_rows(rows.take(np.arange(200)))
    job = store.next_job()
    assert job is not None
    store.append_rows(rows.take(np.arange(200, 400)))
    job.run()
    assert store.install(job)
    assert_equal_rows(content(store.view()), rows)


def test_old_slices_are_forgotten_whole() -> None:
    rows = random_rows(random.Random(7), 200)
    store = SlotStore(StoreLimits(active_rows=20, slices=100))
    store.append_rows(rows)
    ends = [s.arrival_last_ms for s in store.slices]
    assert store.forget(ends[0]) == []
    dropped = store.forget(ends[3] + 1)
    count = sum(end <= ends[3] for end in ends)
    assert [s.first_seq for s in dropped] == [20 * i for i in range(count)]
    assert store.first_seq == 20 * count
    assert store.objects_total == 200 - 20 * count
    assert_equal_rows(content(store.view()), rows.take(np.arange(20 * count, 200)))


def test_what_is_not_archived_is_not_evicted() -> None:
    rows = random_rows(random.Random(8), 210)
    store = SlotStore(StoreLimits(active_rows=20, slices=100))
    store.append_rows(rows)
    total = store.bytes_total
    assert store.evict(total, lambda _: True) == []
    first = store.slices[0].bytes_total
    assert [s.first_seq for s in store.evict(total - 1, lambda _: True)] == [0]
    assert store.bytes_total == total - first
    assert [s.first_seq for s in store.evict(0, lambda s: s.first_seq != 80)] == [20, 40, 60]
    assert store.evict(0, lambda s: s.first_seq != 80) == []
    assert store.first_seq == 80


@pytest.mark.parametrize("seed", range(3))
def test_a_store_comes_back_from_its_state_and_slices(seed: int) -> None:
    rows = random_rows(random.Random(seed), 333)
    store = filled(rows.take(np.arange(250)), seed=seed)
    state = {name: column.copy() for name, column in store.state().items()}
    assert all(column.dtype.kind in "iuf" for column in state.values())
    back = SlotStore.restore(state, SMALL)
    assert (back.next_seq, back.first_seq) == (250, store.slices[-1].last_seq + 1)
    # Slices are loaded from the archive in any order, while the slot continues.
    back.append_rows(rows.take(np.arange(250, 333)))
    loaded = [seal(StoredRows.from_columns(slice_columns(s))) for s in store.slices]
    random.Random(seed).shuffle(loaded)
    for slice_ in loaded:
        back.adopt(slice_)
    with pytest.raises(ValueError, match="overlaps"):
        back.adopt(loaded[0])
    assert_equal_rows(content(back.view()), rows)


def test_an_empty_store_comes_back() -> None:
    back = SlotStore.restore(SlotStore().state())
    assert (back.next_seq, back.objects_total) == (0, 0)


def test_bytes_count_what_slices_hold() -> None:
    rows = random_rows(random.Random(9), 300)
    store = SlotStore(StoreLimits(active_rows=50))
    store.append_rows(rows)
    text = len(rows.objects.text) + len(rows.objects.names) + len(rows.objects.attributes)
    assert sum(s.content_bytes for s in store.slices) == text
    slice_ = store.slices[0]
    before = slice_.bytes_total
    slice_.derived["sums"] = Derived()
    assert slice_.bytes_total == before + 17
    arrays = (getattr(slice_, name) for name in SealedSlice.__slots__)
    assert before > sum(a.nbytes for a in arrays if isinstance(a, np.ndarray))


class Derived:
    bytes_total = 17


def test_objects_without_text_are_stored() -> None:
    none = np.zeros(4, np.int64)
    objects = ObjectColumns(
        ids=np.arange(3, dtype=np.uint64), names=np.empty(0, np.uint8), name_offsets=none,
        lon=np.zeros(3), lat=np.zeros(3), ts=np.zeros(3, np.int64), text=np.empty(0, np.uint8),
        text_offsets=none, attributes=np.empty(0, np.uint8), attribute_offsets=none,
    )  # fmt: skip
    store = SlotStore()
    keys = np.arange(3, dtype=np.uint64)
    terms = TermColumns(np.empty(0, np.uint64), none, np.zeros(3, np.int32), np.empty(0, np.uint16))
    store.append(objects, keys, keys, np.zeros(3, np.int64), terms)
    store.seal()
    store.seal()
    assert len(store.slices) == 1
    assert search_range(store.view()).gather() is not None


def test_slots_with_equal_load_do_not_seal_in_the_same_moment() -> None:
    rows = random_rows(random.Random(3), 400)
    limits = StoreLimits(active_rows=160, slices=8, slice_rows=1_000)
    stores = [SlotStore(limits.of_slot(slot)) for slot in range(16)]
    in_a_round = []
    for begin in range(0, 400, 10):
        before = sum(len(store.slices) for store in stores)
        for store in stores:
            store.append_rows(rows.take(np.arange(begin, begin + 10)))
            while job := store.next_job():
                job.run()
                store.install(job)
        in_a_round.append(sum(len(store.slices) for store in stores) - before)
    assert sum(in_a_round) >= 32
    assert max(in_a_round) <= 2, "all 16 at once without phases"


@pytest.mark.parametrize("seed", range(8))
def test_what_is_sealed_beside_is_what_would_have_been_sealed_at_once(seed: int) -> None:
    """Whenever the job ends, even too late: nothing is lost, and no view changes."""
    rng = random.Random(seed)
    rows = random_rows(rng, 400)
    at_once = SlotStore(StoreLimits(active_rows=17, slices=1_000))
    at_once.append_rows(rows)
    beside = SlotStore(StoreLimits(active_rows=17, slices=1_000, unsealed=2))
    waiting: list[Job] = []
    views, late, begin = [], 0, 0
    while begin < len(rows):
        end = min(len(rows), begin + rng.randrange(1, 30))
        beside.append_rows(rows.take(np.arange(begin, end)))
        begin = end
        views.append((end, beside.view()))
        assert len(beside.view().active) < 3 * 17 + 17
        if not waiting and (job := beside.next_job()) is not None:
            waiting.append(job)
        if waiting and rng.random() < 0.3:
            waiting[0].run()
            late += not beside.install(waiting.pop())
    assert late, "no job came too late"
    assert len(beside.slices) < len(at_once.slices), "nothing waited at the end"
    for count, view in views:
        assert_equal_rows(content(view), rows.take(np.arange(count)))
    again = SlotStore.restore(beside.state(), StoreLimits(active_rows=17, unsealed=2))
    assert again.view().active.rows == beside.view().active.rows
    beside.seal()
    sealed = bounds_of(beside)
    assert sealed[:-1] == bounds_of(at_once)[: len(sealed) - 1]
    assert_equal_rows(content(beside.view()), rows)


def test_a_store_that_comes_back_seals_where_it_would_have() -> None:
    rows = random_rows(random.Random(4), 90)
    limits = StoreLimits(active_rows=20, slices=8, slice_rows=1_000).of_slot(3)
    store = SlotStore(limits)
    store.append_rows(rows.take(np.arange(33)))
    again = SlotStore.restore(store.state(), limits)
    for slice_ in store.slices:
        again.adopt(slice_)
    for one in (store, again):
        one.append_rows(rows.take(np.arange(33, 90)))
    assert bounds_of(again) == bounds_of(store)
    assert {end + 1 - limits.phase_rows for _, end in bounds_of(store)} <= {0, 20, 40, 60, 80}


@pytest.mark.parametrize("count", [0, 1, 20, 21])
def test_terms_of_rows_that_are_analysed_in_pieces(count: int) -> None:
    rows = random_rows(random.Random(5), 40).take(np.arange(40 - count, 40))
    found = rows.with_terms(WIRE_TERMS, analysed_rows=7)
    at_once = analyse_batch(rows.objects.text, rows.objects.text_offsets)
    assert found.term_offsets.tolist() == at_once.offsets.tolist()
    assert found.terms.tolist() == at_once.terms.tolist()
    assert found.counts.tolist() == at_once.counts.tolist()
    assert found.lengths.tolist() == at_once.lengths.tolist()
