"""The topics of a system as an input, on a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'sirocco[spark]'")

import build_map as job
from sirocco_spark import kafka
from sirocco_spark.kafka import Cluster, parse_cluster

from sirocco.codec.hops import encode
from sirocco.model.errors import InvalidArgument
from sirocco.model.objects import ObjectColumnsBuilder, parse_object
from sirocco.model.query import canonical, parse_query, query_handle
from sirocco.protocol.contract.messages import (
    INTAKE,
    NO_REVISION,
    REGISTRY,
    Change,
    IntakeObjects,
    Message,
)
from sirocco.transport.kafka_log import KafkaLog
from sirocco.transport.log import TopicSpec
from tests.integration.spark.conftest import START_MS, random_objects

pytestmark = pytest.mark.spark


def records_of(messages: Sequence[Message]) -> list[tuple[str, bytes]]:
    encoded = [encode(message) for message in messages]
    return [(path, request.SerializeToString()) for path, request in encoded]


def taken(objects: list[dict], session: int, first: int) -> IntakeObjects:
    rows = ObjectColumnsBuilder()
    for one in objects:
        rows.add(parse_object(one))
    count = len(objects)
    return IntakeObjects(
        session=session,
        first_number=first,
        span=count,
        acknowledged_to=first - 1,
        received_ms=START_MS + first,
        objects=rows.build(),
        number_deltas=None,
    )


def change(query: dict | None, query_id: str, expected: int, epoch: int = 1) -> Change:
    parsed = None if query is None else parse_query(query)
    digest = 0 if query is None else 7
    return Change(
        handle=query_handle(query_id),
        query=parsed,
        subscriber="me",
        start_ms=START_MS,
        expected_revision=expected,
        digest=digest,
        epoch=epoch,
    )


def intake_records(objects: list[dict]) -> list[tuple[str, bytes]]:
    halves = taken(objects[:300], 1, 1), taken(objects[300:], 1, 301)
    # A publisher without an acknowledgement sends again; others have numbers of their own.
    again, other = taken(objects[200:400], 1, 201), taken(objects[:100], 2, 1)
    good = records_of([*halves, again, other])
    return [*good, (good[0][0], good[0][1][:-3]), ("/no.such/Method", b"")]


def registry_records() -> tuple[list[tuple[str, bytes]], list[dict]]:
    base = {"kind": "range", "mode": "continuous"}
    a, b, c = ({"id": name, **base, "text": name} for name in "abc")
    newer = {**a, "text": "newer"}
    changes = [
        change(a, "a", NO_REVISION),  # 0
        change(b, "b", NO_REVISION),  # 1
        change(c, "c", NO_REVISION),  # 2
        change(newer, "a", 0, 2),  # 3
        change(None, "b", 1, 2),  # 4
        change({**a, "text": "void"}, "a", 0, 2),  # of a revision that is gone
        change({**c, "text": "late"}, "c", 2, 1),  # of an owner that was replaced
        replace(change(newer, "a", 3, 2), is_republished=True),
    ]
    return records_of(changes), [newer, c]


def canonical_of(queries: list[dict]) -> list[dict]:
    return sorted((canonical(parse_query(q)) for q in queries), key=lambda q: q["id"])


@pytest.fixture
def cluster(kafka_server) -> Iterator[Cluster]:
    made = Cluster(kafka_server.address, f"spark-{uuid.uuid4().hex[:8]}")
    log = KafkaLog(made.settings({}))
    log.create_topics([TopicSpec(INTAKE, 2), TopicSpec(REGISTRY, 1, compacted=True)])
    producer = log.producer("tests")
    for number, (method, value) in enumerate(intake_records(random_objects(500))):
        producer.append(INTAKE, number % 2, value, headers=(("method", method.encode()),))
    for method, value in registry_records()[0]:
        producer.append(REGISTRY, 0, value, key=b"k", headers=(("method", method.encode()),))
    assert producer.flush(120.0) == 0
    yield made
    log.close()


@pytest.mark.kafka
@pytest.mark.parametrize("by_connector", [True, False])
def test_a_system_is_read_from_its_topics(spark, cluster, monkeypatch, by_connector):
    assert kafka.has_connector(spark)
    if not by_connector:
        monkeypatch.setattr(kafka, "has_connector", lambda _: False)
    records = kafka.read_topic(spark, cluster, INTAKE, task_offsets=2)
    table = kafka.decode_objects(records, ("id", "lon", "session", "number", "text")).toArrow()
    check_objects(table.to_pylist())
    specs = kafka.decode_queries(kafka.read_topic(spark, cluster, REGISTRY)).toArrow().to_pylist()
    check_queries(specs)
    with pytest.raises(InvalidArgument, match=r"there is no topic nobody\.intake"):
        kafka.read_topic(spark, Cluster(cluster.bootstrap, "nobody"), INTAKE)


@pytest.mark.kafka
def test_a_map_is_built_from_the_topics_of_a_system(spark, cluster, tmp_path):
    source = f"kafka:{cluster.bootstrap}/{cluster.name}"
    options = job.Options(
        objects=source, out=tmp_path / "map", queries=source, scheme="kd-tree", leaves=12, slots=3
    )
    partition_map, summary = job.build_map(spark, options)
    assert (len(partition_map.leaves), partition_map.slots) == (12, 3)
    # Each object once for each session, each query as in force, and unreadable records.
    assert (summary.objects, summary.sampled_objects, summary.queries) == (600, 600, 2)
    assert (summary.refused_objects["count"], summary.refused_queries["count"]) == (2, 0)
    with pytest.raises(InvalidArgument, match=r"there is no topic nobody\.intake"):
        job.build_map(
            spark, job.Options(objects=f"kafka:{cluster.bootstrap}/nobody", out=tmp_path / "map")
        )


def check_objects(rows: list[dict]) -> None:
    good = [row for row in rows if row["refusal"] is None]
    assert sorted((row["session"], row["number"]) for row in good) == [
        *((1, number) for number in range(1, 501)),
        *((2, number) for number in range(1, 101)),
    ]
    objects = random_objects(500)
    for row in good:
        reported = objects[row["number"] - 1]
        assert (row["lon"], row["text"]) == (reported["lon"], reported.get("text", ""))
    refused = [row["refusal"] for row in rows if row["refusal"] is not None]
    assert len(refused) == 2
    assert sum("/no.such/Method" in reason for reason in refused) == 1


def check_queries(rows: list[dict]) -> None:
    assert all(row["refusal"] is None for row in rows)
    specs = sorted((json.loads(row["spec"]) for row in rows), key=lambda q: q["id"])
    assert specs == canonical_of(registry_records()[1])


def test_rows_of_the_connector_are_decoded_like_records_of_the_log(spark):
    """Tests the Kafka connector's own schema, of which only some columns matter."""
    ddl = (
        "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, "
        "timestampType int, headers array<struct<key:string, value:binary>>"
    )

    def frame(records):
        rows = [
            (b"k", value, "t", 0, offset, None, 0, [("other", b"x"), ("method", method.encode())])
            for offset, (method, value) in enumerate(records)
        ]
        return kafka.with_method(spark.createDataFrame(rows, ddl).repartition(2))

    columns = ("id", "lon", "session", "number", "text")
    records = frame(intake_records(random_objects(500)))
    check_objects(kafka.decode_objects(records, columns).toArrow().to_pylist())
    check_queries(kafka.decode_queries(frame(registry_records()[0])).toArrow().to_pylist())


def test_settings_travel_to_the_connector():
    cluster = parse_cluster("one:1,two:2/past")
    assert cluster == Cluster("one:1,two:2", "past")
    assert parse_cluster("one:1") == Cluster("one:1", "sirocco")
    environment = {
        "SIROCCO_KAFKA_SECURITY": "sasl_ssl",
        "SIROCCO_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "SIROCCO_KAFKA_SASL_USERNAME": "me",
        "SIROCCO_KAFKA_SASL_PASSWORD": 'a"b\\c',
        "SIROCCO_KAFKA_CA": "/ca.pem",
    }
    options = kafka.connector_options(cluster.settings(environment))
    assert options["kafka.security.protocol"] == "SASL_SSL"
    assert options["kafka.sasl.jaas.config"].endswith(
        'ScramLoginModule required username="me" password="a\\"b\\\\c";'
    )
    assert options["kafka.ssl.truststore.location"] == "/ca.pem"
    assert kafka.suits_connector(cluster.settings(environment))
    mutual = {"SIROCCO_KAFKA_CERTIFICATE": "/tls.crt", "SIROCCO_KAFKA_KEY": "/tls.key"}
    assert not kafka.suits_connector(cluster.settings(environment | mutual))
    for wrong in ("localhost", "localhost:1/a/b"):
        with pytest.raises(InvalidArgument, match="is not HOST:PORT"):
            parse_cluster(wrong)
