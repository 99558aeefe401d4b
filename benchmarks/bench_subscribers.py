"""The cost of open subscriptions for a merger: threads and memory, with a real Kafka.

Each stream resumes from the earliest record, without credit, or with little: as any client with the
right to subscribe can request. Prints one JSON line for each number of streams.

    python -m benchmarks.bench_subscribers --kafka HOST:PORT [--streams 200] [--credit 0]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import threading
import time
import uuid
from pathlib import Path

import grpc.aio
import numpy as np
from prometheus_client import CollectorRegistry
from sirocco_api.v1.receive_service_pb2 import Credit, Open, ReceiveRequest
from sirocco_api.v1.receive_service_pb2_grpc import (
    ReceiveServiceStub,
    add_ReceiveServiceServicer_to_server,
)

from sirocco.model.query import query_handle
from sirocco.protocol.contract.columns import EventColumns, MatchColumns, QueryNames
from sirocco.protocol.contract.messages import DELIVERIES, Delivered
from sirocco.runtime.loop.hops import HopWriter
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.merger.receive import ReceiveFront
from sirocco.telemetry.metrics.merger import MergerMetrics
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.kafka_settings import KafkaSettings
from tests.support.values import columns_of

RECORDS = 2_000
OBJECTS = 100
TEXT = "word " * 60


def write(log: KafkaLog, subscribers: int) -> None:
    """Appends records of some 30 kB, each for one of the subscribers."""
    producer = log.producer("bench")
    writer = HopWriter(producer, lambda *_: None)
    posts = [{"id": i, "lon": 1.0, "lat": 1.0, "text": TEXT} for i in range(OBJECTS)]
    objects = columns_of(posts)
    rows = np.arange(OBJECTS, dtype=np.uint32)
    bounds = np.array([0, OBJECTS], np.int64)
    for number in range(RECORDS):
        owner = f"s{number % subscribers}"
        names = QueryNames(
            np.array([query_handle("q")], np.uint64),
            np.frombuffer(b"q", np.uint8),
            np.array([0, 1], np.int64),
            np.zeros(1, np.uint32),
            (owner,),
        )
        events = EventColumns(
            np.ones(OBJECTS, np.uint64),
            np.arange(OBJECTS, dtype=np.uint64) + np.uint64(number * OBJECTS + 1),
            np.full(OBJECTS, int(time.time() * 1_000), np.int64),
        )
        matches = MatchColumns(np.zeros(OBJECTS, np.uint32), rows)
        writer.append(
            DELIVERIES,
            0,
            Delivered(
                objects=objects, events=events, queries=names, matches=matches, match_offsets=bounds
            ),
            0,
        )
    assert producer.flush(60.0) == 0
    producer.close()


def resources() -> tuple[int, int]:
    """Returns threads and resident MiB of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(fields["Threads"]), int(fields["VmRSS"].split()[0]) // 1024


async def subscribe(stub: ReceiveServiceStub, number: int, credit: int, got: list[int]) -> None:
    call = stub.Receive()
    await call.write(ReceiveRequest(open=Open(subscriber=f"s{number}", from_earliest=True)))
    await call.read()
    if credit:
        await call.write(ReceiveRequest(credit=Credit(matches=credit)))
    while True:
        response = await call.read()
        if response is grpc.aio.EOF:
            raise RuntimeError(await call.details())
        got[number] += len(response.matches.objects) // 4


async def measure(log: KafkaLog, streams: int, credit: int) -> None:
    front = ReceiveFront(log, 1, MergerMetrics(CollectorRegistry()))
    server = grpc.aio.server()
    add_ReceiveServiceServicer_to_server(front, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    before = resources()
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
    stub = ReceiveServiceStub(channel)
    got = [0] * max(streams, 1)
    tasks = [asyncio.create_task(subscribe(stub, i, credit, got)) for i in range(streams)]
    begin_s = time.monotonic()
    most = before
    wanted = min(credit, RECORDS // max(streams, 1) * OBJECTS)
    while time.monotonic() - begin_s < (4 if not credit else 60):
        await asyncio.sleep(0.1)
        most = tuple(map(max, most, resources()))  # type: ignore[assignment]
        if credit and min(got) >= wanted:
            break
    took_s = time.monotonic() - begin_s
    failed = [task for task in tasks if task.done()]
    line = {
        "streams": streams,
        "credit": credit,
        "threads_before": before[0],
        "threads": most[0],
        "rss_mib_before": before[1],
        "rss_mib": most[1],
        "failed": len(failed),
        "all_received": min(got) >= wanted,
        "seconds": round(took_s, 2),
        "python_threads": threading.active_count(),
    }
    print(json.dumps(line), flush=True)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await channel.close()
    await server.stop(0)
    await asyncio.to_thread(front.close)


def main() -> None:
    """Runs the benchmark; see the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kafka", required=True, help="HOST:PORT")
    parser.add_argument(
        "--mock", action="store_true", help="the broker is librdkafka's mock, which makes topics"
    )
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--credit", type=int, default=0)
    args = parser.parse_args()
    prefix = f"bench{uuid.uuid4().hex[:8]}."
    log = KafkaLog(KafkaSettings(bootstrap=args.kafka, topic_prefix=prefix, replication=1))
    topics = ClusterSettings(slots=1, partials_partitions=1).topics()
    if not args.mock:
        log.create_topics([spec for spec in topics if spec.name == DELIVERIES])
    try:
        write(log, max(1, args.streams))
        asyncio.run(measure(log, args.streams, args.credit))
    finally:
        if not args.mock:
            log.delete_topics([DELIVERIES])
        log.close()


if __name__ == "__main__":
    main()
