"""Messages of the cluster → rows of a sink: id, key, payload and place of each notification.

The id of a notification is `CURSOR-N`: the cursor after its message, and its number within it. A
message is one record of the log, so that the id is the same however often, and from wherever, a
sink reads it. The place where the message began is not: a resumed stream begins elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeAlias

import orjson
from sirocco_client import Ended, KnnChange, NotificationBatch, RankedChange, TermsStep

from sirocco.services.notification_json import notifications_of

# `cloudevents-binary`: the payload alone, and what the event says of it in the record's headers.
Form: TypeAlias = Literal["json", "cloudevents", "cloudevents-binary"]

Headers: TypeAlias = tuple[tuple[str, bytes], ...]

# By what they report: parts of the types of CloudEvents.
_KINDS = {KnnChange: "knn", TermsStep: "terms", RankedChange: "ranked", Ended: "ended"}


class Place(NamedTuple):
    """Where to resume: after `skip` notifications that follow a cursor of the cluster."""

    cursor: str
    skip: int = 0


class Row(NamedTuple):
    """One notification, or the digest of several.

    Attributes:
        id: The same on every repeat.
        query: Id of the query.
        key: What keeps rows together; None: nothing does.
        object: Id of the object; empty for lists.
        value: The payload.
        arrival_ms: When the object arrived, or when the sink read the row.
        place: Where to resume after it.
        headers: Of a record that is a CloudEvent in binary mode.
    """

    id: str
    query: str
    key: str | None
    object: str
    value: bytes
    arrival_ms: int
    place: Place
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Key:
    """What the key of a row is.

    Attributes:
        kind: Its query, its object, an attribute of its object, or nothing.
        attribute: The name of the attribute.
    """

    kind: Literal["query", "object", "attribute", "none"] = "query"
    attribute: str = ""


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of a sink's rows.

    Attributes:
        form: Of payloads.
        source: `source` of CloudEvents: a URI reference.
        key: Of rows.
    """

    form: Form
    source: str
    key: Key


def rows_of(batch: NotificationBatch, shape: Shape, now_ms: int, skip: int = 0) -> list[Row]:
    """Returns the notifications of a message after the first `skip`."""
    count, end, begin = len(batch), batch.cursor, batch.begin_cursor
    queries, objects, arrivals = _columns_of(batch, now_ms)
    keys = _keys_of(batch, shape.key, queries, objects)
    write = _WRITERS[shape.form](batch, shape)
    headers = _headers_of(batch, shape) if shape.form == "cloudevents-binary" else _no_headers
    last = count - 1
    rows = []
    values = notifications_of(batch)
    for i, value in enumerate(values):
        if i < skip:
            continue
        one = f"{end}-{i}"
        place = Place(end) if i == last else Place(begin, i + 1)
        payload = write(one, queries[i], value, arrivals[i], i)
        more = headers(one, queries[i], arrivals[i], i)
        rows.append(Row(one, queries[i], keys[i], objects[i], payload, arrivals[i], place, more))
    return rows


_Write: TypeAlias = Callable[[str, str, bytes, int, int], bytes]


def _plain_of(_batch: NotificationBatch, _shape: Shape) -> _Write:
    """Returns what writes the form of the gateway's events, and the id."""
    return lambda one, _query, value, _ms, _number: b'{"id":"%s",%s' % (one.encode(), value[1:])


def _payload_of(_batch: NotificationBatch, _shape: Shape) -> _Write:
    return lambda _one, _query, value, _ms, _number: value


def _no_headers(_one: str, _query: str, _arrival_ms: int, _number: int) -> Headers:
    return ()


def _headers_of(batch: NotificationBatch, shape: Shape) -> Callable[[str, str, int, int], Headers]:
    """Returns what writes the headers of CloudEvents 1.0 in binary mode, as Kafka carries them."""
    types = _types_of(batch)

    def write(one: str, query: str, arrival_ms: int, number: int) -> Headers:
        return event_headers(shape.source, one, types[number], query, arrival_ms)

    return write


def event_headers(source: str, one: str, kind: str, subject: str, time_ms: int) -> Headers:
    """Returns the headers of an event in binary mode."""
    found = (
        ("content-type", b"application/json"),
        ("ce_specversion", b"1.0"),
        ("ce_id", one.encode()),
        ("ce_source", source.encode()),
        ("ce_type", b"sirocco.%s" % kind.encode()),
        ("ce_time", time_text(time_ms).encode()),
    )
    # A digest of many queries has none, and the specification no empty one.
    return (*found, ("ce_subject", subject.encode())) if subject else found


def _types_of(batch: NotificationBatch) -> list[str]:
    return [*batch.match_changes, *(_KINDS[type(one)] for one in batch.lists)]


def _cloud_event_of(batch: NotificationBatch, shape: Shape) -> _Write:
    """Returns what writes CloudEvents 1.0 in their JSON form."""
    changes = _types_of(batch)
    subjects = {query: orjson.dumps(query) for query in batch.query_ids}
    # Many arrive in the same millisecond.
    times = {moment: time_text(moment).encode() for moment in set(batch.arrivals_ms)}
    head = b'{"specversion":"1.0","datacontenttype":"application/json","source":%s,' % orjson.dumps(
        shape.source
    )

    def write(one: str, query: str, value: bytes, arrival_ms: int, number: int) -> bytes:
        moment = times.get(arrival_ms) or time_text(arrival_ms).encode()
        return b'%s"id":"%s","type":"sirocco.%s","subject":%s,"time":"%s","data":%s}' % (
            head,
            one.encode(),
            changes[number].encode(),
            subjects[query],
            moment,
            value,
        )

    return write


_WRITERS: dict[Form, Callable[[NotificationBatch, Shape], _Write]] = {
    "json": _plain_of,
    "cloudevents": _cloud_event_of,
    "cloudevents-binary": _payload_of,
}


# The years 1 and 9999. Where objects' own times are those of arrival, clients choose them beyond.
_LEAST_MS, _GREATEST_MS = -62_135_596_800_000, 253_402_300_799_000


def time_text(moment_ms: int) -> str:
    """Returns a time as RFC 3339, which knows the years to 9999: the nearest one beyond them."""
    found = datetime.fromtimestamp(min(max(moment_ms, _LEAST_MS), _GREATEST_MS) / 1_000, UTC)
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _columns_of(batch: NotificationBatch, now_ms: int) -> tuple[list[str], list[str], list[int]]:
    """Returns for each notification its query, its object and its arrival."""
    names, ids, times = batch.query_ids, [*map(str, batch.object_ids)], batch.arrivals_ms.tolist()
    rows = batch.match_objects.tolist()
    queries = [names[query] for query in batch.match_queries]
    objects = [ids[row] for row in rows]
    arrivals = [times[row] for row in rows]
    lists = batch.lists
    if lists:
        queries += [one.query for one in lists]
        objects += [""] * len(lists)
        arrivals += [now_ms] * len(lists)
    return queries, objects, arrivals


def _keys_of(
    batch: NotificationBatch, key: Key, queries: list[str], objects: list[str]
) -> list[str | None]:
    if key.kind == "none":
        return [None] * len(queries)
    if key.kind == "query":
        return list(queries)
    if key.kind == "object":
        # A list has no object: its key is that of its query.
        return [one or query for one, query in zip(objects, queries, strict=True)]
    values = [_attribute(text, key.attribute) for text in batch.attributes_json]
    found = [values[row] for row in batch.match_objects]
    return found + [None] * (len(queries) - len(found))


def _attribute(attributes: str, name: str) -> str | None:
    if not attributes:
        return None
    value = orjson.loads(attributes).get(name)
    if value is None:
        return None
    return value if isinstance(value, str) else orjson.dumps(value).decode()
