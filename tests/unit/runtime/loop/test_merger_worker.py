"""Mergers on a real loop, log and archive: from where a successor continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sirocco.protocol.contract.control_records import CheckpointTaken, Granted, LeaderElected
from sirocco.protocol.contract.messages import CONTROL, DELIVERIES, PARTIALS, Delivered, Message
from sirocco.protocol.merger.limits import MergerLimits
from sirocco.protocol.merger.machine import MergerMachine, MergerSettings
from sirocco.runtime.loop.hops import HopReader, HopWriter
from sirocco.runtime.loop.worker import Worker
from sirocco.runtime.settings import ClusterSettings
from sirocco.transport.archive import MemoryArchive
from sirocco.transport.memory_log import MemoryLog
from tests.support.list_records import (
    ListChange,
    ListVersion,
    Match,
    Terms,
    found_of,
    knn_spec,
    lists_of,
    terms_spec,
)
from tests.support.values import map_activated
from tests.support.waiting import eventually

WAIT_S = 120.0
NEAR = ListVersion("near", knn_spec("near", 2))
WORDS = ListVersion("words", terms_spec("words", 3))

LIMITS = MergerLimits(checkpoint_interval_ms=100)


class Cluster:
    """The mergers' environment, and the reports of the slot."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.log.create_topics(ClusterSettings(slots=1, partials_partitions=1).topics())
        self.archive = MemoryArchive()
        self.position = 0
        self.append(CONTROL, LeaderElected("c"))
        self.append(CONTROL, map_activated(0))

    def append(self, topic: str, message: Message) -> None:
        HopWriter(self.log.producer("test"), lambda *_: None).append(topic, 0, message, 0)

    def messages(self, topic: str) -> list[Message]:
        consumer = self.log.consumer("look")
        consumer.assign({(topic, 0): self.log.bounds(topic, 0)[0]})
        records = consumer.poll(1_000, 0)
        consumer.close()
        return [entry.message for entry in HopReader(lambda *_: None).entries(records)]

    def say(self, *items: Match | Terms, time_ms: int = 0) -> None:
        """Appends the slot's next findings."""
        at = self.position
        self.position += 1
        rows = [(0, at, item) for item in items]
        self.append(PARTIALS, found_of([(0, at, at + 1, time_ms)], rows))

    def all_sent(self, count: int) -> list[ListChange]:
        """Returns all lists that were ever sent, once there are `count`."""
        eventually(lambda: len(self._sent()) >= count)
        return self._sent()

    def _sent(self) -> list[ListChange]:
        delivered = [m for m in self.messages(DELIVERIES) if isinstance(m, Delivered)]
        return [each for message in delivered for each in lists_of(message)]

    @contextmanager
    def merger(self, name: str) -> Iterator[Worker]:
        """A merger takes over, and drains at the end."""
        machine = MergerMachine(name, MergerSettings(1, limits=LIMITS))
        worker = Worker(name, machine, self.log, self.archive)
        self.append(CONTROL, Granted(0, PARTIALS, 0, name))
        worker.start()
        try:
            yield worker
        finally:
            assert worker.stop(WAIT_S)
            assert worker.failure is None


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    yield made
    made.log.close()


def test_a_successor_sends_changes_that_continue_its_predecessor_s_lists(
    cluster: Cluster,
) -> None:
    with cluster.merger("m1"):
        cluster.say(Match(NEAR, 1, 5.0), Terms(WORDS, 100, (("a", 1),)))
        cluster.all_sent(1)
        cluster.say(Match(NEAR, 2, 4.0))
        cluster.all_sent(2)
    assert any(isinstance(m, CheckpointTaken) for m in cluster.messages(CONTROL))
    with cluster.merger("m2"):
        cluster.say(Match(NEAR, 3, 3.0), Terms(WORDS, 100, (("a", 2),)), time_ms=101)
        reported = cluster.all_sent(4)
    assert reported[2:] == [
        ListChange(
            subscriber="ann",
            query="near",
            at_ms=None,
            entries=((3, 3.0), (2, 4.0)),
            new=((3, "text of 3"),),
            removed=(1,),
        ),
        ListChange(subscriber="ann", query="words", at_ms=100, entries=(("a", 3.0),)),
    ]


def test_a_merger_without_lists_leaves_nothing_in_the_archive(cluster: Cluster) -> None:
    plain = ListVersion("plain")
    for name in ("m1", "m2"):
        with cluster.merger(name):
            cluster.say(Match(plain, 1))
            end = cluster.log.bounds(PARTIALS, 0)[1]
            eventually(lambda end=end: _taken_to(cluster, end))
    assert not any(isinstance(m, CheckpointTaken) for m in cluster.messages(CONTROL))
    matches = [len(m.matches) for m in cluster.messages(DELIVERIES) if isinstance(m, Delivered)]
    assert matches == [1, 1]


def _taken_to(cluster: Cluster, end: int) -> bool:
    return any(getattr(m, "input_offset", -1) >= end for m in cluster.messages(DELIVERIES))
