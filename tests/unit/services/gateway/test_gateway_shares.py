"""What callers of a gateway may take of each other: time, memory, places, and names."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import httpx
import orjson
import pytest
from sirocco_api.v1.search_service_pb2 import SearchResponse
from sirocco_client import FailedPrecondition, SiroccoError, Unauthenticated
from sirocco_client.calls import searching
from sirocco_client.calls.searching import Searching
from sirocco_client.connection.channels import ChannelSettings

from sirocco.model.errors import ResourceExhausted
from sirocco.runtime.access.jwt_tokens import BUDGET
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.services.gateway import pages
from sirocco.services.gateway.answers import LargeAnswer
from sirocco.services.gateway.app import make_app
from sirocco.services.gateway.callers import Caller
from sirocco.services.gateway.connections import TRANSPORT
from sirocco.services.gateway.front import Front
from sirocco.services.gateway.live.stream import TENANT_SAMPLERS_MAX, LiveViews
from sirocco.services.gateway.notifications import Position, _Writer
from sirocco.services.gateway.queries import query_of
from sirocco.services.gateway.searches import _Growing, _Growth
from sirocco.services.gateway.server import Gateway
from sirocco.services.gateway.settings import LIMITS, GatewayLimits, GatewaySettings
from sirocco.services.gateway.wires import GoneError, Wire
from sirocco.telemetry.metrics.gateway import GatewayMetrics
from sirocco.telemetry.metrics.process import new_registry

ANNA = Caller("anna", "a", "ipv4:10.0.0.1:1")
BEN = Caller("ben", "b", "ipv4:10.0.0.2:1")
QUERY: Any = {"kind": "range"}


def front_of(**limits: Any) -> Front:
    settings = GatewaySettings(routers="127.0.0.1:1", limits=replace(LIMITS, **limits))
    return Front(settings, GatewayMetrics(new_registry()))


def accepted(front: Front, *callers: Caller) -> None:
    for caller in callers:
        front.clients._connect(caller)


def test_tokens_that_are_made_up_share_by_their_connection() -> None:
    async def run() -> None:
        # No router answers: nobody waits for one.
        front = front_of(calls=64, call_s=0.2)
        with ExitStack() as stack:

            def take(number: int) -> None:
                made_up = Caller(str(number), f"key {number}", "ipv4:10.0.0.1:1")
                stack.enter_context(front.place(front.calls, "calls", made_up))

            for number in range(32):
                take(number)
            with pytest.raises(ResourceExhausted):
                take(32)
        # Nothing is kept of one that the cluster does not accept.
        with pytest.raises(SiroccoError):
            async with front.clients.use(ANNA):
                pass
        assert len(front.clients) == 0
        accepted(front, ANNA)
        with front.place(front.calls, "calls", ANNA):
            assert front.calls.held_by(ANNA.key) == 1
        await front.close()

    asyncio.run(run())


def cluster_of(tenants: dict[str, str], *, is_open: bool = False) -> Any:
    """Returns what makes clients that are asked whose a token is."""

    class Client:
        def __init__(self, token: str | None) -> None:
            self.token = token
            self.publisher = SimpleNamespace()

        async def __aenter__(self) -> Client:
            return self

        async def __aexit__(self, *_: object) -> None:
            pass

        async def close(self) -> None:
            pass

        async def describe(self) -> Any:
            return SimpleNamespace(tenant=tenants.get(self.token or "", ""), is_open=is_open)

    return lambda caller: Client(caller.token)


def test_the_tokens_of_a_tenant_share(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        front = front_of(calls=64)
        tenants = {f"t{i}": "acme" for i in range(40)}
        monkeypatch.setattr(front.clients, "_client_of", cluster_of(tenants))
        async with AsyncExitStack() as stack:

            async def take(token: str) -> None:
                one = Caller(token, f"key {token}", f"ipv4:10.0.0.{len(token)}:1")
                await stack.enter_async_context(front.clients.use(one))
                stack.enter_context(front.place(front.calls, "calls", one))

            for number in range(32):
                await take(f"t{number}")
            with pytest.raises(ResourceExhausted, match="tenant acme"):
                await take("t32")
            # Another one, and the operator, are served.
            tenants["other"] = "other"
            await take("other")
            await take("operator")

    asyncio.run(run())


def test_a_tenant_leaves_clients_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        front = front_of(tokens=8)
        tenants = {f"t{i}": "acme" for i in range(8)}
        monkeypatch.setattr(front.clients, "_client_of", cluster_of(tenants))
        async with AsyncExitStack() as stack:

            async def use(token: str) -> None:
                one = Caller(token, f"key {token}", "ipv4:10.0.0.1:1")
                await stack.enter_async_context(front.clients.use(one))

            for number in range(4):
                await use(f"t{number}")
            with pytest.raises(ResourceExhausted, match="tokens are in use"):
                await use("t4")
            # It may go on with those that it has.
            await use("t0")
            tenants["other"] = "other"
            await use("other")

    asyncio.run(run())


def test_made_up_tokens_of_one_host_leave_trials_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of them are one connection of the cluster, which has a budget of checks of JWTs."""

    async def run() -> None:
        asked = 0

        class Refused:
            def __init__(self, caller: Caller) -> None:
                self.token = caller.token

            async def __aenter__(self) -> Refused:
                return self

            async def __aexit__(self, *_: object) -> None:
                pass

            async def describe(self) -> Any:
                nonlocal asked
                asked += 1
                raise Unauthenticated("no such token")

        front = front_of()
        monkeypatch.setattr(front.clients, "_client_of", Refused)
        # Time stands still, so all of it is one moment.
        monkeypatch.setattr(front.clients, "_clock_s", lambda: 1.0)

        async def use(number: int, host: str) -> None:
            made_up = Caller(str(number), f"key {number}", f"{host}:{number}")
            with pytest.raises(Unauthenticated):
                async with front.clients.use(made_up):
                    pass

        for number in range(200):
            with suppress(ResourceExhausted):
                await use(number, "ipv4:10.0.0.1")
        # Three quarters of what is tried at once, and less than the cluster checks.
        assert asked == 46 < BUDGET.connection_per_s
        await use(200, "ipv4:10.0.0.2")
        assert asked == 47
        await front.close()

    asyncio.run(run())


def test_made_up_tokens_of_a_cluster_without_tokens_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        front = front_of(calls=64)
        monkeypatch.setattr(front.clients, "_client_of", cluster_of({}, is_open=True))
        views = LiveViews(front)
        async with AsyncExitStack() as stack:
            for number in range(100):
                one = Caller(str(number), f"key {number}", "ipv4:10.0.0.1:1")
                await stack.enter_async_context(front.clients.use(one))
                stack.enter_context(views.watched(one))
            # All have one client, and share one view.
            assert len(front.clients) <= 2
            assert views.places.held == 1
            for number in range(32):
                stack.enter_context(
                    front.place(front.calls, "calls", Caller(str(number), f"key {number}", "a:1"))
                )
            with pytest.raises(ResourceExhausted):
                front.place(front.calls, "calls", Caller("32", "key 32", "a:1")).__enter__()

    asyncio.run(run())


def test_no_tenant_takes_all_views(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        front = front_of()
        tenants = {f"t{i}": "acme" for i in range(40)} | {f"u{i}": f"u{i}" for i in range(40)}
        monkeypatch.setattr(front.clients, "_client_of", cluster_of(tenants))
        views = LiveViews(front)
        async with AsyncExitStack() as stack:

            async def watch(token: str) -> None:
                one = Caller(token, f"key {token}", "ipv4:10.0.0.1:1")
                await stack.enter_async_context(front.clients.use(one))
                stack.enter_context(views.watched(one))

            for number in range(TENANT_SAMPLERS_MAX):
                await watch(f"t{number}")
            with pytest.raises(ResourceExhausted, match="tenant acme"):
                await watch("t39")
            # A second console with one token costs nothing.
            await watch("t0")
            assert views.slowness() == 1
            for number in range(40):
                await watch(f"u{number}")
            # All together cost the cluster no more than before.
            assert views.slowness() == 44 / 16
        assert views.places.held == 0

    asyncio.run(run())


def test_an_explanation_that_takes_long_leaves_threads_to_others() -> None:
    async def run() -> None:
        front = front_of(explanations=4, room_s=0.05)
        ends = threading.Event()
        slow = [asyncio.create_task(front.explain(ANNA, ends.wait)) for _ in range(9)]
        assert await front.explain(BEN, lambda: "at once") == "at once"
        ends.set()
        await asyncio.gather(*slow, return_exceptions=True)
        assert front.explanations.held == 0
        await front.close()

    asyncio.run(run())


def test_work_of_one_caller_leaves_a_thread_to_others() -> None:
    async def run() -> None:
        pool = WorkPool("test", running_each_max=1)
        ends = threading.Event()
        sender = ("anna", "")
        slow = [asyncio.create_task(pool.run(ends.wait, sender=sender)) for _ in range(3)]
        assert await pool.run(lambda: "at once", sender=("", "ipv4:10.0.0.2:1")) == "at once"
        ends.set()
        await asyncio.gather(*slow)
        assert not pool._senders.get(("", "ipv4:10.0.0.2:1"))
        pool.close()

    asyncio.run(run())


def test_queries_that_take_long_are_read_beside_the_loop() -> None:
    async def run() -> None:
        front = front_of()
        threads = []

        def make(members: Any) -> Any:
            threads.append(threading.current_thread())
            return members

        regions: list[dict[str, Any]] = [{"h3": []}, {"buffer": {}}, {"wkt": ""}, {"geojson": {}}]
        for region in regions:
            await query_of(front, ANNA, orjson.dumps({**QUERY, "region": region}), make)
        await query_of(front, ANNA, orjson.dumps({**QUERY, "text": "x" * 20_000}), make)
        assert threading.main_thread() not in threads
        await query_of(front, ANNA, orjson.dumps({**QUERY, "region": {"rect": {}}}), make)
        assert threads[-1] is threading.main_thread()
        await front.close()

    asyncio.run(run())


class _Transport:
    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def get_write_buffer_size(self) -> int:
        return 1


@pytest.mark.parametrize("reads", [True, False])
def test_an_answer_holds_its_memory_until_it_is_read(reads: bool) -> None:
    async def run() -> None:
        front = front_of(unread_s=0.05)
        transport = _Transport()
        sent: list[bytes] = []

        async def send(message: Any) -> None:
            if sent and not reads:
                await asyncio.Event().wait()
            assert front.bodies.memory.held == 1_000_000
            sent.append(message.get("body", b""))

        async with front.bodies.held(ANNA, 5_000_000) as room:
            answer = LargeAnswer(front, room.moved(), b"x" * 1_000_000)
        assert front.bodies.memory.held == 1_000_000
        scope = {"type": "http", "state": {TRANSPORT: transport}}
        await answer(scope, asyncio.Event().wait, send)  # type: ignore[arg-type]
        assert front.bodies.memory.held == 0
        assert transport.is_aborted is not reads
        assert len(b"".join(sent)) == (1_000_000 if reads else 0)
        await front.close()

    asyncio.run(run())


def part(count: int, size: int) -> SearchResponse:
    response = SearchResponse()
    response.objects.count = count
    response.objects.text = b"x" * size
    return response


def growing(front: Front, **limits: Any) -> _Growing:
    found: GatewayLimits = replace(LIMITS, **limits)
    return _Growing(QUERY, None, None, False, _Growth(found, front.bodies.room(ANNA)))


@pytest.mark.parametrize(
    ("limits", "refused"),
    [
        ({"answer_objects": 100}, FailedPrecondition),
        ({"answer_bytes": 100_000}, FailedPrecondition),
        ({}, ResourceExhausted),
    ],
)
def test_an_answer_is_refused_while_it_grows(limits: dict[str, int], refused: Any) -> None:
    async def run() -> None:
        front = front_of(caller_memory_bytes=1_000_000)
        search = growing(front, **limits)
        search.received(part(0, 20_000))
        search.restart()
        assert front.bodies.memory.held == 0

        def receive_all() -> None:
            for _ in range(100):
                # One without objects is not read further.
                search._growth.add(20, 0)
                search.received(part(0, 20_000))

        with pytest.raises(refused):
            receive_all()
        assert front.bodies.memory.held <= 1_000_000
        await front.close()

    asyncio.run(run())


def test_parts_that_the_caller_takes_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "SearchPart", lambda response: [response])
    for keeps in (True, False):
        search = Searching(QUERY, None, None, False, keeps=keeps)
        assert search.received(part(1, 0)) is not None
        assert len(search.answer().parts) == keeps


def test_streams_hold_the_memory_of_what_is_not_read() -> None:
    async def run() -> None:
        front = front_of(event_bytes=1_000_000, room_s=0.05)

        def held(caller: Caller, transport: _Transport, size: int) -> Any:
            wire = Wire(front, transport)
            opened: Any = SimpleNamespace(cursor="0.1")
            batch: Any = SimpleNamespace(message_bytes=size)
            return _Writer(front, caller, opened, Position(None), wire)._held(batch)

        async with AsyncExitStack() as stack:
            for _ in range(2):
                await stack.enter_async_context(held(ANNA, _Transport(), 50_000))
            # She has half of all; small ones do not count.
            cut = _Transport()
            with pytest.raises(GoneError):
                await stack.enter_async_context(held(ANNA, cut, 50_000))
            assert cut.is_aborted
            await stack.enter_async_context(held(ANNA, _Transport(), 1_000))
            await stack.enter_async_context(held(BEN, _Transport(), 50_000))
            assert front.events.held == 750_000
        assert front.events.held == 0
        await front.close()

    asyncio.run(run())


def test_a_stream_that_is_not_read_is_cut_and_counted_once() -> None:
    async def run() -> None:
        front = front_of(unread_s=0.0)
        transport = _Transport()
        wire = Wire(front, transport)
        # An event and a sign of life wait; a busy loop finds the time of both over in one turn.
        waiting = [wire._in_time(asyncio.Event().wait()) for _ in range(2)]
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(end) for end in ends] == [GoneError, GoneError]
        assert transport.is_aborted
        assert front.metrics.refused.labels("unread")._value.get() == 1
        await front.close()

    asyncio.run(run())


def test_clients_of_a_gateway_receive_no_more_ahead_than_a_window() -> None:
    async def run() -> None:
        front = front_of()
        client = front.clients._client_of(ANNA)
        options = dict(client._connection.settings.options("127.0.0.1:1"))
        assert options["grpc.http2.lookahead_bytes"] == 1 << 16
        assert options["grpc.http2.bdp_probe"] == 0
        assert "grpc.http2.bdp_probe" not in dict(ChannelSettings().options("127.0.0.1:1"))
        await client.close()
        await front.close()

    asyncio.run(run())


@pytest.fixture(scope="module")
def nowhere() -> Iterator[Gateway]:
    gateway = Gateway(GatewaySettings(routers="127.0.0.1:1", limits=replace(LIMITS, call_s=0.5)))
    gateway.start()
    yield gateway
    gateway.stop()


def test_names_that_are_no_utf_8_are_refused(nowhere: Gateway) -> None:
    # Replaced, they would be one name.
    for path in ("queries/%ff", "queries/%fe", "queries/q?subscriber=%ff"):
        answer = httpx.get(f"http://{nowhere.address}/v1/{path}")
        assert (answer.status_code, answer.json()["detail"]) == (400, "is no UTF-8"), path
    assert httpx.get(f"http://{nowhere.address}/v1/queries/%c3%a9").status_code == 503


def test_a_body_of_many_members_is_refused(nowhere: Gateway) -> None:
    body = gzip.compress(b"") * 5_000
    answer = httpx.post(
        f"http://{nowhere.address}/v1/objects",
        content=body,
        headers={"content-type": "text/csv", "content-encoding": "gzip"},
    )
    assert (answer.status_code, answer.json()["field"]) == (400, "body")
    assert "members" in answer.json()["detail"]


def test_answers_of_one_list_share_their_bounds() -> None:
    async def run() -> None:
        front = front_of()
        growth = _Growth(replace(LIMITS, answer_objects=100), front.bodies.room(ANNA))
        first, second = (_Growing(QUERY, None, None, False, growth) for _ in range(2))
        first.received(part(0, 20_000))
        held = front.bodies.memory.held
        second.received(part(0, 30_000))
        both = front.bodies.memory.held
        assert both > held
        # One begins anew: what the other holds stays.
        second.restart()
        assert front.bodies.memory.held == held
        first.restart()
        assert front.bodies.memory.held == 0

    asyncio.run(run())


def test_answers_are_written_a_piece_at_a_time() -> None:
    """A page of a megabyte was all in the connection's buffer, for clients that read nothing."""
    paths = [path for path in pages.all_pages() if path.endswith(".js")]
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        app = make_app(front_of())
        for path in paths:
            scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode()}
            await app({**scope, "query_string": b"", "headers": []}, receive, send)

    asyncio.run(ask())
    bodies = [one for one in sent if one["type"] == "http.response.body"]
    assert max(len(one["body"]) for one in bodies) <= 1 << 16
    assert sum(len(one["body"]) for one in bodies) > 1 << 20
    assert [one.get("more_body", False) for one in bodies].count(False) == len(paths)
