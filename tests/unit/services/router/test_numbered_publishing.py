"""PublishNumbered on a running cluster: gaps, refusals, repeats after a crash."""

from __future__ import annotations

import asyncio
from array import array
from typing import Any

import numpy as np
import pytest
from sirocco_api.v1.columns_pb2 import ObjectColumns
from sirocco_api.v1.publish_service_pb2 import PublishNumberedRequest
from sirocco_client import AsyncClient, Rejected

from sirocco.codec.columns import put_objects
from sirocco.services.embedded import EmbeddedCluster
from tests.support.plain_client import (
    DEADLINE_S,
    PlainClient,
    new_session,
    publish_request,
    query_message,
    refused,
)
from tests.support.values import columns_of


def good(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "lon": 1.0, "lat": 1.0, **more}


def numbered(session: int, first: int, deltas: list[int], **more: Any) -> Any:
    plain = publish_request(session, first, [good(first + each) for each in deltas], **more)
    request = PublishNumberedRequest.FromString(plain.SerializeToString())
    request.number_deltas = array("I", deltas).tobytes()
    return request


def call(plain: PlainClient, *requests: Any) -> Any:
    return plain.publishers[0].PublishNumbered(iter(requests), timeout=DEADLINE_S)


@pytest.mark.parametrize(
    "deltas",
    [[1, 1], [2, 1], [0, 1 << 31], [0], [0, 1, 2]],
    ids=["equal", "descending", "too far", "too few", "too many"],
)
def test_numbers_that_do_not_fit_end_the_stream(deltas: list[int], plain: PlainClient) -> None:
    request = numbered(new_session(), 1, [0, 1])
    request.number_deltas = array("I", deltas).tobytes()
    status, details = refused(lambda: call(plain, request))
    assert (status, details.field) == ("INVALID_ARGUMENT", "number_deltas")


def test_gaps_are_taken_with_their_request_and_a_repeat_is_dropped_in_part(
    plain: PlainClient,
) -> None:
    subscriber = f"numbered-{new_session()}"
    plain.register(query_message(subscriber, subscriber))
    receiving = plain.receive(subscriber)
    session = new_session()
    answers = list(call(plain, numbered(session, 1, [4, 7]), numbered(session, 9, [0, 1])))
    assert answers[-1].acknowledged_to == 10
    # Another process that read from 6 on, as after a crash.
    answers = list(call(plain, numbered(session, 6, [2, 3, 4, 9], acknowledged_to=5)))
    assert answers[-1].acknowledged_to == 15
    found = receiving.upto(plain.processed(answers[-1].position_token))
    assert sorted(each for _, each in found) == [5, 8, 9, 10, 15]


def test_a_refused_object_is_named_by_its_number(plain: PlainClient) -> None:
    session = new_session()
    request = numbered(session, 1, [3, 5, 9])
    lon = np.frombuffer(request.objects.lon, "<f8").copy()
    lon[1] = 200
    request.objects.lon = lon.tobytes()
    (answer,) = call(plain, request)
    assert answer.acknowledged_to == 10
    assert [(each.number, each.error.field) for each in answer.rejections] == [(6, "lon")]


def message(numbers: list[int], **more: Any) -> ObjectColumns:
    found = ObjectColumns()
    put_objects(found, columns_of([good(each, **more) for each in numbers]))
    return found


def test_a_second_publisher_goes_on_where_the_first_was_known_to_be(
    cluster: EmbeddedCluster, plain: PlainClient
) -> None:
    subscriber = f"numbered-{new_session()}"
    plain.register(query_message(subscriber, subscriber))
    receiving = plain.receive(subscriber)
    session = new_session()
    rejected: list[Rejected] = []

    async def publish(known: int, *parts: list[int]) -> int:
        async with AsyncClient(cluster.router_address) as client:
            publisher = client.numbered_publisher(session, known, on_rejected=rejected.append)
            for part in parts:
                await publisher.publish_columns(message(part), part)
            found = await publisher.flush(DEADLINE_S)
            await publisher.close()
            return found

    assert asyncio.run(publish(100, [101, 103], [110])) == 110
    # It knows 103 alone: 110 is published again.
    assert asyncio.run(publish(103, [110, 111], [200])) == 200
    assert rejected == []
    (answer,) = plain.publish(publish_request(new_session(), 1, [good(1)]))
    found = receiving.upto(plain.processed(answer.position_token))
    wanted = [101, 103, 110, 111, 200]
    # The last one may be on another partition.
    assert [each for _, each in found if each > 1] == wanted
