"""Constant publishing while a test breaks something, and the final comparison.

One session publishes at a steady rate from a thread, one subscriber receives in another. Meanwhile
the test breaks something. At the end the notifications have to be the oracle's pairs, each exactly
once.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sirocco_client import Client, Subscription, query_from_json

from sirocco.local.cluster import LocalCluster, LocalClusterSettings
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from tests.oracle import matches

WORDS = ("fire", "flood", "drill", "road", "closed", "free", "coffee", "storm", "light", "sky")

QUERIES: tuple[dict[str, Any], ...] = (
    {"id": "all-fire", "kind": "range", "mode": "continuous", "text": "fire AND NOT drill"},
    {
        "id": "circle",
        "kind": "range",
        "mode": "continuous",
        "region": {"circle": {"lon": 0.0, "lat": 0.0, "radius_m": 4_000_000}},
        "text": "ANY(flood storm)",
    },
    {
        "id": "polygon",
        "kind": "range",
        "mode": "continuous",
        "region": {"polygon": [[[-150, -60], [150, -60], [0, 70], [-150, -60]]]},
        "text": "(coffee AND free) OR (road AND closed)",
    },
    {
        "id": "where",
        "kind": "range",
        "mode": "continuous",
        "region": {"rect": {"west": -170, "south": -80, "east": 170, "north": 80}},
        "where": {"size": {"gte": 7}, "status": "open"},
    },
)

# A few at a time, so that some are always on their way, and the backlog stays small. More would
# prove no more: what tests wait for are leases and starts, and the stream takes most of the CPU.
OBJECTS_PER_S = 500
BURST_OBJECTS = 20

# Beside a Spark job, which a full stream would hold up for a minute on two cores.
SLOW_OBJECTS_PER_S = 100

# More than most tests publish. Later ones come at a fifth of the rate, except those that a test
# waits for: a busy machine, on which tests wait longer, would have the more to publish and check.
PLENTY_OBJECTS = 10_000
LATER_SHARE = 0.2

# Enough to reach every slot of the cluster.
SAMPLE_OBJECTS = 300

# Against hanging only: a busy machine may take many minutes for what takes seconds.
WAIT_S = 900.0
LOOK_S = 0.05


def cluster_of_two(
    name: str, kafka: KafkaServer, redis: RedisServer, directory: Path, **options: str
) -> LocalCluster:
    """Returns a cluster, not started yet, with two processes of each service.

    `options`: further settings, by the names of their variables.
    """
    settings = LocalClusterSettings(
        cluster=name,
        kafka=kafka.address,
        redis=redis.url,
        archive=str(directory / "archive"),
        counts={"router": 2, "evaluator": 2, "merger": 2, "coordinator": 2},
        options={"SIROCCO_SLOTS": "16", **options},
    )
    return LocalCluster(directory, settings)


class Traffic:
    """A publisher that never stops, a subscriber, and all that they sent and received.

    Args:
        addresses: Of the routers.
        name: Of this run: part of all ids, and of the subscriber's name.
        seed: Of the objects.
        wait_s: Bound of every wait.
        client: Instead of one for the addresses; closed at the end.
        queries: That are registered.

    Attributes:
        objects_per_s: The usual rate.
    """

    objects_per_s: float = OBJECTS_PER_S

    def __init__(
        self,
        addresses: tuple[str, ...],
        name: str,
        seed: str,
        *,
        wait_s: float = WAIT_S,
        client: Client | None = None,
        queries: Sequence[dict[str, Any]] = QUERIES,
    ) -> None:
        self._given_queries = queries
        self._wait_s = wait_s
        self._name = name
        self._seed = seed
        self._rng = random.Random(seed)
        self._client = client or Client(",".join(addresses))
        self._subscriber = f"ledger-{name}"
        self._subscription = self._client.subscribe(self._subscriber)
        self._publisher = self._client.publisher()
        self._queries: list[dict[str, Any]] = []
        self._published: list[dict[str, Any]] = []
        self._received: Counter[tuple[str, int | str]] = Counter()
        self._extra_word = ""
        self._objects_per_s = self.objects_per_s
        self._wanted_objects = PLENTY_OBJECTS
        self._arrived = threading.Condition()
        self._ending = threading.Event()
        self._failures: list[Exception] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(action,), daemon=True)
            for action in (self._receive, self._publish)
        ]

    def __enter__(self) -> Self:
        """Registers the queries, then begins to publish."""
        self._subscription.open(self._wait_s)
        for query in self._given_queries:
            self.register(query)
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._subscription.close()
        self._client.close()

    @property
    def published(self) -> int:
        """How many objects were passed to the publisher so far."""
        return len(self._published)

    def register(self, query: dict[str, Any]) -> None:
        """Registers a query under an id of this run."""
        named = {**query, "id": f"{query['id']}-{self._name}"}
        self._client.register(query_from_json(named, self._subscriber))
        self._queries.append(named)

    def register_under_way(self, word: str) -> None:
        """Registers a query that only objects published from now on can match."""
        self.register({"id": word, "kind": "range", "mode": "continuous", "text": word})
        self._extra_word = word

    def end_word(self) -> None:
        """Publishes from now on without the word of the last registration under way."""
        self._extra_word = ""

    @contextmanager
    def slower(self) -> Iterator[None]:
        """Publishes at a fifth of the rate meanwhile, with every promise as before."""
        self._objects_per_s = SLOW_OBJECTS_PER_S
        try:
            yield
        finally:
            self._objects_per_s = self.objects_per_s

    def owners(self) -> set[tuple[str, int, str, int]]:
        """Returns the owners, and since when they own, as a router has read them."""
        found = self._client.describe().ownerships
        return {(each.topic, each.partition, each.member, each.epoch) for each in found}

    def await_progress(self, *, after_s: float = 0.0) -> float:
        """Waits for all matches of objects that are published from now on; returns the seconds.

        Args:
            after_s: Skip the objects of the first seconds.
        """
        begin_s = time.monotonic()
        deadline_s = begin_s + after_s + self._wait_s
        self._ending.wait(after_s)
        begin = self.published
        end = begin + SAMPLE_OBJECTS
        self._wanted_objects = max(PLENTY_OBJECTS, end)
        while self.published < end:
            self._check(deadline_s, f"{self.published - begin} of {SAMPLE_OBJECTS} are published")
            self._ending.wait(LOOK_S)
        expected = matches(self._published[begin:end], self._queries)
        with self._arrived:
            while missing := [one for one in expected if self._received[one] < expected[one]]:
                self._check(deadline_s, f"{len(missing)} of {len(expected)} matches missing")
                self._arrived.wait(LOOK_S)
        return time.monotonic() - begin_s

    def _check(self, deadline_s: float, progress: str) -> None:
        assert not self._failures, f"seed {self._seed}: {self._failures}"
        assert time.monotonic() < deadline_s, f"seed {self._seed}: {progress}"

    def finish(self) -> None:
        """Ends the stream, waits for all of it, and compares with the oracle."""
        self._ending.set()
        self._threads[1].join(self._wait_s)
        assert not self._failures, f"seed {self._seed}: {self._failures}"
        result = self._publisher.flush(self._wait_s)
        ends = self._client.await_processed(result.position_token, timeout_s=self._wait_s)
        _await_cursor(self._subscription, ends, self._wait_s)
        self._subscription.close()
        self._threads[0].join(self._wait_s)
        for query in self._queries:
            self._client.unregister(query["id"])
        expected = matches(self._published, self._queries)
        missing, surplus = expected - self._received, self._received - expected
        received = f"seed {self._seed}, {self.published} objects, {expected.total()} pairs"
        assert expected, received
        assert not missing, f"{received}: {missing.total()} lost, such as {next(iter(missing))}"
        assert not surplus, f"{received}: {surplus.total()} doubled or wrong: {next(iter(surplus))}"

    def _publish(self) -> None:
        due_s = time.monotonic()
        while not self._ending.is_set():
            for _ in range(BURST_OBJECTS):
                one = self._object()
                self._published.append(one)
                self._publisher.publish(one)
            is_plenty = self.published >= self._wanted_objects
            rate = self._objects_per_s * (LATER_SHARE if is_plenty else 1.0)
            # Objects delayed by an outage are made up for, but not all at once.
            due_s = max(due_s + BURST_OBJECTS / rate, time.monotonic() - 1.0)
            self._ending.wait(max(0.0, due_s - time.monotonic()))

    def _object(self) -> dict[str, Any]:
        rng = self._rng
        words = rng.choices(WORDS, k=rng.randint(1, 6))
        if self._extra_word:
            words.append(self._extra_word)
        return {
            "id": f"{self._name}-{len(self._published)}",
            "lon": rng.uniform(-180, 180),
            "lat": rng.uniform(-90, 90),
            "text": " ".join(words),
            "size": rng.randint(0, 9),
            "status": rng.choice(["open", "closed"]),
        }

    def _receive(self) -> None:
        for batch in self._subscription.batches():
            with self._arrived:
                self._received.update(batch.pairs())
                self._arrived.notify_all()

    def _guarded(self, action: Any) -> None:
        try:
            action()
        except Exception as failure:
            with self._arrived:
                self._failures.append(failure)
                self._arrived.notify_all()


def _await_cursor(subscription: Subscription, ends: tuple[str, ...], wait_s: float) -> None:
    """Waits until the subscriber has everything before the end of its Kafka partition."""
    deadline_s = time.monotonic() + wait_s
    while time.monotonic() < deadline_s:
        partition, _, offset = subscription.cursor.partition(".")
        end = next(end for end in ends if end.startswith(f"{partition}."))
        if int(offset) >= int(end.partition(".")[2]):
            return
        time.sleep(LOOK_S)
    raise AssertionError(f"the subscriber stands at {subscription.cursor}, the ends are {ends}")
