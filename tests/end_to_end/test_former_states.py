"""The log and archive of earlier versions are taken over: once, complete, and in order.

`former/` has all bytes of small clusters that ran the code of earlier revisions (`former/record.py`
creates them), and the notifications of a subscriber. The clusters continue here: the notifications
of both parts together must be those of the oracle over all objects.
"""

from __future__ import annotations

import base64
import json
import lzma
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sirocco_client import AlreadyExists, Client, NotFound, RangeQuery, query_from_json

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.transport.log import Record
from tests.collisions import FOUND
from tests.end_to_end.former.record import Receiver, publish
from tests.oracle import agrees, arrivals_ms, matches

FOLDER = Path(__file__).parent / "former"
STATES = sorted(FOLDER.glob("*.json.xz"))
TIMEOUT_S = 300.0

# Queries of the story that the present version changes and removes.
CHANGED = {"changed", "removed"}


@pytest.fixture(params=STATES, ids=lambda path: path.name.partition(".")[0])
def former(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The state of a former cluster."""
    known: dict[str, Any] = json.loads(lzma.decompress(request.param.read_bytes()))
    return known


@pytest.fixture
def cluster(former: dict[str, Any]) -> Iterator[EmbeddedCluster]:
    """A cluster of the present version on the bytes of the former one."""
    cluster = EmbeddedCluster(ClusterSettings(**former["settings"]), evaluators=2, routers=2)
    cluster.log.create_topics(cluster._parts.settings.topics())
    for name, partitions in former["topics"].items():
        for number, content in enumerate(partitions):
            partition = cluster.log.find(name, number)
            partition.low = content["low"]
            for offset, record in enumerate(content["records"], content["low"]):
                cluster.log.put(partition, _record(name, number, offset, record))
    for name, contents in former["blobs"].items():
        cluster._parts.archive.write(name, base64.b64decode(contents))
    with cluster:
        yield cluster


def _record(topic: str, partition: int, offset: int, record: Any) -> Record | None:
    if record is None:
        return None
    timestamp_ms, key, value, headers = record
    return Record(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=None if key is None else base64.b64decode(key),
        value=base64.b64decode(value),
        headers=tuple((name, base64.b64decode(each)) for name, each in headers),
    )


def test_a_former_cluster_continues(former: dict[str, Any], cluster: EmbeddedCluster) -> None:
    # init
    objects, count = former["objects"], former["former_objects"]
    subscriber = former["subscriber"]
    old = former["queries"][: former["former_queries"]]
    new = former["queries"][former["former_queries"] :]
    new = [query for query in new if "track" not in query]
    start_ms = arrivals_ms(objects)[0]
    with Client(cluster.router_address, timeout_s=TIMEOUT_S) as client:
        receiver = Receiver(client, former["cursor"])

        # test: all queries are there, they can be changed, and new ones see the past.
        there = {each.query.id: each for each in client.list()}
        assert there.keys() <= {query["id"] for query in old}
        for query in old:
            if "ttl" not in query:
                known = there[query["id"]]
                assert client.get(query["id"]) == known
                again = client.register(query_from_json(query, subscriber), start_ms=start_ms)
                assert (known.query.subscriber, known.revision) == (subscriber, again)
        with pytest.raises(AlreadyExists, match="hash of this id"):
            client.register(RangeQuery(id=FOUND["acme:orders"], subscriber=subscriber))
        client.unregister("removed")
        with pytest.raises(NotFound):
            client.get("removed")
        client.update(query_from_json(_changed(old), subscriber))
        # Earlier notifications hold: no value enters again, and those inside leave.
        followed = next(query for query in old if query["id"] == "acme:inside")
        client.update(query_from_json(followed | {"ttl": "5000d"}, subscriber))
        for query in new:
            client.register(query_from_json(query, subscriber), start_ms=start_ms, past="all")
        token = publish(client, objects[count:], 0.01)
        token = client.advance_time(arrivals_ms(objects)[-1] + 1)
        ends = client.await_processed(token, timeout_s=TIMEOUT_S)
        lines = [*former["lines"], *receiver.until(ends)["lines"]]

        # check
        wrong = _check_changes(lines, objects, count, old)
        kept = [query for query in (*old, *new) if query["id"] not in CHANGED]
        # A query with history also gets the list of its begin.
        received = [line for line in lines if line.get("at") != start_ms]
        wrong += agrees([line for line in received if line["query"] not in CHANGED], objects, kept)
        wrong += _check_searches(client, objects, kept, token)
    assert not wrong, f"{len(wrong)} differences:\n" + "\n".join(wrong[:20])


def _changed(old: list[dict[str, Any]]) -> dict[str, Any]:
    return next(query for query in old if query["id"] == "changed") | {"text": "tram"}


def _check_changes(
    lines: list[dict[str, Any]], objects: list[Any], count: int, old: list[dict[str, Any]]
) -> list[str]:
    """Returns differences of the two queries that were changed or missing in the first part."""
    removed = next(query for query in old if query["id"] == "removed")
    before = next(query for query in old if query["id"] == "changed")
    wanted = matches(objects[:count], [removed, before])
    # Arrivals continue those of the first part; these two queries ignore them.
    wanted += matches(objects[count:], [_changed(old)])
    received = Counter(
        (line["query"], line["object"]) for line in lines if line["query"] in CHANGED
    )
    surplus = [f"{pair}: received {n} times too often" for pair, n in (received - wanted).items()]
    return surplus + [f"{pair}: lost {n} times" for pair, n in (wanted - received).items()]


def _check_searches(
    client: Client, objects: list[Any], queries: list[dict[str, Any]], token: str
) -> list[str]:
    """Returns differences of answers over the whole past, the former version's included."""
    now_ms = arrivals_ms(objects)[-1]
    wrong = []
    for query in queries:
        if "track" in query:
            continue
        asked = {name: value for name, value in query.items() if name not in ("ttl", "step")}
        asked["mode"] = "snapshot"
        found = client.search(query_from_json(asked, ""), now_ms=now_ms, position_token=token)
        line: dict[str, Any] = {"query": asked["id"]}
        match asked["kind"]:
            case "terms":
                line |= {"terms": [list(each) for each in found.terms], "at": now_ms}
            case "knn":
                line |= {"objects": found.ids, "distance_m": found.distances_m}
            case "ranked":
                line |= {"objects": found.ids, "score": found.scores}
            case _:
                line["objects"] = found.ids
        wrong += agrees([line], objects, [asked])
    return wrong
