"""Records the state that a cluster of the checked-out version leaves: its bytes and notifications.

`test_former_states.py` continues from there with the present code. To add a version:

    git worktree add /tmp/former REVISION
    cd /tmp && PYTHONPATH=/tmp/former:/tmp/former/sdk PYTHON THIS_FILE REVISION DIRECTORY

The cluster is the embedded one, on event time: its records and blobs are those of Kafka and Redis.
It writes two files: `REVISION-killed` is the content of log and archive at one instant of work,
with checkpoints of different ages; `REVISION-drained` is the content after an orderly end.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import lzma
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sirocco_client import Client, PublishFlow, query_from_json

from sirocco.index.store.store import StoreLimits
from sirocco.protocol.evaluator.limits import EvaluatorLimits
from sirocco.protocol.merger.limits import MergerLimits
from sirocco.protocol.router.limits import RouterLimits
from sirocco.runtime.limits import ProcessLimits
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.end_to_end.moving_vehicles import moving_vehicles
from tests.end_to_end.random_queries import random_queries_of_all_kinds
from tests.end_to_end.test_history_and_stream import lines_of
from tests.oracle import arrivals_ms

SEED = 20261125
OBJECTS = 800
# Number of the objects that are published to the former version.
FORMER = 480
# The last of these are published without a pause.
AT_ONCE = 80
SUBSCRIBER = "acme:späher"
INTERVAL_MS = 400
TIMEOUT_S = 300.0
BATCH = 20

SETTINGS = ClusterSettings(
    cluster="former",
    slots=4,
    leaves=8,
    event_time=True,
    intake_partitions=1,
    registry_partitions=2,
    retention_ms=None,
)
# Number of random queries for each version; those of the present version also ask for the past.
RANDOM_QUERIES = 36

# Features that random queries lack: ids and words beyond ASCII, names of tenants, alternatives.
OWN: tuple[dict[str, Any], ...] = (
    {"id": "acme:café", "text": "café OR zürich"},
    {"id": "zürich 火事", "text": "(bus AND late) OR (tram AND NOT full) OR गाड़ी", "ttl": "30d"},
    {"id": "acme:open", "text": "door OR stop", "where": {"status": {"in": ["open", "closed"]}}},
    {"id": "everything"},
    {"id": "changed", "text": "rain"},
    {"id": "removed", "text": "bus"},
    {"id": "acme:orders", "text": "full"},
    {"id": "near fire", "kind": "knn", "point": {"lon": 180, "lat": -17}, "k": 5, "text": "fire"},
    {"id": "of fire", "kind": "terms", "text": "fire", "k": 5, "window": "5m", "step": "20s"},
    {
        **{"id": "best of fire", "kind": "ranked", "keywords": ["fire"], "k": 3},
        **{"point": {"lon": 180, "lat": -17}, "radius_m": 30_000, "window": "5m", "step": "20s"},
    },
    {"id": "in fire", "track": "vehicle", "text": "fire"},
    {"id": "acme:inside", "track": "vehicle", "events": ["enter", "inside", "exit"]},
)
FORMER_QUERIES = RANDOM_QUERIES + len(OWN)

# Another word with the same hash, which only objects of the second part hold.
FIRE = "fire", "86hrb2a0cvys5z8tqd69pz18biwis6n489fac7lkuzqqx71bef6v9klq9u8tnkry"

_CITY = {"rect": {"west": 179.9, "south": -17.1, "east": -179.95, "north": -16.95}}


def story() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Returns all objects, and all queries: the former ones first."""
    objects = moving_vehicles(OBJECTS, SEED)
    for number, one in enumerate(objects):
        if number % 9 == 0:
            one["text"] += " Café" if number % 2 else " cafe\u0301 café-bar"
        if number % 40 == 7:
            one["id"] = f"объект é {number}"
    # A ranked query with history gets the list at its begin, and later differences.
    objects[0]["text"] = ""
    arrivals = arrivals_ms(objects)
    queries = [
        query
        for query in random_queries_of_all_kinds(objects, 3 * RANDOM_QUERIES, SEED, track="vehicle")
        if query["mode"] == "continuous"
    ]
    for number, one in enumerate(objects):
        if number % 5 == 3:
            one["text"] += f" {FIRE[number >= FORMER and number % 2]}"
    for query in queries:
        if "track" in query and "ttl" in query:
            # Ends under the present version, which reports the ends of tracked queries.
            query["ttl"] = f"{int(0.8 * (arrivals[-1] - arrivals[0]))}ms"
    own = [{"kind": "range", "mode": "continuous"} | one for one in OWN]
    for one in own:
        if "track" in one or "ttl" in one:
            one["region"] = _CITY
    return objects, own + queries


# Checkpoints are taken as often as in days of work.
LIMITS = ProcessLimits(
    router=RouterLimits(checkpoint_interval_ms=INTERVAL_MS),
    evaluator=EvaluatorLimits(checkpoint_interval_ms=INTERVAL_MS),
    merger=MergerLimits(
        checkpoint_interval_ms=INTERVAL_MS, quiet_checkpoint_interval_ms=INTERVAL_MS
    ),
)


def hasten() -> None:
    """Makes this process seal slices as often as in days of work."""
    defaults: Any = StoreLimits.__init__.__kwdefaults__
    defaults.update(active_rows=40, slices=4, slice_rows=160)


class Receiver(threading.Thread):
    """The notifications of a subscriber, and its cursor."""

    def __init__(
        self, client: Client, cursor: str | None = None, subscriber: str = SUBSCRIBER
    ) -> None:
        super().__init__(daemon=True)
        self._subscription = client.subscribe(subscriber, cursor)
        self._subscription.open()
        self._lock = threading.Lock()
        self._lines: list[dict[str, Any]] = []
        self._cursor = self._subscription.cursor
        self.start()

    def run(self) -> None:
        """Receives until the subscription is closed."""
        for batch in self._subscription.batches():
            with self._lock:
                self._lines += lines_of(batch)
                self._cursor = batch.cursor

    def now(self) -> dict[str, Any]:
        """Returns all notifications so far."""
        with self._lock:
            return {"lines": list(self._lines), "cursor": self._cursor}

    def until(self, ends: Sequence[str]) -> dict[str, Any]:
        """Returns all notifications before the end of the subscriber's Kafka partition."""
        partition, _, _ = self._subscription.cursor.partition(".")
        end = next(end for end in ends if end.partition(".")[0] == partition)
        deadline_s = time.monotonic() + TIMEOUT_S
        while int(self._subscription.cursor.partition(".")[2]) < int(end.partition(".")[2]):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        cursor = self._subscription.cursor
        self._subscription.close()
        self.join(TIMEOUT_S)
        return self.now() | {"cursor": cursor}


def state_of(cluster: EmbeddedCluster) -> dict[str, Any]:
    """Returns all bytes of the log, at one instant, and the blobs that they name."""
    log = cluster.log
    with log.lock:
        topics: dict[str, list[list[Any]]] = {
            name: [[each.low, each.stable, list(each.records)] for each in partitions]
            for name, partitions in log._topics.items()
        }
    archive = cluster._parts.archive
    blobs = {name: archive.read(name) for name in archive.list("")}
    return {
        "topics": {
            name: [
                {"low": low, "records": [_record(one) for one in records[: stable - low]]}
                for low, stable, records in partitions
            ]
            for name, partitions in topics.items()
        },
        "blobs": {name: _text(contents) for name, contents in blobs.items()},
    }


def _record(record: Any) -> Any:
    if record is None:
        return None
    headers = [[name, _text(value)] for name, value in record.headers]
    return [record.timestamp_ms, _text(record.key), _text(record.value), headers]


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def publish(client: Client, objects: Sequence[dict[str, Any]], pause_s: float) -> str:
    """Publishes a few at a time; returns a token of the position after them."""
    with client.publisher(PublishFlow(linger_ms=1)) as publisher:
        for begin in range(0, len(objects), BATCH):
            publisher.publish_many(objects[begin : begin + BATCH])
            time.sleep(pause_s)
        return publisher.flush().position_token


def main(revision: str, directory: Path) -> None:
    """Plays the first part of the story, and writes both files."""
    objects, queries = story()
    arrivals = arrivals_ms(objects)
    former = queries[:FORMER_QUERIES]
    hasten()
    with (
        EmbeddedCluster(SETTINGS, evaluators=2, routers=2, limits=LIMITS) as cluster,
        Client(cluster.router_address, timeout_s=TIMEOUT_S) as client,
    ):
        receiver = Receiver(client)
        for query in former:
            client.register(query_from_json(query, SUBSCRIBER), start_ms=arrivals[0])
        publish(client, objects[: FORMER - AT_ONCE], 0.1)
        token = publish(client, objects[FORMER - AT_ONCE : FORMER], 0.0)
        # The last objects are not all processed. The subscriber is a little late, too.
        killed = receiver.now() | state_of(cluster)
        drained = receiver.until(client.await_processed(token, timeout_s=TIMEOUT_S))
    drained |= state_of(cluster)
    known = {
        "settings": {
            field.name: value
            for field in dataclasses.fields(SETTINGS)
            if isinstance(value := getattr(SETTINGS, field.name), int | str | float | None)
        },
        "subscriber": SUBSCRIBER,
        "objects": objects,
        "former_objects": FORMER,
        "queries": queries,
        "former_queries": FORMER_QUERIES,
    }
    for name, state in (("killed", killed), ("drained", drained)):
        text = json.dumps(known | state, ensure_ascii=False)
        path = directory / f"{revision}-{name}.json.xz"
        path.write_bytes(lzma.compress(text.encode(), preset=9))
        print(path, len(text), path.stat().st_size, len(state["lines"]), state["cursor"])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
