"""The sink into a webhook, whole, with receivers that behave and others that do not."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import orjson
import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks.webhooks import Webhook

from sirocco.services.connector.sinks.webhook import WebhookTarget
from tests.support.fake_cluster import FakeCluster
from tests.support.running_sinks import (
    SECRET,
    Answer,
    Receiver,
    Request,
    deliver,
    running,
    status,
    webhook,
)
from tests.support.slow_peers import PAUSE_S
from tests.support.waiting import until


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    made = FakeCluster()
    yield made
    made.stop()


def expected(count: int, batch: int = 7) -> list[str]:
    """Returns the ids of the first notifications: the fake cluster sends `batch` in a message."""
    found = []
    for begin in range(0, count, batch):
        size = min(batch, count - begin)
        found += [f"{begin + size}-{i}" for i in range(size)]
    return found


def test_batches_are_signed_and_in_order(cluster: FakeCluster, tmp_path: Path) -> None:
    deliver(cluster, 70)
    receiver = Receiver()

    async def work() -> None:
        async with (
            receiver.served(),
            running(cluster.router, webhook(receiver, tmp_path)) as found,
        ):
            await until(lambda: len(receiver.ids) >= 70)
            assert found.value("records_total", side="sink", name="alerts") >= 60

    asyncio.run(work())
    assert receiver.ids == expected(70)
    assert max(len(request.ids) for request in receiver.requests) == 10
    for request in receiver.requests:
        body = Webhook(SECRET).verify(request.body, request.headers)
        assert body["subscriber"] == "s1"
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == len(
        receiver.requests
    )
    # All on one connection.
    assert receiver.connections == 1


def test_a_batch_of_one_has_the_id_of_its_notification(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    deliver(cluster, 3)
    receiver = Receiver()

    async def work() -> None:
        section = webhook(receiver, tmp_path, batch={"count": 1, "wait": "0s"})
        async with receiver.served(), running(cluster.router, section):
            await until(lambda: len(receiver.requests) == 3)

    asyncio.run(work())
    assert [request.headers["webhook-id"] for request in receiver.requests] == receiver.ids


def test_cloud_events_are_sent_as_a_batch_of_them(cluster: FakeCluster, tmp_path: Path) -> None:
    deliver(cluster, 5)
    receiver = Receiver()

    async def work() -> None:
        section = webhook(receiver, tmp_path, format="cloudevents")
        async with receiver.served(), running(cluster.router, section):
            await until(lambda: len(receiver.ids) == 5)

    asyncio.run(work())
    request = receiver.requests[0]
    assert request.headers["content-type"] == "application/cloudevents-batch+json"
    events = [
        JSONFormat().read(CloudEvent, orjson.dumps(one)) for one in orjson.loads(request.body)
    ]
    first = events[0]
    assert (first.get_type(), first.get_subject()) == ("sirocco.match", "q0")
    assert (first.get_id(), first.get_source()) == ("5-0", "/subscribers/s1")
    data = first.get_data()
    assert isinstance(data, dict)
    assert data["object"]["id"] == "1"


def test_repeats_after_a_crash_are_the_same_batches(cluster: FakeCluster, tmp_path: Path) -> None:
    """The receiver sees batches before the sink's end, in its answer's place: nothing is kept."""
    deliver(cluster, 100)
    before, after = Receiver(), Receiver()
    state = tmp_path / "alerts.state"
    copies: list[bytes] = []

    async def copy_the_state(request: Request, writer: asyncio.StreamWriter) -> None:
        # What a kill -9 at this moment would leave.
        copies.append(state.read_bytes())
        await status(204)(request, writer)

    before.rest = copy_the_state

    async def work(receiver: Receiver, wanted: set[str]) -> None:
        async with receiver.served(), running(cluster.router, webhook(receiver, tmp_path)):
            await until(lambda: wanted <= set(receiver.ids))

    asyncio.run(work(before, set(expected(100))))
    sent = {request.headers["webhook-id"]: request.ids for request in before.requests}
    assert len(copies) >= 10
    for number in range(len(copies)):
        state.write_bytes(copies[number])
        after.requests.clear()
        # This batch was not acknowledged, and neither was any after it.
        missing = set().union(*(request.ids for request in before.requests[number:]))
        asyncio.run(work(after, missing))
        # Batches that were under way come again as they were.
        repeated = [one for one in after.requests if one.headers["webhook-id"] in sent]
        assert repeated[0].ids == sent[repeated[0].headers["webhook-id"]]
        first = before.requests[number]
        assert any(
            request.headers["webhook-id"] == first.headers["webhook-id"]
            for request in after.requests
        )


@pytest.mark.parametrize("code", [500, 502, 503, 408, 425, 429])
def test_a_failing_receiver_gets_the_batch_again(
    cluster: FakeCluster, tmp_path: Path, code: int
) -> None:
    deliver(cluster, 14)
    receiver = Receiver([status(code)] * 5)

    async def work() -> float:
        async with (
            receiver.served(),
            running(cluster.router, webhook(receiver, tmp_path)) as found,
        ):
            await until(lambda: len(set(receiver.ids)) >= 14)
            return found.value("retries_total", side="sink", name="alerts")

    assert asyncio.run(work()) == 5
    ids = Counter(request.headers["webhook-id"] for request in receiver.requests)
    assert max(ids.values()) == 6
    assert not (tmp_path / "alerts.dead.ndjson").exists()


@pytest.mark.parametrize(
    ("asked", "least_s"), [("1", 1.0), (formatdate(4_000_000_000, usegmt=True), 60.0)]
)
def test_the_receiver_names_the_pause(
    cluster: FakeCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    least_s: float,
) -> None:
    deliver(cluster, 1)
    pauses_s: list[float] = []

    async def note(_target: WebhookTarget, pause_s: float) -> None:
        pauses_s.append(pause_s)

    monkeypatch.setattr(WebhookTarget, "_pause", note)
    receiver = Receiver([status(429, f"retry-after: {asked}")])

    async def work() -> None:
        retry = {"first": "10ms", "longest": "60s"}
        section = webhook(receiver, tmp_path, retry=retry)
        async with receiver.served(), running(cluster.router, section):
            await until(lambda: len(receiver.requests) == 2)

    asyncio.run(work())
    assert len(pauses_s) == 1
    assert pauses_s[0] >= least_s


@pytest.mark.parametrize("code", [400, 401, 404, 413, 301, 307])
def test_what_a_receiver_refuses_is_a_dead_letter(
    cluster: FakeCluster, tmp_path: Path, code: int
) -> None:
    deliver(cluster, 7)
    receiver = Receiver([status(code, "location: http://127.0.0.1:1/")] * 3)

    async def work() -> float:
        async with (
            receiver.served(),
            running(cluster.router, webhook(receiver, tmp_path)) as found,
        ):
            await until(
                lambda: found.value(
                    "dead_letters_total", side="sink", name="alerts", reason=str(code)
                )
            )
            deliver(cluster, 7, 7)
            await until(lambda: len(receiver.requests) == 4)
            return found.value("retries_total", side="sink", name="alerts")

    assert asyncio.run(work()) == 2
    lines = [orjson.loads(line) for line in (tmp_path / "alerts.dead.ndjson").open()]
    assert [line["id"] for line in lines] == expected(7)
    assert {line["reason"] for line in lines} == {str(code)}
    assert lines[0]["notification"]["query"] == "q0"
    # And the sink went on.
    assert receiver.requests[-1].ids == expected(14)[7:]


def test_a_receiver_that_is_gone_stops_the_sink_alone(cluster: FakeCluster, tmp_path: Path) -> None:
    deliver(cluster, 7)
    receiver = Receiver([status(200), status(410)])

    async def work() -> None:
        async with (
            receiver.served(),
            running(cluster.router, webhook(receiver, tmp_path)) as found,
        ):
            await until(lambda: len(receiver.requests) == 1)
            deliver(cluster, 7, 7)
            await until(lambda: not found.sink.is_ready and len(receiver.requests) == 2)
            assert found.value("sink_active", name="alerts") == 0
            deliver(cluster, 7, 14)
            # Another one receives all of it meanwhile.
            (beside := tmp_path / "beside").mkdir()
            other = Receiver()
            async with other.served(), running(cluster.router, webhook(other, beside)):
                await until(lambda: len(set(other.ids)) == 21)
            assert not found.task.done()
            assert len(receiver.requests) == 2

    asyncio.run(work())


def test_a_receiver_that_is_gone_is_not_asked_after_a_restart(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    deliver(cluster, 14)
    receiver = Receiver([status(200), status(410)])

    async def until_aside(wanted: int) -> None:
        async with running(cluster.router, webhook(receiver, tmp_path)) as found:
            await until(lambda: found.sink._is_aside or len(receiver.requests) > wanted)
            assert len(receiver.requests) == wanted

    async def elsewhere() -> None:
        section = webhook(receiver, tmp_path, url=f"{receiver.url}#2")
        async with running(cluster.router, section):
            await until(lambda: len(receiver.requests) == 3)

    async def work() -> None:
        async with receiver.served():
            await until_aside(2)
            await until_aside(2)
            # What it refused is sent once its operator names another one.
            await elsewhere()
            assert receiver.requests[2].ids == receiver.requests[1].ids

    asyncio.run(work())


async def endless_body(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"1\r\nx\r\n")
        await writer.drain()
        await asyncio.sleep(0)


async def vast_body(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000000\r\n\r\n")
    while True:
        writer.write(b"x" * 65_536)
        await writer.drain()


async def slow_head(_request: Request, writer: asyncio.StreamWriter) -> None:
    hangs_up = asyncio.ensure_future(writer.wait_closed())
    try:
        for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + b"x: y\r\n" * 10_000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.wait([hangs_up], timeout=PAUSE_S)
    finally:
        hangs_up.cancel()


async def no_http(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH\r\n" * 10)


async def cut(_request: Request, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@pytest.mark.parametrize("answer", [endless_body, vast_body])
def test_the_head_of_an_answer_decides_and_its_body_is_bounded(
    cluster: FakeCluster, tmp_path: Path, answer: Answer
) -> None:
    deliver(cluster, 7)
    receiver = Receiver([answer])

    async def work() -> float:
        async with (
            receiver.served(),
            running(cluster.router, webhook(receiver, tmp_path, timeout="20s")) as found,
        ):
            await until(lambda: found.value("records_total", side="sink", name="alerts") == 7)
            deliver(cluster, 7, 7)
            await until(lambda: found.value("records_total", side="sink", name="alerts") == 14)
            return found.value("retries_total", side="sink", name="alerts")

    assert asyncio.run(work()) == 0
    assert receiver.ids == expected(14)


@pytest.mark.parametrize("answer", [slow_head, no_http, cut])
def test_a_receiver_without_an_answer_gets_the_batch_again(
    cluster: FakeCluster, tmp_path: Path, answer: Answer
) -> None:
    deliver(cluster, 7)
    receiver = Receiver([answer, answer])

    async def work() -> float:
        async with (
            receiver.served(),
            running(cluster.router, webhook(receiver, tmp_path, timeout="300ms")) as found,
        ):
            await until(lambda: found.value("records_total", side="sink", name="alerts") == 7)
            return found.value("retries_total", side="sink", name="alerts")

    assert asyncio.run(work()) == 2
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1


def test_one_slow_receiver_holds_up_nobody_else(cluster: FakeCluster, tmp_path: Path) -> None:
    deliver(cluster, 70)
    slow, quick = Receiver(rest=slow_head), Receiver()

    async def work() -> None:
        async with (
            slow.served(),
            quick.served(),
            running(cluster.router, webhook(slow, tmp_path), "slow", stop_s=0.1),
            running(cluster.router, webhook(quick, tmp_path), "quick"),
        ):
            await until(lambda: len(quick.ids) == 70)
            assert len(slow.requests) <= 1

    asyncio.run(work())


def test_private_addresses_are_refused(cluster: FakeCluster, tmp_path: Path) -> None:
    deliver(cluster, 7)
    receiver = Receiver()

    async def work() -> None:
        section = webhook(receiver, tmp_path, allow_private=False)
        async with receiver.served():
            section = {**section, "url": receiver.url.replace("127.0.0.1", "localhost")}
            async with running(cluster.router, section) as found:
                await until(lambda: found.value("retries_total", side="sink", name="alerts") >= 2)

    asyncio.run(work())
    assert receiver.connections == 0


def test_full_dead_letters_hold_the_sink_up(cluster: FakeCluster, tmp_path: Path) -> None:
    deliver(cluster, 7)
    receiver = Receiver(rest=status(404))

    async def work() -> None:
        section = webhook(receiver, tmp_path, dead_letters={"bytes": 1024})
        (tmp_path / "alerts.dead.ndjson").write_bytes(b"x" * 1024)
        async with receiver.served(), running(cluster.router, section) as found:
            await until(lambda: len(receiver.requests) >= 6)
            assert found.value("dead_letters_total", side="sink", name="alerts", reason="404") == 0
            (tmp_path / "alerts.dead.ndjson").unlink()
            await until(
                lambda: (
                    found.value("dead_letters_total", side="sink", name="alerts", reason="404") == 7
                )
            )

    asyncio.run(work())


def test_a_second_process_waits_for_the_first(cluster: FakeCluster, tmp_path: Path) -> None:
    deliver(cluster, 7)
    receiver = Receiver()

    async def work() -> None:
        async with receiver.served(), running(cluster.router, webhook(receiver, tmp_path)):
            await until(lambda: len(receiver.ids) == 7)
            async with running(cluster.router, webhook(receiver, tmp_path)) as second:
                await until(lambda: second.sink.is_ready)
                deliver(cluster, 7, 7)
                await until(lambda: len(receiver.ids) == 14)
                assert second.value("records_total", side="sink", name="alerts") == 0

    asyncio.run(work())
    assert receiver.ids == expected(14)
