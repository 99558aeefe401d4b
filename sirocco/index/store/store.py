"""The object store of one slot.

New objects are added to the active slice, which is scanned. When full, it is sealed (sorted, with
postings and a tree of boxes), and consecutive sealed slices are merged as they become many: a
log-structured store (Pastri's document store; SSTD's slices). A search in any thread uses a view,
which never changes, while one thread appends, merges and forgets.

Long work is separate: `next_job` returns a merge, or the sealing of full rows if that may wait. Any
thread runs it, and `install` puts its result in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.active_slice import ActiveSlice, ActiveView
from sirocco.index.store.gathering import slice_rows
from sirocco.index.store.merging import MergeJob, choose_merge
from sirocco.index.store.sealing import seal
from sirocco.index.store.slices import SealedSlice
from sirocco.kernels.store.slice_table import TABLE_WORDS
from sirocco.model.objects import ObjectColumns
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import TermColumns

__all__ = [
    "Job",
    "SealJob",
    "SlotStore",
    "StoreLimits",
    "StoreView",
    "slice_columns",
    "slice_table",
]

State = Mapping[str, NDArray[Any]]

# Slices that are not archived yet are merged all the same once they are this many times the others:
# at some 30,000 objects a second and slot between two checkpoints, or without an archive.
UNSAVED_MAX = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    """Size limits of a store; only speed and memory depend on them.

    Attributes:
        active_rows: rows of the active slice. Scanning them takes about 10 us, sealing about 10 ms.
        slices: desired maximum of sealed slices in a search; each costs some microseconds.
        slice_rows: no larger slice is built while fewer than `slices` of this size hold all
            objects. Whole slices are dropped by age, and merges of larger slices cost more.
        phase_rows: slices end where the number of the next object minus this is a multiple of
            `active_rows` (or earlier, if texts are long).
        unsealed: this many times `active_rows` may wait in the active slice to be sealed as a job;
            more rows are sealed at once, and the slot waits.
        terms_max, bytes_max: terms, and bytes of texts or of attributes, from which on a slice is
            sealed early: sealing takes only milliseconds, and offsets within a slice stay far below
            2^32.
    """

    active_rows: int = 16_384
    slices: int = 8
    slice_rows: int = 1 << 20
    phase_rows: int = 0
    unsealed: int = 0
    terms_max: int = 1 << 21
    bytes_max: int = 32 << 20

    @property
    def full_rows(self) -> int:
        """Slices of this many rows are not merged any more."""
        return -(-self.slice_rows // 2)

    def of_slot(self, slot: int) -> StoreLimits:
        """Returns the limits of one of many evenly loaded slots in one process.

        Without separate phases all slots would seal at the same moment. While it matches, a slot
        that fills a slice every two seconds has six seconds to seal it.
        """
        # Multiples of the golden ratio are as far from each other as possible.
        share = slot * 40_503 % (1 << 16)
        return replace(self, phase_rows=share * self.active_rows >> 16, unsealed=2)

    def rows_from(self, seq: int) -> int:
        """Returns how many rows the slice that begins with an object holds."""
        return self.active_rows - (seq - self.phase_rows) % self.active_rows

    def active_slice(self, first_seq: int) -> ActiveSlice:
        """Returns an empty active slice that begins with an object."""
        return ActiveSlice(first_seq, self.rows_from(first_seq), self.terms_max, self.bytes_max)


@dataclass(frozen=True, slots=True, eq=False)
class StoreView:
    """The contents of a store at one moment; immutable.

    Attributes:
        sealed: in the order of the log.
        active: rows after them.
        next_seq: number within the slot of the next object.
        table: i8[s, TABLE_WORDS], the sealed slices in the kernels' form.
    """

    sealed: tuple[SealedSlice, ...]
    active: ActiveView
    next_seq: int
    table: NDArray[np.int64]

    @property
    def first_seq(self) -> int:
        """Number of the first object here."""
        return self.sealed[0].first_seq if self.sealed else self.active.first_seq

    @property
    def objects_total(self) -> int:
        """Number of objects here."""
        return sum(map(len, self.sealed)) + self.active.rows

    @property
    def newest_ms(self) -> int:
        """Greatest arrival of an object here; -2^63 without any."""
        sealed = max((slice_.arrival_last_ms for slice_ in self.sealed), default=-(1 << 63))
        active = self.active.arrivals_ms[: self.active.rows]
        return max(sealed, int(active.max())) if len(active) else sealed

    def with_older(self, older: Sequence[SealedSlice]) -> StoreView:
        """Returns the view with older slices before its own, in the order of the log."""
        sealed = (*older, *self.sealed)
        return StoreView(sealed, self.active, self.next_seq, slice_table(sealed))


class ArrivalTimes:
    """When the objects of a view arrived, for many spans of time."""

    def __init__(self, view: StoreView) -> None:
        """Takes the times of a view; sorts those of the active slice, which nearly are."""
        self._spans_ms = [(each.arrival_first_ms, each.arrival_last_ms) for each in view.sealed]
        active = view.active
        self._active_ms = np.sort(active.arrivals_ms[: active.rows], kind="stable")

    def may_hold(self, from_ms: int, to_ms: int) -> bool:
        """Whether an object may have arrived in a span, both ends included; False is certain."""
        if any(first <= to_ms and last >= from_ms for first, last in self._spans_ms):
            return True
        begin, end = np.searchsorted(self._active_ms, (from_ms, to_ms + 1))
        return bool(begin < end)


def slice_table(slices: tuple[SealedSlice, ...]) -> NDArray[np.int64]:
    """Returns the table of slices for a view; valid as long as the slices exist."""
    return np.array([s.table_row for s in slices], np.int64).reshape(-1, TABLE_WORDS)


class SealJob:
    """The sealing of full rows; `run` may be called in any thread.

    Attributes:
        first_seq: number of the first of them.
        sealed: the result, None before `run`.
    """

    __slots__ = ("_rows", "first_seq", "sealed")

    def __init__(self, first_seq: int, rows: StoredRows) -> None:
        self.first_seq = first_seq
        self.sealed: SealedSlice | None = None
        self._rows = rows

    def run(self) -> None:
        """Seals; changes nothing else."""
        self.sealed = seal(self._rows)


Job: TypeAlias = MergeJob | SealJob


class SlotStore:
    """Objects of one slot. One thread changes it; any thread may call `view`."""

    __slots__ = ("_active", "_limits", "_published", "_sealed", "_table", "next_seq")

    def __init__(self, limits: StoreLimits | None = None) -> None:
        """Creates an empty store."""
        self._limits = limits or StoreLimits()
        self._sealed: tuple[SealedSlice, ...] = ()
        self._active = self._limits.active_slice(0)
        self.next_seq = 0
        self._table = slice_table(())
        self._published = StoreView((), self._active.view(), 0, self._table)

    # Writing -------------------------------------------------------------------------------

    def append(
        self,
        objects: ObjectColumns,
        sessions: NDArray[np.uint64],
        numbers: NDArray[np.uint64],
        arrivals_ms: NDArray[np.int64],
        terms: TermColumns,
    ) -> None:
        """Appends the next objects of the slot's log; seals full rows.

        Args:
            objects: n rows.
            sessions, numbers: u8[n], event keys.
            arrivals_ms: i8[n].
            terms: n rows.
        """
        self.append_rows(
            StoredRows(
                objects=objects,
                sessions=sessions,
                numbers=numbers,
                arrivals_ms=arrivals_ms,
                seqs=np.arange(self.next_seq, self.next_seq + len(objects)),
                lengths=terms.lengths,
                term_offsets=terms.offsets,
                terms=terms.terms,
                counts=terms.counts,
            )
        )

    def append_rows(self, rows: StoredRows) -> None:
        """Appends the next objects as rows; their `seqs` continue from `next_seq`."""
        begin = 0
        while begin < len(rows):
            end = begin + self._active.fitting(rows, begin)
            self._active.append(rows, begin, end)
            self.next_seq += end - begin
            if self._active.is_full:
                self._active.end_piece(self._limits.rows_from(self.next_seq))
                if len(self._active.ends) > self._limits.unsealed:
                    self._put_sealed(seal(self._active.first_piece()))
            begin = end
        self._publish()

    def seal(self) -> None:
        """Seals the active slice now, unless it is empty."""
        if self._active.rows > sum(self._active.ends[-1:]):
            self._active.end_piece(self._limits.rows_from(self.next_seq))
        while self._active.ends:
            self._put_sealed(seal(self._active.first_piece()))
        self._publish()

    def _put_sealed(self, slice_: SealedSlice) -> None:
        """Replaces the first full piece of the active slice by a sealed slice."""
        self._sealed = (*self._sealed, slice_)
        self._active = self._active.without_first()

    def next_job(self, saved_seq: int | None = None) -> Job | None:
        """Returns the next due job, None if there is none. One at a time.

        Args:
            saved_seq: slices after this object are not in the archive yet and are not merged,
                unless they become too many: an archived slice need not be archived again in merged
                form.
        """
        if self._active.ends:
            return SealJob(self._active.first_seq, self._active.first_piece())
        slices = self._sealed
        if saved_seq is not None:
            saved = [each for each in slices if each.last_seq <= saved_seq]
            if len(slices) - len(saved) <= UNSAVED_MAX * self._limits.slices:
                slices = tuple(saved)
        chosen = choose_merge(slices, self._limits.slices, self._limits.slice_rows)
        return None if chosen is None else MergeJob(chosen)

    def install(self, job: Job) -> bool:
        """Replaces a job's sources by its result.

        Returns:
            Whether it did; False if a source has left the store, or was sealed meanwhile.

        Raises:
            ValueError: The job has not run.
        """
        if isinstance(job, SealJob):
            if job.sealed is None:
                raise ValueError("seal: not run")
            if job.first_seq != self._active.first_seq:
                return False
            self._put_sealed(job.sealed)
            self._publish()
            return True
        if job.merged is None:
            raise ValueError("merge: not run")
        missing = [s for s in job.sources if not any(s is own for own in self._sealed)]
        if missing:
            return False
        at = next(i for i, own in enumerate(self._sealed) if own is job.sources[0])
        after = self._sealed[at + len(job.sources) :]
        self._sealed = (*self._sealed[:at], job.merged, *after)
        self._publish()
        return True

    def adopt(self, slice_: SealedSlice) -> None:
        """Inserts a loaded slice at its place.

        Raises:
            ValueError: It overlaps the store's objects.
        """
        slices = sorted((*self._sealed, slice_), key=lambda s: s.first_seq)
        ends = [s.last_seq + 1 for s in slices]
        begins = [s.first_seq for s in slices[1:]] + [self._active.first_seq]
        if any(end > begin for end, begin in zip(ends, begins, strict=True)):
            raise ValueError(
                f"store: slice [{slice_.first_seq}, {slice_.last_seq}] overlaps what is there"
            )
        self._sealed = tuple(slices)
        self._publish()

    # Retention -----------------------------------------------------------------------------

    def forget(self, before_ms: int) -> list[SealedSlice]:
        """Drops the oldest sealed slices whose objects all arrived before a time; returns them."""
        return self._drop(list(takewhile(lambda s: s.arrival_last_ms < before_ms, self._sealed)))

    def evict(
        self, bytes_max: int, is_archived: Callable[[SealedSlice], bool]
    ) -> list[SealedSlice]:
        """Drops the oldest sealed slices until the store is small enough; returns them.

        Args:
            bytes_max: limit of the store.
            is_archived: a slice that is not archived is kept, with all later ones: a store only
                lacks a beginning of its log.
        """
        dropped: list[SealedSlice] = []
        bytes_left = self.bytes_total
        for slice_ in self._sealed:
            if bytes_left <= bytes_max or not is_archived(slice_):
                break
            bytes_left -= slice_.bytes_total
            dropped.append(slice_)
        return self._drop(dropped)

    # Reading -------------------------------------------------------------------------------

    def view(self) -> StoreView:
        """Returns the store's contents after the last change; safe in any thread."""
        return self._published

    @property
    def slices(self) -> tuple[SealedSlice, ...]:
        """The sealed slices in the order of the log."""
        return self._sealed

    @property
    def first_seq(self) -> int:
        """Number of the first object still here."""
        return self._sealed[0].first_seq if self._sealed else self._active.first_seq

    @property
    def objects_total(self) -> int:
        """Objects in memory."""
        return sum(map(len, self._sealed)) + self._active.rows

    @property
    def bytes_total(self) -> int:
        """Bytes of memory, text included."""
        return sum(s.bytes_total for s in self._sealed) + self._active.bytes_total

    # Checkpoints ---------------------------------------------------------------------------

    def state(self, hashing: TermHashing = WIRE_TERMS) -> State:
        """Returns the active rows and their start; sealed slices are stored separately.

        Args:
            hashing: the numbering of the store's terms; the state holds wire hashes.
        """
        active = self._active.view()
        rows = active.stored()
        if hashing.is_keyed:
            rows = rows.with_terms(WIRE_TERMS)
        return {"first_seq": np.array([active.first_seq], np.int64), **rows.columns()}

    @classmethod
    def restore(
        cls,
        state: State,
        limits: StoreLimits | None = None,
        hashing: TermHashing = WIRE_TERMS,
        *,
        is_former: bool = False,
    ) -> SlotStore:
        """Creates a store from a `state`, without slices; `adopt` adds those.

        Args:
            state: possibly of an earlier version or another process.
            limits: of the store.
            hashing: numbers the terms of the store.
            is_former: whether an earlier version analysed the texts.
        """
        store = cls(limits)
        first_seq = int(state["first_seq"][0])
        store._active = store._limits.active_slice(first_seq)
        store.next_seq = first_seq
        rows = StoredRows.from_columns(state)
        is_anew = hashing.is_keyed or is_former
        store.append_rows(rows.with_terms(hashing) if is_anew else rows)
        return store

    # ---------------------------------------------------------------------------------------

    def _drop(self, dropped: list[SealedSlice]) -> list[SealedSlice]:
        if dropped:
            self._sealed = self._sealed[len(dropped) :]
            self._publish()
        return dropped

    def _publish(self) -> None:
        if self._sealed is not self._published.sealed:
            self._table = slice_table(self._sealed)
        # One assignment: a reader sees the old view or the new one.
        self._published = StoreView(self._sealed, self._active.view(), self.next_seq, self._table)


def slice_columns(slice_: SealedSlice) -> dict[str, NDArray[Any]]:
    """Returns the rows of a slice as named columns, for a file."""
    return slice_rows(slice_).columns()
