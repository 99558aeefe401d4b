"""Notifications and searches while slots change hands; one JSON object a phase.

usage: python benchmarks/bench_slot_move.py [--objects N] [--queries Q] [--rate R] [--seconds S]

All services are processes of this machine, with a real Kafka and Redis: one router, one merger, two
evaluators, 16 slots. N objects of the clustered workload are stored first (10 words an object), and
their slices are in the archive. Then R objects a second arrive, and these phases follow, each until
S seconds after the last slot has moved:

    steady      nothing changes
    2 to 3      another evaluator joins, and slots move to it
    3 to 2      it gets SIGTERM: its slots are handed over
    killed      an evaluator is killed with SIGKILL; a lease is 4 s long

`notified_ms` are the times from when an object was due until its notification was here. `search_ms`
are those of searches of all slots for a word that no object has, one after the other.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sirocco_api.v1.columns_pb2 import ObjectColumns as ObjectsMessage
from sirocco_client import Client, RangeQuery, Rectangle, SiroccoError, query_from_json

from sirocco.codec.columns import put_objects
from sirocco.loadgen.clusters import ClusteredShape, ClusteredWorkload
from sirocco.loadgen.latency import LatencyHistogram, SendTimes
from sirocco.loadgen.pace import Pace
from sirocco.loadgen.receiver import Receiver
from sirocco.local.cluster import LocalCluster, LocalClusterSettings
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from sirocco.protocol.contract.messages import SLOTS

SEED = 20260101
BATCH = 4_096
COUNTS = {"coordinator": 1, "merger": 1, "evaluator": 2, "router": 1}
# Checkpoints of all slots, and then some.
ARCHIVED_S = 40
SEARCH_S = 10.0
SEARCH_PAUSE_S = 0.05
LOOK_S = 0.2


def main(arguments: list[str] | None = None) -> int:
    """Prints the figures; returns the exit status."""
    args = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        kafka, redis = KafkaServer(place / "kafka"), RedisServer(place / "redis")
        kafka.start()
        redis.start()
        settings = LocalClusterSettings(
            cluster="bench",
            kafka=kafka.address,
            redis=redis.url,
            archive=str(place / "archive"),
            counts=COUNTS,
        )
        try:
            with LocalCluster(place / "run", settings) as cluster:
                for figures in run(cluster, args):
                    print(json.dumps(figures), flush=True)
        finally:
            redis.stop()
            kafka.stop()
    return 0


def run(cluster: LocalCluster, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields the figures of each phase."""
    workload = ClusteredWorkload(args.seed, ClusteredShape())
    with Client(cluster.router_addresses[0]) as client:
        begin_s = time.monotonic()
        _fill(client, workload, args.objects)
        yield {"phase": "filled", "objects": args.objects, "s": _since(begin_s)}
        queries = [query_from_json(each, "bench") for each in workload.queries(args.queries)]
        for result in client.register_many(queries):
            if result.error is not None:
                raise result.error
        time.sleep(ARCHIVED_S)
        load = _Load(client, workload, args.rate)
        victim = "evaluator-0"
        # Phase → the change, and how many evaluators own slots after it.
        phases: dict[str, tuple[Callable[[], None], int]] = {
            "warm-up": (lambda: None, 2),
            "steady": (lambda: None, 2),
            "2 to 3": (lambda: cluster.scale("evaluator", 3), 3),
            "3 to 2": (lambda: cluster.scale("evaluator", 2), 2),
            "killed": (lambda: cluster.kill(victim), 2),
        }
        try:
            for name, (change, owners) in phases.items():
                figures = load.phase(change, owners, args.seconds)
                if name != "warm-up":
                    yield {"phase": name, **figures}
        finally:
            load.stop()


class _Load:
    """A stream of objects at a rate, its notifications, and searches one after the other."""

    def __init__(self, client: Client, workload: ClusteredWorkload, rate: float) -> None:
        self._client = client
        self._workload = workload
        self._rate = rate
        self._stopping = threading.Event()
        self._failures: list[BaseException] = []
        self._sent = SendTimes()
        self._receiver = Receiver(
            client.subscribe("bench", credit=1_000_000), self._sent, lambda _: None
        )
        self._receiver.start()
        self._searches = LatencyHistogram()
        self._threads = [
            threading.Thread(target=self._watched, args=(work,), daemon=True)
            for work in (self._publish, self._search)
        ]
        for thread in self._threads:
            thread.start()

    def phase(self, change: Callable[[], None], owners: int, seconds: float) -> dict[str, Any]:
        """Makes a change under load; returns the figures until some seconds after the moves."""
        self._receiver.latency, self._searches = LatencyHistogram(), LatencyHistogram()
        before, begin_s = self._receiver.notifications, time.monotonic()
        change()
        while self._owners() != owners:
            time.sleep(LOOK_S)
        changed_s = _since(begin_s)
        time.sleep(seconds)
        self._receiver.check()
        for failure in self._failures:
            raise failure
        return {
            "seconds": _since(begin_s),
            "moved_s": changed_s,
            "notifications": self._receiver.notifications - before,
            "notified_ms": self._receiver.latency.summary_ms(),
            "search_ms": self._searches.summary_ms(),
        }

    def stop(self) -> None:
        """Ends the stream."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._receiver.stop()

    def _owners(self) -> int:
        ownerships = self._client.describe().ownerships
        return len({each.member for each in ownerships if each.topic == SLOTS})

    def _watched(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._failures.append(error)

    def _publish(self) -> None:
        pace, number = Pace(self._rate), 1
        rows = pace_rows(self._rate)
        with self._client.publisher() as publisher:
            for batch in self._workload.objects(1 << 40, rows):
                if self._stopping.is_set():
                    break
                due_s = pace.wait(len(batch))
                message = ObjectsMessage()
                put_objects(message, batch)
                self._sent.add(number, due_s)
                publisher.publish_columns(message)
                number += len(batch)

    def _search(self) -> None:
        # All slots are asked, and have nothing to send.
        world = Rectangle(west=-180, south=-90, east=180, north=90)
        query = RangeQuery(id="s", subscriber="", mode="snapshot", region=world, text="absent")
        while not self._stopping.wait(SEARCH_PAUSE_S):
            begin_s = time.monotonic()
            while not self._stopping.is_set():
                try:
                    self._client.search(query, timeout_s=SEARCH_S)
                    break
                except SiroccoError:
                    continue
            self._searches.add(np.array([(time.monotonic() - begin_s) * 1_000]))


def pace_rows(rate: float) -> int:
    """Objects of a batch: twenty batches a second."""
    return max(1, int(rate / 20))


def _fill(client: Client, workload: ClusteredWorkload, count: int) -> None:
    with client.publisher() as publisher:
        for batch in workload.objects(count, BATCH):
            message = ObjectsMessage()
            put_objects(message, batch)
            publisher.publish_columns(message)
        result = publisher.flush()
    client.await_processed(result.position_token, timeout_s=600)


def _since(begin_s: float) -> float:
    return round(time.monotonic() - begin_s, 2)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=6_000_000, help="stored objects")
    parser.add_argument("--queries", type=int, default=10_000, help="standing queries")
    parser.add_argument("--rate", type=float, default=3_000.0, help="objects a second")
    parser.add_argument("--seconds", type=float, default=25.0, help="of each phase")
    parser.add_argument("--seed", type=int, default=SEED, help="of the workload")
    return parser


if __name__ == "__main__":
    sys.exit(main())
