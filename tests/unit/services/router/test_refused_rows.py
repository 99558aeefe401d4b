"""The cost of refused objects in the loop of a router."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from sirocco_api.v1 import publish_service_pb2 as pb

from sirocco.codec.rejections import pack_rejections
from sirocco.model.errors import InvalidArgument
from sirocco.model.objects import ObjectColumns, pack_bytes
from sirocco.protocol.contract.messages import IntakeObjects
from sirocco.services.router import publish
from sirocco.services.router.admission import Admission
from sirocco.services.router.publish import OBJECTS_MAX, Pending, PublishFront
from sirocco.telemetry.metrics.router import RouterMetrics
from sirocco.transport.log import Headers
from tests.support.plain_client import publish_request
from tests.support.values import columns_of

TIMEOUT_S = 120.0


class Pool:
    """Runs jobs in a thread when it is released."""

    def __init__(self) -> None:
        self.jobs = 0
        self.may_go = asyncio.Event()

    async def run(self, job: Callable[[], Any]) -> Any:
        self.jobs += 1
        await self.may_go.wait()
        return await asyncio.to_thread(job)


class Log:
    """Acknowledges every record at once."""

    def __init__(self) -> None:
        self.taken: list[IntakeObjects] = []

    def append(
        self, topic: str, partition: int, taken: IntakeObjects, headers: Headers
    ) -> asyncio.Future[int]:
        self.taken.append(taken)
        appended = asyncio.get_running_loop().create_future()
        appended.set_result(len(self.taken))
        return appended


class Front:
    """A front of its own, with its other parts."""

    def __init__(self) -> None:
        self.pool, self.log, self.registry = Pool(), Log(), CollectorRegistry()
        self.admission = Admission(dict)
        self.front = PublishFront(
            self.log,  # type: ignore[arg-type]
            self.admission,
            1,
            RouterMetrics(self.registry),
            event_time=True,
            skew_max_ms=1_000,
            pool=self.pool,  # type: ignore[arg-type]
        )

    async def answers(self, *requests: pb.PublishRequest) -> list[pb.PublishResponse]:
        async def sent() -> AsyncIterator[pb.PublishRequest]:
            for request in requests:
                yield request

        return [each async for each in self.front._acknowledgements(sent(), pb.PublishResponse)]


def run(test: Callable[[Front], Any]) -> None:
    async def running() -> None:
        await asyncio.wait_for(test(Front()), TIMEOUT_S)

    asyncio.run(running())


def rows(count: int, attributes: bytes = b"", **columns: Any) -> ObjectColumns:
    one = columns_of([{"id": 1, "lon": 1.0, "lat": 1.0, "text": "a"}]).take(
        np.zeros(count, np.int64)
    )
    data, offsets = pack_bytes([attributes] * count)
    return replace(one, attributes=data, attribute_offsets=offsets, **columns)


LONG = b'{"a":36893488147419103232}'


@pytest.mark.parametrize(
    "objects",
    [
        rows(3_000, b'{"a":"' + b"x" * 40 + b'"}'),
        rows(5_000, b"1"),
        rows(300, LONG),
    ],
    ids=["many bytes", "many objects", "long integers"],
)
def test_attributes_that_take_long_are_read_outside_of_the_loop_in_their_order(
    objects: ObjectColumns,
) -> None:
    async def test(one: Front) -> None:
        count = len(objects)
        answering = asyncio.ensure_future(
            one.answers(
                publish_request(5, 1, objects),
                publish_request(5, 1 + count, rows(2)),
            )
        )
        while not one.pool.jobs:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        # The small one after it does not overtake it.
        assert one.log.taken == []
        one.pool.may_go.set()
        answers = await answering
        assert [each.first_number for each in one.log.taken] == [1, 1 + count]
        assert answers[-1].acknowledged_to == count + 2
        assert one.pool.jobs == 1

    run(test)


def test_ordinary_requests_are_taken_at_once() -> None:
    async def test(one: Front) -> None:
        tweets = rows(1_000, b'{"user":1234567890123456789,"lang":"en"}')
        far = rows(OBJECTS_MAX, lon=np.full(OBJECTS_MAX, np.nan))
        await one.answers(publish_request(5, 1, tweets), publish_request(5, 1_001, far))
        assert one.pool.jobs == 0
        assert len(one.log.taken) == 2

    run(test)


def test_a_client_that_hangs_up_holds_no_room() -> None:
    async def test(one: Front) -> None:
        answering = asyncio.ensure_future(one.answers(publish_request(5, 1, rows(300, LONG))))
        while not one.pool.jobs:
            await asyncio.sleep(0)
        assert one.admission.bytes_under_way > 0
        answering.cancel()
        while one.admission.bytes_under_way:
            await asyncio.sleep(0)
        assert one.log.taken == []

    run(test)


def test_rows_with_the_same_fault_share_a_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = []

    def counting(first_number: int, refused: list[tuple[int, InvalidArgument]]) -> bytes:
        written.append(len({id(error) for _, error in refused}))
        return pack_rejections(first_number, refused)

    monkeypatch.setattr(publish, "pack_rejections", counting)
    far_ms = np.arange(OBJECTS_MAX) + (1 << 42)

    async def test(one: Front) -> None:
        for bad in (
            rows(OBJECTS_MAX, lon=np.full(OBJECTS_MAX, np.nan)),
            rows(OBJECTS_MAX, text=np.full(OBJECTS_MAX, 0xFF, np.uint8)),
            rows(OBJECTS_MAX, ts=far_ms),
        ):
            (answer,) = await one.answers(publish_request(5, 1, bad))
            numbers = [each.number for each in answer.rejections]
            assert numbers == [*range(1, OBJECTS_MAX + 1)]

    run(test)
    assert written == [1, 1, 1]


def test_one_answer_holds_a_bounded_number_of_refused_objects() -> None:
    async def test(one: Front) -> None:
        error = InvalidArgument("must be in [-180, 180]", field="lon")
        refused = [(row, error) for row in range(OBJECTS_MAX)]
        appended = asyncio.get_running_loop().create_future()
        appended.set_result(3)
        pending = deque(
            Pending(number + OBJECTS_MAX - 1, pack_rejections(number, refused), 0, appended, 0)
            for number in range(1, 5 * OBJECTS_MAX, OBJECTS_MAX)
        )
        received: list[int] = []
        while pending:
            answer = await one.front._acknowledged(
                pending, asyncio.Condition(), pb.PublishResponse()
            )
            assert answer.ByteSize() < 2 << 20
            received += [each.number for each in answer.rejections]
            # Every refusal up to an acknowledgement has been sent.
            assert answer.acknowledged_to == received[-1]
        assert received == [*range(1, 5 * OBJECTS_MAX + 1)]

    run(test)


def test_clients_do_not_choose_the_labels_of_metrics() -> None:
    async def test(one: Front) -> None:
        paths = [b'{"a%d":36893488147419103232}' % row for row in range(10)]
        data, offsets = pack_bytes(paths)
        bad = replace(rows(10), attributes=data, attribute_offsets=offsets)
        (answer,) = await one.answers(publish_request(5, 1, bad))
        assert [each.error.field for each in answer.rejections] == [
            f"attributes.a{row}" for row in range(10)
        ]
        name = "sirocco_router_rejected_objects_total"
        assert one.registry.get_sample_value(name, {"field": "attributes"}) == 10

    run(test)


def test_checks_run_where_the_front_requires(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    async def test(one: Front) -> None:
        checked = one.front._checked

        def noting(*arguments: Any) -> Any:
            threads.append(threading.current_thread() is threading.main_thread())
            return checked(*arguments)

        monkeypatch.setattr(one.front, "_checked", noting)
        one.pool.may_go.set()
        await one.answers(
            publish_request(5, 1, rows(300, LONG)), publish_request(5, 301, rows(300))
        )

    run(test)
    assert threads == [False, True]
