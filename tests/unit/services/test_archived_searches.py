"""Searches reach beyond memory: into slices that only the archive has."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from sirocco.codec.slices import write_slice
from sirocco.index.base.compile import compile_queries
from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store import SlotStore, StoreLimits
from sirocco.index.store.store_condition import Bounds, compile_condition
from sirocco.index.store.store_search import search_knn
from sirocco.model.objects import ObjectColumns, ObjectColumnsBuilder, parse_object
from sirocco.model.query import Query, parse_query
from sirocco.model.text import analyse_batch
from sirocco.protocol.contract.positions import Reached
from sirocco.protocol.evaluator.slot.archived_slices import (
    ArchiveManifest,
    arrivals_of,
    slice_name,
    span_of,
)
from sirocco.services.evaluator.archived import ArchivedSlices
from sirocco.services.evaluator.slot_search import Wanted
from sirocco.services.evaluator.stored import StoredSlot
from sirocco.transport.archive import MemoryArchive

ROWS = 40


@dataclass
class HeldSlot:
    """A slot of a few slices of ten objects, a minute apart."""

    reached: Reached = field(default_factory=Reached)
    map_version: int = 3
    least_version: int = 0
    store: SlotStore = field(default_factory=lambda: SlotStore(StoreLimits(active_rows=10)))
    manifest: ArchiveManifest = field(default_factory=lambda: ArchiveManifest(slot=3))


def objects(count: int) -> ObjectColumns:
    builder = ObjectColumnsBuilder()
    for i in range(count):
        builder.add(parse_object({"id": i, "lon": i / 10, "lat": 1.0, "text": f"fire t{i % 3}"}))
    return builder.build()


@pytest.fixture
def slot() -> HeldSlot:
    held = HeldSlot()
    rows = objects(ROWS)
    ones, numbers = np.ones(ROWS, np.uint64), np.arange(1, ROWS + 1).astype(np.uint64)
    arrivals_ms = 60_000 * np.arange(ROWS)
    held.store.append(rows, ones, numbers, arrivals_ms, analyse_batch(rows.text, rows.text_offsets))
    return held


def left(slot: HeldSlot, archive: MemoryArchive, is_archived: set[int]) -> list[SealedSlice]:
    """Evicts all slices but the last from memory; some of them are in the archive."""
    slices = slot.store.slices
    for number, each in enumerate(slices):
        if number in is_archived:
            archive.write(slice_name(3, span_of(each)), write_slice(each))
            slot.manifest.archived[span_of(each)] = arrivals_of(each)
    removed = slot.store.forget(slices[-1].arrival_first_ms)
    for each in removed:
        slot.manifest.note_evicted(each)
    return removed


def found(slot: HeldSlot, archive: MemoryArchive, query: Query, bounds: Bounds) -> list[int]:
    search = StoredSlot(slot, ArchivedSlices(archive)).search()
    condition = compile_condition(compile_queries([query], [0]))
    wanted = Wanted(
        query=query,
        condition=condition,
        bounds=bounds,
        ranking=None,
        now_ms=0,
        is_over=lambda: False,
    )
    return sorted(
        int(one) for part in search.within(wanted, lambda: 1_000) for one in part.objects.ids
    )


def fires() -> Query:
    return parse_query({"id": "q", "kind": "range", "mode": "snapshot", "text": "fire"})


def test_a_search_finds_what_has_left_memory(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    removed = left(slot, archive, {0, 1, 2})
    assert len(removed) == 3
    assert found(slot, archive, fires(), Bounds()) == list(range(ROWS))
    assert slot.manifest.earliest_ms is None


def test_a_window_reads_only_the_slices_that_it_reaches(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    removed = left(slot, archive, {0, 1, 2})
    archive.delete(slice_name(3, span_of(removed[0])))
    assert found(slot, archive, fires(), Bounds(12 * 60_000, 25 * 60_000)) == list(range(12, 26))


def test_a_slice_that_left_while_a_search_looks_counts_once(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    search = StoredSlot(slot, ArchivedSlices(archive)).search()
    left(slot, archive, {0, 1, 2})
    query = fires()
    condition = compile_condition(compile_queries([query], [0]))
    wanted = Wanted(
        query=query,
        condition=condition,
        bounds=Bounds(),
        ranking=None,
        now_ms=0,
        is_over=lambda: False,
    )
    parts = search.within(wanted, lambda: 1_000)
    assert sorted(int(one) for part in parts for one in part.objects.ids) == list(range(ROWS))


def test_the_nearest_outside_memory_are_looked_for_there_alone(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    left(slot, archive, {0, 1, 2})
    more = objects(5)
    ones, numbers = np.ones(5, np.uint64), np.arange(ROWS + 1, ROWS + 6).astype(np.uint64)
    terms = analyse_batch(more.text, more.text_offsets)
    slot.store.append(more, ones, numbers, np.full(5, 60_000 * ROWS), terms)
    assert slot.store.view().active.rows == 5

    view = StoredSlot(slot, ArchivedSlices(archive)).search().outside(Bounds())

    assert view is not None
    assert view.objects_total == 30
    assert sorted(search_knn(view, 0.0, 1.0, 100).ids.tolist()) == list(range(30))


def test_lost_slices_are_reported_by_the_earliest_time(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    left(slot, archive, {1, 2})
    assert slot.manifest.earliest_ms == 9 * 60_000 + 1
    assert found(slot, archive, fires(), Bounds()) == list(range(10, ROWS))


def test_the_archive_gives_up_what_is_too_old(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    removed = left(slot, archive, {0, 1, 2})
    names = slot.manifest.forget(removed[1].arrival_first_ms)
    assert names == [slice_name(3, span_of(removed[0]))]
    assert slot.manifest.earliest_ms == removed[0].arrival_last_ms + 1
    assert found(slot, archive, fires(), Bounds()) == list(range(10, ROWS))


def test_slices_read_last_are_kept_within_their_bound(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    removed = left(slot, archive, {0, 1, 2})
    kept = ArchivedSlices(archive, kept_bytes_max=1)
    first = kept.load(slice_name(3, span_of(removed[0])))
    assert kept.load(slice_name(3, span_of(removed[0]))) is first
    kept.load(slice_name(3, span_of(removed[1])))
    assert kept.load(slice_name(3, span_of(removed[0]))) is not first
