"""Hostile connections: what a client may make the gateway keep, or do, around its requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from sirocco_client import PermissionDenied
from uvicorn.server import ServerState

from sirocco.services.gateway import connections
from sirocco.services.gateway.connections import Connections
from sirocco.services.gateway.notifications import check_origin
from sirocco.services.gateway.settings import LIMITS
from tests.support.waiting import until

HEAD = b"GET / HTTP/1.1\r\nhost: x\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
LIMIT = LIMITS.header_bytes


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test on a loop."""

    @wraps(test)
    def run(*args: Any, **named: Any) -> None:
        asyncio.run(test(*args, **named))

    return run


class Transport(asyncio.Transport):
    """Keeps what is written, as a connection does whose client reads nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 5) if name == "peername" else default

    def write(self, data: Any) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.is_aborted or self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True

    def set_protocol(self, protocol: Any) -> None:
        self.protocol: Any = protocol

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Opened:
    """A connection to an application that answers at once, or never."""

    def __init__(self, *, answers: bool = True, **limits: Any) -> None:
        self.refused: list[str] = []
        self.shared = Connections(replace(LIMITS, **limits), self.refused.append)
        self.answers = answers
        # Requests that have learnt of the end of their connection.
        self.notices = 0
        http, websocket = self.shared.protocols()
        config = uvicorn.Config(
            self.application, http=http, ws=websocket, lifespan="off", interface="asgi3"
        )
        config.load()
        self.transport = Transport()
        made: Any = http
        self.protocol = made(config, ServerState(), {})
        self.protocol.connection_made(self.transport)
        self.transport.set_protocol(self.protocol)

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            if not self.answers:
                kind = "websocket.http.response"
                await send({"type": f"{kind}.start", "status": 401, "headers": []})
                await send({"type": f"{kind}.body", "body": b"no"})
                return
            await send({"type": "websocket.accept"})
            while (await receive())["type"] != "websocket.disconnect":
                pass
            return
        if not self.answers:
            while (await receive())["type"] != "http.disconnect":
                pass
            self.notices += 1
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"answer"})

    async def receives(self, data: bytes) -> None:
        self.transport.protocol.data_received(data)
        for _ in range(100):
            await asyncio.sleep(0)

    async def ends(self) -> None:
        self.protocol.connection_lost(None)
        for _ in range(100):
            await asyncio.sleep(0)


class _Unwalked(list[Any]):
    def __iter__(self) -> Any:
        raise AssertionError("all headers are looked at for each of them")


@on_loop
async def test_each_header_is_counted_once() -> None:
    opened = Opened()
    await opened.receives(HEAD)
    opened.protocol.headers = _Unwalked()
    # The last one ends with the next line.
    await opened.receives(b"a: b\r\n" * 1_000 + b"c: ")
    assert len(opened.protocol.headers) >= 1_000
    await opened.receives(b"%s\r\nd: e\r\n" % (b"x" * LIMIT))
    assert b" 431 " in opened.transport.written


@pytest.mark.parametrize(
    "begin",
    [
        # After the last chunk, and in the head of a next request while the first is under way.
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\na: ",
        HEAD + b"\r\nGET / HTTP/1.1\r\na: ",
    ],
)
@on_loop
async def test_nothing_without_an_end_is_kept_after_a_head(begin: bytes) -> None:
    opened = Opened(answers=False)
    await opened.receives(begin)
    for _ in range(5):
        await opened.receives(b"x" * (LIMIT // 4))
    assert opened.transport.is_aborted
    assert opened.refused == ["headers"]


@on_loop
async def test_a_body_of_small_chunks_and_many_requests_are_no_such_thing() -> None:
    opened = Opened(answers=False)
    await opened.receives(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
    for _ in range(LIMIT // 1_000):
        await opened.receives(b"1\r\nx\r\n" * 500)
    assert not opened.transport.is_closing()
    opened = Opened()
    for _ in range(LIMIT // 400):
        await opened.receives((HEAD + b"\r\n") * 16)
    assert not opened.transport.is_closing()
    assert opened.transport.written.count(b" 200 ") == LIMIT // 400 * 16


@on_loop
async def test_few_requests_wait_behind_one_that_is_answered() -> None:
    """What is read at once held 14,000, which took 32 MB for as long as a stream before them."""
    opened = Opened(answers=False)
    await opened.receives(HEAD + b"\r\n")
    await opened.receives(b"GET / HTTP/1.1\r\n\r\n" * 14_000)
    assert opened.transport.is_aborted
    assert opened.refused == ["calls"]
    assert len(opened.protocol.pipeline) <= 16
    assert not opened.transport.written


@on_loop
async def test_a_stream_with_requests_behind_it_ends_with_its_connection() -> None:
    """The server informed the last request alone: the stream kept its place for ever."""
    opened = Opened(answers=False)
    await opened.receives((HEAD + b"\r\n") * 3)
    await opened.ends()
    assert opened.notices == 1


@pytest.mark.parametrize("answers", [False, True])
@on_loop
async def test_a_socket_does_not_begin_behind_an_answer(answers: bool) -> None:
    """The answer did not learn of the end, and the socket not that nobody reads."""
    opened = Opened(answers=answers)
    await opened.receives(HEAD + b"\r\n")
    if answers:
        opened.protocol.pause_writing()
    await opened.receives(UPGRADE)
    assert opened.transport.is_aborted
    assert opened.refused == ["calls"]
    assert opened.transport.protocol is opened.protocol
    await opened.ends()
    assert opened.notices == (0 if answers else 1)


@on_loop
async def test_answers_that_nobody_reads_end_the_connection() -> None:
    """The request behind an unread answer waited for its client for ever."""
    opened = Opened(unread_s=0.01, linger_s=0.01)
    await opened.receives(HEAD + b"\r\n")
    opened.protocol.pause_writing()
    await opened.receives(HEAD + b"\r\n")
    assert not opened.transport.is_aborted
    try:
        await until(lambda: opened.transport.is_aborted)
    finally:
        await opened.ends()
    assert opened.refused == ["unread"]


@on_loop
async def test_a_client_that_reads_keeps_its_connection() -> None:
    opened = Opened(unread_s=0.0, linger_s=0.0)
    opened.protocol.pause_writing()
    opened.protocol.resume_writing()
    await opened.receives(HEAD + b"\r\n")
    assert opened.transport.written.count(b" 200 ") == 1
    assert not opened.transport.is_aborted


@pytest.mark.parametrize(
    "last", [b"connection: close\r\n\r\n", b"no header\r\n\r\n", b"a: " + b"x" * 2 * LIMIT]
)
@on_loop
async def test_a_connection_that_is_closed_ends_though_nobody_reads(
    last: bytes,
) -> None:
    opened = Opened(idle_s=0.01, linger_s=0.01)
    await opened.receives(HEAD + last)
    assert opened.transport.is_closed
    await until(lambda: opened.transport.is_aborted)


@on_loop
async def test_answers_to_pings_do_not_pile_up() -> None:
    opened = Opened()
    await opened.receives(UPGRADE)
    socket = opened.transport.protocol
    ping = b"\x89\xfd\0\0\0\0" + b"x" * 125
    await opened.receives(ping)
    first = len(opened.transport.written)
    socket.pause_writing()
    for _ in range(100):
        await opened.receives(ping)
    assert len(opened.transport.written) == first
    socket.resume_writing()
    await opened.receives(ping)
    assert len(opened.transport.written) == first + 127


@on_loop
async def test_a_refused_socket_is_no_defect(caplog: pytest.LogCaptureFixture) -> None:
    opened = Opened(answers=False)
    await opened.receives(UPGRADE)
    assert opened.transport.written.startswith(b"HTTP/1.1 401 ")
    assert opened.transport.is_closed
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@on_loop
async def test_a_message_in_endless_empty_pieces_ends_the_socket() -> None:
    opened = Opened()
    await opened.receives(UPGRADE)
    assert opened.shared.places.held == 1
    await opened.receives(b"\x01\x80\0\0\0\0" + b"\x00\x80\0\0\0\0" * 1_000)
    assert opened.transport.is_aborted
    assert "frames" in opened.refused


@on_loop
async def test_nothing_is_kept_of_a_client_that_does_not_wait_for_its_handshake() -> None:
    """Its messages filled a queue, and pings were answered before the handshake was."""
    for frame in (b"\x81\x80\0\0\0\0", b"\x89\x80\0\0\0\0", b"\xff\xff\0\0\0\0"):
        opened = Opened()
        # The answer takes a turn of the loop.
        opened.transport.protocol.data_received(UPGRADE)
        opened.transport.protocol.data_received(frame * 40_000)
        assert opened.transport.is_aborted
        assert opened.refused == ["frames"]
        assert not opened.transport.written
        assert opened.transport.protocol.queue.qsize() == 1
        opened.transport.protocol.connection_lost(None)
        await asyncio.sleep(0)


@on_loop
async def test_what_is_no_handshake_is_answered_and_ends() -> None:
    """Its connection had no answer and no end: for as long as the client liked, without a token."""
    head = UPGRADE.removesuffix(b"\r\n")
    for name, more in (
        ("many", b"".join(b"a%d: b\r\n" % number for number in range(300))),
        ("body", b"content-length: 5\r\n"),
        ("long", b"sec-websocket-protocol: " + b"a," * 8_000 + b"\r\n"),
    ):
        opened = Opened()
        opened.transport.protocol.data_received(head + more + b"\r\n")
        assert opened.transport.is_closing(), name
        assert opened.transport.written.startswith(b"HTTP/1.1 4"), name
        assert opened.refused == ["headers"]
        opened.transport.protocol.connection_lost(None)
        assert opened.shared.places.held == 0


@on_loop
async def test_a_socket_keeps_its_place_among_the_connections() -> None:
    opened = Opened()
    await opened.receives(UPGRADE)
    assert opened.shared.places.held == 1
    opened.transport.protocol.connection_lost(None)
    assert opened.shared.places.held == 0


@pytest.mark.parametrize("origin", ["http://[", "http://a]b", "http://\u2100.com", "null", ""])
def test_an_origin_that_is_no_address_is_another_one(origin: str) -> None:
    """A parser of addresses raised: an internal error and a traceback for each handshake."""
    page: Any = SimpleNamespace(headers={"origin": origin, "host": "gateway"})
    with pytest.raises(PermissionDenied) as refused:
        check_origin(page, ())
    assert refused.value.field == "Origin"
    page.headers["origin"] = "http://gateway"
    check_origin(page, ())


@on_loop
async def test_connections_leave_files_for_the_rest_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "files_max", lambda: 100)
    assert Opened().shared.places.whole_max == 50
