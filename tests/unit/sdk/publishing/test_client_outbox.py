"""When a publisher sends, pauses, and begins a new session; all with a test clock."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest
from sirocco_api.v1.columns_pb2 import ObjectColumns
from sirocco_api.v1.errors_pb2 import Error
from sirocco_api.v1.publish_service_pb2 import PublishRequest, PublishResponse
from sirocco_client.errors import InvalidArgument, ObjectsRejected, PublishFailed, Unavailable
from sirocco_client.objects.columns import MEMBER_BYTES_MAX
from sirocco_client.objects.encode import ObjectEncoder
from sirocco_client.publishing.outbox import (
    REQUEST_BYTES_MAX,
    SESSION_IDLE_S_MAX,
    Outbox,
    PublishFlow,
)

from sirocco.codec.columns import read_objects
from sirocco.codec.hops import encode
from sirocco.protocol.contract.messages import IntakeObjects
from sirocco.transport.log import RECORD_BYTES_MAX


def outbox(**flow: Any) -> Outbox:
    sessions = count(100)
    return Outbox(PublishFlow(**flow), lambda: next(sessions))


def item(i: int, text: str = "") -> dict[str, Any]:
    return {"id": i, "lon": 0.0, "lat": 0.0, "text": text}


def sent(box: Outbox, now_s: float) -> list[PublishRequest]:
    found = []
    while (request := box.next_request(now_s)) is not None:
        found.append(request)
    return found


def acknowledge(box: Outbox, number: int, now_s: float, *refused: int) -> list[Any]:
    response = PublishResponse(acknowledged_to=number)
    for each in refused:
        response.rejections.add(number=each, error=Error(code="INVALID_ARGUMENT", field="lon"))
    return box.acknowledge(response, now_s)


def test_a_batch_is_sent_when_it_is_full_or_has_waited() -> None:
    box = outbox(batch_objects=3, linger_ms=10)
    assert box.due_in_s(0.0) is None
    # The sender is woken by the first object of a batch and by the one that fills it.
    assert [box.add(item(i), 0.001 * i) for i in range(5)] == [True, False, True, True, False]
    assert [each.objects.count for each in sent(box, 0.005)] == [3]
    assert box.due_in_s(0.005) == pytest.approx(0.008)
    assert sent(box, 0.0129) == []
    assert [each.first_number for each in sent(box, 0.0131)] == [4]
    assert box.due_in_s(1.0) is None


def test_bytes_fill_a_batch() -> None:
    box = outbox(batch_bytes=1_000, linger_ms=1_000)
    box.add(item(1, "x" * 400), 0)
    assert sent(box, 0) == []
    box.add(item(2, "x" * 600), 0)
    assert [each.objects.count for each in sent(box, 0)] == [2]


def test_a_batch_of_long_texts_is_cut_to_what_can_travel() -> None:
    box = outbox()
    box.add_many([item(i, "x" * (MEMBER_BYTES_MAX - 100)) for i in range(11)], 0, 0)
    requests = sent(box, 0)
    assert [each.first_number for each in requests] == [1, 4, 7, 10]
    assert max(each.ByteSize() for each in requests) <= REQUEST_BYTES_MAX


def record_bytes(request: PublishRequest) -> int:
    """Returns the bytes of a router's record for a request with some refused objects."""
    objects = read_objects(request.objects)
    deltas = np.arange(len(objects), dtype=np.uint32)
    taken = IntakeObjects(
        session=request.session,
        first_number=request.first_number,
        span=len(objects),
        acknowledged_to=request.acknowledged_to,
        received_ms=1 << 60,
        objects=objects,
        number_deltas=deltas,
    )
    return encode(taken)[1].ByteSize()


@pytest.mark.parametrize(
    ("count", "text_bytes", "name_bytes", "attribute_bytes"),
    [
        (1_000, 4_400, 0, 1),
        (4_096, 1_200, 0, 1),
        (16_384, 200, 20, 1),
        (16_384, 0, 1, 1),
        (16_384, 300, 0, 0),
        (3, MEMBER_BYTES_MAX, MEMBER_BYTES_MAX, MEMBER_BYTES_MAX - 8),
    ],
)
@pytest.mark.parametrize("way", ["collected", "columns"])
def test_what_is_sent_is_what_the_log_takes(
    way: str, count: int, text_bytes: int, name_bytes: int, attribute_bytes: int
) -> None:
    name, attributes = "n" * name_bytes, {"a": "b" * attribute_bytes} if attribute_bytes else {}
    objects = [item(i, "x" * text_bytes) | attributes for i in range(count)]
    for each in objects:
        each["id"] = name or each["id"]
    box = outbox(batch_objects=16_384, batch_bytes=REQUEST_BYTES_MAX, outstanding_bytes_max=1 << 30)
    if way == "collected":
        box.add_many(objects, 0, 0)
        box.seal(0)
    else:
        encoder, columns = ObjectEncoder(), ObjectColumns()
        encoder.add_many(objects)
        encoder.take(columns)
        for part in box.split(columns):
            box.add_columns(part, 0)
    requests = sent(box, 0)
    assert sum(each.objects.count for each in requests) == count
    assert max(map(record_bytes, requests)) < RECORD_BYTES_MAX


def test_it_pauses_at_full_and_resumes_at_80_percent() -> None:
    box = outbox(batch_objects=10, outstanding_objects_max=100)
    for i in range(10):
        assert not box.is_paused
        box.add_many([item(i)] * 10, 0, 0)
    assert box.is_paused
    sent(box, 0)
    acknowledge(box, 19, 0)
    assert box.is_paused
    acknowledge(box, 20, 0)
    assert not box.is_paused


def test_it_pauses_by_bytes_too() -> None:
    box = outbox(outstanding_bytes_max=1_000)
    box.add(item(1, "x" * 2_000), 0)
    assert box.is_paused
    box.seal(0)
    sent(box, 0)
    acknowledge(box, 1, 0)
    assert not box.is_paused


def test_a_session_that_was_idle_for_long_is_replaced() -> None:
    box = outbox(batch_objects=2)
    box.add_many([item(1), item(2)], 0, 0)
    (first,) = sent(box, 0)
    acknowledge(box, 2, 5)
    at_s = 5 + SESSION_IDLE_S_MAX
    box.add_many([item(3), item(4)], 0, at_s)
    (second,) = sent(box, at_s)
    assert (second.session, second.first_number, box.generation) == (first.session, 3, 0)
    acknowledge(box, 4, at_s)
    at_s += SESSION_IDLE_S_MAX + 1
    box.add_many([item(5), item(6)], 0, at_s)
    (third,) = sent(box, at_s)
    assert third.session != first.session
    assert (third.first_number, third.acknowledged_to, box.generation) == (1, 0, 1)
    # For the caller, numbers continue.
    assert [each.number for each in acknowledge(box, 2, at_s, 2)] == [6]
    assert (box.acknowledged, box.added, box.has_work) == (6, 6, False)


def test_a_session_with_unacknowledged_objects_is_kept() -> None:
    box = outbox(batch_objects=1)
    box.add(item(1), 0)
    box.add(item(2), 10 * SESSION_IDLE_S_MAX)
    assert {each.session for each in sent(box, 0)} == {100}


def test_refused_objects_are_kept_up_to_a_bound() -> None:
    box = outbox(batch_objects=50, rejections_max=4)
    box.add_many([item(i) for i in range(50)], 0, 0)
    sent(box, 0)
    box.keep(acknowledge(box, 20, 0, *range(1, 4)))
    box.keep(acknowledge(box, 50, 0, *range(30, 40)))
    with pytest.raises(ObjectsRejected) as caught:
        box.raise_rejections()
    assert caught.value.count == 13
    assert [each.number for each in caught.value.rejections] == [1, 2, 3, 30]
    box.raise_rejections()
    assert box.result().rejected == 13


def test_a_failure_holds_unacknowledged_objects_and_lasts() -> None:
    box = outbox(batch_objects=5)
    box.add_many([item(i) for i in range(5)], 0, 0)
    box.add(item(6), 0)
    sent(box, 0)
    acknowledge(box, 2, 0)
    box.fail(Unavailable("gone"))
    box.fail(Unavailable("gone again"))
    with pytest.raises(PublishFailed, match=r"gone$") as caught:
        box.check()
    assert (caught.value.acknowledged, caught.value.unacknowledged) == (2, 4)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("batch_objects", 0),
        ("batch_objects", 16_385),
        ("batch_bytes", 5 << 20),
        ("linger_ms", -1),
        ("rejections_max", 0),
        ("outstanding_objects_max", 0),
        ("outstanding_bytes_max", 0),
    ],
)
def test_settings_are_checked(member: str, value: int) -> None:
    with pytest.raises(InvalidArgument) as caught:
        outbox(**{member: value})
    assert caught.value.field == member
