"""Clients that disconnect do not fill the log with tracebacks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import grpc
import pytest
from grpc._cython.cygrpc import ExecuteBatchError

from sirocco.telemetry.logging import configure, is_worth_a_line
from tests.support.waiting import until

CALLS = "grpc._cython.cygrpc"


class Kept(logging.Handler):
    """Keeps the log records."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def kept() -> Iterator[Kept]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    configure("info")
    handler = Kept()
    root.addHandler(handler)
    yield handler
    logging.getLogger(CALLS).removeFilter(is_worth_a_line)
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.mark.parametrize(
    ("error", "is_logged"),
    [
        (ExecuteBatchError('Failed "execute_batch"'), False),
        (asyncio.CancelledError(), False),
        (ValueError("a defect"), True),
    ],
)
def test_clients_that_go_away_are_not_logged(
    kept: Kept, error: BaseException, is_logged: bool
) -> None:
    logger = logging.getLogger(CALLS)
    try:
        raise error
    except BaseException:
        logger.exception("raised in core by a servicer method")
    assert ("raised in core" in "".join(kept.lines)) == is_logged


def test_the_logger_is_that_of_grpc(kept: Kept) -> None:
    """Tests a server whose client disconnects during an answer."""

    async def run() -> None:
        ended = 0

        async def answers(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            nonlocal ended
            try:
                while True:
                    await context.write(b"x" * 100_000)
            finally:
                ended += 1

        server = grpc.aio.server()
        handler = grpc.unary_stream_rpc_method_handler(answers)
        server.add_registered_method_handlers("s", {"m": handler})
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            for number in range(5):
                call = channel.unary_stream("/s/m")(b"")
                await call.read()
                call.cancel()
                await until(lambda number=number: ended > number)
        await server.stop(0)

    asyncio.run(run())
    assert not kept.lines


def test_urls_of_requests_are_not_logged(kept: Kept) -> None:
    logging.getLogger("httpx").info("HTTP Request: POST https://example.org/secret")
    logging.getLogger("httpx").warning("a warning")
    assert kept.lines == ["a warning"]
