"""Changes of many queries on one stream: the client for threads."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any, TypeVar

import grpc
from sirocco_api.v1.query_service_pb2_grpc import QueryServiceStub

from sirocco_client.base.numbers import read_whole
from sirocco_client.calls.bulk import QUERIES_MAX, Bulk, BulkRequest
from sirocco_client.connection.channels import Metadata
from sirocco_client.connection.connection import Connection
from sirocco_client.connection.contact import ROUTER
from sirocco_client.connection.retry import Backoff
from sirocco_client.errors import Unavailable
from sirocco_client.queries.query import RegistrationResult

T = TypeVar("T")


def change_many(
    connection: Connection, state: Bulk[T], rows: Iterable[T], batch: int
) -> Iterator[RegistrationResult]:
    """Sends changes on one stream; continues on a new stream after a break.

    Args:
        connection: To the cluster.
        state: What was sent and answered.
        rows: The changes.
        batch: Changes per request.
    """
    batch = read_whole(batch, "batch", 1, QUERIES_MAX)
    # The time starts at the first failure, because producing the rows may take long.
    backoff = Backoff(connection.retry, random.random, reach_s=connection.timeout_s)
    source = iter(rows)
    is_more = True
    while True:
        outgoing: SimpleQueue[BulkRequest | None] = SimpleQueue()
        address = connection.routers.current
        call: Any = None
        try:
            call = connection.stream(
                address,
                partial(_begun, state.method, iter(outgoing.get, None), connection.metadata),
            )
            while True:
                while is_more and state.has_room:
                    part = list(islice(source, batch))
                    is_more = bool(part)
                    if part:
                        state.add(part)
                while (request := state.next_request()) is not None:
                    outgoing.put(request)
                if not state.is_waiting:
                    return
                response = next(call, None)
                if response is None:
                    raise Unavailable("the server ended the stream")
                backoff.progressed()
                connection.contact.reached(address, ROUTER)
                yield from state.answered(response)
        except (grpc.RpcError, Unavailable) as failure:
            state.rewind()
            connection.routers.failed(address)
            error = connection.contact.failed(address, ROUTER, state.method, failure)
            connection.pause(backoff.pause_s(error))
        finally:
            outgoing.put(None)
            if call is not None:
                call.cancel()


def _begun(
    method: str, requests: Iterator[BulkRequest | None], metadata: Metadata, channel: grpc.Channel
) -> Any:
    return getattr(QueryServiceStub(channel), method)(requests, metadata=metadata)
