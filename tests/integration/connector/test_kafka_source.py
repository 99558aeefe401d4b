"""Sources on a real broker, before a cluster in this process."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import xxhash
from confluent_kafka import Consumer, TopicPartition

from sirocco.local.kafka import KafkaServer
from sirocco.services.embedded import EmbeddedCluster
from tests.support.connector_runs import (
    Ledger,
    committed,
    item,
    new_topic,
    produce,
    records_of,
    running,
    source,
)
from tests.support.waiting import eventually

pytestmark = pytest.mark.kafka


def test_records_are_published_once_and_committed_with_their_session(
    kafka_server: KafkaServer, cluster: EmbeddedCluster, word: str
) -> None:
    address, topic = kafka_server.address, new_topic(kafka_server.address, 3)
    ledger = Ledger(cluster, text=word)
    config = source(address, topic, group=topic)
    produce(address, topic, [item(i, word) for i in range(300)], partition=lambda row: row % 3)
    with running(cluster.router_address, config) as one:
        ledger.expect(Counter(range(300)))
        eventually(one.is_ready)
        eventually(lambda: committed(address, topic, topic, 2)[0] == 100)
        metric = one.metric
        eventually(lambda: metric("sirocco_connector_lag_records", side="source") == 0)
        assert metric("sirocco_connector_records_total", name="events") == 300
        assert metric("sirocco_connector_objects_total", name="events") == 300
    assert one.is_clean
    offset, metadata = committed(address, topic, topic, 0)
    assert (offset, metadata[:9], metadata[-4:]) == (100, "sirocco1 ", " 100")
    # It goes on where it was.
    produce(address, topic, [item(i, word) for i in range(300, 310)])
    with running(cluster.router_address, config):
        ledger.expect(Counter(range(310)))
    ledger.close()


def test_a_group_that_was_set_back_publishes_again(
    kafka_server: KafkaServer, cluster: EmbeddedCluster, word: str
) -> None:
    address, topic = kafka_server.address, new_topic(kafka_server.address)
    ledger = Ledger(cluster, text=word)
    config = source(address, topic, group=topic)
    produce(address, topic, [item(i, word) for i in range(10)])
    with running(cluster.router_address, config):
        ledger.expect(Counter(range(10)))
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic})
    consumer.commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
    consumer.close()
    with running(cluster.router_address, config):
        ledger.expect(Counter(range(10)) + Counter(range(7, 10)))
    ledger.close()


def test_what_cannot_be_read_goes_to_the_dead_letters_with_the_reason(
    kafka_server: KafkaServer, cluster: EmbeddedCluster, word: str
) -> None:
    address, topic = kafka_server.address, new_topic(kafka_server.address)
    dead = new_topic(address)
    ledger = Ledger(cluster, text=word)
    values = [
        item(1, word),
        b"{",
        None,
        item(2, word, lon=500),
        b"[]",
        b"\xff\xfe",
        b"",
        {"lon": 1, "lat": 1},
        item(3, word),
        b"x" * 3_000,
        item(4, word, text=word + " y" * 40_000),
    ]
    produce(address, topic, values, key=lambda row: b"k%d" % row)
    config = source(address, topic, group=topic, dead_letters=dead, record_bytes=200_000)
    with running(cluster.router_address, config) as one:
        found = records_of(address, dead, 8)
        ledger.expect(Counter([1, 3]))
        eventually(lambda: committed(address, topic, topic)[0] == len(values))
        reasons = {"decode": 5, "mapping": 3, "size": 0, "refused": 0, "schema": 0}
        for reason, count in reasons.items():
            name = "sirocco_connector_dead_letters_total"
            assert one.metric(name, reason=reason) == count, reason
        assert one.metric("sirocco_connector_empty_records_total") == 1
    by_offset = {int(dict(each.headers())["sirocco.offset"]): each for each in found}
    assert sorted(by_offset) == [1, 3, 4, 5, 6, 7, 9, 10]
    headers = dict(by_offset[3].headers())
    assert by_offset[3].key() == b"k3"
    assert json.loads(by_offset[3].value()) == values[3]
    assert headers["sirocco.topic"] == topic.encode()
    assert (headers["sirocco.partition"], headers["sirocco.source"]) == (b"0", b"events")
    assert (headers["sirocco.reason"], headers["sirocco.field"]) == (b"mapping", b"lon")
    ledger.close()


def test_members_are_mapped_by_their_paths(
    kafka_server: KafkaServer, cluster: EmbeddedCluster, word: str
) -> None:
    address, topic = kafka_server.address, new_topic(kafka_server.address)
    ledger = Ledger(cluster, text=f"{word} AND body", where={"kind": "order"})
    value = {
        "position": {"x": 3, "y": 4},
        "title": word,
        "body": "body",
        "kind": "order",
        "gone": None,
    }
    produce(address, topic, [value, value | {"title": "other"}], key=lambda row: b"key-%d" % row)
    mapping = "lon=position.x,lat=position.y,id=$key,ts=$timestamp,text=title+body"
    with running(cluster.router_address, source(address, topic, group=topic, map=mapping)):
        ledger.expect(Counter([_hash("key-0")]))
    ledger.close()


def _hash(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode())
