"""A query with a future begin gets no object that arrives before it; through the SDK."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import Any

import pytest
from sirocco_client import (
    Client,
    InvalidArgument,
    KnnChange,
    ListChange,
    Notification,
    PublishFlow,
    TermsStep,
    query_from_json,
)

from sirocco.model.explanation import explain
from sirocco.model.objects import parse_object
from sirocco.model.query import parse_query
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster

FIRST_MS = 1_700_000_000_000
OBJECTS = 60
BEGIN = 35
AREA = {"rect": {"west": 0, "south": -1, "east": 100, "north": 1}}
TIMEOUT_S = 300.0


def object_number(number: int) -> dict[str, Any]:
    """Returns one object a second; vans are inside in six of ten, later ones nearer to (0, 0)."""
    lon = (OBJECTS - number) / 10 * (1 if number % 10 < 6 else -1)
    van = number % 3
    ts = FIRST_MS + 1_000 * number
    return {"id": number, "lon": lon, "lat": 0.0, "ts": ts, "text": f"w{number}", "van": van}


QUERIES: list[dict[str, Any]] = [
    {"id": "range", "kind": "range", "region": AREA},
    {"id": "brief", "kind": "range", "region": AREA, "ttl": "5s"},
    {"id": "van", "kind": "range", "region": AREA, "track": "van"},
    {"id": "far", "kind": "knn", "point": {"lon": 6.1, "lat": 0.0}, "k": 3},
    {"id": "words", "kind": "terms", "region": AREA, "k": 100, "step": "60s"},
]


def expected_events(objects: list[dict[str, Any]]) -> list[tuple[int, str]]:
    inside: set[int] = set()
    events = []
    for one in objects:
        was, holds = one["van"] in inside, one["lon"] >= 0
        (inside.add if holds else inside.discard)(one["van"])
        if was != holds:
            events.append((one["id"], "enter" if holds else "exit"))
    return events


class Receiver(threading.Thread):
    """Receives all notifications of the subscriber."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self._subscription = client.subscribe("s")
        self._subscription.open()
        self._received: list[Notification | ListChange] = []
        self.start()

    def run(self) -> None:
        """Receives until the subscription is closed."""
        self._received.extend(self._subscription)

    def until(self, ends: tuple[str, ...]) -> list[Notification | ListChange]:
        """Returns all notifications before the end of the subscriber's Kafka partition."""
        cursors = dict(end.split(".") for end in ends)
        deadline_s = time.monotonic() + TIMEOUT_S
        while True:
            partition, _, offset = self._subscription.cursor.partition(".")
            if int(offset) >= int(cursors[partition]):
                break
            assert time.monotonic() < deadline_s, f"{self._subscription.cursor} of {ends}"
            time.sleep(0.01)
        self._subscription.close()
        self.join(TIMEOUT_S)
        return self._received


def test_event_time() -> None:
    # init
    settings = ClusterSettings(
        cluster="begin", slots=6, leaves=12, event_time=True, intake_partitions=1, retention_ms=None
    )
    objects = [object_number(number) for number in range(OBJECTS)]
    start_ms = objects[BEGIN]["ts"]
    found: dict[str, list[Any]] = defaultdict(list)

    # test
    with (
        EmbeddedCluster(settings, evaluators=2, routers=1) as cluster,
        Client(cluster.router_address) as client,
    ):
        receiver = Receiver(client)
        for query in QUERIES:
            form = query_from_json({"mode": "continuous", **query}, "s")
            client.register(form, start_ms=start_ms)
        assert client.get("range").start_given
        with client.publisher(PublishFlow(linger_ms=1)) as publisher:
            publisher.publish_many(objects[:20])
            publisher.flush()
            publisher.publish_many(objects[20:])
            publisher.flush()
        # The step is complete, and a last object ends the stream.
        client.advance_time(start_ms + 60_001)
        last = {**object_number(0), "id": 99, "ts": start_ms + 60_001, "van": 9, "lon": 0.0}
        with client.publisher() as publisher:
            publisher.publish(last)
            token = publisher.flush().position_token
        for each in receiver.until(client.await_processed(token, timeout_s=TIMEOUT_S)):
            found[each.query].append(each)

    # check
    due = objects[BEGIN:]
    assert ids_of(found["range"]) == [o["id"] for o in due if o["lon"] >= 0] + [99]
    assert ids_of(found["brief"]) == [o["id"] for o in due[:5] if o["lon"] >= 0]
    events = [(each.object.id, each.change) for each in found["van"]]
    assert sorted(events) == sorted([*expected_events(due), (99, "enter")])
    nearest = found["far"][-1]
    assert isinstance(nearest, KnnChange)
    assert [number for number, _ in nearest.entries] == [BEGIN, 40, 41]
    (step,) = (each for each in found["words"] if isinstance(each, TermsStep))
    assert step.at_ms == start_ms + 60_000
    assert {term for term, _ in step.terms} == {o["text"] for o in due if o["lon"] >= 0}
    # `sirocco explain` agrees.
    ranged = parse_query({"mode": "continuous", **QUERIES[0]})
    matched = set(ids_of(found["range"]))
    for one in objects:
        verdict = explain(
            ranged, parse_object(one), arrival_ms=one["ts"], start_ms=start_ms, is_start_given=True
        )
        assert verdict.holds == (one["id"] in matched), one


def ids_of(notifications: list[Notification | ListChange]) -> list[int]:
    return sorted(each.object.id for each in notifications if isinstance(each, Notification))


def test_wall_clock() -> None:
    # init
    query = {"kind": "range", "mode": "continuous"}
    arrivals: dict[str, dict[int | str, int]] = {"now": {}, "later": {}}

    # test: some arrive before it begins, some after.
    with (
        EmbeddedCluster(ClusterSettings(cluster="wall", slots=4, leaves=4)) as cluster,
        Client(cluster.router_address) as client,
    ):
        receiver = Receiver(client)
        start_ms = round(time.time() * 1_000) + 1_500
        client.register(query_from_json({"id": "now", **query}, "s"))
        client.register(query_from_json({"id": "later", **query}, "s"), start_ms=start_ms)
        assert not client.get("now").start_given
        token, number = "", 0
        with client.publisher(PublishFlow(linger_ms=1)) as publisher:
            while time.time() * 1_000 < start_ms + 500:
                number += 1
                publisher.publish({"id": number, "lon": 1.0, "lat": 1.0})
                time.sleep(0.02)
            token = publisher.flush().position_token
        for each in receiver.until(client.await_processed(token, timeout_s=TIMEOUT_S)):
            assert isinstance(each, Notification)
            arrivals[each.query][each.object.id] = each.arrival_ms
        with pytest.raises(InvalidArgument, match="start_ms"):
            client.register(query_from_json({"id": "no", **query}, "s"), start_ms=1 << 60)

    # check
    assert len(arrivals["now"]) == number
    later = {one: at_ms for one, at_ms in arrivals["now"].items() if at_ms >= start_ms}
    assert arrivals["later"] == later
    assert 0 < len(later) < number
