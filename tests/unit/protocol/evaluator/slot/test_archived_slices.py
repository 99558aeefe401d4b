"""Which of a slot's objects are in the archive, over merges, checkpoints and restarts."""

from __future__ import annotations

import numpy as np

from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store import SlotStore, StoreLimits
from sirocco.model.objects import ObjectColumnsBuilder, ObjectRow
from sirocco.model.text import analyse_batch
from sirocco.protocol.contract.messages import SLOTS
from sirocco.protocol.contract.partition_ownership import checkpoint_name
from sirocco.protocol.evaluator.slot.archived_slices import (
    PARTS_MAX,
    ArchiveManifest,
    Span,
    slice_name,
    slice_names,
    span_of,
)

LIMITS = StoreLimits(active_rows=4, slices=2, slice_rows=64)


def fill(store: SlotStore, rows: int) -> None:
    """Appends objects."""
    for _ in range(rows):
        at = store.next_seq
        builder = ObjectColumnsBuilder()
        builder.add(
            ObjectRow(id=at, name="", lon=at % 90, lat=0.0, ts=at, text="fire", attributes=b"")
        )
        objects = builder.build()
        one = np.array([at + 1], np.uint64)
        terms = analyse_batch(objects.text, objects.text_offsets)
        store.append(objects, one, one, np.array([1_000 * at]), terms)


class Slot:
    """A store, its archive manifest, and the blobs that were written."""

    def __init__(self) -> None:
        self.store, self.manifest = SlotStore(LIMITS), ArchiveManifest(slot=3)
        self.archive: dict[str, SealedSlice] = {}
        self.offset = 0
        self.written = 0

    def fill(self, rows: int) -> list[Span]:
        """Appends objects and merges what is due; returns the spans in memory."""
        fill(self.store, rows)
        self.merge()
        return [span_of(each) for each in self.store.slices]

    def merge(self) -> None:
        while (job := self.store.next_job(self.manifest.saved_seq)) is not None:
            job.run()
            self.store.install(job)

    @property
    def name(self) -> str:
        """Returns the name of the checkpoint at the offset."""
        return checkpoint_name(SLOTS, 3, self.offset, 7)

    def checkpoint(self) -> list[Span]:
        self.offset += 1
        stands, brought = self.manifest.begin_save(self.name, self.store.slices, LIMITS.full_rows)
        self.archive |= dict(brought)
        self.written += sum(len(each) for _, each in brought)
        for name in self.manifest.durable(self.name):
            del self.archive[name]
        self.merge()
        return stands


def test_written_slices_are_not_rewritten_by_a_merge() -> None:
    slot = Slot()
    assert slot.fill(12) == [(0, 3), (4, 7), (8, 11)]
    assert slot.checkpoint() == [(0, 3), (4, 7), (8, 11)]
    assert slot.fill(8) == [(0, 11), (12, 15), (16, 19)]
    assert slot.checkpoint() == [(0, 3), (4, 7), (8, 11), (12, 15), (16, 19)]
    assert slot.written == 20
    # Merged as far as slices go, it is written as it is, and its parts are removed.
    for _ in range(4):
        slot.fill(12)
        slot.checkpoint()
    assert any(last - first >= LIMITS.full_rows - 1 for first, last in slot.checkpoint())
    slot.checkpoint()
    assert slice_name(3, (0, 3)) not in slot.archive


def test_without_an_archive_slices_are_merged_all_the_same() -> None:
    slot = Slot()
    assert len(slot.fill(400)) < 20


def test_every_checkpoint_stands_on_what_the_archive_has() -> None:
    slot = Slot()
    for rows in [3, 9, 1, 30, 2, 2, 17, 40, 5, 64, 3, 3, 90]:
        slot.fill(rows)
        stands = slot.checkpoint()
        assert all(slice_name(3, span) in slot.archive for span in stands)
        # From the first object to the last that is sealed, without gap or overlap.
        covered = [seq for first, last in stands for seq in range(first, last + 1)]
        assert covered == list(range(sum(len(each) for each in slot.store.slices)))
    assert slot.written <= 2 * slot.store.next_seq


def test_a_successor_continues_from_the_parts() -> None:
    slot = Slot()
    slot.fill(12)
    slot.checkpoint()
    slot.fill(4)
    stands = slot.checkpoint()
    state = {**slot.manifest.state(), "slices": np.array(stands, np.int64)}
    names = slice_names(3, state)
    assert names == [slice_name(3, span) for span in stands]
    heir = Slot()
    heir.store = SlotStore.restore(slot.store.state(), LIMITS)
    for name in names:
        heir.store.adopt(slot.archive[name])
    heir.manifest.restore(state, [slot.archive[name] for name in names])
    heir.merge()
    assert len(heir.store.slices) < len(stands)
    # It has nothing to write again.
    assert heir.manifest.begin_save(heir.name, heir.store.slices, LIMITS.full_rows) == (stands, [])


def test_a_merged_slice_that_leaves_is_found_by_its_parts() -> None:
    slot = Slot()
    slot.fill(12)
    slot.checkpoint()
    merged = slot.store.slices[0]
    assert span_of(merged) == (0, 11)
    slot.manifest.note_evicted(merged)
    assert slot.manifest.earliest_ms is None
    parts = [(0, 3), (4, 7), (8, 11)]
    names = slot.manifest.overlapping(0, 10_000_000, 12)
    assert names == [slice_name(3, span) for span in parts]
    # For a window, only those that it reaches.
    assert slot.manifest.overlapping(0, 3_000, 12) == [slice_name(3, (0, 3))]
    assert slot.manifest.forget(4_000) == [slice_name(3, (0, 3))]


def test_a_slice_of_too_many_parts_is_rewritten() -> None:
    store = SlotStore(StoreLimits(active_rows=2 * PARTS_MAX))
    fill(store, 2 * PARTS_MAX)
    (whole,) = store.slices
    span = span_of(whole)
    few = {(at, at + 1): (0, 0) for at in range(0, 2 * PARTS_MAX, 2)}
    assert ArchiveManifest(slot=3, archived=few).begin_save("name", [whole], 1 << 20) == (
        list(few),
        [],
    )
    many = {(at, at): (0, 0) for at in range(2 * PARTS_MAX)}
    brought = (slice_name(3, span), whole)
    assert ArchiveManifest(slot=3, archived=many).begin_save("name", [whole], 1 << 20) == (
        [span],
        [brought],
    )
    # Or one that is full.
    assert ArchiveManifest(slot=3, archived=few).begin_save("name", [whole], 2 * PARTS_MAX) == (
        [span],
        [brought],
    )


def test_parts_have_to_be_all_of_it() -> None:
    manifest = ArchiveManifest(slot=3, archived={(0, 3): (0, 0), (8, 11): (0, 0), (2, 7): (0, 0)})
    assert manifest.parts((0, 11)) == []
    assert manifest.parts((2, 11)) == [(2, 7), (8, 11)]
    assert manifest.parts((0, 3)) == [(0, 3)]
    manifest.archived[0, 7] = (0, 0)
    assert manifest.parts((0, 11)) == [(0, 7), (8, 11)]


def test_while_anothers_checkpoint_counts_nothing_leaves_that_it_may_stand_on() -> None:
    slot = Slot()
    slot.fill(12)
    stood_on = slot.checkpoint()
    # A former owner's, which continued from there, is farther than all that follow here.
    assert slot.manifest.durable(checkpoint_name(SLOTS, 3, 1_000, 6)) == []
    for _ in range(6):
        slot.fill(12)
        slot.offset += 1
        _, brought = slot.manifest.begin_save(slot.name, slot.store.slices, LIMITS.full_rows)
        slot.archive |= dict(brought)
        slot.manifest.superseded(slot.name)
        slot.merge()
    assert not slot.manifest.is_saving
    assert all(slice_name(3, span) in slot.archive for span in stood_on)
    assert set(stood_on) <= slot.manifest.archived.keys()
    # It is unknown here which slices come first in a checkpoint that may be loaded.
    assert slot.manifest.first_name is None

    # Once one of its own is the farthest again, and then another, the parts of merged ones are
    # removed.
    slot.offset = 2_000
    before = slot.archive.copy()
    slot.checkpoint()
    assert before.keys() <= slot.archive.keys()
    slot.fill(4)
    slot.checkpoint()
    assert len(slot.archive) < len(before)
    assert slot.manifest.first_name == min(slot.archive)


def test_what_stands_at_the_same_place_and_is_anothers_is_not_taken_for_written() -> None:
    slot = Slot()
    slot.fill(12)
    slot.offset = 5
    stands, brought = slot.manifest.begin_save(slot.name, slot.store.slices, LIMITS.full_rows)
    assert [name for name, _ in brought] == [slice_name(3, span) for span in stands]
    assert slot.manifest.durable(checkpoint_name(SLOTS, 3, 5, 6)) == []
    assert (slot.manifest.saved_seq, slot.manifest.archived) == (-1, {})
    # The next one writes them again, since this one may never be written.
    assert slot.manifest.begin_save("later", slot.store.slices, LIMITS.full_rows) == (
        stands,
        brought,
    )
