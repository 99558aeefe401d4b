"""Calls routers until one answers: the client for asyncio."""

from __future__ import annotations

import asyncio
import random
import time
from typing import TypeVar

import grpc
import grpc.aio

from sirocco_client.calls import router_calls
from sirocco_client.calls.attempts import Attempts
from sirocco_client.calls.router_calls import RouterCall
from sirocco_client.connection.async_waiting import error_of_cancellation
from sirocco_client.connection.connection import AsyncConnection
from sirocco_client.connection.contact import ROUTER
from sirocco_client.connection.endpoints import Endpoints, preferred_order
from sirocco_client.connection.retry import LAST_TRY_S
from sirocco_client.errors import SiroccoError

T = TypeVar("T")


async def call_routers(
    connection: AsyncConnection, call: RouterCall[T], timeout_s: float | None = None
) -> T:
    """As `calling.call_routers`."""
    deadline_s = time.monotonic() + connection.seconds(timeout_s)
    attempts = Attempts(connection.retry, random.random, deadline_s)
    while True:
        address = connection.routers.current
        left_s = attempts.left_s(time.monotonic())
        error: SiroccoError
        try:
            with connection.using(address) as channel:
                found = await getattr(call.stub(channel), call.method)(
                    call.request, timeout=left_s, metadata=connection.metadata
                )
        except (grpc.RpcError, grpc.aio.UsageError) as failure:
            error = connection.contact.failed(address, ROUTER, call.method, failure)
        except asyncio.CancelledError:
            error = error_of_cancellation()
        else:
            connection.contact.reached(address, ROUTER)
            return call.read(found)
        if attempts.is_unknown_call(call, error):
            # An older router, or no router at all? A call that every router knows shows it.
            left_s = attempts.left_s(time.monotonic())
            await call_routers(connection, router_calls.describe(), max(left_s, LAST_TRY_S))
        # Also when no time is left for another try: the next call should not wait for the same
        # router, which may hang.
        if error.retryable:
            connection.routers.failed(address)
        if attempts.has_removed(call, error):
            return call.read(None)
        await asyncio.sleep(attempts.pause_s(error, time.monotonic()))


async def merger_order(
    connection: AsyncConnection, key: str, timeout_s: float | None = None
) -> Endpoints:
    """As `calling.merger_order`."""
    mergers = connection.mergers
    if mergers is None:
        cluster = await call_routers(connection, router_calls.describe(), timeout_s)
        mergers = cluster.addresses("merger")
    return Endpoints(preferred_order(mergers, key))
