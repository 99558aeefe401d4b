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

# Matches of one record: a merger's window is written at about as many.
MATCHES_MAX = 32_768

# Bytes of one record, unless a single object is longer: half of what the log takes. Ids of queries
# may be long, so matches alone are no measure.
PIECE_BYTES_MAX = 2 << 20

# The fixed columns of one match with its query (handle, offset, subscriber, two rows), and of one
# object with its event and position.
MATCH_BYTES = 24
OBJECT_BYTES = 84


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
    bytes_total: int
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
            cut = _cut(report, report.object_rows[mine], report.query_rows[mine])
            pieces.setdefault(target, []).extend(cut)
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


def _cut(report: Report, rows: NDArray[np.int32], queries: NDArray[np.int32]) -> Iterator[Piece]:
    """Cuts what is too large for a record, between objects if it can."""
    at_most = _bytes_at_most(report, rows, queries)
    if at_most <= PIECE_BYTES_MAX and len(rows) <= MATCHES_MAX:
        yield Piece(report, rows, queries, at_most)
        return
    ends = np.cumsum(_match_bytes(report, rows, queries))
    begin = 0
    while begin < len(rows):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + PIECE_BYTES_MAX, side="right"))
        end = min(end, begin + MATCHES_MAX)
        upto = None
        if end < len(rows):
            # Back to the last border between objects; none: a single object fills the piece.
            end = int(np.searchsorted(rows, rows[end]))
            if end == begin:
                end = int(np.searchsorted(rows, rows[begin], side="right"))
                yield from _cut_object(report, rows[begin:end], queries[begin:end])
                begin = end
                continue
            upto = int(report.positions[rows[end - 1]]) + (1 << PART_BITS)
        size = int(ends[end - 1]) - before
        yield Piece(report, rows[begin:end], queries[begin:end], size, upto)
        begin = end


def _bytes_at_most(report: Report, rows: NDArray[np.int32], queries: NDArray[np.int32]) -> int:
    """An upper bound of what matches and their objects take in a record, cheaply."""
    objects, first, last = report.objects, rows[0], rows[-1] + 1
    size = int(report.table.id_lengths(queries).sum()) + len(rows) * (MATCH_BYTES + OBJECT_BYTES)
    for offsets in (objects.text_offsets, objects.attribute_offsets, objects.name_offsets):
        size += int(offsets[last] - offsets[first])
    return size


def _match_bytes(
    report: Report, rows: NDArray[np.int32], queries: NDArray[np.int32]
) -> NDArray[np.int64]:
    """What each match adds to a record; the first one of an object brings the object."""
    objects = report.objects
    sizes = report.table.id_lengths(queries) + MATCH_BYTES
    is_first = np.empty(len(rows), np.bool_)
    is_first[0] = True
    np.not_equal(rows[1:], rows[:-1], out=is_first[1:])
    starts = rows[is_first]
    sizes[is_first] += OBJECT_BYTES
    for offsets in (objects.text_offsets, objects.attribute_offsets, objects.name_offsets):
        sizes[is_first] += offsets[starts + 1] - offsets[starts]
    return sizes


def _cut_object(
    report: Report, rows: NDArray[np.int32], queries: NDArray[np.int32]
) -> Iterator[Piece]:
    """Cuts the matches of one object, in the order of their handles."""
    queries = queries[np.argsort(report.table.handles[queries], kind="stable")]
    position = int(report.positions[rows[0]])
    sizes = report.table.id_lengths(queries) + MATCH_BYTES
    object_bytes = int(_match_bytes(report, rows[:1], queries[:1])[0] - sizes[0])
    room = max(PIECE_BYTES_MAX - object_bytes, PIECE_BYTES_MAX // 2)
    ends = np.cumsum(sizes)
    begin = part = 0
    while begin < len(rows):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + room, side="right"))
        end = max(begin + 1, min(end, begin + MATCHES_MAX))
        is_last = end >= len(rows)
        upto = position + ((1 << PART_BITS) if is_last else part + 1)
        size = int(ends[min(end, len(rows)) - 1]) - before + object_bytes
        yield Piece(report, rows[begin:end], queries[begin:end], size, upto, part)
        begin, part = end, part + 1


def _grouped(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    group: list[Piece] = []
    matches = size = 0
    for piece in pieces:
        is_full = (
            matches + len(piece.object_rows) > MATCHES_MAX
            or size + piece.bytes_total > PIECE_BYTES_MAX
        )
        # Two pieces of one slot would be two intervals of one source in a record.
        if group and (is_full or group[-1].report is piece.report):
            yield group
            group, matches, size = [], 0, 0
        group.append(piece)
        matches += len(piece.object_rows)
        size += piece.bytes_total
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
