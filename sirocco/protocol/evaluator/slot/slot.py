"""One owned slot: its position, its queries, its objects, and its reports on records of its log.

All reports are a function of the log. Matches have their object's position, past objects of a new
query the position of its registration, and results of a step the position where the slot's time
passed it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.compile import take_queries, with_numbers, without_text
from sirocco.index.base.kinds import KIND_RANGE, KIND_TRACKED
from sirocco.index.base.ragged import take_ragged
from sirocco.index.standing.limits import StandingLimits
from sirocco.index.standing.query_table import NamedQueries
from sirocco.index.standing.track.last_objects import NOT_KNOWN
from sirocco.index.standing.track.track_pairs import Members
from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.sliding_term_counts import NOTHING_FORGOTTEN
from sirocco.index.store.store import Job, SlotStore, StoreLimits
from sirocco.index.store.store_condition import compile_condition
from sirocco.index.store.term_names import TermNames
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import TextAnalyser
from sirocco.protocol.contract.columns import NO_EVENTS
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import (
    AT_ONCE_MS,
    NEVER_MS,
    NO_OBJECTS,
    NO_PAST,
    NO_REVISION,
    NOT_COPIED,
    Installed,
    Routed,
)
from sirocco.protocol.contract.positions import (
    NO_TIME_MS,
    Reached,
    position_after,
    position_of,
)
from sirocco.protocol.contract.query_definitions import query_of
from sirocco.protocol.contract.query_words import (
    Definitions,
    analysed_from,
    with_definitions,
    with_words,
)
from sirocco.protocol.contract.record_sizes import partition_of
from sirocco.protocol.evaluator.limits import LIMITS
from sirocco.protocol.evaluator.reports.history_answers import (
    HistoryRequest,
    events_of,
    history_reports,
    step_results,
)
from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.reports.partial_records import Reports
from sirocco.protocol.evaluator.reports.step_records import StepReport, StepResult
from sirocco.protocol.evaluator.slot.archived_slices import ArchiveManifest, span_of
from sirocco.protocol.evaluator.slot.copy_offsets import CopyOffsets
from sirocco.protocol.evaluator.slot.record_batch import Part, joined
from sirocco.protocol.evaluator.slot.removed_queries import UNKNOWN, RemovedQueries
from sirocco.protocol.evaluator.standing.definitions import filters_of
from sirocco.protocol.evaluator.standing.hits import Hits
from sirocco.protocol.evaluator.standing.lifetimes import Lifetimes
from sirocco.protocol.evaluator.standing.query_ends import EndReport, QueryEnd, QueryEndings
from sirocco.protocol.evaluator.standing.query_families import TRACKED, family_of
from sirocco.protocol.evaluator.standing.standing_queries import StandingQueries

_NO_HITS = np.empty(0, np.int32)


@dataclass(slots=True)
class Changed:
    """Results of an install that must be reported at its position.

    Attributes:
        history_requests: new queries that ask for the past.
        ended: rows of `StandingQueries.names`, queries of which mergers keep state; with each the
            offset of the change that ended it, and whether that continues it.
        partition: of the registry, where the changes come from.
        exits: values that were inside a query which has ended, or whose region moved away.
        reported_ends: ended queries whose end is to be reported.
    """

    history_requests: list[HistoryRequest] = field(default_factory=list)
    ended: list[tuple[int, int, bool]] = field(default_factory=list)
    partition: int = 0
    exits: list[Members] = field(default_factory=list)
    reported_ends: list[QueryEnd] = field(default_factory=list)

    @property
    def has_reports(self) -> bool:
        """Whether there may be anything to report."""
        return bool(self.history_requests or self.ended or self.exits or self.reported_ends)


class Slot:
    """State of one slot; everything in it is a function of the slot's log.

    Attributes:
        number: of the slot.
        offset: next offset of its log.
        reached: how far each intake partition has been taken.
        standing: its queries.
        lifetimes: ends of queries with tracked values.
        query_endings: the ends that are to be reported.
        store: its objects.
        limits: of the store.
        hashing: numbers the terms of queries and objects.
        manifest: which slices are in the archive.
        map_version: the newest of any routed record that was taken, marks included.
        steps_total: how many steps of terms and ranked queries were taken.
        definitions: of queries that an earlier analysis may have read otherwise; None: not needed.
        has_former_texts: a router of an earlier version has sent queries since the slot was loaded:
            it needs the definitions once more when it is loaded again.
    """

    def __init__(
        self,
        number: int,
        partials_partitions: int,
        limits: StoreLimits | None = None,
        hashing: TermHashing = WIRE_TERMS,
        analyser: TextAnalyser | None = None,
        report_steps_max: int = LIMITS.report_steps_max,
        standing_limits: StandingLimits = LIMITS.standing,
    ) -> None:
        """Makes an empty slot.

        Args:
            number: of the slot.
            partials_partitions: how many Kafka partitions `partials` has.
            limits: of the store.
            hashing: numbers the terms of queries and objects.
            analyser: of the thread, whose slots share its memory; None: one of its own.
            report_steps_max: see `EvaluatorLimits`.
            standing_limits: of the indexes of its queries.
        """
        self.number = number
        self.limits = (limits or StoreLimits()).of_slot(number)
        self.offset = 0
        self.reached = Reached()
        self.hashing = hashing
        self.standing = StandingQueries(hashing, standing_limits)
        self.lifetimes = Lifetimes()
        self.query_endings = QueryEndings()
        self.store = SlotStore(self.limits)
        self.manifest = ArchiveManifest(slot=number)
        self._report_steps_max = report_steps_max
        self._is_working = False
        self._term_names = TermNames(hashing)
        self._analyser = analyser or TextAnalyser()
        self._forgotten = NOTHING_FORGOTTEN
        self.map_version = 0
        # Intake partition → the oldest map by which its later objects are routed.
        self._least_versions: dict[int, int] = {}
        # A map version, and the number from which on all objects were routed by that or later maps.
        self.settled = 0, 0
        self.steps_total = 0
        self._is_behind = False
        # The state whose slices are still to be loaded; None: they are here.
        self._unloaded: State | None = None
        self._log_end = 0
        self.saved_offset = 0
        self.saved_ms = 0
        self.changes_since_saved = 0
        self.floors: dict[int, int] = {}
        self.definitions: Definitions | None = None
        self.has_former_texts = False
        # By family: up to which offset of the registry its queries were copied here.
        self.copied = [CopyOffsets() for _ in self.standing.families]
        # Removed queries of which an older registration may still be repeated.
        self.removed = RemovedQueries()
        self._sent = np.zeros(partials_partitions, np.int64)
        self._targets = np.empty(0, np.int32)
        self._intake_partitions = 0

    def open(self, offset: int, log_end: int, intake_partitions: int, now_ms: int) -> None:
        """Begins at an offset of the log: that of a checkpoint, or the first."""
        self._log_end = log_end
        self._is_behind = offset < log_end
        self.offset = self.saved_offset = offset
        self.saved_ms = now_ms
        self._intake_partitions = intake_partitions
        # Marks to every target preceded the checkpoint, so each has been sent at least this much.
        self._sent[:] = position_of(offset)

    @property
    def time_ms(self) -> int:
        """The time of the slot: no later arrival is older."""
        return self.reached.time_ms(self._intake_partitions)

    @property
    def lacks_slices(self) -> bool:
        """Whether slices of its checkpoint are still to be loaded from the archive.

        Meanwhile it matches, but it does not answer from the past, and it is not saved.
        """
        return self._unloaded is not None

    @property
    def is_catching_up(self) -> bool:
        """Whether a search would miss objects that a former owner could find.

        Its log holds more that was written before it was opened here, or slices are missing.
        """
        return self._is_behind or self.lacks_slices

    @property
    def awaits_slices(self) -> bool:
        """Whether the next step can be taken only when the slices are here."""
        return self.lacks_slices and self.standing.steps.next_ms <= self._due_ms

    @property
    def is_stepping(self) -> bool:
        """Whether steps are due: before `take`, `continue_steps` is called until there are none."""
        due_ms = self._due_ms
        # Where nothing is due ever, which is the rule, the time need not be looked for.
        return due_ms != NEVER_MS and due_ms < self.time_ms

    @property
    def _due_ms(self) -> int:
        """The earliest step or end that has not been reported."""
        return min(self.standing.steps.next_ms, self.lifetimes.next_ms, self.query_endings.next_ms)

    @property
    def reported_ms(self) -> int:
        """The time before which everything was reported."""
        return min(self.time_ms, self._due_ms)

    @property
    def reported_upto(self) -> int:
        """The position up to which all was reported; while steps are due, after the objects."""
        return position_after(self.offset - 1) if self.is_stepping else position_of(self.offset)

    def take(
        self, records: list[tuple[int, Routed | Installed]], steps_max: int = sys.maxsize
    ) -> Reports:
        """Takes the next records of the slot's log; returns the reports, in order.

        While it `lacks_slices`, it stops before a query that asks for the past, and before a step.

        Args:
            records: with their offsets.
            steps_max: about how many steps it may take. When more are due it stops after the record
                whose time passed them: `is_stepping`, and reading continues at `offset`.
        """
        assert not self.is_stepping
        reports: Reports = []
        parts: list[Part] = []
        for offset, message in records:
            if isinstance(message, Installed):
                if self.lacks_slices and self._needs_slices(message):
                    break
                if self._moves_values(message):
                    # Objects before the change count for which values are inside by now.
                    reports += self._flush(parts, position_of(offset))
                changed = self._install(offset, message)
                if changed.has_reports:
                    # The past of a new query is all that the log holds before it.
                    reports += self._flush(parts, position_of(offset))
                    reports += self._report_changes(changed, position_of(offset))
            else:
                self._accept(offset, message, parts)
            self.offset = offset + 1
            # Also for a new query: a first step over past objects may be due already.
            if self.is_stepping:
                reports += self._flush(parts, position_after(offset))
                begin = self.steps_total
                while self._may_step and self.steps_total - begin < steps_max:
                    reports += self.continue_steps()
                if self.is_stepping:
                    break
                steps_max -= self.steps_total - begin
        if parts or not reports:
            reports.append(self._match(parts, self.reported_upto))
        reports[-1].time_ms = self.reported_ms
        self._reclaim()
        if self.least_version > self.settled[0]:
            # What was taken is in the store by now.
            self.settled = self.least_version, self.store.next_seq
        # Only now, with everything in the store: searches run in other threads.
        self._is_behind = self.offset < self._log_end
        return reports

    @property
    def _may_step(self) -> bool:
        return self.is_stepping and not self.awaits_slices

    def continue_steps(self) -> Reports:
        """Takes the next steps, or ends, that are due after the record that was taken last.

        After an outage these are all steps of that time, of all queries: minutes of work, and more
        than would fit memory, if it were done at once.
        """
        if self.standing.steps.next_ms > self._due_ms:
            is_value = self.lifetimes.next_ms == self._due_ms
            return self._end_lifetimes() if is_value else self._report_ends()
        due = self.standing.take_due(self.time_ms, self._report_steps_max)
        self.steps_total += len(due)
        results = step_results(self.store.view(), due, self._term_names, self._forgotten)
        report = self._step_report(results, position_after(self.offset - 1))
        report.time_ms = self.reported_ms
        return [report]

    def _end_lifetimes(self) -> Reports:
        """Takes the next lifetimes that are over; steps of the same time come before."""
        next_ms = self.standing.steps.next_ms
        due = self.lifetimes.take_due(min(self.time_ms, next_ms), self._report_steps_max)
        self.steps_total += len(due)
        handles = np.array([each.handle for each in due], np.uint64)
        rows = self.standing.families[TRACKED].table.find(handles)
        left = self._taken(rows[rows >= 0])
        self.standing.end(TRACKED, rows[rows >= 0], self.offset)
        for each, row in zip(due, rows.tolist(), strict=True):
            if row >= 0:
                self._note_expired([(each.handle, each.revision)])
        pinned = position_after(self.offset - 1)
        reports = self._report_exits([left], pinned) or [self._empty_report(self.reported_upto)]
        reports[-1].time_ms = self.reported_ms
        return reports

    def _report_ends(self) -> Reports:
        """Reports the next lifetimes that are over, after everything else of that time."""
        before_ms = min(self.standing.steps.next_ms, self.lifetimes.next_ms)
        due = self.query_endings.take_due(min(self.time_ms, before_ms), self._report_steps_max)
        self.steps_total += len(due)
        report = self._end_report(due, position_after(self.offset - 1))
        report.time_ms = self.reported_ms
        return [report]

    def _end_report(self, ends: list[QueryEnd], pinned: int) -> EndReport:
        return EndReport(self.number, pinned, NO_TIME_MS, self._sent, ends, pinned)

    def report(self) -> Report:
        """Returns a report without objects: the position and the time of the slot."""
        report = self._empty_report(self.reported_upto)
        report.time_ms = self.reported_ms
        return report

    def expire(self) -> None:
        """Drops the queries whose lifetime ended before the slot's time."""
        if self.is_stepping:
            return
        self._note_expired(self.standing.expire(self.time_ms, self.offset))
        self._reclaim()

    def _note_expired(self, expired: list[tuple[int, int]]) -> None:
        """Notes queries, (handle, revision), of which older versions may still be repeated."""
        if expired:
            handles = np.array([handle for handle, _ in expired], np.uint64)
            revisions = np.array([revision for _, revision in expired], np.int64)
            self.removed.put_expired(handles, revisions)

    # --- objects of the past

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

    def forget(self, retention_ms: int) -> None:
        """Drops objects from memory that arrived too long ago."""
        if self.time_ms != NO_TIME_MS:
            for slice_ in self.store.forget(self.reported_ms - retention_ms):
                self._note_evicted(slice_)

    def evict(self, bytes_max: int) -> None:
        """Drops the oldest objects from memory while they take too much.

        Objects that the archive lacks stay, and those that steps of standing queries will count.
        """
        needed_ms = self.standing.steps.oldest_ms

        def may_evict(slice_: SealedSlice) -> bool:
            return slice_.arrival_last_ms < needed_ms and bool(self.manifest.parts(span_of(slice_)))

        for slice_ in self.store.evict(bytes_max, may_evict):
            self._note_evicted(slice_)

    @property
    def unarchived_bytes(self) -> int:
        """Memory of the sealed objects that the archive lacks: they cannot leave."""
        saved_seq = self.manifest.saved_seq
        return sum(each.bytes_total for each in self.store.slices if each.last_seq > saved_seq)

    @property
    def is_archiving(self) -> bool:
        """Whether a checkpoint is being written, or records were read that the next one covers.

        Without new records there is no new checkpoint: slices sealed since then wait for more
        records.
        """
        return self.manifest.is_saving or self.offset > self.saved_offset

    def _note_evicted(self, slice_: SealedSlice) -> None:
        self.manifest.note_evicted(slice_)
        self._forgotten = self._forgotten.and_slice(slice_)

    # --- reports

    def _empty_report(self, end: int) -> Report:
        # Only the last report has the time: everything that belongs to it comes before.
        return Report(
            slot=self.number,
            end=end,
            time_ms=NO_TIME_MS,
            sent=self._sent,
            targets=self._targets,
            table=self.standing.plain_names,
            objects=NO_OBJECTS,
            events=NO_EVENTS,
            positions=np.empty(0, np.int64),
            object_rows=_NO_HITS,
            query_rows=_NO_HITS,
            objects_total=0,
        )

    def _accept(self, offset: int, message: Routed, parts: list[Part]) -> None:
        fresh_from = self.reached.accept(message.intervals)
        self.map_version = max(self.map_version, message.map_version)
        if message.least_version:
            self._note_maps(message)
        if not len(message.objects):
            return
        is_fresh = message.positions >= fresh_from[message.interval_rows]
        if is_fresh.all():
            parts.append((offset, message, None))
        elif is_fresh.any():
            parts.append((offset, message, np.flatnonzero(is_fresh)))

    def _note_maps(self, mark: Routed) -> None:
        """Notes which maps route the later objects of a mark's sources."""
        sources, ends = mark.intervals.sources.tolist(), mark.intervals.ends.tolist()
        for source, end in zip(sources, ends, strict=True):
            # Objects before a mark that was dropped may still come, by an older map.
            if self.reached.positions.get(source, 0) >= end:
                known = self._least_versions.get(source, 0)
                self._least_versions[source] = max(known, mark.least_version)

    @property
    def least_version(self) -> int:
        """The oldest map by which any later object is routed; 0 while it is not known."""
        known = self._least_versions.get
        return min((known(each, 0) for each in range(self._intake_partitions)), default=0)

    def _flush(self, parts: list[Part], end: int) -> Reports:
        """Matches what was taken so far, before a report at a position of its own."""
        if not parts:
            return []
        report = self._match(parts, end)
        parts.clear()
        return [report]

    def _match(self, parts: list[Part], end: int) -> Report:
        report = self._empty_report(end)
        if not parts:
            return report
        batch = joined(parts, self.hashing, self._analyser, keeps_order=self.standing.has_patterns)
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

    def _step_report(self, results: list[StepResult], pinned: int) -> StepReport:
        return StepReport(
            slot=self.number,
            end=pinned,
            time_ms=NO_TIME_MS,
            sent=self._sent,
            targets=self._targets,
            table=self.standing.names,
            results=results,
            pinned=pinned,
        )

    def _report_changes(self, changed: Changed, pinned: int) -> Reports:
        reports = self._report_exits(changed.exits, pinned)
        if changed.ended:
            ended = [
                StepResult(
                    query_row=row,
                    at_ms=self.time_ms,
                    ended_by=(changed.partition, by),
                    is_continued=is_continued,
                )
                for row, by, is_continued in changed.ended
            ]
            reports.append(self._step_report(ended, pinned))
        for found in history_reports(self.standing, self.store, changed.history_requests):
            report = self._empty_report(pinned)
            report.objects, report.events = found.objects, found.events
            report.positions = np.full(len(found.objects), pinned, np.int64)
            report.pinned = pinned
            _put_hits(report, found.hits)
            reports.append(report)
        if changed.reported_ends:
            reports.append(self._end_report(changed.reported_ends, pinned))
        return reports

    def _report_exits(self, left: list[Members], pinned: int) -> Reports:
        """Reports the values that are no longer inside queries that ended, or moved."""
        reports: Reports = []
        for found in map(self.standing.exits, left):
            if found is None:
                continue
            stored, hits = found
            report = self._empty_report(pinned)
            report.objects, report.events = stored.objects, events_of(stored)
            report.positions = np.full(len(stored), pinned, np.int64)
            report.pinned = pinned
            _put_hits(report, hits)
            reports.append(report)
        return reports

    # --- queries

    @staticmethod
    def _needs_slices(message: Installed) -> bool:
        """Whether new queries ask for the past."""
        return bool((message.past_ms != NO_PAST).any())

    def _moves_values(self, message: Installed) -> bool:
        """Whether values may be inside queries that a message changes or removes."""
        standing = self.standing
        return standing.are_tracked(message.names.handles) or standing.are_tracked(message.removed)

    def _install(self, offset: int, message: Installed) -> Changed:
        partition = message.registry_partition
        known_floor = self.floors.get(partition, 0)
        self.changes_since_saved += len(message.revisions) + len(message.removed)
        changed = Changed(partition=partition)
        if len(message.revisions):
            if not message.rows.has_words:
                message = self._analysed_anew(message)
            self._install_queries(offset, message, known_floor, changed)
        if len(message.removed):
            self._remove_queries(offset, message, changed)
        changed.reported_ends = self.query_endings.registry_ends(message, known_floor)
        if message.floor > known_floor:
            self.floors[partition] = message.floor
            self.query_endings.forget(partition, message.floor)
            self.removed.forget_below(partition, message.floor)
        return changed

    def _analysed_anew(self, message: Installed) -> Installed:
        """Returns queries of an earlier version with the texts of their definitions."""
        self.has_former_texts = True
        names, rows = message.names, message.rows
        rows = analysed_from(rows, names.handles, message.revisions, self.definitions or {})
        own = {row: query_of(spec) for row, spec in enumerate(names.specs or ()) if spec}
        return replace(message, rows=with_definitions(rows, own))

    def _install_queries(
        self, offset: int, message: Installed, floor: int, changed: Changed
    ) -> None:
        handles = message.names.handles
        found, revisions = self.standing.names.find(handles)
        is_copied = message.copied_at != NOT_COPIED
        if is_copied:
            # Queries that are here already are shared with other slots from now on.
            self.standing.share(message, found)
            is_new = self._is_new_copy(message, floor, revisions)
            for family, rows in found:
                is_here = (rows >= 0) & (message.revisions == revisions)
                self.copied[family].renew(rows[is_here], message.copied_at)
        else:
            is_new = self._is_new(message, floor, revisions)
        if not is_new.any():
            return
        replacements = _ReplacedQueries.none()
        for family, rows in found:
            is_replaced = is_new & (rows >= 0)
            replaced = rows[is_replaced]
            by = np.flatnonzero(is_replaced)
            is_continued = self._are_continued(message, by, family, replaced)
            if family == TRACKED:
                for handle in handles[is_replaced].tolist():
                    self.lifetimes.drop(handle)
                members = self.standing.tracked.take_members(replaced)
                replacements = _ReplacedQueries(replaced, by, is_continued, members)
            ended = self.standing.end(family, replaced, offset)
            revisions_by = message.revisions[by].tolist()
            changed.ended += zip(ended, revisions_by, is_continued.tolist(), strict=False)
        chosen = np.flatnonzero(is_new)
        self.query_endings.enter(message, chosen.tolist())
        if self.removed:
            self.removed.forget_expired(handles[chosen])
        if message.specs is None and not (message.past_ms != NO_PAST).any():
            self._enter(message, chosen, KIND_RANGE, offset)
            changed.exits += replacements.exits(self.standing, {}, message, offset)
            return
        new_rows: dict[int, int] = {}
        for kind in sorted_distinct(message.kinds[chosen]).tolist():
            some = chosen[message.kinds[chosen] == kind]
            rows = self._enter(message, some, kind, offset)
            if kind == KIND_TRACKED:
                new_rows = dict(zip(some.tolist(), rows.tolist(), strict=True))
            if is_copied:
                # The slot that has the past objects has reported them.
                self.standing.resume(kind, rows, self.time_ms)
                continue
            with_past = message.past_ms[some] != NO_PAST
            changed.history_requests += [
                self._history_request(kind, row, message, i)
                for row, i in zip(rows[with_past].tolist(), some[with_past].tolist(), strict=True)
            ]
        changed.exits += replacements.exits(self.standing, new_rows, message, offset)

    def _are_continued(
        self,
        message: Installed,
        changed: NDArray[np.intp],
        family: int,
        rows: NDArray[np.int32],
    ) -> NDArray[np.bool_]:
        """Returns bool[k], whether reports of queries stay valid for their new versions.

        Args:
            message: the new versions.
            changed: i8[k], which of them.
            family: of the old ones.
            rows: i4[k], theirs; before they end.
        """
        table = self.standing.families[family].table
        if message.sinces is None or not len(rows):
            return np.zeros(len(rows), np.bool_)
        sinces = message.sinces[changed]
        names = np.array(message.names.subscribers, np.object_)
        before = np.array(table.subscriber_names, np.object_)[table.subscriber_rows(rows)]
        is_same = names[message.names.subscriber_rows[changed]] == before
        # Terms and ranked queries share a family, but one does not continue the other.
        is_same &= message.kinds[changed] == self.standing.kinds_of(family, rows)
        is_continued: NDArray[np.bool_] = (
            (sinces != NO_REVISION) & (sinces <= table.revisions[rows]) & is_same
        )
        return is_continued

    def _is_new(
        self, message: Installed, floor: int, revisions: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        # Below the floor every change was here before: it is a repeat, perhaps of a query that has
        # been removed since.
        is_new = (message.revisions >= floor) & (message.revisions > revisions)
        if self.removed:
            is_new &= message.revisions > self.removed.find(message.names.handles)[1]
        return np.asarray(is_new)

    def _is_new_copy(
        self, message: Installed, floor: int, revisions: NDArray[np.int64]
    ) -> NDArray[np.bool_]:
        # Copied queries may be older than the floor. So the copy is compared by how far the sender
        # had read the registry. If that is less than this slot was sent, also if it has forgotten
        # the change since, then a suspended router sent the copy late.
        if message.copied_at < floor:
            return np.zeros(len(revisions), np.bool_)
        is_new = message.revisions > revisions
        if self.removed:
            sources, removed = self.removed.find(message.names.handles)
            is_new &= removed < np.where(sources == UNKNOWN, message.revisions, message.copied_at)
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
        if kind == KIND_TRACKED:
            self.follow_lifetimes(rows, queries.expires_ms)
        self.add_targets()
        return rows

    def follow_lifetimes(self, rows: NDArray[np.int32], expires_ms: NDArray[np.int64]) -> None:
        """Notes when queries with tracked values end."""
        table = self.standing.families[TRACKED].table
        known = zip(
            table.handle_rows(rows).tolist(),
            table.revisions[rows].tolist(),
            expires_ms.tolist(),
            strict=True,
        )
        for handle, revision, end_ms in known:
            self.lifetimes.put(handle, revision, end_ms)

    def _history_request(self, kind: int, row: int, message: Installed, i: int) -> HistoryRequest:
        where = filters_of(None if message.filters is None else [message.filters[i]], 1)[0]
        with_past = with_words(take_queries(message.rows, np.array([i])), [_spec(message, i)])
        start_ms, past_ms = int(message.starts_ms[i]), int(message.past_ms[i])
        if self.hashing.is_keyed and not with_past.has_words:
            # The store is searched by words alone here, and these are not known.
            condition = compile_condition(without_text(with_past), where)
            return HistoryRequest(kind, row, condition, start_ms, past_ms, with_past)
        condition = compile_condition(
            with_numbers(with_past, self.hashing), where, hashing=self.hashing
        )
        return HistoryRequest(kind, row, condition, start_ms, past_ms)

    def _remove_queries(self, offset: int, message: Installed, changed: Changed) -> None:
        handles, revisions = message.removed, message.removed_revisions
        found, _ = self.standing.names.find(handles)
        is_late = np.zeros(len(handles), np.bool_)
        for family, rows in found:
            table = self.standing.families[family].table
            if message.copied_at != NOT_COPIED:
                # The copy was for a later map; a suspended router sent the removal late.
                is_late |= (rows >= 0) & (self.copied[family].of(rows) > message.copied_at)
            is_due = (rows >= 0) & (revisions > table.revisions[rows]) & ~is_late
            self.query_endings.leave(handles[is_due].tolist())
            if family == TRACKED:
                for handle in handles[is_due].tolist():
                    self.lifetimes.drop(handle)
                if len(left := self._taken(rows[is_due])):
                    changed.exits.append(left)
            ended = self.standing.end(family, rows[is_due], offset)
            changed.ended += [
                (row, by, False) for row, by in zip(ended, revisions[is_due].tolist(), strict=False)
            ]
        is_due = ~is_late
        self.removed.put(handles[is_due], message.registry_partition, revisions[is_due])

    def _taken(self, rows: NDArray[np.int32]) -> Members:
        """Takes values out of queries that end, as far as it is known where they were."""
        members = self.standing.tracked.take_members(rows)
        return members.where(members.numbers != NOT_KNOWN)

    def _reclaim(self) -> None:
        # All of it ended at or before the slot's offset: no object can meet it.
        self.standing.reclaim(self.time_ms, self.offset)

    def add_targets(self) -> None:
        """Finds the Kafka partitions of subscribers that are new here."""
        names = self.standing.names.subscriber_names[len(self._targets) :]
        if names:
            targets = [partition_of(name, len(self._sent)) for name in names]
            self._targets = np.concatenate([self._targets, np.array(targets, np.int32)])


@dataclass(frozen=True, slots=True)
class _ReplacedQueries:
    """Queries with tracked values that are replaced; k rows.

    Attributes:
        rows: i4[k], theirs.
        changed: i8[k], row of each in the message.
        is_continued: bool[k], whether the new version continues this one, for the same subscriber.
        members: the values that were inside.
    """

    rows: NDArray[np.int32]
    changed: NDArray[np.intp]
    is_continued: NDArray[np.bool_]
    members: Members

    @classmethod
    def none(cls) -> _ReplacedQueries:
        rows = np.empty(0, np.int32)
        nobody = Members(rows, np.empty(0, np.uint64), rows)
        return cls(rows, np.empty(0, np.intp), np.empty(0, np.bool_), nobody)

    def exits(
        self, standing: StandingQueries, new_rows: dict[int, int], message: Installed, offset: int
    ) -> list[Members]:
        """Moves the values to the new versions; returns those that are no longer inside.

        Args:
            standing: the queries of the slot, the new versions among them.
            new_rows: row of the message → that of the query, of those with tracked values.
            message: the changes.
            offset: of the message.
        """
        if not len(self.members):
            return []
        index = standing.tracked
        news = np.array([new_rows.get(row, -1) for row in self.changed.tolist()], np.int32)
        is_same = index.keys_of(news) == index.keys_of(self.rows)
        news = np.where(self.is_continued & is_same & (news >= 0), news, np.int32(-1))
        begins_ms = np.full(len(news), AT_ONCE_MS, np.int64)
        if message.begins_ms is not None:
            begins_ms = message.begins_ms[self.changed]
        order = np.argsort(self.rows)
        own = order[np.searchsorted(self.rows[order], self.members.query_rows)]
        left = standing.move_members(self.members, news[own], begins_ms[own], offset)
        return [left] if len(left) else []


def _put_hits(report: Report, hits: Hits) -> None:
    report.table = hits.names
    report.object_rows, report.query_rows = hits.object_rows, hits.query_rows
    report.changes, report.distances_m = hits.changes, hits.distances_m


def _spec(message: Installed, row: int) -> str:
    """Returns the definition of a query; empty for a plain range query."""
    return "" if message.names.specs is None else message.names.specs[row]


def named(message: Installed, chosen: NDArray[np.intp], kind: int) -> NamedQueries:
    """Returns the names of some of the queries of a message, all of a kind."""
    names = message.names
    offsets, places = take_ragged(names.id_offsets, chosen)
    specs = None
    if names.specs is not None:
        # Of range queries only those have one whose words are to be shown.
        specs = tuple(names.specs[row] for row in chosen.tolist())
        specs = specs if kind != KIND_RANGE or any(specs) else None
    return NamedQueries(
        names.handles[chosen],
        names.ids[places],
        offsets,
        names.subscriber_rows[chosen].astype(np.int32),
        specs,
    )
