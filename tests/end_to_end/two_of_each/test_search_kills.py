"""Searches while processes are killed, on real Kafka and Redis: complete, or with missing slots."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from sirocco_client import (
    Circle,
    Client,
    Ended,
    KnnQuery,
    PartialResult,
    RangeQuery,
    RankedChange,
    RankedQuery,
    SearchAnswer,
    TermsQuery,
    TermsStep,
)

from sirocco.local.cluster import LocalCluster
from sirocco.protocol.contract.messages import SLOTS
from sirocco.protocol.contract.partition_ownership import checkpoint_prefix
from tests.end_to_end.under_load import WAIT_S, WORDS

pytestmark = pytest.mark.kafka

# Slices are sealed at 16,384 objects, each slot at a different offset: one of these is full.
CROWD = 40_000
OBJECTS = 5_000
# Other tests have published to the same cluster.
OURS = "ours"
THEIRS = "theirs"
PLACE = (7.0, 45.0)
STEPPED = (TermsQuery, RankedQuery)
QUERIES = (
    RangeQuery(id="all", mode="snapshot", text=OURS),
    RangeQuery(id="fire", mode="snapshot", text="fire AND NOT drill"),
    KnnQuery(id="near", mode="snapshot", lon=1.0, lat=2.0, k=50, text="coffee"),
    TermsQuery(id="terms", mode="snapshot", k=5, text="storm"),
    RankedQuery(
        id="best", mode="snapshot", lon=0.0, lat=0.0, radius_m=9e6, k=20, keywords=("sky", "road")
    ),
    RangeQuery(id="crowd", mode="snapshot", region=Circle(*PLACE, 3_000.0), text="w3 AND theirs"),
    KnnQuery(id="close", mode="snapshot", lon=PLACE[0], lat=PLACE[1], k=50, text="w7"),
    TermsQuery(id="talk", mode="snapshot", k=20, region=Circle(*PLACE, 3_000.0)),
    RankedQuery(
        id="there", mode="snapshot", lon=PLACE[0], lat=PLACE[1], radius_m=3e3, k=20,
        keywords=("w3", "w5"),
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(",".join(cluster.router_addresses), timeout_s=WAIT_S) as opened:
        yield opened


@pytest.fixture(scope="module")
def token(client: Client) -> str:
    """A token for everything that was published."""
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
        publisher.publish_many(crowd())
        return publisher.flush().position_token


def crowd() -> Iterator[dict[str, Any]]:
    """Yields so many objects around one place that its slot has slices of them."""
    rng = random.Random(8)
    for i in range(OBJECTS, OBJECTS + CROWD):
        lon, lat = (rng.gauss(x, 0.02) for x in PLACE)
        text = " ".join([THEIRS, *(f"w{rng.randrange(40)}" for _ in range(4))])
        yield {"id": i, "lon": lon, "lat": lat, "text": text}


def asked(client: Client, token: str) -> list[Any]:
    """Answers all queries for one moment, so that the answers can be compared."""
    return [shown(client.search(query, position_token=token, now_ms=NOW_MS)) for query in QUERIES]


def shown(answer: SearchAnswer) -> dict[str, Any]:
    assert not answer.is_partial
    return answer.members()


# After every arrival.
NOW_MS = int(time.time() * 1_000) + 3_600_000


def owner_of_slices(cluster: LocalCluster, client: Client) -> str:
    """Waits until the archive has the crowd's slices, and a checkpoint that names them."""
    archive = Path(cluster.settings.archive, cluster.settings.cluster)
    deadline_s = time.monotonic() + WAIT_S
    while True:
        for one in archive.glob("slices/*/*"):
            newest_s = one.stat().st_mtime
            slot = int(one.parent.name)
            checkpoints = archive.glob(f"{checkpoint_prefix(SLOTS, slot)}*")
            if any(each.stat().st_mtime > newest_s for each in checkpoints):
                return owner_of(cluster, client, slot)
        assert time.monotonic() < deadline_s, sorted(archive.glob("*/*/*"))
        time.sleep(0.1)


def owner_of(cluster: LocalCluster, client: Client, slot: int) -> str:
    """Returns the process that owns a slot."""
    described = client.describe()
    member_of = {
        each.partition: each.member for each in described.ownerships if each.topic == SLOTS
    }
    (address,) = (each.address for each in described.members if each.id == member_of[slot])
    (name,) = (
        each.name for each in cluster.processes if each.addresses and each.addresses.grpc == address
    )
    return name


def test_a_search_names_slots_of_a_killed_evaluator_until_they_return(
    cluster: LocalCluster, client: Client, token: str
) -> None:
    # init
    before = asked(client, token)
    assert before[0]["objects"] == list(range(OBJECTS))
    assert all(len(one.get("objects", one.get("terms", ()))) >= 5 for one in before)
    victim = owner_of_slices(cluster, client)

    # test: at once, before its lease has expired, its slots are missing, and named.
    cluster.kill(victim)
    with pytest.raises(PartialResult) as caught:
        client.search(QUERIES[0], timeout_s=1.0)
    assert 0 < len(caught.value.missing_slots) < 16
    assert caught.value.answer is not None
    assert 0 < len(caught.value.answer) < OBJECTS
    assert set(caught.value.answer.ids) < set(range(OBJECTS))

    # check: a patient client gets the whole answer, with the past and the archive.
    begin_s = time.monotonic()
    assert asked(client, token) == before
    print(f"{victim} killed: searches were whole again after {time.monotonic() - begin_s:.1f} s")
    standing_queries_are_told_the_past(client, before)
    assert cluster.mend() == [victim]
    next(one for one in cluster.processes if one.name == victim).await_ready()
    assert asked(client, token) == before


def standing_queries_are_told_the_past(client: Client, before: list[dict[str, Any]]) -> None:
    """Checks that new registrations report at once what searches found before the kill."""
    wanted = {one["query"]: one for one in before}
    received: dict[str, Any] = {}
    with client.subscribe("late") as subscription:
        closing = Timer(WAIT_S, subscription.close)
        closing.start()
        for query in QUERIES:
            standing = replace(query, mode="continuous", subscriber="late")
            if isinstance(standing, STEPPED):
                standing = replace(standing, step="1h", window="23h")
            client.register(standing, past="all")
        for batch in subscription.batches():
            for query_id, object_id in batch.pairs():
                received.setdefault(query_id, []).append(object_id)
            for each in batch.lists:
                if isinstance(each, RankedChange):
                    # Ages count from its step.
                    (asked_for,) = (one for one in QUERIES if one.id == each.query)
                    answer = client.search(asked_for, now_ms=each.at_ms)
                    wanted[each.query] = {"objects": answer.ids}
                assert not isinstance(each, Ended)
                received[each.query] = each.terms if isinstance(each, TermsStep) else each.entries
            if all(is_answered(wanted[query.id], received.get(query.id, [])) for query in QUERIES):
                closing.cancel()
                break
        else:
            pytest.fail(f"not answered as {wanted}: {received}"[:4_000])
    for query in QUERIES:
        client.unregister(query.id)


def is_answered(wanted: dict[str, Any], found: Sequence[Any]) -> bool:
    """Returns whether the notifications are exactly an answer."""
    if "terms" in wanted:
        return [list(pair) for pair in found] == [list(pair) for pair in wanted["terms"]]
    if found and not isinstance(found[0], tuple):
        return sorted(map(str, found)) == sorted(map(str, wanted["objects"]))
    return [one for one, _ in found] == wanted["objects"]


def test_a_killed_merger_is_not_noticed(cluster: LocalCluster, client: Client, token: str) -> None:
    before = asked(client, token)
    cluster.kill("merger-0")
    assert asked(client, token) == before
    assert cluster.mend() == ["merger-0"]
