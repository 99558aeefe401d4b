"""Measures both logs with records of 3 kB; prints one JSON object per case.

usage: python benchmarks/bench_log.py [--records N] [--log memory|kafka|all]

Kafka is a real broker on this machine that shares its cores; its Java is warmed up first
(cold, a request takes it three to ten times as long). `cpu` is this process with all threads
of the client, `broker` the broker's process, both in microseconds of CPU per record (per
transaction in some cases). `stream` appends as fast as the log accepts, `paced` one record for
each of 16 Kafka partitions every 10 ms, as routers do: there each record is a separate request
to the broker.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sirocco.local.kafka import KafkaServer
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.log import Consumer, Log, TopicSpec
from sirocco.transport.memory_log import MemoryLog

PARTITIONS = 16
HEADERS = (("method", b"/sirocco.v1.SlotService/Route"),)


def make_values(count: int) -> list[bytes]:
    """Returns half random, half repeated bytes: they compress like columns of hashes and texts."""
    rng = random.Random(1)
    return [rng.randbytes(1500) + rng.randbytes(15) * 100 for _ in range(count)]


class Meter:
    """CPU and wall time since `start`, of this process and of the broker's."""

    def __init__(self, broker_pid: int | None) -> None:
        self._broker = None if broker_pid is None else Path(f"/proc/{broker_pid}/stat")
        self.start()

    def start(self) -> None:
        self._from = self._now()

    def per(self, count: int) -> dict[str, float]:
        cpu, broker, wall = (b - a for a, b in zip(self._from, self._now(), strict=True))
        found = {"cpu_us": 1e6 * cpu / count, "wall_us": 1e6 * wall / count}
        if self._broker is not None:
            found["broker_us"] = 1e6 * broker / count
        return {name: round(value, 1) for name, value in found.items()}

    def _now(self) -> tuple[float, float, float]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        broker = 0.0
        if self._broker is not None:
            fields = self._broker.read_text().rpartition(")")[2].split()
            broker = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return own.ru_utime + own.ru_stime, broker, time.perf_counter()


def quantiles_ms(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        f"p{q}_ms": round(1000 * ordered[min(len(ordered) - 1, len(ordered) * q // 100)], 2)
        for q in (50, 95, 99)
    }


def read_all(consumer: Consumer, count: int) -> None:
    while count > 0:
        count -= len(consumer.poll(1000, 5.0))


def stream(
    log: Log, topic: str, count: int, meter: Meter
) -> Iterator[tuple[str, dict[str, float]]]:
    values = make_values(500)
    producer, consumer = log.producer("bench"), log.consumer("bench")
    share = count // PARTITIONS
    meter.start()
    for number in range(share * PARTITIONS):
        producer.append(topic, number % PARTITIONS, values[number % 500], headers=HEADERS)
        if number % PARTITIONS == 0:
            producer.poll(0.0)
    producer.flush(60.0)
    yield "append, stream", meter.per(count)
    consumer.assign({(topic, p): log.bounds(topic, p)[1] - share for p in range(PARTITIONS)})
    meter.start()
    read_all(consumer, share * PARTITIONS)
    yield "read, stream", meter.per(count)


def paced(log: Log, topic: str, count: int, meter: Meter) -> Iterator[tuple[str, dict[str, float]]]:
    values = make_values(500)
    producer, consumer = log.producer("bench"), log.consumer("bench")
    consumer.assign({(topic, p): log.bounds(topic, p)[1] for p in range(PARTITIONS)})
    waits: list[float] = []
    meter.start()
    for number in range(0, count, PARTITIONS):
        begun = time.perf_counter()
        for partition in range(PARTITIONS):
            producer.append(
                topic,
                partition,
                values[(number + partition) % 500],
                headers=HEADERS,
                on_ack=lambda _e, _o, at=begun: waits.append(time.perf_counter() - at),  # type: ignore[misc]
            )
        while (left := begun + 0.01 - time.perf_counter()) > 0:
            producer.poll(left)
            time.sleep(min(0.0005, left))
    producer.flush(60.0)
    yield "append, paced", meter.per(count) | quantiles_ms(waits)
    read_all(consumer, count)
    trips = []
    for number in range(1000):
        begun = time.perf_counter()
        producer.append(topic, number % PARTITIONS, values[0], headers=HEADERS)
        producer.poll(0.0)
        read_all(consumer, 1)
        trips.append(time.perf_counter() - begun)
    yield "append to read, one at a time", quantiles_ms(trips)


def transactions(
    log: Log, topic: str, count: int, meter: Meter
) -> Iterator[tuple[str, dict[str, float]]]:
    values = make_values(16)
    producer = log.producer("bench", transactional_id="bench")
    begun = time.perf_counter()
    producer.init_transactions()
    yield "init_transactions", {"wall_us": round(1e6 * (time.perf_counter() - begun))}
    for spread in (1, 4, 16):
        waits = []
        meter.start()
        for _ in range(count):
            begun = time.perf_counter()
            producer.begin()
            for partition in range(spread):
                producer.append(topic, partition, values[partition], headers=HEADERS)
            producer.commit()
            waits.append(time.perf_counter() - begun)
        yield f"transaction of {spread} records", meter.per(count) | quantiles_ms(waits)


def warm_up(log: Log) -> None:
    """Lets Java compile the code that the cases use: single requests, batches and transactions."""
    log.create_topics([TopicSpec("warm", PARTITIONS)])
    producer = log.producer("warm-up")
    for _ in range(2000):
        for partition in range(PARTITIONS):
            producer.append("warm", partition, b"x" * 3000)
        producer.flush(10.0)
    meter = Meter(None)
    for run, count in ((stream, 60_000), (transactions, 300)):
        for _ in run(log, "warm", count, meter):
            pass


@contextmanager
def opened(name: str) -> Iterator[tuple[Log, Meter]]:
    if name == "memory":
        yield MemoryLog(), Meter(None)
        return
    with tempfile.TemporaryDirectory() as directory:
        server = KafkaServer(Path(directory))
        server.start()
        log = KafkaLog(server.settings)
        try:
            warm_up(log)
            yield log, Meter(server.process.pid)
        finally:
            log.close()
            server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--log", choices=("memory", "kafka", "all"), default="all")
    chosen = parser.parse_args()
    cases: tuple[tuple[str, Callable[..., Iterator[tuple[str, dict[str, float]]]], int], ...] = (
        ("stream", stream, chosen.records),
        ("paced", paced, chosen.records // 2),
        ("transactions", transactions, 300),
    )
    for name in ("memory", "kafka") if chosen.log == "all" else (chosen.log,):
        with opened(name) as (log, meter):
            for topic, run, count in cases:
                log.create_topics([TopicSpec(topic, PARTITIONS)])
                for case, found in run(log, topic, count, meter):
                    print(json.dumps({"case": f"{case}, {name}"} | found), flush=True)


if __name__ == "__main__":
    main()
