"""The objects of a slot: in memory, in the archive, and those that are still to be loaded."""

from __future__ import annotations

from collections.abc import Callable

from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.sliding_term_counts import NOTHING_FORGOTTEN
from sirocco.index.store.store import Job, SlotStore, StoreLimits
from sirocco.protocol.contract.effects import State
from sirocco.protocol.evaluator.slot.archived_slices import ArchiveManifest, span_of


class StoredPast:
    """The objects of one slot.

    Attributes:
        store: those in memory.
        manifest: which slices are in the archive.
        forgotten: what has left memory.
    """

    def __init__(self, number: int, limits: StoreLimits) -> None:
        """Begins without objects.

        Args:
            number: of the slot.
            limits: of the store.
        """
        self.store = SlotStore(limits)
        self.manifest = ArchiveManifest(slot=number)
        self.forgotten = NOTHING_FORGOTTEN
        self._is_working = False
        # The state whose slices are still to be loaded; None: they are here.
        self._unloaded: State | None = None

    @property
    def lacks_slices(self) -> bool:
        """Whether slices of its checkpoint are still to be loaded from the archive.

        Meanwhile the slot matches, but it does not answer from the past, and it is not saved.
        """
        return self._unloaded is not None

    def expect_slices(self, state: State) -> None:
        """Notes that the slices that a checkpoint relies on are loaded later."""
        self._unloaded = state

    def put_slices(self, state: State, slices: tuple[SealedSlice, ...]) -> None:
        """Takes the slices that a checkpoint relies on."""
        for each in slices:
            self.store.adopt(each)
        self.manifest.restore(state, slices)

    def complete(self, slices: tuple[SealedSlice, ...]) -> None:
        """Takes the slices that were loaded later; from then on it can be searched."""
        assert self._unloaded is not None
        self.put_slices(self._unloaded, slices)
        # Only now, with everything in place: searches run in other threads.
        self._unloaded = None

    def next_job(self) -> Callable[[], Job] | None:
        """Returns the next job to speed up searches, one at a time; `worked` takes its result."""
        # Without the loaded slices, neighbours in the store may not be neighbours in the log.
        if self._is_working or self.lacks_slices:
            return None
        job = self.store.next_job(self.manifest.saved_seq)
        if job is None:
            return None
        self._is_working = True

        def run() -> Job:
            job.run()
            return job

        return run

    def worked(self, job: Job) -> None:
        """Replaces slices by the one that a job has made of them."""
        self._is_working = False
        self.store.install(job)

    def forget(self, before_ms: int) -> None:
        """Drops from memory what arrived before a time."""
        for slice_ in self.store.forget(before_ms):
            self._note_evicted(slice_)

    def evict(self, bytes_max: int, needed_ms: int) -> None:
        """Drops the oldest objects from memory while they take too much.

        Args:
            bytes_max: of memory.
            needed_ms: what arrived then or later stays, as does what the archive lacks.
        """

        def may_evict(slice_: SealedSlice) -> bool:
            return slice_.arrival_last_ms < needed_ms and bool(self.manifest.parts(span_of(slice_)))

        for slice_ in self.store.evict(bytes_max, may_evict):
            self._note_evicted(slice_)

    @property
    def unarchived_bytes(self) -> int:
        """Memory of the sealed objects that the archive lacks: they cannot leave."""
        saved_seq = self.manifest.saved_seq
        return sum(each.bytes_total for each in self.store.slices if each.last_seq > saved_seq)

    def _note_evicted(self, slice_: SealedSlice) -> None:
        self.manifest.note_evicted(slice_)
        self.forgotten = self.forgotten.and_slice(slice_)
