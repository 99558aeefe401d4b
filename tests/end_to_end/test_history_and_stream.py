"""A registration in the middle of a stream with history gets what the first registrations got.

A registration that begins with the first object and asks for all of the past must get, in one call,
exactly what it would have got before the first object: no gap between the past and the stream, and
nothing twice. So the oracle is that of queries that were there from the beginning; standing terms
and ranked queries report their first list at once, at their begin.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from sirocco_client import (
    Client,
    Ended,
    KnnChange,
    ListChange,
    NotificationBatch,
    PublishFlow,
    TermsStep,
    query_from_json,
)

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.end_to_end.moving_vehicles import moving_vehicles
from tests.end_to_end.random_queries import random_queries_of_all_kinds
from tests.oracle import agrees, arrivals_ms

SEED = 20261122
SUBSCRIBER = "late"
START_MS = 1_700_000_000_000
SPEED = 50
OBJECTS = 3_000
QUERIES = 160
TIMEOUT_S = 300.0

# So that registrations fall between objects, and none before the first or after the last.
BATCH = 20
PAUSE_S = 0.01


class Publishing(threading.Thread):
    """Publishes objects a few at a time."""

    def __init__(self, client: Client, objects: list[dict[str, Any]]) -> None:
        super().__init__(daemon=True)
        self._client, self._objects = client, objects
        self.published = 0
        self.token = ""

    def run(self) -> None:
        """Publishes until all are acknowledged."""
        with self._client.publisher(PublishFlow(linger_ms=1)) as publisher:
            for begin in range(0, len(self._objects), BATCH):
                publisher.publish_many(self._objects[begin : begin + BATCH])
                self.published = begin + BATCH
                time.sleep(PAUSE_S)
            self.token = publisher.flush().position_token

    def await_share(self, share: float) -> None:
        """Waits until that share of the objects was published."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while self.published < share * len(self._objects):
            assert time.monotonic() < deadline_s
            time.sleep(PAUSE_S / 4)


@pytest.mark.parametrize("evaluators", [1, 4])
def test_the_past_and_the_stream_are_one(evaluators: int) -> None:
    # init
    objects = moving_vehicles(OBJECTS, SEED)
    for one in objects:
        # Half an hour within some tens of seconds: the stream does not wait for slow registrations.
        one["ts"] = None if one["ts"] is None else START_MS + (one["ts"] - START_MS) // SPEED
    queries = [
        {name: value for name, value in query.items() if name != "ttl"}
        for query in random_queries_of_all_kinds(objects, 2 * QUERIES, SEED)
        if query["mode"] == "continuous"
    ]
    start_ms = arrivals_ms(objects)[0]
    settings = ClusterSettings(
        cluster="past", slots=8, leaves=16, event_time=True, intake_partitions=1, retention_ms=None
    )

    # test: some before the first object, most while objects arrive, some after the last.
    with (
        EmbeddedCluster(settings, evaluators=evaluators, routers=1) as cluster,
        Client(cluster.router_address) as client,
    ):
        receiver = Receiver(client)
        publishing = Publishing(client, objects)
        for number, query in enumerate(queries):
            if number == 5:
                publishing.start()
            publishing.await_share(0.9 * (number - 5) / len(queries))
            if number == len(queries) - 5:
                publishing.join(TIMEOUT_S)
            client.register(query_from_json(query, SUBSCRIBER), start_ms=start_ms, past="all")
        token = client.advance_time(arrivals_ms(objects)[-1] + 1)
        lines = receiver.until(client.await_processed(token, timeout_s=TIMEOUT_S))

    # check: without the lists that are reported at once.
    lines = [line for line in lines if line.get("at") != start_ms]
    wrong = agrees(lines, objects, queries)
    assert not wrong, f"seed {SEED}, {len(wrong)} differences:\n" + "\n".join(wrong[:10])
    assert {line["query"].rsplit("-", 1)[0] for line in lines} == {
        f"{kind}-continuous" for kind in ("range", "knn", "terms", "ranked")
    }


class Receiver(threading.Thread):
    """Receives all notifications of the subscriber, as lines of results."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self._subscription = client.subscribe(SUBSCRIBER)
        self._subscription.open()
        self._lines: list[dict[str, Any]] = []
        self.start()

    def run(self) -> None:
        """Receives until the subscription is closed."""
        for batch in self._subscription.batches():
            self._lines += lines_of(batch)

    def until(self, ends: tuple[str, ...]) -> list[dict[str, Any]]:
        """Returns the lines of all notifications before the end of the subscriber's partition."""
        deadline_s = time.monotonic() + TIMEOUT_S
        cursors = dict(end.split(".") for end in ends)
        while True:
            # The cursor also moves on without a notification.
            partition, _, offset = self._subscription.cursor.partition(".")
            if int(offset) >= int(cursors[partition]):
                break
            assert time.monotonic() < deadline_s, f"{self._subscription.cursor} of {ends}"
            time.sleep(PAUSE_S)
        self._subscription.close()
        self.join(TIMEOUT_S)
        return self._lines


def lines_of(batch: NotificationBatch) -> Iterator[dict[str, Any]]:
    """Yields the notifications of a batch, as `sirocco replay` writes them."""
    changes = zip(batch.pairs(), batch.match_changes, batch.match_tracks, strict=True)
    for (query, one), change, value in changes:
        line = {"query": query, "object": one}
        yield line if change == "match" else line | {"event": change, "track": value}
    for each in batch.lists:
        yield line_of(each)


def line_of(step: ListChange) -> dict[str, Any]:
    """Returns the line of a list."""
    if isinstance(step, TermsStep):
        return {"query": step.query, "terms": step.terms, "at": step.at_ms}
    assert not isinstance(step, Ended)
    objects, figures = [one for one, _ in step.entries], [figure for _, figure in step.entries]
    if isinstance(step, KnnChange):
        moves = {"added": [one.id for one in step.added], "removed": list(step.removed)}
        return {"query": step.query, **moves, "objects": objects, "distance_m": figures}
    return {"query": step.query, "objects": objects, "score": figures, "at": step.at_ms}
