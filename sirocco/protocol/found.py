"""From hits in slots to records on `partials`: one for each poll and Kafka partition, if possible.

A record says for each of its slots which interval it covers. Large results are cut: between slots,
between objects, and for an object that meets very many queries between its matches (ordered by
handle, so that every evaluator cuts alike).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from sirocco.index.query_table import NamedQueries, QueryTable
from sirocco.model.objects import ObjectColumns, concat
from sirocco.protocol.messages import (
    NO_EVENTS,
    NO_MATCHES,
    NO_NAMES,
    NO_OBJECTS,
    NO_POSITIONS,
    NO_ROWS,
    EventColumns,
    Found,
    MatchColumns,
    QueryNames,
)
from sirocco.protocol.positions import PART_BITS, Intervals

# Matches of one record: with the names of their queries some 40 bytes each, 1.3 MB.
MATCHES_MAX = 32_768

# Bytes of texts and attributes of the objects of one record, unless a single one is longer.
OBJECT_BYTES_MAX = 1 << 20


def partition_of(subscriber: str, partials_partitions: int) -> int:
    """The Kafka partition of `partials` and `deliveries` that a subscriber belongs to."""
    return xxhash.xxh3_64_intdigest(subscriber.encode()) % partials_partitions


@dataclass(slots=True)
class Report:
    """What a slot found in a poll's records.

    Attributes:
        slot: its number.
        end: position behind all that was taken.
        time_ms: the slot's time.
        sent: i8[partials], the position up to which each target was told; moved on here.
        targets: i4[subscribers of the slot], Kafka partition of each.
        table: names of the queries.
        objects, events: n rows, the new objects.
        positions: i8[n], in the slot, ascending.
        object_rows: i4[m], ascending: row of `objects` for each match.
        query_rows: i4[m], row of `table`.
        objects_total: how many objects were looked at.
    """

    slot: int
    end: int
    time_ms: int
    sent: NDArray[np.int64]
    targets: NDArray[np.int32]
    table: QueryTable
    objects: ObjectColumns
    events: EventColumns
    positions: NDArray[np.int64]
    object_rows: NDArray[np.int32]
    query_rows: NDArray[np.int32]
    objects_total: int


@dataclass(slots=True)
class Piece:
    """A part of a report for one target that fits a record: matches [begin, end)."""

    report: Report
    object_rows: NDArray[np.int32]
    query_rows: NDArray[np.int32]
    # Position behind the piece; None: the report's end.
    upto: int | None = None
    # Number of the part of a cut object.
    part: int = 0


def founds(reports: list[Report]) -> Iterator[tuple[int, Found]]:
    """Makes the records of a poll, with their Kafka partitions."""
    pieces: dict[int, list[Piece]] = {}
    for report in reports:
        if not len(report.object_rows):
            continue
        targets = report.targets[report.table.subscribers[report.query_rows]]
        for target in np.unique(targets).tolist():
            mine = targets == target
            whole = Piece(report, report.object_rows[mine], report.query_rows[mine])
            pieces.setdefault(target, []).extend(_cut(whole))
    for target, each in sorted(pieces.items()):
        for group in _grouped(each):
            yield target, _found(target, group)


def marks(reports: list[Report], partials_partitions: int) -> Iterator[tuple[int, Found]]:
    """Tells every target how far the slots have come."""
    for target in range(partials_partitions):
        rows = [_interval(report, target, report.end) for report in reports]
        yield (
            target,
            Found(
                Intervals.of(rows),
                NO_OBJECTS,
                NO_EVENTS,
                NO_POSITIONS,
                NO_ROWS,
                NO_NAMES,
                NO_MATCHES,
            ),
        )


def _interval(report: Report, target: int, end: int) -> tuple[int, int, int, int]:
    begin = int(report.sent[target])
    report.sent[target] = end
    return report.slot, begin, end, report.time_ms


def _cut(piece: Piece) -> Iterator[Piece]:
    """Cuts a piece that is too large for a record, between objects if it can."""
    rows = piece.object_rows
    objects = piece.report.objects
    while len(rows):
        sizes = objects.text_offsets[rows + 1] + objects.attribute_offsets[rows + 1]
        first = int(objects.text_offsets[rows[0]] + objects.attribute_offsets[rows[0]])
        fits = int(np.searchsorted(sizes, first + OBJECT_BYTES_MAX, side="right"))
        fits = min(len(rows), fits, MATCHES_MAX)
        if fits == len(rows):
            yield Piece(piece.report, rows, piece.query_rows[-len(rows) :])
            return
        # Back to the last border between objects; none: a single object fills the piece.
        fits = int(np.searchsorted(rows, rows[fits]))
        count = fits or int(np.searchsorted(rows, rows[0], side="right"))
        queries = piece.query_rows[len(piece.query_rows) - len(rows) :][:count]
        head = Piece(piece.report, rows[:count], queries)
        if fits:
            head.upto = int(piece.report.positions[rows[count - 1]]) + (1 << PART_BITS)
            yield head
        else:
            yield from _cut_object(head)
        rows = rows[count:]


def _cut_object(piece: Piece) -> Iterator[Piece]:
    """Cuts the matches of one object, in the order of their handles."""
    report = piece.report
    order = np.argsort(report.table.handles[piece.query_rows], kind="stable")
    queries = piece.query_rows[order]
    position = int(report.positions[piece.object_rows[0]])
    begins = range(0, len(queries), MATCHES_MAX)
    for part, begin in enumerate(begins):
        end = begin + MATCHES_MAX
        is_last = part == len(begins) - 1
        upto = position + ((1 << PART_BITS) if is_last else part + 1)
        yield Piece(report, piece.object_rows[begin:end], queries[begin:end], upto, part)


def _grouped(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    matches = size = 0
    for piece in pieces:
        objects = piece.report.objects
        first, last = piece.object_rows[0], piece.object_rows[-1] + 1
        span = int(objects.text_offsets[last] - objects.text_offsets[first])
        is_full = matches + len(piece.object_rows) > MATCHES_MAX or size + span > OBJECT_BYTES_MAX
        # Two pieces of one slot would be two intervals of one source in a record.
        if group and (is_full or group[-1].report is piece.report):
            yield group
            group, matches, size = [], 0, 0
        group.append(piece)
        matches += len(piece.object_rows)
        size += span
    if group:
        yield group


def _found(target: int, group: list[Piece]) -> Found:
    intervals = []
    objects: list[ObjectColumns] = []
    events: list[EventColumns] = []
    positions: list[NDArray[np.int64]] = []
    names: list[tuple[NamedQueries, list[str]]] = []
    matches: list[tuple[NDArray[np.integer], NDArray[np.integer]]] = []
    counts: list[int] = []
    object_base = query_base = 0
    for piece in group:
        report = piece.report
        upto = report.end if piece.upto is None else piece.upto
        intervals.append(_interval(report, target, upto))
        is_first = np.empty(len(piece.object_rows), np.bool_)
        is_first[0] = True
        np.not_equal(piece.object_rows[1:], piece.object_rows[:-1], out=is_first[1:])
        rows = piece.object_rows[is_first].astype(np.int64)
        objects.append(report.objects.take(rows))
        events.append(report.events.take(rows))
        positions.append(report.positions[rows] + piece.part)
        found, places = report.table.distinct(piece.query_rows)
        names.append((report.table.names(found), report.table.subscriber_names))
        matches.append((np.cumsum(is_first) - 1 + object_base, places + query_base))
        counts.append(len(rows))
        object_base += len(rows)
        query_base += len(found)
    return Found(
        Intervals.of(intervals),
        concat(objects),
        EventColumns.concat(events),
        np.concatenate(positions),
        np.repeat(np.arange(len(group), dtype=np.uint32), counts),
        _join_names(names),
        MatchColumns(
            np.concatenate([rows for rows, _ in matches]).astype(np.uint32),
            np.concatenate([rows for _, rows in matches]).astype(np.uint32),
        ),
    )


def _join_names(parts: list[tuple[NamedQueries, list[str]]]) -> QueryNames:
    numbers: dict[str, int] = {}
    subscriber_rows = []
    for named, subscribers in parts:
        present, places = np.unique(named.subscribers, return_inverse=True)
        own = [numbers.setdefault(subscribers[row], len(numbers)) for row in present.tolist()]
        subscriber_rows.append(np.array(own, np.uint32)[places])
    lengths = np.concatenate([np.diff(named.id_offsets) for named, _ in parts])
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return QueryNames(
        np.concatenate([named.handles for named, _ in parts]),
        np.concatenate([named.ids for named, _ in parts]),
        offsets,
        np.concatenate(subscriber_rows),
        tuple(numbers),
    )
