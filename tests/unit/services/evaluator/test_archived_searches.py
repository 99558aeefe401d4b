"""Searches reach beyond memory: into slices that only the archive has."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from sirocco.codec.slices import write_slice
from sirocco.index.base.compile import compile_queries
from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store import StoreLimits
from sirocco.index.store.store_condition import ALL_TIME, Bounds, compile_condition
from sirocco.index.store.store_search import search_knn
from sirocco.model.objects import ObjectColumns, ObjectColumnsBuilder, parse_object
from sirocco.model.query import Query, parse_query
from sirocco.model.text import analyse_batch
from sirocco.protocol.contract.positions import Reached
from sirocco.protocol.evaluator.slot.archived_slices import (
    arrivals_of,
    slice_name,
    span_of,
)
from sirocco.protocol.evaluator.slot.stored_past import StoredPast
from sirocco.protocol.evaluator.standing.step_schedule import ranked_of
from sirocco.services.evaluator.answers.slot_interface import Wanted
from sirocco.services.evaluator.archive_search import ArchivedSlices
from sirocco.services.evaluator.slot_store import StoredSlot
from sirocco.transport.archive import MemoryArchive
from tests.support.turns import result_of

ROWS = 40


@dataclass
class HeldSlot:
    """A slot of a few slices of ten objects, a minute apart."""

    reached: Reached = field(default_factory=Reached)
    map_version: int = 3
    least_version: int = 0
    past: StoredPast = field(default_factory=lambda: StoredPast(3, StoreLimits(active_rows=10)))
    settled: tuple[int, int] = (0, 0)


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
    held.past.store.append(
        rows, ones, numbers, arrivals_ms, analyse_batch(rows.text, rows.text_offsets)
    )
    return held


def left(slot: HeldSlot, archive: MemoryArchive, is_archived: set[int]) -> list[SealedSlice]:
    """Evicts all slices but the last from memory; some of them are in the archive."""
    slices = slot.past.store.slices
    for number, each in enumerate(slices):
        if number in is_archived:
            archive.write(slice_name(3, span_of(each)), write_slice(each))
            slot.past.manifest.archived[span_of(each)] = arrivals_of(each)
    removed = slot.past.store.forget(slices[-1].arrival_first_ms)
    for each in removed:
        slot.past.manifest.note_evicted(each)
    return removed


def wanted_of(query: Query, bounds: Bounds = ALL_TIME) -> Wanted:
    condition = compile_condition(compile_queries([query], [0]))
    return Wanted(
        query=query,
        condition=condition,
        bounds=bounds,
        ranking=ranked_of(query),
        now_ms=0,
        is_over=lambda: False,
    )


def found(
    slot: HeldSlot,
    archive: MemoryArchive,
    query: Query,
    bounds: Bounds,
    reader: ArchivedSlices | None = None,
) -> list[int]:
    search = StoredSlot(slot, reader or ArchivedSlices(archive)).search()
    parts = search.within(wanted_of(query, bounds), lambda: 1_000)
    return sorted(int(one) for part in parts for one in part.objects.ids)


def fires() -> Query:
    return parse_query({"id": "q", "kind": "range", "mode": "snapshot", "text": "fire"})


def test_a_search_finds_what_has_left_memory(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    removed = left(slot, archive, {0, 1, 2})
    assert len(removed) == 3
    assert found(slot, archive, fires(), Bounds()) == list(range(ROWS))
    assert slot.past.manifest.earliest_ms is None


def test_a_window_reads_only_the_slices_that_it_reaches(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    removed = left(slot, archive, {0, 1, 2})
    archive.delete(slice_name(3, span_of(removed[0])))
    assert found(slot, archive, fires(), Bounds(12 * 60_000, 25 * 60_000)) == list(range(12, 26))


def test_a_slice_that_left_while_a_search_looks_counts_once(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    search = StoredSlot(slot, ArchivedSlices(archive)).search()
    left(slot, archive, {0, 1, 2})
    parts = search.within(wanted_of(fires()), lambda: 1_000)
    assert sorted(int(one) for part in parts for one in part.objects.ids) == list(range(ROWS))


def test_the_nearest_outside_memory_are_looked_for_there_alone(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    left(slot, archive, {0, 1, 2})
    more = objects(5)
    ones, numbers = np.ones(5, np.uint64), np.arange(ROWS + 1, ROWS + 6).astype(np.uint64)
    terms = analyse_batch(more.text, more.text_offsets)
    slot.past.store.append(more, ones, numbers, np.full(5, 60_000 * ROWS), terms)
    assert slot.past.store.view().active.rows == 5

    view = StoredSlot(slot, ArchivedSlices(archive)).search().outside(wanted_of(fires()), None)

    assert view is not None
    assert view.objects_total == 30
    assert sorted(search_knn(view, 0.0, 1.0, 100).ids.tolist()) == list(range(30))


def test_lost_slices_are_reported_by_the_earliest_time(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    left(slot, archive, {1, 2})
    assert slot.past.manifest.earliest_ms == 9 * 60_000 + 1
    assert found(slot, archive, fires(), Bounds()) == list(range(10, ROWS))


def test_the_archive_gives_up_what_is_too_old(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    removed = left(slot, archive, {0, 1, 2})
    names = slot.past.manifest.forget(removed[1].arrival_first_ms)
    assert names == [slice_name(3, span_of(removed[0]))]
    assert slot.past.manifest.earliest_ms == removed[0].arrival_last_ms + 1
    assert found(slot, archive, fires(), Bounds()) == list(range(10, ROWS))


def test_slices_read_last_are_kept_within_their_bound(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    removed = left(slot, archive, {0, 1, 2})
    kept = ArchivedSlices(archive, kept_bytes_max=1)
    first = kept.load(slice_name(3, span_of(removed[0])))
    assert kept.load(slice_name(3, span_of(removed[0]))) is first
    kept.load(slice_name(3, span_of(removed[1])))
    assert kept.load(slice_name(3, span_of(removed[0]))) is not first


class CountingArchive(MemoryArchive):
    """Keeps the names of the slices that were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_names: list[str] = []

    def read(self, name: str) -> bytes:
        """See `Archive.read`."""
        self.read_names.append(name)
        return super().read(name)


def asked(kind: str, **members: object) -> Query:
    return parse_query({"id": "q", "kind": kind, "mode": "snapshot", **members})


def region(west: float, east: float) -> dict[str, object]:
    return {"rect": {"west": west, "south": 0.0, "east": east, "north": 2.0}}


@pytest.fixture
def read(slot: HeldSlot) -> tuple[CountingArchive, ArchivedSlices, list[str]]:
    """An archive of three slices, a reader that keeps their summaries alone, and their names."""
    archive = CountingArchive()
    removed = left(slot, archive, {0, 1, 2})
    reader = ArchivedSlices(archive, kept_bytes_max=1)
    names = [slice_name(3, span_of(each)) for each in removed]
    for name in names:
        reader.load(name)
    archive.read_names.clear()
    return archive, reader, names


def test_a_slice_without_the_place_or_the_words_is_not_read_again(
    slot: HeldSlot, read: tuple[CountingArchive, ArchivedSlices, list[str]]
) -> None:
    archive, reader, names = read
    near = asked("range", region=region(1.15, 1.65))
    assert found(slot, archive, near, Bounds(), reader) == [12, 13, 14, 15, 16]
    assert archive.read_names == names[1:2]
    archive.read_names.clear()
    assert found(slot, archive, asked("range", text="fire AND water"), Bounds(), reader) == []
    assert archive.read_names == []
    assert found(slot, archive, asked("range", text="t1"), Bounds(), reader) == list(
        range(1, ROWS, 3)
    )
    # The last one read is kept.
    assert set(archive.read_names) >= set(names[:2])


def test_what_is_farther_than_the_nearest_so_far_is_not_read(
    slot: HeldSlot, read: tuple[CountingArchive, ArchivedSlices, list[str]]
) -> None:
    archive, reader, names = read
    query = asked("knn", point={"lon": 0.5, "lat": 1.0}, k=3)
    search = StoredSlot(slot, reader).search()
    view = search.outside(wanted_of(query), 30_000.0)
    assert view is not None
    assert view.objects_total == 10
    assert archive.read_names == names[:1]
    assert search.outside(wanted_of(asked("knn", point={"lon": 9.0, "lat": 1.0}, k=3)), 9.0) is None


def test_statistics_of_a_ranked_query_count_objects_without_its_keywords(
    slot: HeldSlot, read: tuple[CountingArchive, ArchivedSlices, list[str]]
) -> None:
    _, reader, _ = read
    point = {"lon": 1.0, "lat": 1.0}
    query = asked("ranked", point=point, k=3, radius_m=1e6, keywords=["water"], window="9d")
    (_, ranking), _ = result_of(StoredSlot(slot, reader).search().ranked(wanted_of(query), ()))
    assert ranking.objects == ROWS


def test_summaries_are_bounded(slot: HeldSlot) -> None:
    archive = CountingArchive()
    removed = left(slot, archive, {0, 1, 2})
    names = [slice_name(3, span_of(each)) for each in removed]
    reader = ArchivedSlices(archive, kept_bytes_max=1, summary_bytes_max=5_000)
    for name in names:
        reader.load(name)
    elsewhere = wanted_of(asked("range", region=region(50.0, 60.0))).condition
    assert [reader.may_hold(name, elsewhere) for name in names] == [True, True, False]


def test_slices_of_the_map_in_force_are_no_leftovers(slot: HeldSlot) -> None:
    archive = MemoryArchive()
    removed = left(slot, archive, {0, 1, 2})

    def former_upto_ms(version: int) -> int | None:
        return StoredSlot(slot, ArchivedSlices(archive)).search().former_upto_ms(version)

    newest_ms = removed[-1].arrival_last_ms
    assert former_upto_ms(4) == newest_ms
    slot.settled = 4, removed[1].first_seq + 1
    assert former_upto_ms(4) == removed[1].arrival_last_ms
    assert former_upto_ms(3) == removed[1].arrival_last_ms
    assert former_upto_ms(5) == newest_ms
    slot.past.manifest.forget(newest_ms)
    assert former_upto_ms(4) is None
    assert former_upto_ms(5) == newest_ms
