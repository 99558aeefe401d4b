"""Puts the few matches of a subscriber, of one record or several, into a response."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from sirocco_api.v1.receive_service_pb2 import ReceiveResponse

from sirocco.protocol.merger.delivery_parts import FewMatches, View

__all__ = ["oldest_ms_of", "put_few"]

# A row of a column, u4.
_FIRST = bytes(4)
_OFFSETS = struct.Struct("<2I")

_Row = tuple[View, int]
_RaggedRow = tuple[tuple[View, View], int]


def put_few(response: ReceiveResponse, parts: Sequence[FewMatches], prefix: str) -> None:
    """Fills a response with parts of records, as their columns would.

    Args:
        response: without columns.
        parts: of one subscriber, at least one.
        prefix: of the tenant, with which all names begin; it is left out.
    """
    if len(parts) == 1 and len(parts[0]) == 1:
        _put_one(response, parts[0], prefix)
        return
    objects = [(part.record, row) for part in parts for row in part.objects]
    columns = response.objects
    columns.count = len(objects)
    columns.ids = _numbers((record.ids, row) for record, row in objects)
    columns.lon = _numbers((record.lon, row) for record, row in objects)
    columns.lat = _numbers((record.lat, row) for record, row in objects)
    columns.ts_ms = _numbers((record.ts, row) for record, row in objects)
    columns.text, columns.text_offsets = _bytes((record.text, row) for record, row in objects)
    names, offsets = _bytes((record.names, row) for record, row in objects)
    if names:
        columns.names, columns.name_offsets = names, offsets
    attributes, offsets = _bytes((record.attributes, row) for record, row in objects)
    if attributes:
        columns.attributes, columns.attribute_offsets = attributes, offsets
    events = response.events
    events.sessions = _numbers((record.sessions, row) for record, row in objects)
    events.numbers = _numbers((record.numbers, row) for record, row in objects)
    events.arrivals_ms = _numbers((record.arrivals_ms, row) for record, row in objects)
    _put_names(response, parts, prefix)
    _put_matches(response, parts)


def _put_one(response: ReceiveResponse, part: FewMatches, prefix: str) -> None:
    """Fills a response with one match, as most are: in 40 % of the time that several take."""
    record, row, query = part.record, part.objects[0], part.queries[0]
    rows = slice(row, row + 1)
    columns = response.objects
    columns.count = 1
    columns.ids = record.ids[rows].tobytes()
    columns.lon = record.lon[rows].tobytes()
    columns.lat = record.lat[rows].tobytes()
    columns.ts_ms = record.ts[rows].tobytes()
    columns.text, columns.text_offsets = _one(record.text, row)
    names, offsets = _one(record.names, row)
    if names:
        columns.names, columns.name_offsets = names, offsets
    attributes, offsets = _one(record.attributes, row)
    if attributes:
        columns.attributes, columns.attribute_offsets = attributes, offsets
    events = response.events
    events.sessions = record.sessions[rows].tobytes()
    events.numbers = record.numbers[rows].tobytes()
    events.arrivals_ms = record.arrivals_ms[rows].tobytes()
    queries = response.queries
    queries.subscribers.append(part.subscriber.removeprefix(prefix))
    queries.handles = record.handles[query : query + 1].tobytes()
    queries.ids, queries.id_offsets = _one(record.query_ids, query, len(prefix.encode()))
    queries.subscriber_rows = _FIRST
    matches = response.matches
    matches.objects = matches.queries = _FIRST
    if record.changes is not None:
        matches.changes = record.changes[part.begin : part.end].tobytes()


def oldest_ms_of(parts: Sequence[FewMatches]) -> int:
    """Returns the least arrival of the objects, epoch ms."""
    return min(part.record.arrivals_ms[row] for part in parts for row in part.objects)


def _put_names(response: ReceiveResponse, parts: Sequence[FewMatches], prefix: str) -> None:
    names = response.queries
    names.subscribers.append(parts[0].subscriber.removeprefix(prefix))
    queries = [(part.record, row) for part in parts for row in part.queries]
    names.handles = _numbers((record.handles, row) for record, row in queries)
    width = len(prefix.encode())
    names.ids, names.id_offsets = _bytes(
        ((record.query_ids, row) for record, row in queries), width
    )
    names.subscriber_rows = bytes(4 * len(queries))


def _put_matches(response: ReceiveResponse, parts: Sequence[FewMatches]) -> None:
    objects: list[int] = []
    queries: list[int] = []
    first_object = first_query = 0
    for part in parts:
        record, own = part.record, range(part.begin, part.end)
        places = {row: place for place, row in enumerate(part.objects, first_object)}
        objects += [places[record.match_objects[match]] for match in own]
        places = {row: place for place, row in enumerate(part.queries, first_query)}
        queries += [places[record.match_queries[match]] for match in own]
        first_object += len(part.objects)
        first_query += len(part.queries)
    matches = response.matches
    matches.objects = struct.pack(f"<{len(objects)}I", *objects)
    matches.queries = struct.pack(f"<{len(queries)}I", *queries)
    if any(part.record.changes is not None for part in parts):
        matches.changes = b"".join([_changes(part) for part in parts])


def _changes(part: FewMatches) -> View | bytes:
    changes = part.record.changes
    return bytes(len(part)) if changes is None else changes[part.begin : part.end]


def _one(column: tuple[View, View], row: int, skipped: int = 0) -> tuple[bytes, bytes]:
    """Returns a row of a ragged column, without its first bytes, and its offsets as u4."""
    data, offsets = column
    found = data[offsets[row] + skipped : offsets[row + 1]].tobytes()
    return found, _OFFSETS.pack(0, len(found))


def _numbers(rows: Iterable[_Row]) -> bytes:
    """Returns the bytes of some rows of columns, one after the other."""
    return b"".join([view[row : row + 1] for view, row in rows])


def _bytes(rows: Iterable[_RaggedRow], skipped: int = 0) -> tuple[bytes, bytes]:
    """Returns rows of ragged columns, without the first bytes of each, and their offsets as u4."""
    found, ends = [], [0]
    for (data, offsets), row in rows:
        begin, end = offsets[row] + skipped, offsets[row + 1]
        found.append(data[begin:end])
        ends.append(ends[-1] + end - begin)
    return b"".join(found), struct.pack(f"<{len(ends)}I", *ends)
