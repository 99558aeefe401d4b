"""The whole way on this machine's cores, from publishing to notifications held by a client.

usage: python benchmarks/bench_pipeline.py [--log memory|kafka|all] [--queries N …]
                                                 [--objects N] [--seconds S] [--cases CASE …]
                                                 [--rate N] [--store on|off] [--slots N]

The workload is the clustered one of `loadgen` (10 words an object, 1 to 3 a query, small regions).
Objects are columns beforehand, so that the client only has to send them; it runs on the same
cores as everything else. Without --slots there are as many as in `sirocco local`. Cases, each on a
cluster of its own with one process of each service:

    throughput  all objects as fast as they are taken; until the last notification is received
    paced       70 % of that rate: acknowledgement and notification latency, from when objects
                were due; `objects_per_s` is the rate reached
    at rate     the same at --rate objects a second
    trickle     20,000 objects a second in publishes of 100: cores that the services use
    idle        no work: cores that the services use

Work left by one case (the archive has its objects within 15 s) is finished before the next begins;
a paced case lasts long enough to include its own share of such work.

`evaluator_bytes_per_query` is the growth of the evaluator's process by the registrations
(memory: everything, in one process, the registry's log included).
`cpu_us` is CPU time in microseconds per object (memory: everything, in one process; Kafka: without
the client), `cores` is CPU time by wall time.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import grpc
import numpy as np
from sirocco_api.v1 import cluster_service_pb2 as cluster_pb
from sirocco_api.v1.cluster_service_pb2_grpc import ClusterServiceStub
from sirocco_api.v1.publish_service_pb2 import PublishRequest
from sirocco_api.v1.publish_service_pb2_grpc import PublishServiceStub
from sirocco_client import Client, Subscription, query_from_json

from sirocco.codec.columns import put_objects
from sirocco.loadgen.clusters import ClusteredWorkload
from sirocco.loadgen.latency import LatencyHistogram, SendTimes
from sirocco.local.cluster import LocalCluster, LocalClusterSettings
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from sirocco.local.usage import usage_of
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster

SEED = 20260101
BATCH = 1_000
SUBSCRIBER = "bench"
WARM_UP_OBJECTS = 20_000

# Longer than the time between two checkpoints of a slot.
SETTLING_S = 20.0


class Cluster(Protocol):
    """The measured cluster."""

    router: str

    def cpu_seconds(self) -> dict[str, float]:
        """Returns the CPU time so far by process."""

    def evaluator_bytes(self) -> int:
        """Returns the resident memory of the process that holds the queries."""


class MemoryCluster:
    """Everything in this process, the client included."""

    def __init__(self, stack: ExitStack, *, store: bool, slots: int) -> None:
        settings = ClusterSettings(slots=slots, store=store)
        embedded = stack.enter_context(EmbeddedCluster(settings))
        self.router = embedded.router_address

    def cpu_seconds(self) -> dict[str, float]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {"all": used.ru_utime + used.ru_stime}

    def evaluator_bytes(self) -> int:
        return resident_bytes(os.getpid())


class KafkaCluster:
    """Four processes, a broker and Redis."""

    def __init__(self, stack: ExitStack, *, store: bool, slots: int) -> None:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self._kafka, redis = KafkaServer(directory), RedisServer(directory)
        self._kafka.start()
        stack.callback(self._kafka.stop)
        redis.start()
        stack.callback(redis.stop)
        settings = LocalClusterSettings(
            cluster="bench",
            kafka=self._kafka.address,
            redis=redis.url,
            archive=str(directory / "archive"),
            counts={"router": 1, "evaluator": 1, "merger": 1, "coordinator": 1},
            options={"SIROCCO_SLOTS": str(slots), "SIROCCO_STORE": "on" if store else "off"},
        )
        self._cluster = stack.enter_context(LocalCluster(directory, settings))
        (self.router,) = self._cluster.router_addresses

    def cpu_seconds(self) -> dict[str, float]:
        seconds = {one.service: one.usage().cpu_seconds for one in self._cluster.processes}
        broker = self._kafka.process.pid
        assert broker is not None
        return {**seconds, "kafka": usage_of(broker).cpu_seconds}

    def evaluator_bytes(self) -> int:
        (evaluator,) = (one for one in self._cluster.processes if one.service == "evaluator")
        assert evaluator.process.pid is not None
        return resident_bytes(evaluator.process.pid)


def resident_bytes(pid: int) -> int:
    """Returns the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


@dataclass(kw_only=True)
class Bench:
    """One cluster with its queries registered and its subscriber reading."""

    cluster: Cluster
    client: Client
    subscription: Subscription
    queries: int
    registered_per_s: float
    bytes_per_query: float
    matches: int = 0
    sent_s: float = 0.0
    last_s: float = 0.0
    sent: SendTimes = field(default_factory=SendTimes)
    notified: LatencyHistogram = field(default_factory=LatencyHistogram)
    acknowledged: LatencyHistogram = field(default_factory=LatencyHistogram)
    next_number: int = 1

    def receive(self) -> None:
        """Counts notifications until the subscription is closed."""
        for batch in self.subscription.batches():
            now_s = time.monotonic()
            if not len(batch):
                continue
            self.matches += len(batch)
            self.last_s = now_s
            numbers = np.frombuffer(batch.numbers, np.uint64)
            rows = np.frombuffer(batch.match_objects, np.uint32)
            self.notified.add(self.sent.durations_ms(numbers[rows], now_s))

    def publish(self, batches: list[Any], rate: float | None) -> float:
        """Publishes batches, at a rate of objects a second if given; returns when they began.

        Latencies count from when a batch was due, so that delays of the stream are included.
        """
        flight: queue.Queue[tuple[int, float]] = queue.Queue(64)

        def requests() -> Iterator[PublishRequest]:
            done = 0
            for columns in batches:
                due_s = time.monotonic() if rate is None else begin_s + done / rate
                time.sleep(max(0.0, due_s - time.monotonic()))
                request = PublishRequest(
                    session=SEED, first_number=self.next_number, objects=columns
                )
                self.sent.add(self.next_number, due_s)
                self.next_number += columns.count
                done += columns.count
                # Bounded, like the SDK's window: a stream that is ahead waits here.
                flight.put((self.next_number - 1, due_s))
                yield request
            self.sent_s = time.monotonic()

        with grpc.insecure_channel(self.cluster.router) as channel:
            grpc.channel_ready_future(channel).result(timeout=30)
            begin_s = time.monotonic()
            oldest = None
            for response in PublishServiceStub(channel).Publish(requests()):
                now_s = time.monotonic()
                durations = []
                while True:
                    if oldest is None:
                        if flight.empty():
                            break
                        oldest = flight.get()
                    if oldest[0] > response.acknowledged_to:
                        break
                    durations.append((now_s - oldest[1]) * 1_000)
                    oldest = None
                self.acknowledged.add(np.array(durations))
            assert not response.rejections
            wanted = cluster_pb.AwaitProcessedRequest(position_token=response.position_token)
            ends = ClusterServiceStub(channel).AwaitProcessed(wanted, timeout=300).cursors
        self._await(ends)
        return begin_s

    def _await(self, ends: Any) -> None:
        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            partition, _, offset = self.subscription.cursor.partition(".")
            end = next(end for end in ends if end.startswith(f"{partition}."))
            if int(offset) >= int(end.partition(".")[2]):
                return
            time.sleep(0.01)
        raise TimeoutError("the subscriber did not get everything")


@contextmanager
def bench(kind: str, queries: int, *, store: bool, slots: int) -> Iterator[Bench]:
    """Returns a cluster with queries, ready and warm."""
    workload = ClusteredWorkload(SEED)
    with ExitStack() as stack:
        made = MemoryCluster if kind == "memory" else KafkaCluster
        cluster: Cluster = made(stack, store=store, slots=slots)
        client = stack.enter_context(Client(cluster.router))
        subscription = stack.enter_context(client.subscribe(SUBSCRIBER, credit=1_000_000))
        subscription.open()
        wanted = [query_from_json(query, SUBSCRIBER) for query in workload.queries(queries)]
        before = cluster.evaluator_bytes()
        begin_s = time.monotonic()
        for result in client.register_many(wanted):
            assert result.error is None, result.error
        rate = queries / max(1e-9, time.monotonic() - begin_s)
        del wanted
        each = (cluster.evaluator_bytes() - before) / queries
        one = Bench(
            cluster=cluster,
            client=client,
            subscription=subscription,
            queries=queries,
            registered_per_s=rate,
            bytes_per_query=each,
        )
        threading.Thread(target=one.receive, daemon=True).start()
        one.publish(columns_of(workload, WARM_UP_OBJECTS, BATCH), None)
        yield one


def columns_of(workload: ClusteredWorkload, count: int, batch: int) -> list[Any]:
    """Returns objects as wire columns, `batch` in each."""
    made = []
    for objects in workload.objects(count):
        for begin in range(0, len(objects), batch):
            request = PublishRequest()
            put_objects(request.objects, objects.slice(begin, min(begin + batch, len(objects))))
            made.append(request.objects)
    return made


@contextmanager
def used_cpu(cluster: Cluster, into: dict[str, float]) -> Iterator[None]:
    """Adds up the CPU seconds of each process while the context is open."""
    before = cluster.cpu_seconds()
    yield
    into.update({name: total - before[name] for name, total in cluster.cpu_seconds().items()})


def throughput(one: Bench, kind: str, objects: int) -> float:
    """Prints the row of the case; returns objects a second."""
    batches = columns_of(ClusteredWorkload(SEED), objects, BATCH)
    matches = one.matches
    cpu: dict[str, float] = {}
    with used_cpu(one.cluster, cpu):
        begin_s = one.publish(batches, None)
        end_s = one.last_s
    assert one.matches > matches, "without a notification nothing was measured"
    rate = objects / (end_s - begin_s)
    say(
        case="throughput",
        log=kind,
        queries=one.queries,
        objects=objects,
        objects_per_s=round(rate),
        matches=one.matches - matches,
        registered_per_s=round(one.registered_per_s),
        evaluator_bytes_per_query=round(one.bytes_per_query),
        **{f"cpu_us_{name}": round(used / objects * 1e6, 2) for name, used in cpu.items()},
    )
    return rate


def paced(one: Bench, kind: str, rate: float, seconds: float, batch: int, case: str) -> None:
    """Prints the row of a case with a fixed rate."""
    batches = columns_of(ClusteredWorkload(SEED), int(rate * seconds), batch)
    time.sleep(SETTLING_S)
    one.notified, one.acknowledged = LatencyHistogram(), LatencyHistogram()
    cpu: dict[str, float] = {}
    with used_cpu(one.cluster, cpu):
        begin_s = one.publish(batches, rate)
        wall_s = time.monotonic() - begin_s
        sent_s = one.sent_s - begin_s
    ack, reported = one.acknowledged.summary_ms(), one.notified.summary_ms()
    say(
        case=case,
        log=kind,
        queries=one.queries,
        objects_per_s=round(rate * seconds / sent_s),
        batch=batch,
        ack_ms_p50=ack["p50"],
        ack_ms_p99=ack["p99"],
        notification_ms_p50=reported["p50"],
        notification_ms_p99=reported["p99"],
        **{f"cores_{name}": round(used / wall_s, 3) for name, used in cpu.items()},
    )


def idle(one: Bench, kind: str, seconds: float) -> None:
    """Prints the row of the case without work."""
    cpu: dict[str, float] = {}
    with used_cpu(one.cluster, cpu):
        time.sleep(seconds)
    say(
        case="idle",
        log=kind,
        queries=one.queries,
        **{f"cores_{name}": round(used / seconds, 3) for name, used in cpu.items()},
    )


def say(**row: object) -> None:
    """Prints one row."""
    print(json.dumps(row), flush=True)


def main() -> int:
    """Runs the requested cases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--log", choices=("memory", "kafka", "all"), default="all")
    parser.add_argument("--queries", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--objects", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=("throughput", "paced", "trickle", "idle"),
        default=["throughput", "paced", "trickle", "idle"],
    )
    parser.add_argument("--rate", type=float, help="objects a second of one more paced case")
    parser.add_argument("--store", choices=("on", "off"), default="on")
    parser.add_argument("--slots", type=int, default=8)
    asked = parser.parse_args()
    # Here, since `against` imports this beside checkouts that have it in another module.
    from sirocco.runtime.process.process_tuning import tune  # noqa: PLC0415

    tune()
    for kind in ("memory", "kafka") if asked.log == "all" else (asked.log,):
        for queries in asked.queries:
            stored = asked.store == "on"
            with bench(kind, queries, store=stored, slots=asked.slots) as one:
                rate = 0.0
                if {"throughput", "paced"} & set(asked.cases):
                    rate = throughput(one, kind, asked.objects)
                if "paced" in asked.cases:
                    paced(one, kind, 0.7 * rate, asked.seconds, BATCH, "paced")
                if asked.rate is not None:
                    paced(one, kind, asked.rate, asked.seconds, BATCH, "at rate")
                if "trickle" in asked.cases:
                    paced(one, kind, 20_000, asked.seconds, 100, "trickle")
                if "idle" in asked.cases:
                    idle(one, kind, asked.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
