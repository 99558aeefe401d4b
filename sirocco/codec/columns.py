"""The columnar messages that several contracts share (`columns.proto`) ⇄ values.

`put_…` fills a message in place, since assigning a nested message copies it; `read_…` checks
everything that later stages assume. Fields of errors are relative to the message; the reader of an
enclosing message adds its own name (`InvalidArgument.within`).
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from sirocco_api.v1 import columns_pb2 as pb

from sirocco.codec.arrays import (
    F8,
    I8,
    U1,
    U2,
    U4,
    U8,
    check_between,
    pack,
    read_column,
    read_offsets,
    read_rows,
)
from sirocco.internal_api.v1 import slot_service_pb2 as slot_pb
from sirocco.kernels.base.wire_checks import are_counts_of, are_rows_ascending
from sirocco.kernels.standing.locate import are_locators
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.objects import ObjectColumns
from sirocco.model.text import TermColumns
from sirocco.protocol.contract.columns import EventColumns, MatchColumns, QueryNames
from sirocco.protocol.contract.positions import NO_TIME_MS, Intervals

# A topic has far fewer Kafka partitions, and therefore slots. States are kept by source: without a
# bound one damaged number would make every later record as long as that number.
SOURCES_MAX = 1 << 16

_U1_MAX = (1 << 8) - 1


class Member:
    """Adds the name of the member being read to an error's field."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidArgument):
            error.within(self._name)


def put_objects(message: pb.ObjectColumns, columns: ObjectColumns) -> None:
    """Fills `message`; a batch without rows leaves it empty."""
    if not len(columns):
        return
    message.count = len(columns)
    message.ids = pack(columns.ids, U8)
    message.lon = pack(columns.lon, F8)
    message.lat = pack(columns.lat, F8)
    message.ts_ms = pack(columns.ts, I8)
    message.text = pack(columns.text, U1)
    message.text_offsets = pack(columns.text_offsets, U4)
    if len(columns.names):
        message.names = pack(columns.names, U1)
        message.name_offsets = pack(columns.name_offsets, U4)
    if len(columns.attributes):
        message.attributes = pack(columns.attributes, U1)
        message.attribute_offsets = pack(columns.attribute_offsets, U4)


def read_objects(message: pb.ObjectColumns) -> ObjectColumns:
    """Returns the columns, which fit together; rows are not validated.

    Raises:
        InvalidArgument: Lengths or offsets that do not fit.
    """
    count = message.count
    ids = read_column(message.ids, U8, "ids", rows=count)
    text = read_column(message.text, U1, "text")
    names = read_column(message.names, U1, "names")
    attributes = read_column(message.attributes, U1, "attributes")
    return ObjectColumns(
        ids=ids,
        names=names,
        name_offsets=_read_optional(message.name_offsets, count, len(names), "name_offsets"),
        lon=read_column(message.lon, F8, "lon", rows=count),
        lat=read_column(message.lat, F8, "lat", rows=count),
        ts=read_column(message.ts_ms, I8, "ts_ms", rows=count),
        text=text,
        text_offsets=read_offsets(message.text_offsets, count, len(text), "text_offsets"),
        attributes=attributes,
        attribute_offsets=_read_optional(
            message.attribute_offsets, count, len(attributes), "attribute_offsets"
        ),
    )


def _read_optional(data: bytes, rows: int, end: int, field: str) -> NDArray[np.int64]:
    """Returns the offsets of a column that is absent if all its rows are empty."""
    if not data and not end:
        return np.zeros(rows + 1, np.int64)
    return read_offsets(data, rows, end, field)


def read_routable_objects(message: pb.ObjectColumns) -> ObjectColumns:
    """Returns the columns of objects that a front has checked: a place outside the world is damage.

    Raises:
        InvalidArgument: Columns that do not fit together, or a coordinate that has no cell.
    """
    columns = read_objects(message)
    check_between(columns.lon, -180.0, 180.0, "lon")
    check_between(columns.lat, -90.0, 90.0, "lat")
    return columns


def put_events(message: pb.EventColumns, events: EventColumns) -> None:
    """Fills `message`."""
    if not len(events):
        return
    message.sessions = pack(events.sessions, U8)
    message.numbers = pack(events.numbers, U8)
    message.arrivals_ms = pack(events.arrivals_ms, I8)


def read_events(message: pb.EventColumns, rows: int) -> EventColumns:
    """Returns the events of `rows` objects."""
    arrivals_ms = read_column(message.arrivals_ms, I8, "arrivals_ms", rows=rows)
    check_between(arrivals_ms, -DEFAULT_LIMITS.ts_ms, DEFAULT_LIMITS.ts_ms, "arrivals_ms")
    return EventColumns(
        read_column(message.sessions, U8, "sessions", rows=rows),
        read_column(message.numbers, U8, "numbers", rows=rows),
        arrivals_ms,
    )


def put_intervals(message: pb.IntervalColumns, intervals: Intervals) -> None:
    """Fills `message`."""
    if not len(intervals):
        return
    message.sources = pack(intervals.sources, U4)
    message.begins = pack(intervals.begins, I8)
    message.ends = pack(intervals.ends, I8)
    message.times_ms = pack(intervals.times_ms, I8)


def read_intervals(message: pb.IntervalColumns) -> Intervals:
    """Returns the intervals; none ends before it begins."""
    sources = read_column(message.sources, U4, "sources")
    count = len(sources)
    begins = read_column(message.begins, I8, "begins", rows=count)
    ends = read_column(message.ends, I8, "ends", rows=count)
    times_ms = read_column(message.times_ms, I8, "times_ms", rows=count)
    check_between(sources, 0, SOURCES_MAX - 1, "sources")
    check_between(begins, 0, (1 << 63) - 1, "begins")
    check_between(times_ms, NO_TIME_MS, DEFAULT_LIMITS.ts_ms, "times_ms")
    if (ends < begins).any():
        raise InvalidArgument("lies before the begin", field="ends")
    return Intervals(sources, begins, ends, times_ms)


def put_names(message: pb.QueryNameColumns, names: QueryNames) -> None:
    """Fills `message`."""
    message.subscribers.extend(names.subscribers)
    if not len(names):
        return
    message.handles = pack(names.handles, U8)
    message.ids = pack(names.ids, U1)
    message.id_offsets = pack(names.id_offsets, U4)
    message.subscriber_rows = pack(names.subscriber_rows, U4)
    if names.specs is not None:
        message.specs.extend(names.specs)


def read_names(message: pb.QueryNameColumns) -> QueryNames:
    """Returns the names of queries."""
    handles = read_column(message.handles, U8, "handles")
    ids = read_column(message.ids, U1, "ids")
    subscribers = tuple(message.subscribers)
    specs = tuple(message.specs) or None
    if specs is not None and len(specs) != len(handles):
        raise InvalidArgument(f"has {len(specs)} rows, must have {len(handles)}", field="specs")
    return QueryNames(
        handles,
        ids,
        read_offsets(message.id_offsets, len(handles), len(ids), "id_offsets"),
        read_rows(message.subscriber_rows, len(handles), len(subscribers), "subscriber_rows"),
        subscribers,
        specs,
    )


def put_matches(message: pb.MatchColumns, matches: MatchColumns) -> None:
    """Fills `message`."""
    if not len(matches):
        return
    message.objects = pack(matches.objects, U4)
    message.queries = pack(matches.queries, U4)
    if matches.changes is not None:
        message.changes = pack(matches.changes, U1)
    if matches.distances_m is not None:
        message.distances_m = pack(matches.distances_m, F8)


def read_matches(message: pb.MatchColumns, objects: int, queries: int) -> MatchColumns:
    """Returns matches between `objects` objects and `queries` queries."""
    count = len(message.objects) // U4.itemsize
    return MatchColumns(
        read_rows(message.objects, count, objects, "objects"),
        read_rows(message.queries, count, queries, "queries"),
        read_column(message.changes, U1, "changes", rows=count) if message.changes else None,
        read_column(message.distances_m, F8, "distances_m", rows=count)
        if message.distances_m
        else None,
    )


def put_bits(column: NDArray[np.bool_]) -> bytes:
    """Returns a boolean column as bits, the least significant one of a byte first."""
    return np.packbits(column, bitorder="little").tobytes()


def read_bits(data: bytes, rows: int, field: str) -> NDArray[np.bool_]:
    """Returns bool[rows] from bits."""
    packed = read_column(data, U1, field, rows=(rows + 7) // 8)
    return np.unpackbits(packed, count=rows, bitorder="little").view(np.bool_)


def read_locators(data: bytes, offsets: bytes | None, rows: int, field: str) -> tuple[bytes, ...]:
    """Returns the locators of `rows` queries, each valid or empty.

    Args:
        data: words of the locators.
        offsets: where each begins, in words; None: there is only one.
        rows: number of queries.
        field: name of the column.
    """
    words = read_column(data, U8, field)
    bounds = np.array([0, len(words)], np.int64)
    if offsets is not None:
        bounds = read_offsets(offsets, rows, len(words), f"{field[:-1]}_offsets")
    if not are_locators(words, bounds):
        raise InvalidArgument("is no locator", field=field)
    ends = (bounds * U8.itemsize).tolist()
    return tuple(data[begin:end] for begin, end in pairwise(ends))


def put_terms(message: slot_pb.RouteRequest, terms: TermColumns) -> None:
    """Fills the columns of terms; those of repeats are often empty."""
    message.terms = pack(terms.terms, U8)
    message.term_offsets = pack(terms.offsets, U4)
    most = int(terms.counts.max(initial=0))
    if most > 1:
        message.token_counts = pack(terms.lengths, U4)
        message.term_counts = pack(terms.counts, U1 if most <= _U1_MAX else U2)


def read_terms(message: slot_pb.RouteRequest, rows: int) -> TermColumns:
    """Returns the terms of `rows` objects."""
    terms = read_column(message.terms, U8, "terms")
    offsets = read_offsets(message.term_offsets, rows, len(terms), "term_offsets")
    if not are_rows_ascending(terms, offsets):
        raise InvalidArgument("must ascend within an object", field="terms")
    if not message.token_counts and not message.term_counts:
        lengths = np.diff(offsets).astype(np.int32)
        return TermColumns(terms, offsets, lengths, np.ones(len(terms), np.uint16))
    lengths = read_column(message.token_counts, U4, "token_counts", rows=rows).view(np.int32)
    counts: NDArray[np.uint16]
    if len(message.term_counts) == len(terms):
        counts = read_column(message.term_counts, U1, "term_counts").astype(np.uint16)
    else:
        counts = read_column(message.term_counts, U2, "term_counts", rows=len(terms))
    if not are_counts_of(counts, offsets, lengths):
        raise InvalidArgument("must add up to the tokens of each object", field="term_counts")
    return TermColumns(terms, offsets, lengths, counts)
