"""The sinks of a connector: Kafka topic, webhook, files.

A process plays the merger and sends the same messages as fast as they are taken; a real broker, a
receiver of webhooks that answers at once, and the disk take what the connector writes. Prints one
JSON line a case; CPU is that of the connector's process alone.

    python -m benchmarks.bench_sinks [--notifications 400000] [--cases kafka,webhook,file]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from array import array
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import yaml
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from sirocco_api.v1 import receive_service_pb2 as pb
from sirocco_api.v1 import receive_service_pb2_grpc

from sirocco.local.kafka import KafkaServer
from sirocco.local.usage import usage_of
from tests.support.fake_cluster import FakeCluster, joined

# A message of the cluster holds what a window of 30 ms brings: this many at 33,000 a second.
MESSAGE = 1_000
QUERIES = 100
TEXT = "free coffee downtown and the road to the harbour is closed until ten"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def message() -> pb.ReceiveResponse:
    """Returns a message of matches, one object each."""
    rng = np.random.default_rng(1)
    made = pb.ReceiveResponse()
    objects = made.objects
    objects.count = MESSAGE
    objects.ids = np.arange(MESSAGE, dtype=np.uint64).tobytes()
    objects.lon = rng.uniform(-180, 180, MESSAGE).tobytes()
    objects.lat = rng.uniform(-80, 80, MESSAGE).tobytes()
    objects.ts_ms = np.full(MESSAGE, 1_700_000_000_000, np.int64).tobytes()
    objects.text, objects.text_offsets = joined([TEXT] * MESSAGE)
    objects.attributes, objects.attribute_offsets = joined(['{"speed":17,"line":"4"}'] * MESSAGE)
    made.events.sessions = array("Q", [7] * MESSAGE).tobytes()
    made.events.numbers = array("Q", range(MESSAGE)).tobytes()
    made.events.arrivals_ms = array("q", [int(time.time() * 1_000)] * MESSAGE).tobytes()
    made.queries.handles = array("Q", range(QUERIES)).tobytes()
    made.queries.ids, made.queries.id_offsets = joined([f"query-{i}" for i in range(QUERIES)])
    made.matches.objects = array("I", range(MESSAGE)).tobytes()
    made.matches.queries = array("I", [i % QUERIES for i in range(MESSAGE)]).tobytes()
    return made


class Merger(receive_service_pb2_grpc.ReceiveServiceServicer):
    """Sends the same message as often as there is credit for it."""

    def __init__(self, count: int) -> None:
        self._count = count

    def Receive(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:  # noqa: N802
        opened = next(requests).open
        credit = threading.Semaphore(opened.matches // MESSAGE)

        def read() -> None:
            left = 0
            with suppress(grpc.RpcError):
                for request in requests:
                    left += request.credit.matches
                    for _ in range(left // MESSAGE):
                        credit.release()
                    left %= MESSAGE

        threading.Thread(target=read, daemon=True).start()
        begin = int(opened.cursor.rpartition(".")[2] or 0)
        yield pb.ReceiveResponse(cursor=f"0.{begin}")
        made = message()
        for number in range(begin, self._count // MESSAGE):
            credit.acquire()
            made.cursor = f"0.{number + 1}"
            yield made
        while context.is_active():
            time.sleep(0.2)


def serve_cluster(end: Connection, count: int) -> None:
    """Plays the cluster until the other end says so."""
    server = grpc.server(ThreadPoolExecutor(8))
    receive_service_pb2_grpc.add_ReceiveServiceServicer_to_server(Merger(count), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    cluster = FakeCluster()
    cluster.mergers = [f"127.0.0.1:{port}"]
    end.send(cluster.router)
    end.recv()
    server.stop(0)
    cluster.stop()


class Answering(asyncio.Protocol):
    """Answers each request at once, without a look at its body."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._left = 0
        self._head = b""

    def data_received(self, data: bytes) -> None:
        while data:
            if self._left:
                taken = min(self._left, len(data))
                self._left -= taken
                data = data[taken:]
            else:
                self._head += data
                head, found, data = self._head.partition(b"\r\n\r\n")
                if not found:
                    return
                self._head = b""
                length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                self._left = int(length)
            if not self._left:
                self._transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")


def serve_receiver(end: Connection) -> None:
    """Runs the receiver until it is killed."""

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Answering, "127.0.0.1", 0)
        end.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def process(target: Any, *arguments: Any) -> Iterator[Any]:
    """Runs a process that reports one value and ends at a signal."""
    ours, theirs = multiprocessing.Pipe()
    made = multiprocessing.get_context("spawn").Process(target=target, args=(theirs, *arguments))
    made.start()
    try:
        yield ours.recv()
    finally:
        made.terminate()
        made.join(20)


def delivered(http: str) -> float:
    """Returns how many notifications the connector has handed on."""
    with urllib.request.urlopen(f"http://{http}/metrics") as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith("sirocco_connector_records_total"):
                return float(line.rsplit(" ", 1)[1])
    return 0.0


def run(case: str, router: str, section: dict[str, Any], count: int) -> dict[str, object]:
    """Runs a connector until it has handed on all notifications."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "connector.yaml"
        sink = {"subscriber": "s1", "start": "earliest", **section}
        config.write_text(yaml.safe_dump({"router": router, "sinks": {"bench": sink}}))
        connector = subprocess.Popen(
            [sys.executable, "-m", "sirocco.services.connector"],
            env=os.environ | {"SIROCCO_CONNECTOR_CONFIG": str(config)},
            stderr=subprocess.PIPE,
        )
        try:
            assert connector.stderr is not None
            http = json.loads(connector.stderr.readline())["http"]
            threading.Thread(target=connector.stderr.read, daemon=True).start()
            # The first tenth is the start.
            while (first := delivered(http)) < count / 10:
                time.sleep(0.02)
            begin_s, cpu_s = time.perf_counter(), usage_of(connector.pid).cpu_seconds
            while (last := delivered(http)) < count:
                time.sleep(0.05)
            seconds = time.perf_counter() - begin_s
            used_s = usage_of(connector.pid).cpu_seconds - cpu_s
            peak = usage_of(connector.pid).peak_memory_bytes
        finally:
            connector.kill()
            connector.wait(20)
    done = last - first
    return {
        "case": case,
        "notifications": int(done),
        "notifications_per_s": round(done / seconds),
        "cpu_us_per_notification": round(used_s * 1e6 / done, 2),
        "mib": peak >> 20,
        "load": round(os.getloadavg()[0], 1),
    }


def kafka(router: str, count: int, folder: Path) -> Iterator[dict[str, object]]:
    """Measures the sink into a topic, with the broker on this machine."""
    server = KafkaServer(folder / "kafka")
    server.start()
    try:
        for form in ("json", "cloudevents"):
            topic = f"alerts-{form}"
            admin = AdminClient({"bootstrap.servers": server.settings.bootstrap})
            admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(20)
            section = {
                "kind": "kafka",
                "bootstrap": server.settings.bootstrap,
                "replication": 1,
                "topic": topic,
                "format": form,
                "state_topic": f"states-{form}",
            }
            yield run(f"kafka {form}", router, section, count)
    finally:
        server.stop()


def webhook(router: str, count: int, folder: Path) -> Iterator[dict[str, object]]:
    """Measures the sink into a webhook in batches of 100."""
    with process(serve_receiver) as port:
        section = {
            "kind": "webhook",
            "url": f"http://127.0.0.1:{port}/",
            "secret": SECRET,
            "allow_http": True,
            "allow_private": True,
            "state": str(folder / "state"),
        }
        yield run("webhook, batches of 100", router, section, count)


def file(router: str, count: int, folder: Path) -> Iterator[dict[str, object]]:
    """Measures the sink into files."""
    for form in ("ndjson", "parquet"):
        section = {"kind": "file", "folder": str(folder / form), "files": form}
        yield run(f"file {form}", router, section, count)


CASES = {"kafka": kafka, "webhook": webhook, "file": file}


def main() -> None:
    """Runs the benchmark; see the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--notifications", type=int, default=1_000_000)
    parser.add_argument("--cases", default=",".join(CASES))
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        process(serve_cluster, args.notifications) as router,
    ):
        for case in args.cases.split(","):
            for row in CASES[case](router, args.notifications, Path(folder)):
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
