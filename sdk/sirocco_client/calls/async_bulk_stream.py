"""Changes of many queries on one stream: the client for asyncio."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from typing import Any, TypeVar

import grpc.aio
from sirocco_api.v1.query_service_pb2_grpc import QueryServiceStub

from sirocco_client.base.numbers import read_whole
from sirocco_client.calls.bulk import QUERIES_MAX, Bulk
from sirocco_client.connection.async_waiting import BROKEN, error_of_cancellation
from sirocco_client.connection.connection import AsyncConnection
from sirocco_client.connection.contact import ROUTER
from sirocco_client.connection.retry import Backoff
from sirocco_client.errors import SiroccoError, Unavailable
from sirocco_client.queries.query import RegistrationResult

T = TypeVar("T")


async def change_many(
    connection: AsyncConnection, state: Bulk[T], rows: Iterable[T] | AsyncIterable[T], batch: int
) -> AsyncIterator[RegistrationResult]:
    """As `bulk_stream.change_many`; also takes an asynchronous iterable."""
    batch = read_whole(batch, "batch", 1, QUERIES_MAX)
    # The time starts at the first failure, because producing the rows may take long.
    backoff = Backoff(connection.retry, random.random, reach_s=connection.timeout_s)
    parts = _parts(rows, batch)
    is_more = True
    while True:
        address = connection.routers.current
        call: Any = None
        error: SiroccoError
        try:
            call = connection.stream(
                address,
                lambda channel: getattr(QueryServiceStub(channel), state.method)(
                    metadata=connection.metadata
                ),
            )
            while True:
                while is_more and state.has_room:
                    part = await anext(parts, None)
                    is_more = part is not None
                    if part is not None:
                        state.add(part)
                while (request := state.next_request()) is not None:
                    await call.write(request)
                if not state.is_waiting:
                    return
                response = await call.read()
                if response is grpc.aio.EOF:
                    raise Unavailable("the server ended the stream")
                backoff.progressed()
                connection.contact.reached(address, ROUTER)
                for result in state.answered(response):
                    yield result
        except BROKEN as failure:
            error = connection.contact.failed(address, ROUTER, state.method, failure)
        except asyncio.CancelledError:
            error = error_of_cancellation()
        finally:
            if call is not None:
                call.cancel()
        state.rewind()
        connection.routers.failed(address)
        await asyncio.sleep(backoff.pause_s(error))


async def _parts(rows: Iterable[T] | AsyncIterable[T], batch: int) -> AsyncIterator[list[T]]:
    part: list[T] = []
    async for row in _each(rows):
        part.append(row)
        if len(part) == batch:
            yield part
            part = []
    if part:
        yield part


async def _each(rows: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(rows, AsyncIterable):
        async for row in rows:
            yield row
    else:
        for row in rows:
            yield row
