"""Turns hits in slots into records on `partials`: one a poll and Kafka partition if possible.

A record states for each of its slots which interval it covers. Large results are split: between
slots, between objects, and for an object that meets very many queries between its matches (ordered
by handle, so that every evaluator splits alike). Candidates of knn queries come in the last parts:
which there are depends on what an evaluator knows of other slots (ADR 65). Past objects of a new
query all have one position of the slot's log (`pinned`), as have steps (`step_records`); their
records are numbered there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.index.standing.query_table import NamedQueries
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.model.objects import ObjectColumns, concat
from sirocco.protocol.contract.columns import (
    NO_EVENTS,
    NO_MATCHES,
    NO_NAMES,
    EventColumns,
    MatchColumns,
    QueryNames,
)
from sirocco.protocol.contract.messages import NO_OBJECTS, NO_POSITIONS, NO_ROWS, Found
from sirocco.protocol.contract.positions import (
    NO_TIME_MS,
    PART_BITS,
    Intervals,
    place_of,
)
from sirocco.protocol.contract.record_sizes import (
    MATCH_BYTES,
    OBJECT_BYTES,
    RECORD_LIMITS,
    RecordLimits,
)
from sirocco.protocol.evaluator.standing.batch import Batch
from sirocco.protocol.evaluator.standing.query_families import Names


@dataclass(slots=True, kw_only=True)
class Report:
    """The matches of a slot in one section of its log.

    Attributes:
        slot: its number.
        end: position after all that was taken.
        time_ms: the slot's time; `NO_TIME_MS` while more that belongs to it follows.
        sent: i8[partials], the position up to which each target was sent all; advanced here.
        targets: i4[subscribers of the slot], Kafka partition of each.
        table: names of the queries.
        objects, events: n rows, the objects.
        positions: i8[n], in the slot, ascending.
        object_rows: i4[m], ascending: row of `objects` for each match.
        query_rows: i4[m], row of `table`.
        objects_total: how many objects were matched.
        changes: u1[m], as in `MatchColumns`; None when all are plain matches.
        distances_m: f8[m], as in `MatchColumns`; None when no query has a point.
        are_candidates: bool[m], of knn queries, where these are distinguished; None: none are.
        pinned: position of the whole report; None: each match has its object's.
        batch: what was matched, with the objects' terms, for the counts by leaf.
    """

    slot: int
    end: int
    time_ms: int
    sent: NDArray[np.int64]
    targets: NDArray[np.int32]
    table: Names
    objects: ObjectColumns
    events: EventColumns
    positions: NDArray[np.int64]
    object_rows: NDArray[np.int32]
    query_rows: NDArray[np.int32]
    objects_total: int
    changes: NDArray[np.uint8] | None = None
    distances_m: NDArray[np.float64] | None = None
    are_candidates: NDArray[np.bool_] | None = None
    pinned: int | None = None
    batch: Batch | None = None


@dataclass(slots=True)
class Piece:
    """A part of a report for one target that fits a record.

    Attributes:
        report: whose it is.
        matches: i8[m], which of the report's.
        bytes_total: an upper bound.
        next_position: position after the piece; None: the report's end, or the next position
            where it is pinned.
        part: number of the part of a split object.
        is_last: nothing of the report follows for the target.
    """

    report: Report
    matches: NDArray[np.intp]
    bytes_total: int
    next_position: int | None = None
    part: int = 0
    is_last: bool = False

    @property
    def object_rows(self) -> NDArray[np.int32]:
        """i4[m], row of the report's objects for each match."""
        return self.report.object_rows[self.matches]

    @property
    def query_rows(self) -> NDArray[np.int32]:
        """i4[m], row of the report's table for each match."""
        return self.report.query_rows[self.matches]


def pieces_of(report: Report, limits: RecordLimits = RECORD_LIMITS) -> Iterator[tuple[int, Piece]]:
    """Splits a report into pieces that fit records, with the Kafka partition of each."""
    if not len(report.object_rows):
        return
    targets = report.targets[report.table.subscriber_rows(report.query_rows)]
    for target in sorted_distinct(targets).tolist():
        pieces = list(_cut(report, np.flatnonzero(targets == target), limits))
        # Only the last piece has the time: what belongs to it comes before.
        pieces[-1].is_last = True
        for piece in pieces:
            yield target, piece


def found_of(
    pieces: list[Piece], target: int, limits: RecordLimits = RECORD_LIMITS
) -> Iterator[Found]:
    """Makes as few records of a target's pieces as fit; pieces of a slot in their order."""
    for group in _grouped(pieces, limits):
        yield _found(target, group)


def marks(reports: list[Report], partials_partitions: int) -> Iterator[tuple[int, Found]]:
    """Reports the positions of the slots to every target."""
    for target in range(partials_partitions):
        rows = [
            # At least after records that were sent in part.
            _interval(report, target, max(report.end, int(report.sent[target])), report.time_ms)
            for report in reports
        ]
        yield (
            target,
            Found(
                intervals=Intervals.of(rows),
                objects=NO_OBJECTS,
                events=NO_EVENTS,
                positions=NO_POSITIONS,
                interval_rows=NO_ROWS,
                queries=NO_NAMES,
                matches=NO_MATCHES,
            ),
        )


def _interval(report: Report, target: int, end: int, time_ms: int) -> tuple[int, int, int, int]:
    begin = int(report.sent[target])
    report.sent[target] = end
    return report.slot, begin, end, time_ms


def _cut(report: Report, matches: NDArray[np.intp], limits: RecordLimits) -> Iterator[Piece]:
    """Splits what is too large for a record, between objects if possible."""
    at_most = _bytes_at_most(report, matches)
    if at_most <= limits.bytes_max and len(matches) <= limits.matches_max:
        yield Piece(report, matches, at_most)
        return
    rows = report.object_rows[matches]
    ends = np.cumsum(_match_bytes(report, matches))
    begin = 0
    while begin < len(rows):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + limits.bytes_max, side="right"))
        end = min(end, begin + limits.matches_max)
        next_position = None
        if end < len(rows):
            # Back to the last border between objects; none: a single object fills the piece.
            end = int(np.searchsorted(rows, rows[end]))
            if end == begin:
                end = int(np.searchsorted(rows, rows[begin], side="right"))
                yield from _cut_object(report, matches[begin:end], limits)
                begin = end
                continue
            if report.pinned is None:
                next_position = int(report.positions[rows[end - 1]]) + (1 << PART_BITS)
        size = int(ends[end - 1]) - before
        yield Piece(report, matches[begin:end], size, next_position)
        begin = end


def _bytes_at_most(report: Report, matches: NDArray[np.intp]) -> int:
    """Returns a cheap upper bound of the bytes of matches and their objects in a record."""
    objects, queries = report.objects, report.query_rows[matches]
    first, last = report.object_rows[matches[0]], report.object_rows[matches[-1]] + 1
    size = int(report.table.name_bytes(queries).sum()) + len(matches) * (MATCH_BYTES + OBJECT_BYTES)
    for offsets in (objects.text_offsets, objects.attribute_offsets, objects.name_offsets):
        size += int(offsets[last] - offsets[first])
    return size


def _match_bytes(report: Report, matches: NDArray[np.intp]) -> NDArray[np.int64]:
    """Returns the bytes of each match in a record; the first one of an object includes it."""
    objects, rows = report.objects, report.object_rows[matches]
    sizes = report.table.name_bytes(report.query_rows[matches]) + MATCH_BYTES
    is_first = _are_first(rows)
    starts = rows[is_first]
    sizes[is_first] += OBJECT_BYTES
    for offsets in (objects.text_offsets, objects.attribute_offsets, objects.name_offsets):
        sizes[is_first] += offsets[starts + 1] - offsets[starts]
    return sizes


def _are_first(rows: NDArray[np.int32]) -> NDArray[np.bool_]:
    is_first = np.empty(len(rows), np.bool_)
    is_first[0] = True
    np.not_equal(rows[1:], rows[:-1], out=is_first[1:])
    return is_first


def _cut_object(report: Report, matches: NDArray[np.intp], limits: RecordLimits) -> Iterator[Piece]:
    """Splits the matches of one object, in the order of their handles, candidates last.

    The parts before those of candidates are the same in every evaluator, and so are their numbers.
    """
    order = np.argsort(report.table.handle_rows(report.query_rows[matches]), kind="stable")
    matches = matches[order]
    position = int(report.positions[report.object_rows[matches[0]]])
    parts = list(_parts_of(report, matches, limits))
    if len(parts) > 1 << PART_BITS:
        raise OverflowError(f"an object matches {len(matches)} queries of one slot and target")
    for part, (own, size) in enumerate(parts):
        is_last = part == len(parts) - 1
        next_position = None
        if report.pinned is None:
            next_position = position + ((1 << PART_BITS) if is_last else part + 1)
        yield Piece(report, own, size, next_position, part)


def _parts_of(
    report: Report, matches: NDArray[np.intp], limits: RecordLimits
) -> Iterator[tuple[NDArray[np.intp], int]]:
    """Yields the matches of each part of an object, and their bytes."""
    object_bytes = int(_match_bytes(report, matches[:1])[0])
    object_bytes -= int(report.table.name_bytes(report.query_rows[matches[:1]])[0]) + MATCH_BYTES
    room = max(limits.bytes_max - object_bytes, limits.bytes_max // 2)
    for own in _candidates_last(report, matches):
        ends = np.cumsum(report.table.name_bytes(report.query_rows[own]) + MATCH_BYTES)
        begin = 0
        while begin < len(own):
            before = int(ends[begin - 1]) if begin else 0
            end = int(np.searchsorted(ends, before + room, side="right"))
            end = max(begin + 1, min(end, begin + limits.matches_max))
            end = min(end, len(own))
            yield own[begin:end], int(ends[end - 1]) - before + object_bytes
            begin = end


def _candidates_last(report: Report, matches: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    if report.are_candidates is None:
        return [matches]
    are_candidates = report.are_candidates[matches]
    return [matches[~are_candidates], matches[are_candidates]]


def _grouped(pieces: Iterable[Piece], limits: RecordLimits) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    slots: set[int] = set()
    matches = size = 0
    for piece in pieces:
        is_full = (
            matches + len(piece.matches) > limits.matches_max
            or size + piece.bytes_total > limits.bytes_max
        )
        # Two pieces of one slot would be two intervals of one source in a record.
        if group and (is_full or piece.report.slot in slots):
            yield group
            group, matches, size = [], 0, 0
            slots.clear()
        group.append(piece)
        slots.add(piece.report.slot)
        matches += len(piece.matches)
        size += piece.bytes_total
    if group:
        yield group


def _found(target: int, group: list[Piece]) -> Found:
    intervals = []
    objects: list[ObjectColumns] = []
    events: list[EventColumns] = []
    positions: list[NDArray[np.int64]] = []
    names: list[NamedQueries] = []
    matches: list[MatchColumns] = []
    counts: list[int] = []
    object_base = query_base = 0
    for piece in group:
        report, object_rows = piece.report, piece.object_rows
        is_first = _are_first(object_rows)
        rows = object_rows[is_first].astype(np.int64)
        if report.pinned is None:
            positions.append(report.positions[rows] + piece.part)
            next_position = report.end if piece.next_position is None else piece.next_position
        else:
            place = place_of(report.pinned, int(report.sent[target]))
            positions.append(np.full(len(rows), place))
            next_position = place + 1
        time_ms = report.time_ms if piece.is_last else NO_TIME_MS
        intervals.append(_interval(report, target, next_position, time_ms))
        objects.append(report.objects.take(rows))
        events.append(report.events.take(rows))
        found, places = report.table.distinct(piece.query_rows)
        names.append(report.table.names(found))
        matches.append(
            MatchColumns(
                (np.cumsum(is_first) - 1 + object_base).astype(np.uint32),
                (places + query_base).astype(np.uint32),
                None if report.changes is None else report.changes[piece.matches],
                None if report.distances_m is None else report.distances_m[piece.matches],
            )
        )
        counts.append(len(rows))
        object_base += len(rows)
        query_base += len(found)
    tables = [piece.report.table for piece in group]
    return Found(
        intervals=Intervals.of(intervals),
        objects=concat(objects),
        events=EventColumns.concat(events),
        positions=np.concatenate(positions),
        interval_rows=np.repeat(np.arange(len(group), dtype=np.uint32), counts),
        queries=join_names(list(zip(tables, names, strict=True))),
        matches=join_matches(matches),
    )


def join_matches(parts: list[MatchColumns]) -> MatchColumns:
    """Joins matches with rows counted from the first part; a missing column counts as zeros."""
    if len(parts) == 1:
        return parts[0]
    changes = distances_m = None
    if any(part.changes is not None for part in parts):
        changes = np.concatenate(
            [np.zeros(len(p), np.uint8) if p.changes is None else p.changes for p in parts]
        )
    if any(part.distances_m is not None for part in parts):
        distances_m = np.concatenate(
            [np.zeros(len(p)) if p.distances_m is None else p.distances_m for p in parts]
        )
    return MatchColumns(
        np.concatenate([part.objects for part in parts]),
        np.concatenate([part.queries for part in parts]),
        changes,
        distances_m,
    )


def join_names(parts: list[tuple[Names, NamedQueries]]) -> QueryNames:
    """Joins names of the queries of several slots."""
    numbers: dict[str, int] = {}
    subscriber_rows = []
    for table, named in parts:
        present, places = np.unique(named.subscribers, return_inverse=True)
        texts = table.subscriber_names
        own = [numbers.setdefault(texts[row], len(numbers)) for row in present.tolist()]
        subscriber_rows.append(np.array(own, np.uint32)[places])
    lengths = np.concatenate([np.diff(named.id_offsets) for _, named in parts])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    specs = None
    if any(named.specs is not None for _, named in parts):
        each = [named.specs or ("",) * len(named.handles) for _, named in parts]
        specs = tuple(spec for part in each for spec in part)
    return QueryNames(
        np.concatenate([named.handles for _, named in parts]),
        np.concatenate([named.ids for _, named in parts]),
        offsets,
        np.concatenate(subscriber_rows),
        tuple(numbers),
        specs,
    )
