"""One trace from a publish call to the notification, through all processes and their records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sirocco_api.v1.publish_service_pb2 import PublishRequest
from sirocco_api.v1.publish_service_pb2_grpc import PublishServiceStub
from sirocco_api.v1.trace_pb2 import TraceContext
from sirocco_client import Client, query_from_json
from sirocco_client.objects.encode import ObjectEncoder

from sirocco.local.cluster import LocalCluster, LocalClusterSettings
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from sirocco.protocol.contract.messages import DELIVERIES, INTAKE, PARTIALS, SLOTS
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.gateway.server import Gateway
from sirocco.services.gateway.settings import GatewaySettings
from sirocco.telemetry.call_sampler import TraceSettings
from sirocco.telemetry.spans import Tracing
from sirocco.transport.log import Record
from tests.support.collector import running_collector
from tests.support.waiting import eventually

SETTINGS = ClusterSettings(slots=4, leaves=4, intake_partitions=2, partials_partitions=2)
# Only what a client asks for, unless a test says otherwise.
ASKED = TraceSettings(ratio=0.0, calls_per_s=100)
EAST = {"id": "east", "kind": "range", "mode": "continuous", "text": "east"}
HERE = {"lon": 1.0, "lat": 1.0, "text": "east"}
WEST = {"lon": -1.0, "lat": 1.0, "text": "west"}
CALLER = trace.SpanContext(
    0x4BF92F3577B34DA6A3CE929D0E0E4736,
    0x00F067AA0BA902B7,
    is_remote=False,
    trace_flags=trace.TraceFlags(1),
    trace_state=trace.TraceState([("vendor", "opaque")]),
)
TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TIMEOUT_S = 60.0


@contextmanager
def traced(settings: TraceSettings) -> Iterator[tuple[EmbeddedCluster, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    tracing = Tracing(settings, exporter)
    try:
        with EmbeddedCluster(SETTINGS, routers=2, mergers=2, tracing=tracing) as cluster:
            yield cluster, exporter
    finally:
        tracing.close()


def published(
    client: Client, objects: list[dict[str, object]], caller: trace.SpanContext | None = CALLER
) -> None:
    span = trace.INVALID_SPAN if caller is None else trace.NonRecordingSpan(caller)
    with trace.use_span(span), client.publisher() as publisher:
        publisher.publish_many(objects)
        token = publisher.flush().position_token
    client.await_processed(token, timeout_s=TIMEOUT_S)


def notified(client: Client, count: int) -> None:
    """Registers the query's subscriber anew, from the beginning, and reads so many matches."""
    with client.subscribe("ear", from_earliest=True) as subscription:
        for _ in zip(range(count), subscription, strict=False):
            pass


def records(cluster: EmbeddedCluster, topic: str) -> list[Record]:
    consumer = cluster.log.consumer("test")
    where = range(cluster.log.partitions(topic))
    consumer.assign({(topic, n): cluster.log.bounds(topic, n)[0] for n in where})
    found: list[Record] = []
    while some := consumer.poll(1_000, 0.0):
        found += some
    consumer.close()
    return found


def publish(
    channel: grpc.Channel,
    requests: list[PublishRequest],
    metadata: list[tuple[str, str]] | None = None,
) -> None:
    """Publishes an object by each request, in one session of a plain client."""
    made = []
    for number, request in enumerate(requests, 1):
        one = PublishRequest(session=7, first_number=number)
        one.MergeFrom(request)
        encoder = ObjectEncoder()
        encoder.add(HERE | {"id": number})
        encoder.take(one.objects)
        made.append(one)
    answers = PublishServiceStub(channel).Publish(iter(made), metadata=metadata, timeout=TIMEOUT_S)
    assert max(each.acknowledged_to for each in answers) == len(made)


def place_of(span: ReadableSpan) -> trace.SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def by_name(exporter: InMemorySpanExporter) -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


def test_one_trace_leads_from_the_publisher_to_the_notification() -> None:
    with traced(ASKED) as (cluster, exporter), Client(cluster.router_address) as client:
        client.register(query_from_json(EAST, "ear"))
        published(client, [HERE | {"id": 1}, WEST | {"id": 2}])
        # Of others, in the same records or others: not of this trace.
        published(client, [HERE | {"id": 3}], caller=None)
        notified(client, 2)
        eventually(lambda: {"merge", "deliver"} <= by_name(exporter).keys(), "spans")
        carried = {
            topic: [dict(each.headers) for each in records(cluster, topic)]
            for topic in (INTAKE, SLOTS, PARTIALS, DELIVERIES)
        }
    spans = by_name(exporter)
    assert {name: len(each) for name, each in spans.items()} == dict.fromkeys(
        ("accept", "route", "match", "merge", "deliver"), 1
    )
    parent: trace.SpanContext | None = CALLER
    for name in ("accept", "route", "match", "merge", "deliver"):
        (span,) = spans[name]
        place = span.get_span_context()
        assert place is not None
        assert place.trace_id == CALLER.trace_id
        assert place.trace_state.to_header() == "vendor=opaque"
        assert span.parent is not None
        assert parent is not None
        assert span.parent.span_id == parent.span_id, name
        parent = place
    assert spans["accept"][0].attributes == {"sirocco.objects": 2}
    assert spans["match"][0].attributes == {"sirocco.objects": 1}
    assert spans["deliver"][0].attributes == {"sirocco.objects": 1, "sirocco.subscriber": "ear"}
    assert spans["match"][0].resource.attributes["service.name"] == "sirocco-evaluator"
    for topic, headers in carried.items():
        places = [each for each in headers if "traceparent" in each]
        assert places, topic
        assert len(places) < len(headers), topic
        assert {each["tracestate"] for each in places} == {b"vendor=opaque"}


def test_searches_are_traced_to_the_evaluators() -> None:
    span = trace.NonRecordingSpan(CALLER)
    with traced(ASKED) as (cluster, exporter), Client(cluster.router_address) as client:
        published(client, [HERE | {"id": 1}], caller=None)
        asked = {"kind": "range", "text": "east"}
        with trace.use_span(span):
            assert len(client.search(asked).objects) == 1
        assert len(client.search(asked).objects) == 1
        eventually(lambda: len(exporter.get_finished_spans()) == 2, "spans")
    spans = {name: only for name, (only,) in by_name(exporter).items()}
    assert spans["search"].parent is not None
    assert spans["search"].parent.span_id == CALLER.span_id
    assert spans["search"].attributes == {"sirocco.kind": "range", "sirocco.outcome": "ok"}
    assert spans["answer"].parent is not None
    assert spans["answer"].parent.span_id == place_of(spans["search"]).span_id


def test_the_gateway_passes_on_what_its_caller_says() -> None:
    with traced(ASKED) as (cluster, exporter), Client(cluster.router_address) as client:
        client.register(query_from_json(EAST, "ear"))
        gateway = Gateway(GatewaySettings(routers=cluster.router_address))
        gateway.start()
        try:
            headers = {"traceparent": TRACEPARENT, "tracestate": "vendor=opaque"}
            for each in (headers, {"traceparent": TRACEPARENT.upper()}):
                answer = httpx.post(
                    f"http://{gateway.address}/v1/objects",
                    json=[HERE | {"id": 1}],
                    headers=each,
                    timeout=TIMEOUT_S,
                )
                assert answer.status_code == 200, answer.text
        finally:
            gateway.stop()
        eventually(lambda: "accept" in by_name(exporter), "spans")
    (accept,) = by_name(exporter)["accept"]
    assert accept.parent is not None
    assert accept.parent.span_id == CALLER.span_id


def test_a_plain_client_says_it_in_its_metadata_for_its_first_request() -> None:
    with traced(ASKED) as (cluster, exporter):
        with grpc.insecure_channel(cluster.router_address) as channel:
            publish(channel, [PublishRequest(), PublishRequest()], [("traceparent", TRACEPARENT)])
        eventually(lambda: "accept" in by_name(exporter), "spans")
    (accept,) = by_name(exporter)["accept"]
    assert place_of(accept).trace_id == CALLER.trace_id


HOSTILE = [
    ("", ""),
    (TRACEPARENT.upper(), ""),
    (TRACEPARENT + "-more", ""),
    ("00-" + 32 * "0" + "-00f067aa0ba902b7-01", ""),
    ("ff" + TRACEPARENT[2:], ""),
    ("01" + TRACEPARENT[2:] + "-" + 1_000 * "x", ""),
    (TRACEPARENT[:-2] + "00", ""),
    # A bad `tracestate` costs no more than itself.
    (TRACEPARENT, 600 * "a"),
    (TRACEPARENT, "a=1\r\nx: y"),
    (TRACEPARENT, ",".join(f"a{n}=1" for n in range(33))),
]


def test_what_is_hostile_is_ignored_and_never_refused() -> None:
    asked = [PublishRequest(trace=TraceContext(traceparent=a, tracestate=b)) for a, b in HOSTILE]
    with traced(ASKED) as (cluster, exporter):
        with grpc.insecure_channel(cluster.router_address) as channel:
            publish(channel, asked)
        headers = [dict(each.headers) for each in records(cluster, INTAKE)]
    assert [each for each in headers if "tracestate" in each] == []
    wanted = sum(bool(tracestate) for _, tracestate in HOSTILE)
    assert sum("traceparent" in each for each in headers) == wanted
    assert len(by_name(exporter)["accept"]) == wanted


def test_clients_force_no_more_traces_than_the_rate() -> None:
    count = 50
    asked = PublishRequest(trace=TraceContext(traceparent=TRACEPARENT))
    with (
        traced(TraceSettings(ratio=0.0, calls_per_s=1)) as (cluster, exporter),
        grpc.insecure_channel(cluster.router_address) as channel,
    ):
        begin_s = time.monotonic()
        publish(channel, count * [asked])
        seconds = time.monotonic() - begin_s
    accepted = len(by_name(exporter)["accept"])
    assert 1 <= accepted <= 2 + seconds


def test_without_tracing_no_record_has_a_header_more() -> None:
    with EmbeddedCluster(SETTINGS) as cluster, Client(cluster.router_address) as client:
        client.register(query_from_json(EAST, "ear"))
        published(client, [HERE | {"id": 1}])
        notified(client, 1)
        for topic in (INTAKE, SLOTS, PARTIALS, DELIVERIES):
            found = records(cluster, topic)
            assert found
            assert {tuple(name for name, _ in each.headers) for each in found} == {("method",)}


@pytest.mark.kafka
@pytest.mark.timeout(1_800)
def test_one_trace_leads_through_kafka_and_processes_to_a_collector(
    kafka_server: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with running_collector() as collector:
        traces = {"SIROCCO_TRACES": collector.endpoint, "SIROCCO_TRACE_RATIO": "0"}
        settings = LocalClusterSettings(
            cluster="traced",
            kafka=kafka_server.address,
            redis=redis_server.url,
            archive=str(tmp_path / "archive"),
            counts=dict.fromkeys(("router", "evaluator", "merger", "coordinator"), 1),
            options={"SIROCCO_SLOTS": "4", **traces},
        )
        started = LocalCluster(tmp_path, settings)
        with started as cluster, Client(",".join(cluster.router_addresses)) as client:
            client.register(query_from_json(EAST, "ear"))
            published(client, [HERE | {"id": 1}, WEST | {"id": 2}])
            notified(client, 1)
            names = {"accept", "route", "match", "merge", "deliver"}
            eventually(lambda: names <= {span.name for _, span in list(collector.spans)}, "spans")
    spans = {span.name: span for _, span in collector.spans}
    assert len(spans) == len(collector.spans)
    assert {span.trace_id.hex() for span in spans.values()} == {f"{CALLER.trace_id:032x}"}
    parent = CALLER.span_id.to_bytes(8, "big")
    for name in ("accept", "route", "match", "merge", "deliver"):
        assert spans[name].parent_span_id == parent, name
        parent = spans[name].span_id
    members = {span.name: member.rpartition("-")[0] for member, span in collector.spans}
    assert members["match"].startswith("evaluator")
    assert members["deliver"].startswith("merger")
