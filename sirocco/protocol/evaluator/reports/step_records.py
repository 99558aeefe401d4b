"""Turns steps of terms and ranked queries into records on `partials`; see `match_records`.

A result that is too large for a record is split into parts, which the merger adds up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.model.objects import ObjectColumns, concat
from sirocco.protocol.contract.columns import NO_EVENTS, NO_MATCHES, EventColumns, StepColumns
from sirocco.protocol.contract.messages import NO_OBJECTS, Found
from sirocco.protocol.contract.positions import NO_TIME_MS, Intervals, place_of
from sirocco.protocol.contract.query_specs import ENDED_SOMEWHERE, ended_spec
from sirocco.protocol.contract.record_sizes import (
    MATCH_BYTES,
    OBJECT_BYTES,
    RECORD_LIMITS,
    RecordLimits,
)
from sirocco.protocol.evaluator.reports.match_records import join_names
from sirocco.protocol.evaluator.standing.query_families import Names

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True)
class TermEntries:
    """Terms of one step: u1[b] with i8[e + 1], and u8[e], objects that hold each."""

    terms: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    counts: NDArray[np.uint64]

    def slice(self, begin: int, end: int) -> TermEntries:
        """Returns entries [begin, end)."""
        first, last = int(self.offsets[begin]), int(self.offsets[end])
        return TermEntries(
            self.terms[first:last], self.offsets[begin : end + 1] - first, self.counts[begin:end]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedEntries:
    """The result of a slot for a ranked query; see `StepColumns` for the columns of one step."""

    totals: NDArray[np.uint64]
    holders: NDArray[np.uint64]
    objects: ObjectColumns
    events: EventColumns
    token_counts: NDArray[np.uint32]
    distances_m: NDArray[np.float64]
    frequencies: NDArray[np.uint16]

    def slice(self, begin: int, end: int) -> RankedEntries:
        """Returns candidates [begin, end); the totals go with the first ones."""
        width = len(self.holders)
        return RankedEntries(
            totals=self.totals if begin == 0 else np.zeros_like(self.totals),
            holders=self.holders if begin == 0 else np.zeros_like(self.holders),
            objects=self.objects.slice(begin, end),
            events=self.events.slice(begin, end),
            token_counts=self.token_counts[begin:end],
            distances_m=self.distances_m[begin:end],
            frequencies=self.frequencies[begin * width : end * width],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The result of a step of a query in a slot.

    Neither terms nor ranked: the query has ended, `at_ms` is the slot's time, `ended_by` and
    `is_continued` as in `Spec`. `reporters`: see `StepQuery.reporters`.
    """

    query_row: int
    at_ms: int
    terms: TermEntries | None = None
    ranked: RankedEntries | None = None
    reporters: int = 0
    ended_by: tuple[int, int] = ENDED_SOMEWHERE
    is_continued: bool = False

    def sizes(self) -> NDArray[np.int64]:
        """Returns i8[e], bytes of each entry in a record."""
        if self.terms is not None:
            return np.diff(self.terms.offsets) + 12
        if self.ranked is None:
            return np.empty(0, np.int64)
        objects = self.ranked.objects
        fixed = OBJECT_BYTES + 24 + 2 * len(self.ranked.holders)
        columns = (objects.text_offsets, objects.attribute_offsets, objects.name_offsets)
        return sum((np.diff(offsets) for offsets in columns), np.full(len(objects), fixed))

    def slice(self, begin: int, end: int) -> StepResult:
        """Returns entries [begin, end)."""
        return replace(
            self,
            terms=None if self.terms is None else self.terms.slice(begin, end),
            ranked=None if self.ranked is None else self.ranked.slice(begin, end),
        )


@dataclass(slots=True, kw_only=True)
class StepReport:
    """The results of steps in a slot at one position of its log.

    Attributes:
        slot, end, time_ms, sent, targets, table: as in `Report`.
        results: in an order that is the same in every evaluator.
        pinned: the position of the report.
    """

    slot: int
    end: int
    time_ms: int
    sent: NDArray[np.int64]
    targets: NDArray[np.int32]
    table: Names
    results: list[StepResult]
    pinned: int


def step_founds(
    report: StepReport, limits: RecordLimits = RECORD_LIMITS
) -> Iterator[tuple[int, Found]]:
    """Returns the records of a report, with the Kafka partition of each."""
    rows = np.array([result.query_row for result in report.results], np.int32)
    targets = report.targets[report.table.subscriber_rows(rows)]
    for target in sorted_distinct(targets).tolist():
        chosen = [report.results[i] for i in np.flatnonzero(targets == target).tolist()]
        # Ranked steps come last, and in records of their own: see `StepIndex.take_due`.
        ranked = [result for result in chosen if result.ranked is not None]
        groups = list(_grouped([r for r in chosen if r.ranked is None], report.table, limits))
        groups += _grouped(ranked, report.table, limits)
        for number, group in enumerate(groups):
            place = place_of(report.pinned, int(report.sent[target]))
            # The time completes a step: no part of it may follow.
            time_ms = report.time_ms if number == len(groups) - 1 else NO_TIME_MS
            interval = (report.slot, int(report.sent[target]), place + 1, time_ms)
            report.sent[target] = place + 1
            yield target, _found(report, group, interval, place)


def _grouped(
    results: list[StepResult], table: Names, limits: RecordLimits
) -> Iterator[list[StepResult]]:
    group: list[StepResult] = []
    size = 0
    rows = np.array([result.query_row for result in results], np.int32)
    for result, name_bytes in zip(results, table.name_bytes(rows).tolist(), strict=True):
        for part, entry_bytes in _cut(result, limits.bytes_max):
            part_bytes = entry_bytes + name_bytes
            if group and size + part_bytes > limits.bytes_max:
                yield group
                group, size = [], 0
            group.append(part)
            size += part_bytes
    if group:
        yield group


def _cut(result: StepResult, bytes_max: int) -> Iterator[tuple[StepResult, int]]:
    ends = np.cumsum(result.sizes())
    total = int(ends[-1]) if len(ends) else 0
    if total <= bytes_max:
        yield result, total + MATCH_BYTES
        return
    begin = 0
    while begin < len(ends):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + bytes_max, side="right"))
        end = max(end, begin + 1)
        yield result.slice(begin, end), int(ends[end - 1]) - before + MATCH_BYTES
        begin = end


def _found(
    report: StepReport, group: list[StepResult], interval: tuple[int, int, int, int], place: int
) -> Found:
    rows = np.array([result.query_row for result in group], np.int32)
    distinct, places = report.table.distinct(rows)
    names = join_names([(report.table, report.table.names(distinct))])
    is_step = [result.terms is not None or result.ranked is not None for result in group]
    if not all(is_step):
        assert names.specs is not None
        specs = list(names.specs)
        for row, has_entries, result in zip(places.tolist(), is_step, group, strict=True):
            if not has_entries:
                specs[row] = ended_spec(
                    specs[row], result.at_ms, result.ended_by, is_continued=result.is_continued
                )
        names = replace(names, specs=tuple(specs))
    steps = [(result, row) for result, row, t in zip(group, places, is_step, strict=True) if t]
    ranked = [result.ranked for result, _ in steps if result.ranked is not None]
    objects = concat([r.objects for r in ranked]) if ranked else NO_OBJECTS
    return Found(
        intervals=Intervals.of([interval]),
        objects=objects,
        events=EventColumns.concat([r.events for r in ranked]) if ranked else NO_EVENTS,
        positions=np.full(len(objects), place, np.int64),
        interval_rows=np.zeros(len(objects), np.uint32),
        queries=names,
        matches=NO_MATCHES,
        steps=_columns(
            [r for r, _ in steps], np.array([row for _, row in steps], np.uint32), place
        ),
    )


def _columns(results: list[StepResult], queries: NDArray[np.uint32], place: int) -> StepColumns:
    terms = [result.terms or _NO_TERMS for result in results]
    ranked = [result.ranked or _NO_RANKED for result in results]
    candidates = sum(len(r.objects) for r in ranked)
    return StepColumns(
        queries=queries,
        at_ms=np.array([result.at_ms for result in results], np.int64),
        positions=np.full(len(results), place, np.int64),
        interval_rows=np.zeros(len(results), np.uint32),
        entry_offsets=_ends([len(t.counts) for t in terms]),
        terms=_joined([t.terms for t in terms], np.uint8),
        term_offsets=_ends(_joined([np.diff(t.offsets) for t in terms], np.int64)),
        counts=_joined([t.counts for t in terms], np.uint64),
        totals=np.array([r.totals for r in ranked], np.uint64).reshape(-1, 2),
        holder_offsets=_ends([len(r.holders) for r in ranked]),
        holders=_joined([r.holders for r in ranked], np.uint64),
        candidate_offsets=_ends([len(r.objects) for r in ranked]),
        candidates=np.arange(candidates, dtype=np.uint32),
        token_counts=_joined([r.token_counts for r in ranked], np.uint32),
        distances_m=_joined([r.distances_m for r in ranked], np.float64),
        frequencies=_joined([r.frequencies for r in ranked], np.uint16),
        slot_counts=np.array([result.reporters for result in results], np.uint32),
    )


def _ends(lengths: list[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _joined(parts: list[NDArray[Scalar]], dtype: type[Scalar]) -> NDArray[Scalar]:
    return np.concatenate(parts) if parts else np.empty(0, dtype)


_NO_TERMS = TermEntries(np.empty(0, np.uint8), np.zeros(1, np.int64), np.empty(0, np.uint64))
_NO_RANKED = RankedEntries(
    totals=np.zeros(2, np.uint64),
    holders=np.empty(0, np.uint64),
    objects=NO_OBJECTS,
    events=NO_EVENTS,
    token_counts=np.empty(0, np.uint32),
    distances_m=np.empty(0),
    frequencies=np.empty(0, np.uint16),
)
