"""The HTTP gateway: objects published in bodies of lines, and streams of server-sent events.

A cluster on the memory log, the gateway and the clients are processes of their own. Prints one JSON
line for publishing and one for streams; CPU is that of the gateway's process alone, so that it says
something on a busy machine, too; beside it that of the process with all clients of streams.

    python -m benchmarks.bench_gateway [--bodies 400] [--streams 1000] [--rate 10] [--seconds 10]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from multiprocessing.connection import Connection

import numpy as np
from sirocco_client import Client, RangeQuery

from sirocco.local.usage import usage_of
from sirocco.runtime.process.process_tuning import tune
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster

BODY_OBJECTS = 1_000
TEXT = "free coffee downtown and the road to the harbour is closed until ten"

# Bodies under way: the log acknowledges in a few milliseconds.
PUBLISHERS = 4

QUERIES = 100


def serve(end: Connection) -> None:
    """Runs a cluster until the other end says so, in a process like those of services."""
    tune()
    settings = ClusterSettings(cluster="bench", slots=8, leaves=16, intake_partitions=2)
    with EmbeddedCluster(settings) as cluster:
        end.send(cluster.router_address)
        end.recv()


@contextmanager
def cluster_and_gateway() -> Iterator[tuple[str, str, int]]:
    """Yields the addresses of a router and of the gateway, and the gateway's process."""
    ours, theirs = multiprocessing.Pipe()
    cluster = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    cluster.start()
    router = ours.recv()
    gateway = subprocess.Popen(
        [sys.executable, "-m", "sirocco.services.gateway"],
        env=os.environ | {"SIROCCO_ROUTER": router},
        stderr=subprocess.PIPE,
    )
    try:
        assert gateway.stderr is not None
        yield router, json.loads(gateway.stderr.readline())["http"], gateway.pid
    finally:
        gateway.terminate()
        gateway.wait(20)
        ours.send(None)
        cluster.join(30)


def publish(address: str, pid: int, bodies: int) -> dict[str, object]:
    """Publishes bodies of lines on several connections at once."""
    rng = np.random.default_rng(1)
    lon, lat = rng.uniform(-180, 180, BODY_OBJECTS), rng.uniform(-80, 80, BODY_OBJECTS)
    lines = [
        json.dumps({"id": i, "lon": float(lon[i]), "lat": float(lat[i]), "text": TEXT})
        for i in range(BODY_OBJECTS)
    ]
    body = "\n".join(lines).encode()
    left = iter(range(bodies))
    lock = threading.Lock()
    latencies_ms: list[float] = []

    def work() -> None:
        host, _, port = address.partition(":")
        connection = HTTPConnection(host, int(port), timeout=60)
        while True:
            with lock:
                if next(left, None) is None:
                    return
            begin_s = time.perf_counter()
            connection.request(
                "POST", "/v1/objects", body, {"Content-Type": "application/x-ndjson"}
            )
            answer = json.loads(connection.getresponse().read())
            assert answer["acknowledged"] == BODY_OBJECTS, answer
            latencies_ms.append((time.perf_counter() - begin_s) * 1_000)

    for warm in (True, False):
        left = iter(range(20 if warm else bodies))
        latencies_ms.clear()
        cpu_s, begin_s = usage_of(pid).cpu_seconds, time.perf_counter()
        threads = [threading.Thread(target=work) for _ in range(PUBLISHERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    seconds = time.perf_counter() - begin_s
    objects = bodies * BODY_OBJECTS
    return {
        "case": "publish",
        "objects": objects,
        "objects_per_s": round(objects / seconds),
        "gateway_cpu_us_per_object": round((usage_of(pid).cpu_seconds - cpu_s) * 1e6 / objects, 2),
        "body_ms_p50": round(float(np.percentile(latencies_ms, 50)), 1),
        "body_ms_p99": round(float(np.percentile(latencies_ms, 99)), 1),
        "load": round(os.getloadavg()[0], 1),
    }


class Listener(asyncio.Protocol):
    """Reads one stream for ever; notes the delay of each event, in ms.

    It looks for the time alone: clients and the gateway share the cores.
    """

    def __init__(self, path: str, opened: asyncio.Semaphore, got: list[float]) -> None:
        self._request = f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode()
        self._opened: asyncio.Semaphore | None = opened
        self._got = got
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks for the stream."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Notes the events that are whole."""
        data = self._rest + data
        if self._opened is not None and b"\nid: " in data:
            self._opened.release()
            self._opened = None
        now_s = time.time()
        *whole, self._rest = data.split(b"\n\n")
        for event in whole:
            _, found, sent = event.partition(b'"sent":')
            if found:
                self._got.append((now_s - float(sent.partition(b"}")[0])) * 1_000)


async def listen(address: str, number: int, opened: asyncio.Semaphore, got: list[float]) -> None:
    """Opens one stream."""
    host, _, port = address.partition(":")
    path = f"/v1/subscribers/s{number}/notifications"
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: Listener(path, opened, got), host, int(port))


def send(router: str, streams: int, rate: float, seconds: float) -> None:
    """Publishes objects, each of which one stream gets."""
    with Client(router) as client, client.publisher() as publisher:
        begin_s, number = time.time(), 0
        while (now_s := time.time()) < begin_s + seconds:
            due = int((now_s - begin_s) * streams * rate)
            batch = [
                {"id": i, "lon": 1.0, "lat": 1.0, "text": f"word{i % streams}", "sent": now_s}
                for i in range(number, due)
            ]
            number = due
            publisher.publish_many(batch)
            time.sleep(0.02)


async def stream(
    router: str, address: str, pid: int, streams: int, rate: float, seconds: float
) -> dict[str, object]:
    """Opens streams, publishes for all of them, and measures delays."""
    opened, got = asyncio.Semaphore(0), list[float]()
    for number in range(streams):
        await listen(address, number, opened, got)
    for _ in range(streams):
        await asyncio.wait_for(opened.acquire(), 60)
    cpu_s, own_s = usage_of(pid).cpu_seconds, time.process_time()
    sender = multiprocessing.get_context("spawn").Process(
        target=send, args=(router, streams, rate, seconds)
    )
    sender.start()
    wanted = streams * rate * seconds * 0.99
    end_s = time.monotonic() + 3 * seconds + 20
    while len(got) < wanted and time.monotonic() < end_s:
        await asyncio.sleep(0.2)
    used_s, own_s = usage_of(pid).cpu_seconds - cpu_s, time.process_time() - own_s
    await asyncio.to_thread(sender.join)
    delays = np.array(got or [np.nan])
    return {
        "case": "streams",
        "streams": streams,
        "events_per_s_each": rate,
        "events": len(got),
        "ms_p50": round(float(np.percentile(delays, 50)), 1),
        "ms_p99": round(float(np.percentile(delays, 99)), 1),
        "gateway_cpu_us_per_event": round(used_s * 1e6 / max(1, len(got)), 1),
        "clients_cpu_us_per_event": round(own_s * 1e6 / max(1, len(got)), 1),
        "gateway_mib": usage_of(pid).peak_memory_bytes >> 20,
        "load": round(os.getloadavg()[0], 1),
    }


def main() -> None:
    """Runs the benchmark; see the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--bodies", type=int, default=400)
    parser.add_argument("--streams", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=10.0, help="events a second of each stream")
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    with cluster_and_gateway() as (router, address, pid):
        with Client(router) as client:
            some = [RangeQuery(id=f"q{i}", subscriber="x", text=f"w{i}") for i in range(QUERIES)]
            assert all(one.error is None for one in client.register_many(some))
            if args.bodies:
                print(json.dumps(publish(address, pid, args.bodies)), flush=True)
            own = (
                RangeQuery(id=f"s{i}", subscriber=f"s{i}", text=f"word{i}")
                for i in range(args.streams)
            )
            assert all(one.error is None for one in client.register_many(own))
        if args.streams:
            measured = stream(router, address, pid, args.streams, args.rate, args.seconds)
            print(json.dumps(asyncio.run(measured)), flush=True)


if __name__ == "__main__":
    main()
