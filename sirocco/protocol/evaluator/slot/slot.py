"""One owned slot: its position, its queries, its objects, and its reports on records of its log.

All reports are a function of the log. Matches have their object's position, past objects of a new
query the position of its registration, and results of a step the position where the slot's time
passed it.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np

from sirocco.index.standing.limits import StandingLimits
from sirocco.index.standing.track.track_pairs import Members
from sirocco.index.store.store import StoreLimits, StoreView
from sirocco.index.store.term_names import TermNames
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import TextAnalyser
from sirocco.protocol.contract.messages import (
    NEVER_MS,
    NO_PAST,
    Installed,
    Routed,
)
from sirocco.protocol.contract.positions import (
    NO_TIME_MS,
    Reached,
    position_after,
    position_of,
)
from sirocco.protocol.evaluator.limits import LIMITS
from sirocco.protocol.evaluator.reports.history_answers import (
    history_reports,
)
from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.reports.partial_records import Reports
from sirocco.protocol.evaluator.reports.step_answers import StepSearches
from sirocco.protocol.evaluator.reports.step_records import StepResult
from sirocco.protocol.evaluator.slot.query_changes import Changed, QueryChanges
from sirocco.protocol.evaluator.slot.record_batch import Part, joined
from sirocco.protocol.evaluator.slot.slot_reports import SlotReports, put_hits
from sirocco.protocol.evaluator.slot.stored_past import StoredPast
from sirocco.protocol.evaluator.standing.knn_radii import KnnRadii
from sirocco.protocol.evaluator.standing.query_families import TRACKED
from sirocco.protocol.evaluator.standing.step_schedule import StepQuery

_NO_HITS = np.empty(0, np.int32)

# Stored objects that a search looks at in the time that a usual step takes, so that a turn is over
# after a tenth of a second, or one search.
_OBJECTS_A_STEP = 128


@dataclass(slots=True)
class _Searches:
    """Searches that a change asks for, or that are due: made a turn at a time, not all at once.

    Attributes:
        turns: each returns reports; the last one returns them at its end.
        pinned: position of the reports.
        reported_ms: the time before which everything was reported before them.
    """

    turns: Generator[Reports, None, Reports]
    pinned: int
    reported_ms: int


class Slot:
    """State of one slot; everything in it is a function of the slot's log.

    Attributes:
        number: of the slot.
        offset: next offset of its log.
        reached: how far each intake partition has been taken.
        standing: its queries.
        queries: what changes do to these.
        past: its objects.
        reports: makes its reports.
        limits: of their store.
        hashing: numbers the terms of queries and objects.
        map_version: the newest of any routed record that was taken, marks included.
        least_version: the oldest map by which any later object is routed; 0 while it is not known.
        steps_total: how many steps of terms and ranked queries were taken; searches of the past
            count as several.
        radii: of knn queries, which the last records taken have shrunk; None where none.
    """

    def __init__(
        self,
        number: int,
        partials_partitions: int,
        limits: StoreLimits | None = None,
        hashing: TermHashing = WIRE_TERMS,
        analyser: TextAnalyser | None = None,
        report_steps_max: int = LIMITS.report_steps_max,
        gap_ms: int = LIMITS.gap_ms,
        standing_limits: StandingLimits = LIMITS.standing,
    ) -> None:
        """Makes an empty slot.

        Args:
            number: of the slot.
            partials_partitions: how many Kafka partitions `partials` has.
            limits: of the store.
            hashing: numbers the terms of queries and objects.
            analyser: of the thread, whose slots share its memory; None: one of its own.
            report_steps_max, gap_ms: see `EvaluatorLimits`.
            standing_limits: of the indexes of its queries.
        """
        self.number = number
        self.limits = (limits or StoreLimits()).of_slot(number)
        self.offset = 0
        self.reached = Reached()
        self.hashing = hashing
        self.queries = QueryChanges(hashing, standing_limits)
        self.standing = self.queries.standing
        self.past = StoredPast(number, self.limits)
        self._report_steps_max = report_steps_max
        self._gap_ms = gap_ms
        self._term_names = TermNames(hashing)
        self._analyser = analyser or TextAnalyser()
        self.map_version = 0
        # Intake partition → the oldest map by which its later objects are routed.
        self._least_versions: dict[int, int] = {}
        # Each search reads it: computed when it changes.
        self.least_version = 0
        # A map version, and the number from which on all objects were routed by that or later maps.
        self.settled = 0, 0
        self.steps_total = 0
        self.radii: KnnRadii | None = None
        self._searches: _Searches | None = None
        self._is_behind = False
        self._log_end = 0
        self.saved_offset = 0
        self.saved_ms = 0
        self.reports = SlotReports(number, self.standing, partials_partitions)
        self._intake_partitions = 0

    def open(self, offset: int, log_end: int, intake_partitions: int, now_ms: int) -> None:
        """Begins at an offset of the log: that of a checkpoint, or the first."""
        self._log_end = log_end
        self._is_behind = offset < log_end
        self.offset = self.saved_offset = offset
        self.saved_ms = now_ms
        self._intake_partitions = intake_partitions
        # Marks to every target preceded the checkpoint, so each has been sent at least this much.
        self.reports.sent[:] = position_of(offset)

    @property
    def time_ms(self) -> int:
        """The time of the slot: no later arrival is older."""
        return self.reached.time_ms(self._intake_partitions)

    @property
    def is_catching_up(self) -> bool:
        """Whether a search would miss objects that a former owner could find.

        Its log holds more that was written before it was opened here, or slices are missing.
        """
        return self._is_behind or self.past.lacks_slices

    @property
    def awaits_slices(self) -> bool:
        """Whether the next step can be taken only when the slices are here."""
        return self.past.lacks_slices and self.standing.steps.next_ms <= self._due_ms

    @property
    def is_stepping(self) -> bool:
        """Whether steps are due: before `take`, `continue_steps` is called until there are none.

        Or whether new queries wait for their answers from the past.
        """
        if self._searches is not None:
            return True
        due_ms = self._due_ms
        # Where nothing is due ever, which is the rule, the time need not be looked for.
        return due_ms != NEVER_MS and due_ms < self.time_ms

    @property
    def _due_ms(self) -> int:
        """The earliest step, wait or end that has not been reported."""
        queries, standing = self.queries, self.standing
        ends_ms = min(queries.lifetimes.next_ms, queries.endings.next_ms)
        return min(standing.steps.next_ms, standing.tracked.next_due_ms, ends_ms)

    @property
    def reported_ms(self) -> int:
        """The time before which everything was reported."""
        time_ms = self.time_ms if self._searches is None else self._searches.reported_ms
        return min(time_ms, self._due_ms)

    @property
    def reported_upto(self) -> int:
        """The position up to which all was reported; while steps are due, after the objects."""
        if self._searches is not None:
            return self._searches.pinned
        return position_after(self.offset - 1) if self.is_stepping else position_of(self.offset)

    def take(
        self, records: list[tuple[int, Routed | Installed]], steps_max: int = sys.maxsize
    ) -> Reports:
        """Takes the next records of the slot's log; returns the reports, in order.

        While it `lacks_slices`, it stops before a query that asks for the past, and before a step.
        Records must have been made of the reports before: rows and subscribers get new numbers.

        Args:
            records: with their offsets.
            steps_max: about how many steps it may take. When more are due it stops after the record
                whose time passed them: `is_stepping`, and reading continues at `offset`.
        """
        assert not self.is_stepping
        self.reports.forget_targets()
        reports: Reports = []
        parts: list[Part] = []
        before_ms = self.reported_ms
        for offset, message in records:
            if isinstance(message, Installed):
                if self.past.lacks_slices and self._needs_slices(message):
                    break
                if self.queries.moves_values(message):
                    # Objects before the change count for which values are inside by now.
                    reports += self._flush(parts, position_of(offset))
                changed = self.queries.install(offset, message, self.time_ms)
                self.reports.add_targets()
                if changed.has_reports:
                    # The past of a new query is all that the log holds before it.
                    reports += self._flush(parts, position_of(offset))
                    reports += self._report_changes(changed, position_of(offset))
                    if self._searches is not None:
                        self._searches.reported_ms = before_ms
            else:
                self._accept(offset, message, parts)
                if message.tracks is not None and self.standing.tracked.has_waits:
                    # Events of queries that wait have one position: after the record's objects.
                    reports += self._flush(parts, position_after(offset))
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
        # Before rows are freed, and have other queries.
        self.radii = self.standing.take_radii()
        self._reclaim()
        if self.least_version > self.settled[0]:
            # What was taken is in the store by now.
            self.settled = self.least_version, self.past.store.next_seq
        # Only now, with everything in the store: searches run in other threads.
        self._is_behind = self.offset < self._log_end
        return reports

    @property
    def _may_step(self) -> bool:
        return self.is_stepping and not self.awaits_slices

    def continue_steps(self) -> Reports:
        """Takes the next steps, or ends, that are due after the record that was taken last.

        After an outage these are all steps of that time, of all queries: minutes of work, and more
        than would fit memory, if it were done at once. So are the searches of the past of many new
        queries.
        """
        if self._searches is not None:
            return self._search(self._searches)
        due_ms = self._due_ms
        if self.standing.steps.next_ms > due_ms:
            if self.queries.lifetimes.next_ms == due_ms:
                return self._end_lifetimes()
            is_waited = self.standing.tracked.next_due_ms == due_ms
            return self._report_due() if is_waited else self._report_ends()
        before_ms, pinned = self.reported_ms, position_after(self.offset - 1)
        due = self.standing.take_due(self.time_ms, self._report_steps_max)
        self._searches = _Searches(self._step_turns(due, pinned), pinned, before_ms)
        return self._search(self._searches)

    def _search(self, searches: _Searches) -> Reports:
        """Takes the next turn of searches."""
        try:
            return next(searches.turns)
        except StopIteration as end:
            self._searches = None
            reports: Reports = end.value
        if reports:
            reports[-1].time_ms = self.reported_ms
        return reports

    def _step_turns(
        self, due: list[tuple[int, int, StepQuery]], pinned: int
    ) -> Generator[Reports, None, Reports]:
        """Evaluates steps that are reported together, in each turn up to one that searches."""
        results: list[StepResult] = []
        searches = StepSearches(
            self.past.store.view(),
            self._term_names,
            self.standing.steps.complete,
            self.past.forgotten,
            self._gap_ms,
        )
        for number, (result, work) in enumerate(searches.results(due), start=1):
            self._note_step(work)
            if result is not None:
                results.append(result)
            if work and number < len(due):
                yield []
        return [self.reports.steps(results, pinned)]

    def _past_turns(
        self, changed: Changed, view: StoreView, pinned: int
    ) -> Generator[Reports, None, Reports]:
        """Searches the past of a new query in each turn, or reports more of what was found."""
        for found in history_reports(self.standing, view, changed.history_requests):
            if found is None:
                self._note_step(view.objects_total)
                yield []
                continue
            self._note_step(len(found.objects))
            yield [self.reports.matches(found.objects, found.events, found.hits, pinned)]
        return [self.reports.ends(changed.reported_ends, pinned)] if changed.reported_ends else []

    def _note_step(self, objects: int) -> None:
        """Counts a step that looks at so many objects."""
        self.steps_total += 1 + objects // _OBJECTS_A_STEP

    def _end_lifetimes(self) -> Reports:
        """Takes the next lifetimes that are over; steps of the same time come before.

        Where one is over, nothing becomes due: a lifetime does not include its end.
        """
        next_ms = min(self.standing.steps.next_ms, self.standing.tracked.next_due_ms + 1)
        due = self.queries.lifetimes.take_due(min(self.time_ms, next_ms), self._report_steps_max)
        self.steps_total += len(due)
        handles = np.array([each.handle for each in due], np.uint64)
        rows = self.standing.families[TRACKED].table.find(handles)
        left = self.queries.taken(rows[rows >= 0])
        self.standing.end(TRACKED, rows[rows >= 0], self.offset)
        for each, row in zip(due, rows.tolist(), strict=True):
            if row >= 0:
                self.queries.note_expired([(each.handle, each.revision)])
        pinned = position_after(self.offset - 1)
        reports = self._report_exits([left], pinned) or [self.reports.empty(self.reported_upto)]
        reports[-1].time_ms = self.reported_ms
        return reports

    def _report_due(self) -> Reports:
        """Reports values that were inside or outside for as long as their queries wait."""
        next_ms = min(self.standing.steps.next_ms, self.queries.lifetimes.next_ms)
        due = self.standing.take_waited(min(self.time_ms, next_ms))
        self.steps_total += 1
        pinned = position_after(self.offset - 1)
        found = [] if due is None else [due]
        reports = self.reports.pinned(found, pinned) or [self.reports.empty(self.reported_upto)]
        reports[-1].time_ms = self.reported_ms
        return reports

    def _report_ends(self) -> Reports:
        """Reports the next lifetimes that are over, after everything else of that time."""
        standing = self.standing
        before_ms = min(standing.steps.next_ms, standing.tracked.next_due_ms)
        before_ms = min(before_ms, self.queries.lifetimes.next_ms)
        due = self.queries.endings.take_due(min(self.time_ms, before_ms), self._report_steps_max)
        self.steps_total += len(due)
        report = self.reports.ends(due, position_after(self.offset - 1))
        report.time_ms = self.reported_ms
        return [report]

    def report(self) -> Report:
        """Returns a report without objects: the position and the time of the slot."""
        report = self.reports.empty(self.reported_upto)
        report.time_ms = self.reported_ms
        return report

    def expire(self) -> None:
        """Drops the queries whose lifetime ended before the slot's time."""
        if self.is_stepping:
            return
        self.queries.note_expired(self.standing.expire(self.time_ms, self.offset))
        self._reclaim()

    # --- objects of the past

    def forget(self, retention_ms: int) -> None:
        """Drops objects from memory that arrived too long ago."""
        if self.time_ms != NO_TIME_MS:
            self.past.forget(self.reported_ms - retention_ms)

    def evict(self, bytes_max: int) -> None:
        """Drops the oldest objects from memory while they take too much.

        Objects that the archive lacks stay, and those that steps of standing queries will count.
        """
        self.past.evict(bytes_max, self.standing.steps.oldest_ms)

    @property
    def is_archiving(self) -> bool:
        """Whether a checkpoint is being written, or records were read that the next one covers.

        Without new records there is no new checkpoint: slices sealed since then wait for more
        records.
        """
        return self.past.manifest.is_saving or self.offset > self.saved_offset

    # --- reports

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
        known_of = self._least_versions.get
        self.least_version = min(
            (known_of(each, 0) for each in range(self._intake_partitions)), default=0
        )

    def _flush(self, parts: list[Part], end: int) -> Reports:
        """Matches what was taken so far, before a report at a position of its own."""
        if not parts:
            return []
        report = self._match(parts, end)
        parts.clear()
        events = self.standing.take_stay_events()
        return [report, *self.reports.pinned([] if events is None else [events], end)]

    def _match(self, parts: list[Part], end: int) -> Report:
        report = self.reports.empty(end)
        if not parts:
            return report
        batch = joined(parts, self.hashing, self._analyser, keeps_order=self.standing.has_patterns)
        own, rows = batch.own()
        hits = self.standing.match(batch, own, rows)
        self.past.store.append(own.objects, *own.columns, own.own_terms)
        report.objects, report.events, report.positions = (
            batch.objects,
            batch.events,
            batch.positions,
        )
        report.objects_total = len(own)
        report.batch = batch
        put_hits(report, hits)
        return report

    def _report_changes(self, changed: Changed, pinned: int) -> Reports:
        """Reports what changes bring; what they ask of the past follows in `continue_steps`."""
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
            reports.append(self.reports.steps(ended, pinned))
        if changed.history_requests:
            turns = self._past_turns(changed, self.past.store.view(), pinned)
            self._searches = _Searches(turns, pinned, self.reported_ms)
            return reports
        if changed.reported_ends:
            reports.append(self.reports.ends(changed.reported_ends, pinned))
        return reports

    def _report_exits(self, left: list[Members], pinned: int) -> Reports:
        """Reports the values that are no longer inside queries that ended, or moved."""
        found = [each for each in map(self.standing.exits, left) if each is not None]
        return self.reports.pinned(found, pinned)

    @staticmethod
    def _needs_slices(message: Installed) -> bool:
        """Whether new queries ask for the past."""
        return bool((message.past_ms != NO_PAST).any())

    def _reclaim(self) -> None:
        # All of it ended at or before the slot's offset: no object can meet it. But the past is
        # answered also for queries that the same record removes.
        if self._searches is None:
            self.standing.reclaim(self.time_ms, self.offset)
