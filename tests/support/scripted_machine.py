"""A real loop around a scripted machine, on a log in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from sirocco.protocol.contract.control_records import Granted, LeaderElected
from sirocco.protocol.contract.effects import (
    ControlRead,
    Effect,
    Event,
    Tick,
)
from sirocco.protocol.contract.messages import INTAKE, Progress
from sirocco.runtime.loop.hops import HopReader, HopWriter
from sirocco.runtime.loop.limits import LOOP, LoopLimits
from sirocco.runtime.loop.worker import Worker
from sirocco.transport.archive import MemoryArchive
from sirocco.transport.errors import TransportUnavailable
from sirocco.transport.log import Log, OnAck
from sirocco.transport.memory_log import MemoryLog, MemoryProducer

WAIT_S = 300.0
ELECTED = LeaderElected("c")
CONTROL_READ = ControlRead(0, ELECTED)
TO_ANOTHER = Granted(0, INTAKE, 0, "another")


class Script:
    """A machine that answers events by its script, and keeps them."""

    def __init__(self, *answers: Callable[[Event], list[Effect]]) -> None:
        self.answers = list(answers)
        self.events: list[Event] = []
        self._seen = threading.Condition()

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        if isinstance(event, Tick):
            return []
        effects = [effect for answer in self.answers for effect in answer(event)]
        with self._seen:
            self.events.append(event)
            self._seen.notify_all()
        return effects

    def deadline_ms(self) -> int | None:
        return None

    def wait(self, kind: type[Event], count: int = 1) -> list[Any]:
        """Returns the events of a kind, once there are `count`."""

        def found() -> list[Event]:
            return [event for event in self.events if isinstance(event, kind)]

        with self._seen:
            assert self._seen.wait_for(lambda: len(found()) >= count, WAIT_S), self.events
            return found()


def on(kind: type[Event], *effects: Effect) -> Callable[[Event], list[Effect]]:
    return lambda event: list(effects) if isinstance(event, kind) else []


@contextmanager
def running(
    log: Log,
    script: Script,
    archive: MemoryArchive | None = None,
    member: str = "m",
    limits: LoopLimits = LOOP,
) -> Iterator[Worker]:
    worker = Worker(member, script, log, archive or MemoryArchive(), limits=limits)
    worker.start()
    try:
        yield worker
    finally:
        assert worker.stop(WAIT_S)


def append(log: Log, topic: str, message: Any, partition: int = 0) -> None:
    HopWriter(log.producer("test"), lambda *_: None).append(topic, partition, message, 0)


def fill(log: Log, topic: str, partition: int, count: int) -> None:
    """Fills a Kafka partition up to the offsets that the loaded states of a test refer to."""
    producer = log.producer("fill")
    for _ in range(count):
        producer.append(topic, partition, b"")
    producer.close()


def messages(log: Log, topic: str, partition: int = 0) -> list[Any]:
    consumer = log.consumer("look")
    consumer.assign({(topic, partition): log.bounds(topic, partition)[0]})
    records = consumer.poll(1_000, 0)
    consumer.close()
    return [entry.message for entry in HopReader(lambda *_: None).entries(records)]


def progress(offset: int) -> Progress:
    return Progress(offset, np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.int64))


class Acknowledging:
    """Lets a test delay the log's acknowledgements to a worker's own producer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str = "m") -> None:
        self.held: list[tuple[OnAck, int]] = []
        self.error: Exception | None = None
        original = MemoryProducer.append

        def append(producer: MemoryProducer, *args: Any, on_ack: Any = None, **more: Any) -> None:
            if producer.name != name or on_ack is None:
                original(producer, *args, on_ack=on_ack, **more)
            elif self.error is not None:
                error = self.error
                producer._acks.append((on_ack, error, -1))
            else:
                original(
                    producer,
                    *args,
                    on_ack=lambda _error, offset: self.held.append((on_ack, offset)),
                    **more,
                )

        monkeypatch.setattr(MemoryProducer, "append", append)

    def release(self) -> None:
        while self.held:
            on_ack, offset = self.held.pop(0)
            on_ack(None, offset)


class LeavingLog:
    """A log that refuses the first request after a transaction was committed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_away = False
        commit, bounds = MemoryProducer.commit, MemoryLog.bounds

        def leave(producer: MemoryProducer) -> None:
            commit(producer)
            self.is_away = True

        def ask(log: MemoryLog, topic: str, partition: int) -> tuple[int, int]:
            if self.is_away:
                self.is_away = False
                raise TransportUnavailable("away")
            return bounds(log, topic, partition)

        monkeypatch.setattr(MemoryProducer, "commit", leave)
        monkeypatch.setattr(MemoryLog, "bounds", ask)
