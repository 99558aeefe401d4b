"""One trace from a publish call to the notification, through all processes and their records."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from sirocco_client import Client, query_from_json

from sirocco.protocol.contract.messages import DELIVERIES, INTAKE, PARTIALS, SLOTS
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.telemetry.call_sampler import TraceSettings
from sirocco.telemetry.spans import Tracing
from sirocco.transport.log import Record
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
