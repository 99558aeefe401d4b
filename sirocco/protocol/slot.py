"""One owned slot: its position, its queries, its objects, and what its log brings.

Everything that is reported is a function of the log: matches stand at their object's position, what
the past holds for a new query at the position of its registration, and what a step brings at the
place where the slot's time passed it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sirocco.index.compile import take_queries, with_numbers
from sirocco.index.kept_terms import NOTHING_GONE
from sirocco.index.kinds import KIND_RANGE
from sirocco.index.query_table import NamedQueries
from sirocco.index.ragged import take_ragged
from sirocco.index.slices import SealedSlice
from sirocco.index.store import Job, SlotStore, StoreLimits
from sirocco.index.store_condition import compile_condition
from sirocco.index.term_names import TermNames
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import TextAnalyser
from sirocco.protocol.columns import NO_EVENTS
from sirocco.protocol.copied import Copied
from sirocco.protocol.found import Report, partition_of
from sirocco.protocol.installs import with_words
from sirocco.protocol.messages import NO_OBJECTS, NO_PAST, NOT_COPIED, Installed, Routed
from sirocco.protocol.past import Entered, past_reports, step_results
from sirocco.protocol.positions import (
    NO_TIME_MS,
    Reached,
    behind,
    position_of,
)
from sirocco.protocol.shelf import Shelf, span_of
from sirocco.protocol.slot_batch import Part, joined
from sirocco.protocol.standing import Hits, Standing, family_of, filters_of
from sirocco.protocol.step_found import StepReport, StepResult

_NO_HITS = np.empty(0, np.int32)

# Steps of one report. How steps fall into reports says where they stand, and thus is the same for
# all evaluators; searches that take long make a few seconds of so many.
STEPS_MAX = 512

# The registry partition of a query whose lifetime ended.
_UNKNOWN = -1

Reports = list[Report | StepReport]


@dataclass(slots=True)
class Changed:
    """What an install did that has to be told at its place.

    Attributes:
        entered: new queries that ask for the past.
        ended: rows of `Standing.names`, queries of which mergers keep something; with each the
            offset of the change that ended it.
        partition: of the registry, where the changes come from.
    """

    entered: list[Entered] = field(default_factory=list)
    ended: list[tuple[int, int]] = field(default_factory=list)
    partition: int = 0


class Slot:
    """State of one slot; everything in it is a function of the slot's log.

    Attributes:
        number: of the slot.
        offset: next offset of its log.
        reached: how far each intake partition has been taken.
        standing: its queries.
        store: its objects.
        limits: of the store.
        hashing: numbers the terms of queries and objects.
        shelf: which of their slices are in the archive.
        map_version: the newest by which anything was routed that was taken, marks included.
        is_behind: its log holds more that was written before it was opened here: whoever searched
            it would miss what others could find already.
        steps_total: how many steps of terms and ranked queries were taken.
    """

    def __init__(
        self,
        number: int,
        partials_partitions: int,
        limits: StoreLimits | None = None,
        hashing: TermHashing = WIRE_TERMS,
    ) -> None:
        self.number = number
        self.limits = (limits or StoreLimits()).of_slot(number)
        self.offset = 0
        self.reached = Reached()
        self.hashing = hashing
        self.standing = Standing(hashing)
        self.store = SlotStore(self.limits)
        self.shelf = Shelf(number)
        self._is_working = False
        self._term_names = TermNames(hashing)
        self._analyser = TextAnalyser()
        self._gone = NOTHING_GONE
        self.map_version = 0
        self.is_behind = False
        self.steps_total = 0
        self._log_end = 0
        self.saved_offset = 0
        self.saved_ms = 0
        self.changes_since_saved = 0
        self.floors: dict[int, int] = {}
        # By family: by what place of the registry its queries were copied here.
        self.copied = [Copied() for _ in self.standing.families]
        # Removed queries whose removal may still be overtaken by a repeat of their registration.
        self.removed: dict[int, tuple[int, int]] = {}
        self._sent = np.zeros(partials_partitions, np.int64)
        self._targets = np.empty(0, np.int32)
        self._intake_partitions = 0

    def open(self, offset: int, log_end: int, intake_partitions: int, now_ms: int) -> None:
        """Begins at an offset of the log: of a checkpoint, or the first."""
        self._log_end = log_end
        self.is_behind = offset < log_end
        self.offset = self.saved_offset = offset
        self.saved_ms = now_ms
        self._intake_partitions = intake_partitions
        # A checkpoint was preceded by marks to every target, so they stand here or further.
        self._sent[:] = position_of(offset)

    @property
    def time_ms(self) -> int:
        """Nothing that arrives later is older."""
        return self.reached.time_ms(self._intake_partitions)

    @property
    def is_stepping(self) -> bool:
        """Whether steps are due: `go_on` is to be called until there are none, before `take`."""
        return self.standing.steps.next_ms < self.time_ms

    @property
    def told_ms(self) -> int:
        """All that belongs to what is before this time was said."""
        return min(self.time_ms, self.standing.steps.next_ms)

    @property
    def said_upto(self) -> int:
        """The position up to which all was said: while steps are due, that behind the objects."""
        return behind(self.offset - 1) if self.is_stepping else position_of(self.offset)

    def take(
        self, records: list[tuple[int, Routed | Installed]], steps_max: int = sys.maxsize
    ) -> Reports:
        """Takes the next records of the slot's log; returns what they bring, in order.

        Args:
            records: with their offsets.
            steps_max: about how many steps it may take. When more are due it ends there, behind the
                record whose time is behind them: `is_stepping`, and reading goes on at `offset`.
        """
        assert not self.is_stepping
        reports: Reports = []
        parts: list[Part] = []
        for offset, message in records:
            if isinstance(message, Installed):
                changed = self._install(offset, message)
                if changed.entered or changed.ended:
                    # The past of a new query is all that the log holds before it.
                    reports += self._flush(parts, position_of(offset))
                    reports += self._tell(changed, position_of(offset))
            else:
                self._accept(offset, message, parts)
            self.offset = offset + 1
            # Of a new query, too: a first step that looks back may be behind the time already.
            if self.is_stepping:
                reports += self._flush(parts, behind(offset))
                begin = self.steps_total
                while self.is_stepping and self.steps_total - begin < steps_max:
                    reports.append(self.go_on())
                if self.is_stepping:
                    break
                steps_max -= self.steps_total - begin
        if parts or not reports:
            reports.append(self._match(parts, self.said_upto))
        reports[-1].time_ms = self.told_ms
        self._reclaim()
        # Only now, with all of it in the store: searches ask from other threads.
        self.is_behind = self.offset < self._log_end
        return reports

    def go_on(self) -> StepReport:
        """Takes the next steps that are due behind the record that was taken last.

        After an outage these are all steps of that time, of all queries: minutes of work, and more
        than would fit memory, if it were done at once.
        """
        due = self.standing.take_due(self.time_ms, STEPS_MAX)
        self.steps_total += len(due)
        results = step_results(self.store.view(), due, self._term_names, self._gone)
        report = self._said(results, behind(self.offset - 1))
        report.time_ms = self.told_ms
        return report

    def report(self) -> Report:
        """A report without objects: how far the slot has come."""
        report = self._empty_report(self.said_upto)
        report.time_ms = self.told_ms
        return report

    def expire(self) -> None:
        """Drops the queries whose lifetime ended before the slot's time."""
        if self.is_stepping:
            return
        for handle, revision in self.standing.expire(self.time_ms, self.offset):
            # Older versions may still be repeated, until the registry has removed the query.
            partition, _ = self.removed.get(handle, (_UNKNOWN, 0))
            self.removed[handle] = partition, revision
        self._reclaim()

    # --- objects of the past

    def next_job(self) -> Callable[[], Job] | None:
        """Work that makes searches faster, one at a time; `worked` takes what it returns."""
        job = None if self._is_working else self.store.next_job(self.shelf.saved_seq)
        if job is None:
            return None
        self._is_working = True

        def run() -> Job:
            job.run()
            return job

        return run

    def worked(self, job: Job) -> None:
        """Puts a slice in the place of what it was made of."""
        self._is_working = False
        self.store.install(job)

    def forget(self, retention_ms: int) -> None:
        """Lets objects leave memory that arrived too long ago."""
        if self.time_ms != NO_TIME_MS:
            for gone in self.store.forget(self.told_ms - retention_ms):
                self._left(gone)

    def evict(self, bytes_max: int) -> None:
        """Lets the oldest objects leave memory that take too much of it.

        What the archive lacks stays, and what steps of standing queries will count.
        """
        needed_ms = self.standing.steps.oldest_ms

        def may_leave(slice_: SealedSlice) -> bool:
            return slice_.arrival_last_ms < needed_ms and bool(self.shelf.parts(span_of(slice_)))

        for gone in self.store.evict(bytes_max, may_leave):
            self._left(gone)

    @property
    def unarchived_bytes(self) -> int:
        """Memory of the sealed objects that the archive lacks: they cannot leave."""
        saved_seq = self.shelf.saved_seq
        return sum(each.bytes_total for each in self.store.slices if each.last_seq > saved_seq)

    @property
    def is_archiving(self) -> bool:
        """Whether a checkpoint is on its way, or something was read that the next one has.

        A checkpoint behind the last record that was read says nothing new, so there is none: what
        was sealed since waits until more is read.
        """
        return self.shelf.is_saving or self.offset > self.saved_offset

    def _left(self, slice_: SealedSlice) -> None:
        self.shelf.left(slice_)
        self._gone = self._gone.and_slice(slice_)

    # --- what is reported

    def _empty_report(self, end: int) -> Report:
        # The time is told by the last report of all: what belongs to it comes before.
        return Report(
            self.number,
            end,
            NO_TIME_MS,
            self._sent,
            self._targets,
            self.standing.plain_names,
            NO_OBJECTS,
            NO_EVENTS,
            np.empty(0, np.int64),
            _NO_HITS,
            _NO_HITS,
            0,
        )

    def _accept(self, offset: int, message: Routed, parts: list[Part]) -> None:
        fresh_from = self.reached.accept(message.intervals)
        self.map_version = max(self.map_version, message.map_version)
        if not len(message.objects):
            return
        is_fresh = message.positions >= fresh_from[message.interval_rows]
        if is_fresh.all():
            parts.append((offset, message, None))
        elif is_fresh.any():
            parts.append((offset, message, np.flatnonzero(is_fresh)))

    def _flush(self, parts: list[Part], end: int) -> Reports:
        """Matches what was taken so far, before something is said at a place of its own."""
        if not parts:
            return []
        report = self._match(parts, end)
        parts.clear()
        return [report]

    def _match(self, parts: list[Part], end: int) -> Report:
        report = self._empty_report(end)
        if not parts:
            return report
        batch = joined(parts, self.hashing, self._analyser)
        own, rows = batch.own()
        hits = self.standing.match(batch, own, rows)
        self.store.append(own.objects, *own.columns, own.own_terms)
        report.objects, report.events, report.positions = (
            batch.objects,
            batch.events,
            batch.positions,
        )
        report.objects_total = len(own)
        report.batch = batch
        _put_hits(report, hits)
        return report

    def _said(self, results: list[StepResult], pinned: int) -> StepReport:
        return StepReport(
            self.number,
            pinned,
            NO_TIME_MS,
            self._sent,
            self._targets,
            self.standing.names,
            results,
            pinned,
        )

    def _tell(self, changed: Changed, pinned: int) -> Reports:
        reports: Reports = []
        if changed.ended:
            ended = [
                StepResult(row, self.time_ms, ended_by=(changed.partition, by))
                for row, by in changed.ended
            ]
            reports.append(self._said(ended, pinned))
        for found in past_reports(self.standing, self.store, changed.entered):
            report = self._empty_report(pinned)
            report.objects, report.events = found.objects, found.events
            report.positions = np.full(len(found.objects), pinned, np.int64)
            report.pinned = pinned
            _put_hits(report, found.hits)
            reports.append(report)
        return reports

    # --- queries

    def _install(self, offset: int, message: Installed) -> Changed:
        partition = message.registry_partition
        known_floor = self.floors.get(partition, 0)
        self.changes_since_saved += len(message.revisions) + len(message.removed)
        changed = Changed(partition=partition)
        if len(message.revisions):
            self._install_queries(offset, message, known_floor, changed)
        if len(message.removed):
            self._remove_queries(offset, message, changed)
        if message.floor > known_floor:
            self.floors[partition] = message.floor
            stale = [
                handle
                for handle, (source, revision) in self.removed.items()
                if source == partition and revision < message.floor
            ]
            for handle in stale:
                del self.removed[handle]
        return changed

    def _install_queries(
        self, offset: int, message: Installed, floor: int, changed: Changed
    ) -> None:
        handles = message.names.handles
        found, revisions = self.standing.names.find(handles)
        is_copied = message.copied_at != NOT_COPIED
        if is_copied:
            # What stands here already counts with others from now on.
            self.standing.share(message, found)
            is_new = self._is_new_copy(message, floor, revisions)
            for family, rows in found:
                is_here = (rows >= 0) & (message.revisions == revisions)
                self.copied[family].renew(rows[is_here], message.copied_at)
        else:
            is_new = self._is_new(message, floor, revisions)
        if not is_new.any():
            return
        for family, rows in found:
            is_replaced = is_new & (rows >= 0)
            ended = self.standing.end(family, rows[is_replaced], offset)
            changed.ended += zip(ended, message.revisions[is_replaced].tolist(), strict=False)
        chosen = np.flatnonzero(is_new)
        for handle in handles[chosen].tolist() if self.removed else ():
            if self.removed.get(handle, (0, 0))[0] == _UNKNOWN:
                del self.removed[handle]
        if message.specs is None and not (message.past_ms != NO_PAST).any():
            self._enter(message, chosen, KIND_RANGE, offset)
            return
        for kind in np.unique(message.kinds[chosen]).tolist():
            some = chosen[message.kinds[chosen] == kind]
            rows = self._enter(message, some, kind, offset)
            if is_copied:
                # What the past holds was told where it lies.
                self.standing.resume(kind, rows, self.time_ms)
                continue
            asked = message.past_ms[some] != NO_PAST
            changed.entered += [
                self._entered(kind, row, message, i)
                for row, i in zip(rows[asked].tolist(), some[asked].tolist(), strict=True)
            ]

    def _is_new(
        self, message: Installed, floor: int, revisions: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        # Below the floor everything was here before: what comes again is a repeat, and may be of a
        # query that has been removed since.
        is_new = (message.revisions >= floor) & (message.revisions > revisions)
        if self.removed:
            handles = message.names.handles.tolist()
            removed = [self.removed.get(handle, (0, -1))[1] for handle in handles]
            is_new &= message.revisions > np.array(removed)
        return np.asarray(is_new)

    def _is_new_copy(
        self, message: Installed, floor: int, revisions: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        # Copied are queries that may be older than the floor. What counts is how much of the
        # registry the sender knew: not a change that this slot was told, or was told before and has
        # forgotten; then a router that stood still sent it late.
        if message.copied_at < floor:
            return np.zeros(len(revisions), np.bool_)
        is_new = message.revisions > revisions
        for row, handle in enumerate(message.names.handles.tolist()) if self.removed else ():
            source, removed = self.removed.get(handle, (_UNKNOWN, -1))
            known = message.revisions[row] if source == _UNKNOWN else message.copied_at
            is_new[row] &= removed < known
        return np.asarray(is_new)

    def _enter(
        self, message: Installed, chosen: NDArray[np.intp], kind: int, offset: int
    ) -> NDArray[np.int32]:
        is_whole = len(chosen) == len(message.revisions)
        queries = message.rows if is_whole else take_queries(message.rows, chosen)
        if self.hashing.is_keyed and not queries.has_words:
            queries = with_words(queries, [_spec(message, i) for i in chosen.tolist()])
        filters = None if message.filters is None else [message.filters[i] for i in chosen]
        rows = self.standing.enter(
            kind, queries, named(message, chosen, kind), message, chosen, filters, offset
        )
        self.copied[family_of(kind)].enter(rows, message.copied_at)
        self.add_targets()
        return rows

    def _entered(self, kind: int, row: int, message: Installed, i: int) -> Entered:
        where = filters_of(None if message.filters is None else [message.filters[i]], 1)[0]
        asked = with_words(take_queries(message.rows, np.array([i])), [_spec(message, i)])
        condition = compile_condition(with_numbers(asked, self.hashing), where)
        return Entered(kind, row, condition, int(message.starts_ms[i]), int(message.past_ms[i]))

    def _remove_queries(self, offset: int, message: Installed, changed: Changed) -> None:
        handles, revisions = message.removed, message.removed_revisions
        found, _ = self.standing.names.find(handles)
        is_late = np.zeros(len(handles), np.bool_)
        for family, rows in found:
            table = self.standing.families[family].table
            if message.copied_at != NOT_COPIED:
                # For a map that another has followed since: sent late by a router that stood still.
                is_late |= (rows >= 0) & (self.copied[family].of(rows) > message.copied_at)
            is_due = (rows >= 0) & (revisions > table.revisions[rows]) & ~is_late
            ended = self.standing.end(family, rows[is_due], offset)
            changed.ended += zip(ended, revisions[is_due].tolist(), strict=False)
        partition = message.registry_partition
        handles, revisions = handles[~is_late], revisions[~is_late]
        for handle, revision in zip(handles.tolist(), revisions.tolist(), strict=True):
            # The greatest counts: an older removal that is repeated must not let older versions in.
            _, known = self.removed.get(handle, (partition, revision))
            self.removed[handle] = partition, max(known, revision)

    def _reclaim(self) -> None:
        # All that is reclaimed ended at or before the slot's offset: no object can meet it.
        self.standing.reclaim(self.time_ms, self.offset)

    def add_targets(self) -> None:
        """Finds the Kafka partitions of subscribers that are new here."""
        names = self.standing.names.subscriber_names[len(self._targets) :]
        if names:
            targets = [partition_of(name, len(self._sent)) for name in names]
            self._targets = np.concatenate([self._targets, np.array(targets, np.int32)])


def _put_hits(report: Report, hits: Hits) -> None:
    report.table = hits.names
    report.object_rows, report.query_rows = hits.object_rows, hits.query_rows
    report.changes, report.distances_m = hits.changes, hits.distances_m


def _spec(message: Installed, row: int) -> str:
    """The definition of a query; empty of a plain range query."""
    return "" if message.names.specs is None else message.names.specs[row]


def named(message: Installed, chosen: NDArray[np.intp], kind: int) -> NamedQueries:
    """The names of some of the queries of a message, all of a kind."""
    names = message.names
    offsets, places = take_ragged(names.id_offsets, chosen)
    specs = None
    if kind != KIND_RANGE and names.specs is not None:
        specs = tuple(names.specs[row] for row in chosen.tolist())
    return NamedQueries(
        names.handles[chosen],
        names.ids[places],
        offsets,
        names.subscriber_rows[chosen].astype(np.int32),
        specs,
    )
