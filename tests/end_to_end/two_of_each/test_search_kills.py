"""Searches while processes are killed, on real Kafka and Redis: whole, or they tell what is not."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from sirocco_client import (
    Client,
    KnnQuery,
    PartialResult,
    RangeQuery,
    RankedQuery,
    SearchAnswer,
    TermsQuery,
)

from sirocco.local.cluster import LocalCluster
from tests.end_to_end.under_load import WAIT_S, WORDS

pytestmark = pytest.mark.kafka

OBJECTS = 5_000
# Other tests have published to the same cluster.
OURS = "ours"
QUERIES = (
    RangeQuery(id="all", mode="snapshot", text=OURS),
    RangeQuery(id="fire", mode="snapshot", text="fire AND NOT drill"),
    KnnQuery(id="near", mode="snapshot", lon=1.0, lat=2.0, k=50, text="coffee"),
    TermsQuery(id="terms", mode="snapshot", k=5, text="storm"),
    RankedQuery(
        id="best", mode="snapshot", lon=0.0, lat=0.0, radius_m=9e6, k=20, keywords=("sky", "road")
    ),
)


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(",".join(cluster.router_addresses), timeout_s=WAIT_S) as opened:
        yield opened


@pytest.fixture(scope="module")
def token(client: Client) -> str:
    """Of everything that was published."""
    rng = random.Random(7)
    with client.publisher() as publisher:
        publisher.publish_many(
            [
                {
                    "id": i,
                    "lon": rng.uniform(-180, 180),
                    "lat": rng.uniform(-90, 90),
                    "text": " ".join([OURS, *rng.choices(WORDS, k=4)]),
                }
                for i in range(OBJECTS)
            ]
        )
        return publisher.flush().position_token


def asked(client: Client, token: str) -> list[Any]:
    """All queries at one moment, so that their answers can be compared."""
    return [said(client.search(query, position_token=token, now_ms=NOW_MS)) for query in QUERIES]


def said(answer: SearchAnswer) -> dict[str, Any]:
    assert not answer.is_partial
    return answer.members()


# Behind every arrival.
NOW_MS = int(time.time() * 1_000) + 3_600_000


def test_a_killed_evaluator_is_told_of_then_its_slots_come_back(
    cluster: LocalCluster, client: Client, token: str
) -> None:
    # init
    before = asked(client, token)
    assert before[0]["objects"] == list(range(OBJECTS))
    assert all(len(one.get("objects", one.get("terms", ()))) >= 5 for one in before)

    # test: at once, before its lease has run out, its slots are missing, and named.
    cluster.kill("evaluator-0")
    with pytest.raises(PartialResult) as caught:
        client.search(QUERIES[0], timeout_s=1.0)
    assert 0 < len(caught.value.missing_slots) < 16
    assert caught.value.answer is not None
    assert 0 < len(caught.value.answer) < OBJECTS
    assert set(caught.value.answer.ids) < set(range(OBJECTS))

    # check: whoever has time gets the whole answer, the past included.
    begin_s = time.monotonic()
    assert asked(client, token) == before
    print(f"evaluator-0 killed: searches were whole again after {time.monotonic() - begin_s:.1f} s")
    assert cluster.mend() == ["evaluator-0"]
    next(one for one in cluster.processes if one.name == "evaluator-0").await_ready()
    assert asked(client, token) == before


def test_a_killed_merger_is_not_noticed(cluster: LocalCluster, client: Client, token: str) -> None:
    before = asked(client, token)
    cluster.kill("merger-0")
    assert asked(client, token) == before
    assert cluster.mend() == ["merger-0"]
