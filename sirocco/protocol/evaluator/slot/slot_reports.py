"""Makes the reports of a slot to mergers.

Each says how much was sent to every Kafka partition of `partials` before it.
"""

from __future__ import annotations

import numpy as np

from sirocco.index.base.stored_rows import StoredRows
from sirocco.model.objects import ObjectColumns
from sirocco.protocol.contract.columns import NO_EVENTS, EventColumns
from sirocco.protocol.contract.messages import NO_OBJECTS
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.contract.record_sizes import partition_of
from sirocco.protocol.evaluator.reports.history_answers import events_of
from sirocco.protocol.evaluator.reports.match_records import Report
from sirocco.protocol.evaluator.reports.partial_records import Reports
from sirocco.protocol.evaluator.reports.step_records import StepReport, StepResult
from sirocco.protocol.evaluator.standing.hits import Hits
from sirocco.protocol.evaluator.standing.query_ends import EndReport, QueryEnd
from sirocco.protocol.evaluator.standing.standing_queries import StandingQueries

_NO_HITS = np.empty(0, np.int32)


class SlotReports:
    """The reports of one slot, without the time: only the last one of several has that.

    Attributes:
        sent: i8[p], the position up to which each Kafka partition of `partials` was sent all.
    """

    def __init__(self, number: int, standing: StandingQueries, partitions: int) -> None:
        """Begins with nothing sent.

        Args:
            number: of the slot.
            standing: its queries.
            partitions: Kafka partitions of `partials`.
        """
        self.sent = np.zeros(partitions, np.int64)
        self._number = number
        self._standing = standing
        # The partition of each subscriber.
        self._targets = np.empty(0, np.int32)

    def add_targets(self) -> None:
        """Finds the Kafka partitions of subscribers that are new here."""
        names = self._standing.names.subscriber_names[len(self._targets) :]
        if names:
            targets = [partition_of(name, len(self.sent)) for name in names]
            self._targets = np.concatenate([self._targets, np.array(targets, np.int32)])

    def forget_targets(self) -> None:
        """Forgets subscribers without queries, if that is worth it; others get new numbers."""
        if self._standing.names.forget_subscribers():
            self._targets = np.empty(0, np.int32)
            self.add_targets()

    def empty(self, end: int) -> Report:
        """Returns a report without matches, up to a position."""
        return Report(
            slot=self._number,
            end=end,
            time_ms=NO_TIME_MS,
            sent=self.sent,
            targets=self._targets,
            table=self._standing.plain_names,
            objects=NO_OBJECTS,
            events=NO_EVENTS,
            positions=np.empty(0, np.int64),
            object_rows=_NO_HITS,
            query_rows=_NO_HITS,
            objects_total=0,
        )

    def matches(
        self, objects: ObjectColumns, events: EventColumns, hits: Hits, pinned: int
    ) -> Report:
        """Returns a report of matches, all at one position."""
        report = self.empty(pinned)
        report.objects, report.events = objects, events
        report.positions = np.full(len(objects), pinned, np.int64)
        report.pinned = pinned
        put_hits(report, hits)
        return report

    def pinned(self, found: list[tuple[StoredRows, Hits]], pinned: int) -> Reports:
        """Returns reports of events of tracked values, at one position."""
        return [
            self.matches(stored.objects, events_of(stored), hits, pinned) for stored, hits in found
        ]

    def steps(self, results: list[StepResult], pinned: int) -> StepReport:
        """Returns a report of steps, at one position."""
        return StepReport(
            slot=self._number,
            end=pinned,
            time_ms=NO_TIME_MS,
            sent=self.sent,
            targets=self._targets,
            table=self._standing.names,
            results=results,
            pinned=pinned,
        )

    def ends(self, ends: list[QueryEnd], pinned: int) -> EndReport:
        """Returns a report of the ends of queries, at one position."""
        return EndReport(self._number, pinned, NO_TIME_MS, self.sent, ends, pinned)


def put_hits(report: Report, hits: Hits) -> None:
    """Puts hits into a report of their objects."""
    report.table = hits.names
    report.object_rows, report.query_rows = hits.object_rows, hits.query_rows
    report.changes, report.distances_m = hits.changes, hits.distances_m
    report.are_candidates = hits.are_candidates
