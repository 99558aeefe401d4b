"""PublishService on a running cluster: refusals, acknowledgements, resumed sessions."""

from __future__ import annotations

import queue
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest
from sirocco_api.v1 import publish_service_pb2 as pb

from sirocco.model.objects import ObjectColumns, pack_bytes
from sirocco.protocol.contract.messages import DEAD_LETTERS, INTAKE, REGISTRY, SLOTS
from sirocco.runtime.grpc.edge import MESSAGE_BYTES_MAX
from sirocco.runtime.grpc.server import RECEIVED_BYTES_MAX
from sirocco.runtime.loop.hops import HopWriter
from sirocco.services.embedded import EmbeddedCluster
from tests.support.plain_client import (
    DEADLINE_S,
    PlainClient,
    new_session,
    publish_request,
    query_message,
    refused,
)
from tests.support.values import columns_of, taken_of


def good(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "lon": 1.0, "lat": 1.0, **more}


def with_column(name: str, row: int, value: float) -> ObjectColumns:
    columns = columns_of([good(i) for i in range(3)])
    column = getattr(columns, name).copy()
    column[row] = value
    return replace(columns, **{name: column})


def with_bytes(name: str, row: int, value: bytes) -> ObjectColumns:
    columns = columns_of([good(i) for i in range(3)])
    rows = [b"", b"", b""]
    rows[row] = value
    data, offsets = pack_bytes(rows)
    offsets_name = {"text": "text_offsets", "names": "name_offsets"}.get(name, "attribute_offsets")
    changed: dict[str, Any] = {name: data, offsets_name: offsets}
    return replace(columns, **changed)


BAD_ROWS = {
    "longitude out of range": (with_column("lon", 1, 180.5), "lon"),
    "longitude is no number": (with_column("lon", 1, float("nan")), "lon"),
    "longitude is infinite": (with_column("lon", 1, float("-inf")), "lon"),
    "latitude out of range": (with_column("lat", 1, -90.001), "lat"),
    "time out of range": (with_column("ts", 1, 1 << 62), "ts"),
    "enormous text": (with_bytes("text", 1, b"x" * 70_000), "text"),
    "text is no UTF-8": (with_bytes("text", 1, b"ab\xffcd"), "text"),
    "name is no UTF-8": (with_bytes("names", 1, b"\xc3"), "id"),
    "long name": (with_bytes("names", 1, b"n" * 300), "id"),
    "attributes are no JSON": (with_bytes("attributes", 1, b"{"), "attributes"),
    "attributes are no object": (with_bytes("attributes", 1, b"[1]"), "attributes"),
    "enormous attributes": (
        with_bytes("attributes", 1, b'{"a":"' + b"x" * 17_000 + b'"}'),
        "attributes",
    ),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_object_is_refused_alone_and_named(name: str, plain: PlainClient) -> None:
    columns, field = BAD_ROWS[name]
    session = new_session()
    answers = plain.publish(
        publish_request(session, 1, columns), publish_request(session, 4, [good(9)])
    )
    (rejection,) = [each for answer in answers for each in answer.rejections]
    assert (rejection.number, rejection.error.code) == (2, "INVALID_ARGUMENT")
    assert rejection.error.field == field
    assert answers[-1].acknowledged_to == 4


def damaged_request(session: int) -> pb.PublishRequest:
    request = publish_request(session, 1, [good(1), good(2)])
    request.objects.lon = request.objects.lon[:-1]
    return request


def too_many(session: int) -> pb.PublishRequest:
    columns = columns_of([good(1)]).take(np.zeros(16_385, np.int64))
    return publish_request(session, 1, columns)


def too_large(session: int) -> pb.PublishRequest:
    columns = columns_of([good(1, text="x" * 60_000)]).take(np.zeros(80, np.int64))
    return publish_request(session, 1, columns)


BAD_REQUESTS = {
    "numbers from 0": (lambda s: publish_request(s, 0, [good(1)], 0), "first_number"),
    "numbers beyond i8": (lambda s: publish_request(s, 1 << 63, [good(1)]), "first_number"),
    "acknowledged ahead": (lambda s: publish_request(s, 5, [good(1)], 5), "acknowledged_to"),
    "no objects": (lambda s: publish_request(s, 1, []), "objects"),
    "too many objects": (too_many, "objects"),
    "over the record's limit": (too_large, "objects"),
    "columns do not fit": (damaged_request, "lon"),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
def test_a_bad_request_ends_its_stream_with_its_field_and_the_next_continues(
    name: str, plain: PlainClient
) -> None:
    make, field = BAD_REQUESTS[name]
    session = new_session()
    call = plain.publishers[0].Publish(iter([make(session)]), timeout=DEADLINE_S)
    status, details = refused(lambda: call)
    assert (status, details.code, details.field) == ("INVALID_ARGUMENT",) * 2 + (field,)
    (answer,) = plain.publish(publish_request(new_session(), 1, [good(1)]))
    assert answer.acknowledged_to == 1
    plain.processed(answer.position_token)


def test_a_stream_has_one_session_and_what_came_before_is_acknowledged(
    plain: PlainClient,
) -> None:
    requests = [publish_request(new_session(), 1, [good(1)]) for _ in range(2)]
    call = plain.publishers[0].Publish(iter(requests), timeout=DEADLINE_S)
    assert next(call).acknowledged_to == 1
    status, details = refused(lambda: call)
    assert (status, details.field) == ("INVALID_ARGUMENT", "session")


def large(session: int, first_number: int, mebibytes: int) -> pb.PublishRequest:
    text = "x" * 60_000
    columns = columns_of([good(1, text=text)]).take(np.zeros(18 * mebibytes, np.int64))
    return publish_request(session, first_number, columns)


def test_a_message_over_the_limit_is_refused_and_what_came_before_is_acknowledged(
    plain: PlainClient,
) -> None:
    session = new_session()
    requests = [publish_request(session, 1, [good(1)]), large(session, 2, 9)]
    assert requests[1].ByteSize() > MESSAGE_BYTES_MAX
    call = plain.publishers[0].Publish(iter(requests), timeout=DEADLINE_S)
    assert next(call).acknowledged_to == 1
    status, details = refused(lambda: call)
    assert (status, details.code, details.field) == ("INVALID_ARGUMENT",) * 2 + ("",)
    assert "/sirocco.v1.PublishService/Publish" in details.message
    assert str(MESSAGE_BYTES_MAX) in details.message
    # The session continues with objects that fit.
    (answer,) = plain.publish(publish_request(session, 2, [good(2)]))
    assert answer.acknowledged_to == 2


def test_a_message_beyond_all_limits_ends_its_call_alone(plain: PlainClient) -> None:
    request = large(new_session(), 1, 35)
    assert request.ByteSize() > RECEIVED_BYTES_MAX
    with pytest.raises(grpc.RpcError) as caught:
        list(plain.publishers[0].Publish(iter([request]), timeout=DEADLINE_S))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert plain.publish(publish_request(new_session(), 1, [good(1)]))[-1].acknowledged_to == 1


@pytest.mark.parametrize("router", [0, 1])
def test_r1_a_session_resumes_after_a_break_without_loss_or_doubles(
    router: int, plain: PlainClient
) -> None:
    # init
    subscriber = f"s-resume-{router}"
    plain.register(query_message(f"resume-{router}", subscriber, text=f"resume{router}"))
    session = new_session()
    members = [good(i, text=f"resume{router}") for i in range(1, 31)]

    # test: the stream breaks after a request whose answer is never read.
    requests: queue.SimpleQueue[pb.PublishRequest] = queue.SimpleQueue()
    call = plain.publishers[0].Publish(iter(requests.get, None), timeout=DEADLINE_S)
    requests.put(publish_request(session, 1, members[:10]))
    assert next(call).acknowledged_to == 10
    requests.put(publish_request(session, 11, members[10:20], 10))
    call.cancel()
    requests.put(None)  # type: ignore[arg-type]
    # All from the first unacknowledged number on, split differently, at any router; one of it
    # twice.
    answers = plain.publish(
        publish_request(session, 11, members[10:15], 10),
        publish_request(session, 16, members[15:30], 10),
        publish_request(session, 16, members[15:18], 10),
        router=router,
    )

    # check
    assert answers[-1].acknowledged_to in (18, 30)
    cursors = plain.processed(answers[-1].position_token, router)
    found = [number for _, number in plain.found(subscriber, cursors)]
    assert sorted(found) == list(range(1, 31))


def test_names_become_ids_and_come_back(plain: PlainClient) -> None:
    plain.register(query_message("named", "s-named", text="named"))
    members = {"id": "Größe-1", "lon": 1.0, "lat": 1.0, "text": "named"}
    columns = replace(columns_of([members]), ids=np.zeros(1, np.uint64))
    (answer,) = plain.publish(publish_request(new_session(), 1, columns))
    cursors = plain.processed(answer.position_token)
    ((_, number),) = plain.found("s-named", cursors)
    assert number == int(columns_of([members]).ids[0])


def test_garbage_on_the_topics_is_dead_lettered_and_the_rest_continues(
    cluster: EmbeddedCluster, plain: PlainClient
) -> None:
    # init
    plain.register(query_message("after", "s-after", text="after"))
    _, letters_before = cluster.log.bounds(DEAD_LETTERS, 0)
    producer = cluster.log.producer("vandal")

    # test: bytes, an unknown method, and a call of another topic.
    writer = HopWriter(producer, lambda *_: None)
    for topic in (INTAKE, REGISTRY, SLOTS):
        producer.append(topic, 0, b"\xff garbage")
        producer.append(topic, 1, b"", headers=((":path", b"/x/y"),))
    for topic in (REGISTRY, SLOTS):
        writer.append(topic, 0, taken_of(5, 1, [good(1)]), 0)

    # check
    (answer,) = plain.publish(publish_request(new_session(), 1, [good(4, text="after")]))
    cursors = plain.processed(answer.position_token)
    assert plain.found("s-after", cursors) == [("after", 4)]
    plain.register(query_message("after-2", "s-after"))
    assert cluster.log.bounds(DEAD_LETTERS, 0)[1] - letters_before == 8
    assert all(service.failure is None for service in cluster.services)
