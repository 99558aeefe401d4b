"""Measures a running cluster under a steady load: times of acknowledgements and notifications.

Objects of the clustered workload are published at a rate; notifications are timed from when their
objects were due, also if publishing is delayed. In parallel a probe publishes a small batch at a
time and waits for its acknowledgement, as a user would. The probe's objects have no text and match
nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sirocco_api.v1.columns_pb2 import ObjectColumns as ObjectsMessage
from sirocco_client import Client, query_from_json
from sirocco_client.queries.query import Query

from sirocco.codec.columns import put_objects
from sirocco.loadgen.clusters import ClusteredShape, ClusteredWorkload
from sirocco.loadgen.latency import LatencyHistogram, SendTimes
from sirocco.loadgen.pace import Pace
from sirocco.loadgen.receiver import Receiver

_PROBE_OBJECTS = 100
# Ten probes a second are 1,000 objects, little compared with any load worth measuring.
_PROBE_INTERVAL_S = 0.1
# Kernels and caches are cold at first, and senders adapt their pace.
_WARM_UP_S = 3.0
# Longer than the rest of the reception; then the queries expire by themselves.
_QUERIES_OUTLIVE_S = 120


@dataclass(frozen=True, slots=True)
class Load:
    """The load.

    Attributes:
        objects_per_s: Rate of objects.
        seconds: Duration of the measurement, after the warm-up.
        queries: Standing queries.
        batch_objects: Objects of one publish.
        seed: Of the workload.
    """

    objects_per_s: float
    seconds: float = 20.0
    queries: int = 10_000
    batch_objects: int = 1_000
    seed: int = 1


def measure(client: Client, load: Load) -> dict[str, Any]:
    """Registers, publishes at the rate, and returns the figures.

    Returns:
        `objects`, `seconds`, `objects_per_s` (reached), `notifications`, `acknowledged_ms` and
        `notified_ms` with p50, p95, p99 and max.

    Raises:
        SiroccoError: The cluster cannot be reached, or refuses a request.
    """
    workload = ClusteredWorkload(load.seed, ClusteredShape())
    # A new one: queries of an earlier measurement live on for a while, and match these objects,
    # too.
    subscriber = f"loadgen-{time.time_ns()}"
    for result in client.register_many(_queries(workload, load, subscriber)):
        if result.error is not None:
            raise result.error
    sent = SendTimes()
    receiver = Receiver(client.subscribe(subscriber, credit=1_000_000), sent, lambda _: None)
    receiver.start()
    probe = _Probe(client)
    try:
        figures = _publish(client, workload, load, sent, receiver, probe)
    finally:
        probe.stop()
        receiver.stop()
    return figures | {
        "notifications": receiver.notifications,
        "acknowledged_ms": probe.latency.summary_ms(),
        "notified_ms": receiver.latency.summary_ms(),
    }


def _queries(workload: ClusteredWorkload, load: Load, subscriber: str) -> Iterator[Query]:
    ttl_s = int(load.seconds + _WARM_UP_S + _QUERIES_OUTLIVE_S)
    for members in workload.queries(load.queries):
        named = members | {"id": f"{subscriber}-{members['id']}", "ttl": f"{ttl_s}s"}
        yield query_from_json(named, subscriber)


def _publish(
    client: Client,
    workload: ClusteredWorkload,
    load: Load,
    sent: SendTimes,
    receiver: Receiver,
    probe: _Probe,
) -> dict[str, Any]:
    pace = Pace(load.objects_per_s)
    rows = min(load.batch_objects, pace.batch_rows(load.batch_objects))
    total = int(load.objects_per_s * (_WARM_UP_S + load.seconds))
    number, begin_number, begin_s = 1, 1, 0.0
    start_s = time.monotonic()
    with client.publisher() as publisher:
        probe.start()
        for batch in workload.objects(total, rows):
            due_s = pace.wait(len(batch))
            now_s = time.monotonic()
            if not begin_s and now_s - start_s >= _WARM_UP_S:
                begin_number, begin_s = number, now_s
                receiver.latency, probe.latency = LatencyHistogram(), LatencyHistogram()
            message = ObjectsMessage()
            put_objects(message, batch)
            sent.add(number, due_s)
            publisher.publish_columns(message)
            number += len(batch)
            receiver.check()
            probe.check()
        result = publisher.flush()
        seconds = time.monotonic() - begin_s
        cursors = client.await_processed(result.position_token, timeout_s=_QUERIES_OUTLIVE_S)
        receiver.await_cursors(cursors, _QUERIES_OUTLIVE_S)
    objects = number - begin_number
    return {
        "objects": objects,
        "seconds": round(seconds, 3),
        "objects_per_s": round(objects / seconds, 1),
    }


class _Probe:
    """Publishes small batches one by one and measures until they are acknowledged."""

    def __init__(self, client: Client) -> None:
        self.latency = LatencyHistogram()
        self._client = client
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        objects = [{"id": i, "lon": 0.0, "lat": 0.0} for i in range(_PROBE_OBJECTS)]
        try:
            with self._client.publisher() as publisher:
                while not self._stopping.wait(_PROBE_INTERVAL_S):
                    begin_s = time.monotonic()
                    publisher.publish_many(objects)
                    publisher.flush()
                    self.latency.add(np.array([(time.monotonic() - begin_s) * 1000]))
        except Exception as error:
            self._failure = error
