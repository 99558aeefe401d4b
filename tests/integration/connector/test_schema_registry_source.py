"""Sources of Avro and Protobuf, with a registry that may be away or strange."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from sirocco.local.kafka import KafkaServer
from sirocco.services.embedded import EmbeddedCluster
from tests.support.connector_runs import (
    Ledger,
    committed,
    new_topic,
    produce,
    records_of,
    running,
    source,
)
from tests.support.schema_registry import SchemaRegistry, framed
from tests.support.waiting import eventually
from tests.unit.services.connector.test_source_schemas import (
    SECOND,
    other,
    place_class,
    places,
    record,
    written,
)

pytestmark = pytest.mark.kafka


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    found = SchemaRegistry()
    yield found
    found.close()


FIRST = record(id="long", lon="double", lat="double", text="string")
LATER = record(
    id="long", lon="double", lat="double", text="string", size={"type": "int", "default": 0}
)


def avro(schema_id: int, schema: Any, number: int, word: str, **more: Any) -> bytes:
    value = {"id": number, "lon": 1.0, "lat": 2.0, "text": word, **more}
    return framed(schema_id, written(schema, value)[5:])


def settings(registry: SchemaRegistry, address: str, topic: str, **more: Any) -> dict[str, Any]:
    of_registry = {"url": registry.url, "timeout": "2s", "retry": "200ms"}
    return source(address, topic, group=topic, registry=of_registry, **more)


def test_avro_by_its_schemas_also_when_they_change_on_the_way(
    kafka_server: KafkaServer, cluster: EmbeddedCluster, registry: SchemaRegistry, word: str
) -> None:
    address, topic = kafka_server.address, new_topic(kafka_server.address)
    dead = new_topic(address)
    ledger = Ledger(cluster, text=word)
    large = Ledger(cluster, text=word, where={"size": {"gte": 5}})
    first = registry.add(FIRST)
    produce(address, topic, [avro(first, FIRST, i, word) for i in range(10)])
    config = settings(registry, address, topic, format="avro", dead_letters=dead)
    with running(cluster.router_address, config) as one:
        ledger.expect(Counter(range(10)))
        later = registry.add(LATER)
        wrong = registry.add(
            {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]}
        )
        values = [
            avro(later, LATER, 10, word, size=7),
            avro(first, FIRST, 11, word),
            avro(999, FIRST, 12, word),
            avro(first, FIRST, 13, word)[:-2],
            b"no schema",
            framed(wrong, b"\0"),
            None,
            avro(later, LATER, 14, word, size=3),
        ]
        produce(address, topic, values)
        ledger.expect(Counter([*range(12), 14]))
        large.expect(Counter([10]))
        letters = {
            int(headers["sirocco.offset"]): headers["sirocco.reason"].decode()
            for headers in (dict(each.headers()) for each in records_of(address, dead, 4))
        }
        assert letters == {12: "schema", 13: "decode", 14: "decode", 15: "schema"}
        eventually(lambda: committed(address, topic, topic)[0] == 18)
        assert one.metric("sirocco_connector_retries_total") == 0
    # Each schema is asked for once, unknown ones once in a while.
    assert len([path for path in registry.requests if f"/{first}" in path]) == 1
    ledger.close()
    large.close()


def test_a_registry_that_is_away_or_strange_is_waited_for(
    kafka_server: KafkaServer, cluster: EmbeddedCluster, registry: SchemaRegistry, word: str
) -> None:
    address, topic = kafka_server.address, new_topic(kafka_server.address)
    ledger = Ledger(cluster, text=word)
    first = registry.add(FIRST)
    produce(address, topic, [avro(first, FIRST, i, word) for i in range(5)])
    registry.spoil = (503, b"{}")
    with running(cluster.router_address, settings(registry, address, topic, format="avro")) as one:
        for spoilt in (
            (503, b'{"error_code": 50003, "message": "later"}'),
            (200, b"<html>welcome to the network</html>"),
            (200, b"{}"),
            (200, b"[]"),
            (401, b"{}"),
            (500, b""),
        ):
            registry.spoil = spoilt
            count = len(registry.requests)
            eventually(lambda count=count: len(registry.requests) > count + 1)
        assert one.metric("sirocco_connector_retries_total") > 5
        assert one.metric("sirocco_connector_dead_letters_total") == 0
        assert ledger.received == Counter()
        registry.spoil = None
        ledger.expect(Counter(range(5)))
        eventually(lambda: committed(address, topic, topic)[0] == 5)
        assert one.metric("sirocco_connector_dead_letters_total") == 0
    assert one.is_clean
    ledger.close()


def test_a_connector_ends_while_it_waits_for_a_registry(
    kafka_server: KafkaServer, cluster: EmbeddedCluster, registry: SchemaRegistry, word: str
) -> None:
    address, topic = kafka_server.address, new_topic(kafka_server.address)
    first = registry.add(FIRST)
    produce(address, topic, [avro(first, FIRST, 1, word)])
    registry.spoil = (503, b"{}")
    with running(cluster.router_address, settings(registry, address, topic, format="avro")) as one:
        eventually(lambda: len(registry.requests) > 2)
    assert one.is_clean
    # Nothing is read yet.
    assert committed(address, topic, topic)[0] == 0


def test_protobuf_by_the_files_of_the_registry(
    kafka_server: KafkaServer, cluster: EmbeddedCluster, registry: SchemaRegistry, word: str
) -> None:
    address, topic = kafka_server.address, new_topic(kafka_server.address)
    ledger = Ledger(cluster, text=word, where={"kind": "TAXI"})
    registry.add(other().SerializeToString(), kind="PROTOBUF", subject="other")
    references = [{"name": "other.proto", "subject": "other", "version": 1}]
    own = registry.add(places().SerializeToString(), kind="PROTOBUF", references=references)
    make = place_class()
    messages = [
        make(id=i, lon=0.0, kind=i % 2, inner={"text": word}, raw=b"x").SerializeToString()
        for i in range(4)
    ]
    produce(address, topic, [framed(own, message, SECOND) for message in messages])
    config = settings(
        registry, address, topic, format="protobuf", map={"lat": "lon", "text": "inner.text"}
    )
    with running(cluster.router_address, config) as one:
        ledger.expect(Counter([1, 3]))
        eventually(lambda: committed(address, topic, topic)[0] == 4)
        assert one.metric("sirocco_connector_dead_letters_total") == 0
    ledger.close()
