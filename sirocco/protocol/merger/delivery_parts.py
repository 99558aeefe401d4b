"""A subscriber's parts of records on `deliveries`, and parts of successive records as one.

Where thousands of subscribers get some matches a second each, most parts of records are one match.
Slices of the columns of such a part, and columns of several joined, take 40 to 200 µs as arrays;
as views of memory some 10. So few matches stay views.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from sirocco.protocol.contract.messages import Delivered
from sirocco.protocol.contract.record_sizes import MATCH_BYTES, OBJECT_BYTES
from sirocco.protocol.merger.delivery_records import bytes_of, joined, of_subscriber

# Of one subscriber: more are taken as arrays.
FEW = 8

View: TypeAlias = memoryview

_Place = TypeVar("_Place")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RecordViews:
    """A record of matches alone, with views of its columns.

    Attributes:
        delivered: the record.
        rows: subscriber → its row.
        match_offsets: where the matches of each subscriber begin.
        match_objects, match_queries: rows of each match.
        changes: of each match; None without any.
        ids, lon, lat, ts, sessions, numbers, arrivals_ms: of each object.
        text, names, attributes: bytes of all objects, each with its offsets.
        handles: of each query.
        query_ids: bytes of all, with their offsets.
    """

    delivered: Delivered
    rows: dict[str, int]
    match_offsets: View
    match_objects: View
    match_queries: View
    changes: View | None
    ids: View
    lon: View
    lat: View
    ts: View
    sessions: View
    numbers: View
    arrivals_ms: View
    text: tuple[View, View]
    names: tuple[View, View]
    attributes: tuple[View, View]
    handles: View
    query_ids: tuple[View, View]

    @classmethod
    def of(cls, delivered: Delivered) -> RecordViews | None:
        """Returns the views; None for a record of one subscriber, of lists, or with definitions."""
        queries, matches, objects = delivered.queries, delivered.matches, delivered.objects
        is_plain = delivered.lists is None and queries.specs is None
        if len(queries.subscribers) < 2 or not is_plain or matches.distances_m is not None:
            return None
        events = delivered.events
        return cls(
            delivered=delivered,
            rows={name: row for row, name in enumerate(queries.subscribers)},
            match_offsets=delivered.match_offsets.data,
            match_objects=matches.objects.data,
            match_queries=matches.queries.data,
            changes=None if matches.changes is None else matches.changes.data,
            ids=objects.ids.data,
            lon=objects.lon.data,
            lat=objects.lat.data,
            ts=objects.ts.data,
            sessions=events.sessions.data,
            numbers=events.numbers.data,
            arrivals_ms=events.arrivals_ms.data,
            text=(objects.text.data, objects.text_offsets.data),
            names=(objects.names.data, objects.name_offsets.data),
            attributes=(objects.attributes.data, objects.attribute_offsets.data),
            handles=queries.handles.data,
            query_ids=(queries.ids.data, queries.id_offsets.data),
        )

    def part_of(self, subscriber: str) -> FewMatches | Delivered | None:
        """Returns the part for one subscriber; None when it has none."""
        row = self.rows.get(subscriber)
        if row is None:
            return None
        begin, end = self.match_offsets[row], self.match_offsets[row + 1]
        if begin == end:
            return None
        if end - begin > FEW:
            return of_subscriber(self.delivered, subscriber)
        return FewMatches(self, subscriber, begin, end)


class FewMatches:
    """The matches [begin, end) of a record, which are those of one subscriber.

    Attributes:
        record: has them.
        subscriber: its name.
        begin, end: the matches.
        objects: rows of the objects that they name, ascending, each once.
        queries: rows of the queries, likewise.
        bytes_total: the most bytes that it takes in a record; as `delivery_records.bytes_of`.
    """

    __slots__ = ("begin", "bytes_total", "end", "objects", "queries", "record", "subscriber")

    def __init__(self, record: RecordViews, subscriber: str, begin: int, end: int) -> None:
        """Finds what the matches name."""
        self.record = record
        self.subscriber = subscriber
        self.begin = begin
        self.end = end
        if end - begin == 1:
            self.objects = [record.match_objects[begin]]
            self.queries = [record.match_queries[begin]]
        else:
            self.objects = sorted(set(record.match_objects[begin:end]))
            self.queries = sorted(set(record.match_queries[begin:end]))
        self.bytes_total = self._bytes()

    def __len__(self) -> int:
        return self.end - self.begin

    def _bytes(self) -> int:
        record = self.record
        size = len(self.objects) * OBJECT_BYTES + len(self) * MATCH_BYTES
        size += len(self.subscriber.encode())
        for _, offsets in (record.text, record.names, record.attributes):
            for row in self.objects:
                size += offsets[row + 1] - offsets[row]
        offsets = record.query_ids[1]
        return size + sum(offsets[row + 1] - offsets[row] for row in self.queries)

    def delivered(self) -> Delivered:
        """Returns it as columns."""
        found = of_subscriber(self.record.delivered, self.subscriber)
        assert found is not None
        return found


Part: TypeAlias = FewMatches | Delivered
Joined: TypeAlias = tuple[FewMatches, ...] | Delivered


def size_of(part: Part) -> int:
    """Returns the most bytes that a part takes in a record."""
    return part.bytes_total if isinstance(part, FewMatches) else bytes_of(part)


def joined_parts(
    parts: Iterable[tuple[Part, _Place]], bytes_max: int
) -> Iterator[tuple[Joined, _Place]]:
    """Joins one subscriber's parts of records that follow one another.

    Lists stay alone: within a response they follow the matches, and would change places.

    Args:
        parts: of records, each with its place.
        bytes_max: of several that are joined; 0: none are.

    Yields:
        Fewer parts with the same content in the same order, and the place of the last record.
    """
    group: list[Part] = []
    size = 0
    last: _Place | None = None
    for part, place in parts:
        part_bytes = size_of(part) if bytes_max else 1
        has_lists = isinstance(part, Delivered) and part.lists is not None
        if group and (has_lists or size + part_bytes > bytes_max):
            assert last is not None
            yield _one_of(group), last
            group, size = [], 0
        if has_lists:
            assert isinstance(part, Delivered)
            yield part, place
            continue
        group.append(part)
        size, last = size + part_bytes, place
    if group:
        assert last is not None
        yield _one_of(group), last


def _one_of(group: Sequence[Part]) -> Joined:
    few = tuple(part for part in group if isinstance(part, FewMatches))
    if len(few) == len(group):
        return few
    return joined([part.delivered() if isinstance(part, FewMatches) else part for part in group])
