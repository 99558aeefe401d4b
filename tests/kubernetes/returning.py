"""A client before and after an outage of its cluster; runs in the client's pod.

    python -m tests.kubernetes.returning before|after --router HOST:PORT [OPTIONS]

`before` registers queries, receives the matches of some objects, has more objects acknowledged
without waiting for their matches, and prints its state as one line of JSON. `after` reads that
line: the queries have to be unchanged, a search has to find all objects, and the subscriber has to
get, from its cursor on, each match that it has not got, and those of new objects, once.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
from collections import Counter
from typing import Any

from sirocco_client import Client, query_from_json

from sirocco.cli.terminal.remote import add_connection, connect
from tests.oracle import matches

SUBSCRIBER = "returning"
OBJECTS = 2_000
# A bound, not a promise: one node of two cores, which also runs the control plane.
WAIT_S = 600.0
QUERIES: tuple[dict[str, Any], ...] = (
    {"id": "returning-ember", "kind": "range", "mode": "continuous", "text": "ember"},
    {
        "id": "returning-circle",
        "kind": "range",
        "mode": "continuous",
        "region": {"circle": {"lon": 0.0, "lat": 0.0, "radius_m": 4_000_000}},
        "text": "ANY(deluge squall)",
    },
)
Pairs = Counter[tuple[str, int | str]]


def objects_of(phase: str) -> list[dict[str, Any]]:
    """Returns the objects of a phase; the same at every call."""
    rng = random.Random(phase)
    # Words that no other test uses.
    words = ("ember", "deluge", "squall", "lane", "cloud")
    return [
        {
            "id": f"{phase}-{number}",
            "lon": rng.uniform(-180, 180),
            "lat": rng.uniform(-90, 90),
            "text": " ".join(rng.choices(words, k=3)),
        }
        for number in range(OBJECTS)
    ]


def publish(client: Client, phase: str) -> str:
    """Publishes the objects of a phase until acknowledged; returns their position."""
    publisher = client.publisher()
    for one in objects_of(phase):
        publisher.publish(one)
    return publisher.flush(WAIT_S).position_token


def receive(client: Client, cursor: str | None, wanted: Pairs, published: str = "") -> str:
    """Receives exactly the wanted matches; returns the cursor after them.

    `published`: a phase that is published once the subscription is open.
    """
    got: Pairs = Counter()
    with client.subscribe(SUBSCRIBER, cursor) as subscription:
        if published:
            publish(client, published)
        too_late = threading.Timer(WAIT_S, subscription.close)
        too_late.start()
        while got.total() < wanted.total():
            batch = subscription.next_batch()
            assert batch is not None, f"{(wanted - got).total()} matches are missing"
            got.update(batch.pairs())
            cursor = batch.cursor
        too_late.cancel()
    assert got == wanted, f"{(got - wanted).total()} doubled or wrong"
    assert cursor is not None
    return cursor


def standing(client: Client) -> list[str]:
    """Returns all that a router reports of the standing queries."""
    return sorted(map(repr, client.list(SUBSCRIBER)))


def before(client: Client) -> dict[str, Any]:
    for query in QUERIES:
        client.register(query_from_json(query, SUBSCRIBER))
    cursor = receive(client, None, matches(objects_of("received"), QUERIES), "received")
    return {
        "queries": standing(client),
        "cursor": cursor,
        "position": publish(client, "acknowledged"),
    }


def after(client: Client, known: dict[str, Any]) -> dict[str, Any]:
    assert standing(client) == known["queries"], standing(client)
    past = objects_of("received") + objects_of("acknowledged")
    question = query_from_json({**QUERIES[0], "id": "question", "mode": "snapshot"}, "")
    found = client.search(question, position_token=known["position"], timeout_s=WAIT_S)
    found_ids = sorted(str(one.id) for one in found.objects)
    assert found_ids == sorted(str(one) for _, one in matches(past, QUERIES[:1])), len(found_ids)
    missed = matches(objects_of("acknowledged"), QUERIES)
    cursor = receive(client, known["cursor"], missed)
    new = matches(objects_of("new"), QUERIES)
    receive(client, cursor, new, "new")
    for query in QUERIES:
        client.unregister(query["id"])
    return {"found": len(found_ids), "missed": missed.total(), "new": new.total()}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("when", choices=["before", "after"])
    add_connection(parser)
    args = parser.parse_args(arguments)
    with connect(args) as client:
        reported = before(client) if args.when == "before" else after(client, json.load(sys.stdin))
    print(json.dumps(reported))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
