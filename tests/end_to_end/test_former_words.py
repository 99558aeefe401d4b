"""Standing queries that an earlier version analysed otherwise are analysed anew from their text.

`former/words` has the bytes of a cluster of revision 6b00d7a, where `火事` was one word: its
compiled queries have the hash of that word, and no text has it now.
"""

from __future__ import annotations

import base64
import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sirocco_client import Client, query_from_json

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.end_to_end.former.record import Receiver, publish
from tests.end_to_end.test_former_states import _record

FOLDER = Path(__file__).parent / "former" / "words"
TIMEOUT_S = 300.0
SETTINGS: dict[str, Any] = {
    **{"cluster": "former", "slots": 4, "leaves": 8},
    **{"intake_partitions": 1, "registry_partitions": 2},
}
TEXTS = {
    "fire": "fire",
    "fire in Japanese": "火事",
    "either": "siren OR 火事",
    "not": "火事 AND NOT 訓練",
    "network": "wi-fi",
    "street": "café straße",
}
OBJECTS = {
    "a": "大火事だ",
    "b": "火事の訓練",
    "c": "事は火",
    "d": "Fire!",
    "e": "free wi-fi",
    "f": "fi wi",
    "g": "CAFÉ an der Strasse",
}
FOUND = {
    *{("fire in Japanese", "a"), ("either", "a"), ("not", "a")},
    *{("fire in Japanese", "b"), ("either", "b"), ("fire", "d"), ("network", "e"), ("street", "g")},
}


@pytest.fixture(params=["killed", "drained"])
def cluster(request: pytest.FixtureRequest) -> Iterator[EmbeddedCluster]:
    """A cluster of the present version on the bytes of the former one."""
    contents = lzma.decompress((FOLDER / f"words-{request.param}.json.xz").read_bytes())
    former: dict[str, Any] = json.loads(contents)
    cluster = EmbeddedCluster(ClusterSettings(**SETTINGS), evaluators=1, routers=1)
    cluster.log.create_topics(cluster._parts.settings.topics())
    for name, partitions in former["topics"].items():
        for number, content in enumerate(partitions):
            partition = cluster.log.find(name, number)
            partition.low = content["low"]
            for offset, record in enumerate(content["records"], content["low"]):
                cluster.log.put(partition, _record(name, number, offset, record))
    for name, blob in former["blobs"].items():
        cluster._parts.archive.write(name, base64.b64decode(blob))
    with cluster:
        yield cluster


def test_queries_match_by_the_new_analysis_of_their_text(cluster: EmbeddedCluster) -> None:
    region = {"rect": {"west": 0, "south": 0, "east": 2, "north": 2}}
    with Client(cluster.router_address, timeout_s=TIMEOUT_S) as client:
        # They are the same queries: registering one again returns its revision.
        for query_id, text in TEXTS.items():
            query = {"id": query_id, "kind": "range", "mode": "continuous", "region": region}
            again = client.register(query_from_json(query | {"text": text}, "ops"))
            assert again == client.get(query_id).revision
        receiver = Receiver(client, subscriber="ops")
        objects = [
            {"id": name, "lon": 1, "lat": 1, "text": text, "ts": number}
            for number, (name, text) in enumerate(OBJECTS.items())
        ]
        token = publish(client, objects, 0)
        ends = client.await_processed(token, timeout_s=TIMEOUT_S)
        lines = receiver.until(ends)["lines"]
    pairs = [(line["query"], line["object"]) for line in lines if line["query"] in TEXTS]
    assert sorted(pairs) == sorted(FOUND)
    assert {line["query"] for line in lines} == {*TEXTS, "near"}
