"""Calls routers until one answers: the client for threads."""

from __future__ import annotations

import random
import time
from typing import TypeVar

import grpc

from sirocco_client.calls import router_calls
from sirocco_client.calls.attempts import Attempts
from sirocco_client.calls.router_calls import RouterCall
from sirocco_client.connection.connection import Connection
from sirocco_client.connection.contact import ROUTER
from sirocco_client.connection.endpoints import Endpoints, preferred_order
from sirocco_client.connection.retry import LAST_TRY_S

T = TypeVar("T")


def call_routers(connection: Connection, call: RouterCall[T], timeout_s: float | None = None) -> T:
    """Calls a method on one router after another; returns what its answer says.

    Args:
        connection: To the cluster.
        call: Method and arguments.
        timeout_s: Time limit with all retries, seconds. None: the client's.
    """
    deadline_s = time.monotonic() + connection.seconds(timeout_s)
    attempts = Attempts(connection.retry, random.random, deadline_s)
    while True:
        address = connection.routers.current
        left_s = attempts.left_s(time.monotonic())
        try:
            with connection.using(address) as channel:
                found = getattr(call.stub(channel), call.method)(
                    call.request, timeout=left_s, metadata=connection.metadata
                )
        except (grpc.RpcError, ValueError) as failure:
            # ValueError: the channel was closed meanwhile.
            error = connection.contact.failed(address, ROUTER, call.method, failure)
        else:
            connection.contact.reached(address, ROUTER)
            return call.read(found)
        if attempts.is_unknown_call(call, error):
            # An older router, or no router at all? A call that every router knows shows it.
            left_s = attempts.left_s(time.monotonic())
            call_routers(connection, router_calls.describe(), max(left_s, LAST_TRY_S))
        # Also when no time is left for another try: the next call should not wait for the same
        # router, which may hang.
        if error.retryable:
            connection.routers.failed(address)
        if attempts.has_removed(call, error):
            return call.read(None)
        connection.pause(attempts.pause_s(error, time.monotonic()))


def merger_order(connection: Connection, key: str, timeout_s: float | None = None) -> Endpoints:
    """Returns the mergers in the order in which a subscriber or client of that key asks them."""
    mergers = connection.mergers
    if mergers is None:
        cluster = call_routers(connection, router_calls.describe(), timeout_s)
        mergers = cluster.addresses("merger")
    return Endpoints(preferred_order(mergers, key))
