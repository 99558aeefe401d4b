"""kill -9 of each service under load, on real Kafka and Redis: nothing lost, nothing doubled.

Two of each service run as processes. While one session publishes and one subscriber receives, a
process is killed and, a moment later, started again; the other of its kind takes over meanwhile.
At the end the notifications have to be the oracle's pairs, each exactly once.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from sirocco_client import Client, Subscription, query_from_json

from sirocco.local.cluster import LocalCluster, LocalClusterSettings
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from tests.oracle import matches

pytestmark = pytest.mark.kafka

SEED = 20261121
OBJECTS = 12_000
WORDS = ("fire", "flood", "drill", "road", "closed", "free", "coffee", "storm", "light", "sky")

QUERIES = [
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
]


@pytest.fixture(scope="module")
def cluster(
    kafka_server: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    directory = Path(tmp_path_factory.mktemp("kills"))
    settings = LocalClusterSettings(
        "kills",
        kafka_server.address,
        redis_server.url,
        str(directory / "archive"),
        {"router": 2, "evaluator": 2, "merger": 2, "coordinator": 2},
        {"SIROCCO_SLOTS": "16"},
    )
    with LocalCluster(directory, settings) as running:
        yield running


def some_objects(rng: random.Random, prefix: str) -> list[dict[str, object]]:
    return [
        {
            "id": f"{prefix}-{number}",
            "lon": rng.uniform(-180, 180),
            "lat": rng.uniform(-90, 90),
            "text": " ".join(rng.choices(WORDS, k=rng.randint(1, 6))),
            "size": rng.randint(0, 9),
            "status": rng.choice(["open", "closed"]),
        }
        for number in range(OBJECTS)
    ]


def await_cursor(subscription: Subscription, ends: tuple[str, ...]) -> None:
    """Waits until the subscriber has got everything before the end of its Kafka partition."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        partition, _, offset = subscription.cursor.partition(".")
        end = next(end for end in ends if end.startswith(f"{partition}."))
        if int(offset) >= int(end.partition(".")[2]):
            return
        time.sleep(0.05)
    raise AssertionError(f"the subscriber stands at {subscription.cursor}, the ends are {ends}")


@pytest.mark.parametrize("victim", ["evaluator-0", "router-0", "merger-0", "coordinator-0"])
def test_a_kill_under_load_loses_and_doubles_nothing(cluster: LocalCluster, victim: str) -> None:
    rng = random.Random(f"{SEED}-{victim}")
    objects = some_objects(rng, victim)
    subscriber = f"ledger-{victim}"
    queries = [{**query, "id": f"{query['id']}-{victim}"} for query in QUERIES]
    received: Counter[tuple[str, int | str]] = Counter()
    addresses = ",".join(cluster.router_addresses)

    with Client(addresses) as client, client.subscribe(subscriber) as subscription:
        subscription.open()
        results = client.register_many(query_from_json(query, subscriber) for query in queries)
        assert [result.error for result in results] == [None] * len(queries)

        def receive() -> None:
            for batch in subscription.batches():
                received.update(batch.pairs())

        receiving = threading.Thread(target=receive, daemon=True)
        receiving.start()
        with client.publisher() as publisher:
            for number, one in enumerate(objects):
                publisher.publish(one)
                if number == OBJECTS // 3:
                    # Some of it is acknowledged, some routed, some matched when it happens.
                    publisher.flush(60)
                    cluster.kill(victim)
                if number == 2 * OBJECTS // 3:
                    assert cluster.mend() == [victim]
            result = publisher.flush(60)
        cursors = client.await_processed(result.position_token, timeout_s=60)
        await_cursor(subscription, cursors)
        subscription.close()
        receiving.join(10)
        for query in queries:
            client.unregister(str(query["id"]))

    expected = matches(objects, queries)
    missing, surplus = expected - received, received - expected
    seed = f"seed {SEED}, victim {victim}"
    assert not missing, f"{seed}: {missing.total()} lost, such as {next(iter(missing))}"
    assert not surplus, f"{seed}: {surplus.total()} doubled or wrong: {next(iter(surplus))}"
