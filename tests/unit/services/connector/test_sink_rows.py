"""Messages as rows: ids, keys, places, and both forms, for queries of all kinds."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from sirocco_client import NotificationBatch

from sirocco.services.connector.sinks.rows import Key, Place, Row, Shape, rows_of, time_text
from tests.support.fake_cluster import response_of
from tests.support.merger_messages import response_with, sent_by_a_merger

PLAIN = Shape("json", "/subscribers/s", Key())
EVENTS = Shape("cloudevents", "/subscribers/s", Key())
BINARY = Shape("cloudevents-binary", "/subscribers/s", Key())


def batch(begin: str = "3") -> NotificationBatch:
    return NotificationBatch(response_of([("q1", 1), ("q2", 1), ("q1", "näme")], 7), begin)


def of_all_kinds() -> list[NotificationBatch]:
    return [NotificationBatch(response_with(each), "1") for each in sent_by_a_merger()]


def test_ids_do_not_depend_on_where_a_stream_began_but_places_do() -> None:
    rows = rows_of(batch(), PLAIN, 0)
    assert [row.id for row in rows] == ["7-0", "7-1", "7-2"]
    assert [row.id for row in rows_of(batch("5"), PLAIN, 0)] == ["7-0", "7-1", "7-2"]
    assert [row.place for row in rows] == [Place("3", 1), Place("3", 2), Place("7")]


def test_the_rest_of_a_message_has_the_ids_that_it_had() -> None:
    assert rows_of(batch(), PLAIN, 0, skip=2) == rows_of(batch(), PLAIN, 0)[2:]


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        (Key("query"), ["q1", "q2", "q1"]),
        (Key("object"), ["1", "1", "näme"]),
        (Key("attribute", "a"), ["1", "1", None]),
        (Key("attribute", "b"), [None, None, None]),
        (Key("none"), [None, None, None]),
    ],
)
def test_keys(key: Key, keys: list[str | None]) -> None:
    rows = rows_of(batch(), Shape("json", "", key), 0)
    assert [row.key for row in rows] == keys


@pytest.mark.parametrize("key", ["query", "object", "attribute", "none"])
def test_rows_of_lists_steps_and_ends(key: Any) -> None:
    shape = Shape("json", "", Key(key, "a"))
    for each in of_all_kinds():
        rows = rows_of(each, shape, 77)
        assert [row.id for row in rows] == [f"9-{i}" for i in range(len(each))]
        for row, item in zip(rows, each, strict=True):
            members = orjson.loads(row.value)
            assert members["id"] == row.id
            assert members["query"] == item.query == row.query
            assert (row.object == "") == ("object" not in members)
            if "object" not in members:
                # A list has no arrival of its own.
                assert row.arrival_ms == 77
                assert row.key == (row.query if key in ("query", "object") else None)


def event_of(row: Row) -> Any:
    return JSONFormat().read(CloudEvent, row.value)


def test_cloud_events_are_those_of_the_specification() -> None:
    kinds = set()
    for each in [batch(), *of_all_kinds()]:
        plain = rows_of(each, PLAIN, 77)
        for row, same in zip(rows_of(each, EVENTS, 77), plain, strict=True):
            event = event_of(row)
            kinds.add(event.get_type())
            assert event.get_id() == row.id
            assert event.get_source() == "/subscribers/s"
            assert event.get_subject() == row.query
            assert int(event.get_time().timestamp() * 1_000) == row.arrival_ms
            assert {"id": row.id, **event.get_data()} == orjson.loads(same.value)
    assert kinds == {"sirocco.match", "sirocco.knn", "sirocco.terms", "sirocco.ranked"}


def test_cloud_events_in_binary_mode_say_the_same() -> None:
    """Kafka Protocol Binding 1.0.2, section 3.2: attributes are headers, the data is the value."""
    for each in [batch(), *of_all_kinds()]:
        pairs = zip(rows_of(each, BINARY, 77), rows_of(each, EVENTS, 77), strict=True)
        for row, same in pairs:
            headers = {name: value.decode() for name, value in row.headers}
            whole = orjson.loads(same.value)
            assert headers.pop("content-type") == whole.pop("datacontenttype")
            assert orjson.loads(row.value) == whole.pop("data")
            assert headers == {f"ce_{name}": value for name, value in whole.items()}
            assert (row.id, row.key, row.place) == (same.id, same.key, same.place)
            assert same.headers == ()


@pytest.mark.parametrize(
    ("moment_ms", "text"),
    [
        (1_405_123_200_123, "2014-07-12T00:00:00.123Z"),
        (8_640_000_000_000_000, "9999-12-31T23:59:59.000Z"),
        (-8_640_000_000_000_000, "0001-01-01T00:00:00.000Z"),
    ],
)
def test_times_that_no_calendar_has_are_the_nearest_it_has(moment_ms: int, text: str) -> None:
    """With arrival by the objects' own times, one object would end a sink at every start."""
    assert time_text(moment_ms) == text
