"""A connector that reads a Kafka topic: JSON objects as they are, and with mapped members.

A broker, a cluster on the memory log and the connector are processes of their own. Prints one JSON
line for each case. CPU is that of the connector's process alone, so that it says something on a
busy machine, too: `objects_per_core_s` is what one core carries, `objects_per_s` what this machine
did while the broker, its producer and the cluster shared it.

    python -m benchmarks.bench_kafka_source [--objects 600000] [--partitions 4]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sirocco.local.kafka import KafkaServer
from sirocco.local.usage import usage_of
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster

TEXT = "free coffee downtown and the road to the harbour is closed until ten"

NESTED = "id=no,lon=at.lon,lat=at.lat,text=title+body"

# Objects before the clock starts.
WARM_OBJECTS = 20_000


def serve(end: Connection) -> None:
    """Runs a cluster until the other end says so."""
    settings = ClusterSettings(cluster="bench", slots=8, leaves=16, intake_partitions=2)
    with EmbeddedCluster(settings) as cluster:
        end.send(cluster.router_address)
        end.recv()


@contextmanager
def cluster() -> Iterator[str]:
    """Yields the address of a router."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    process.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        process.join(30)


def create(address: str, topic: str, partitions: int) -> None:
    """Creates a topic."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(20)


def fill(address: str, topic: str, objects: int, partitions: int, *, nested: bool) -> None:
    """Writes objects to a topic."""
    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    rng = np.random.default_rng(1)
    lon, lat = rng.uniform(-180, 180, objects).tolist(), rng.uniform(-80, 80, objects).tolist()
    for i in range(objects):
        one: dict[str, Any] = {"id": i, "lon": lon[i], "lat": lat[i], "text": TEXT}
        if nested:
            half = len(TEXT) // 2
            place = {"lon": lon[i], "lat": lat[i]}
            one = {"no": i, "at": place, "title": TEXT[:half], "body": TEXT[half:]}
        producer.produce(topic, json.dumps(one), partition=i % partitions)
        producer.poll(0)
    assert producer.flush(120) == 0


@contextmanager
def connector(router: str, kafka: str, topic: str, **more: str) -> Iterator[tuple[str, int]]:
    """Yields the address of a connector's metrics, and its process."""
    section = {
        "kind": "kafka",
        "bootstrap": [kafka],
        "topics": [topic],
        "dead_letters": "drop",
        **more,
    }
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump({"router": router, "sources": {"bench": section}}, file)
        file.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", "sirocco.services.connector"],
            env=os.environ | {"SIROCCO_CONNECTOR_CONFIG": file.name},
            stderr=subprocess.PIPE,
        )
        try:
            assert process.stderr is not None
            yield json.loads(process.stderr.readline())["http"], process.pid
        finally:
            process.terminate()
            process.wait(30)


def acknowledged(address: str) -> int:
    """Returns how many objects the cluster has acknowledged to a connector."""
    host, _, port = address.partition(":")
    connection = HTTPConnection(host, int(port), timeout=10)
    connection.request("GET", "/metrics")
    for line in connection.getresponse().read().decode().splitlines():
        if line.startswith("sirocco_connector_objects_total{"):
            return int(float(line.split()[-1]))
    return 0


def await_acknowledged(address: str, objects: int) -> None:
    """Waits until the cluster has acknowledged so many."""
    while acknowledged(address) < objects:
        time.sleep(0.05)


def measure(
    kafka: str, topic: str, objects: int, partitions: int, **more: str
) -> dict[str, object]:
    """Writes objects for a connector that waits for them, until all are acknowledged."""
    nested = bool(more)
    create(kafka, topic, partitions)
    with cluster() as router, connector(router, kafka, topic, **more) as (address, pid):
        fill(kafka, topic, WARM_OBJECTS, partitions, nested=nested)
        await_acknowledged(address, WARM_OBJECTS)
        cpu_s, begin_s = usage_of(pid).cpu_seconds, time.perf_counter()
        fill(kafka, topic, objects, partitions, nested=nested)
        await_acknowledged(address, WARM_OBJECTS + objects)
        used_s = usage_of(pid).cpu_seconds - cpu_s
        seconds = time.perf_counter() - begin_s
        return {
            "case": topic,
            "objects": objects,
            "objects_per_s": round(objects / seconds),
            "objects_per_core_s": round(objects / used_s),
            "cpu_us_per_object": round(used_s * 1e6 / objects, 2),
            "mib": usage_of(pid).peak_memory_bytes >> 20,
            "load": round(os.getloadavg()[0], 1),
        }


def main() -> None:
    """Runs the benchmark; see the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--objects", type=int, default=600_000)
    parser.add_argument("--partitions", type=int, default=4)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = KafkaServer(Path(folder))
        server.start()
        try:
            for case, more in (("json", {}), ("mapped", {"map": NESTED})):
                found = measure(server.address, case, args.objects, args.partitions, **more)
                print(json.dumps(found), flush=True)
        finally:
            server.stop()


if __name__ == "__main__":
    main()
