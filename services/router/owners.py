"""Sends changes and reads of queries to the router that owns their registry partition."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import grpc

from sirocco.codec.errors import read_error, write_error
from sirocco.codec.queries import read_query, write_query
from sirocco.codec.wire import ELEMENTS_MAX, elements_of
from sirocco.internal_api.v1 import owner_service_pb2 as pb
from sirocco.internal_api.v1.owner_service_pb2_grpc import OwnerServiceServicer, OwnerServiceStub
from sirocco.model.errors import (
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    Unavailable,
)
from sirocco.model.limits import STORED_LIMITS
from sirocco.protocol.contract.effects import (
    ChangeRequest,
    Outcome,
    PlainRequests,
    RemovalRequests,
    errors_of,
)
from sirocco.protocol.contract.messages import NO_PAST, NO_REVISION, REGISTRY
from sirocco.protocol.router.machine import RouterMachine
from sirocco.runtime.grpc.grpc_errors import unary
from sirocco.runtime.grpc.peer_channels import PLAIN, AioChannels, Dialer
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.runtime.loop.worker import Worker
from sirocco.runtime.process.clock import now_ms
from sirocco.runtime.process.membership import MemberInfo
from sirocco.runtime.process.retries import pauses_s
from sirocco.services.router.limits import TIMES, FrontTimes
from sirocco.services.router.quotas import TenantQueries
from sirocco.services.router.registry_definitions import StoredQueries

T = TypeVar("T")

# Time limit of one call to an owner.
CALL_S = 20.0

# Bytes of one request to an owner: half of the largest message.
REQUEST_BYTES_MAX = 4 << 20

_ACTIONS = {
    "register": pb.CHANGE_ACTION_REGISTER,
    "update": pb.CHANGE_ACTION_UPDATE,
    "unregister": pb.CHANGE_ACTION_UNREGISTER,
}
_ACTION_NAMES = {value: name for name, value in _ACTIONS.items()}


class Owners:
    """Finds the owner of a registry partition, this process or another, and calls it."""

    def __init__(
        self,
        member: str,
        machine: RouterMachine,
        worker: Worker,
        stored: StoredQueries,
        members: Callable[[], dict[str, MemberInfo]],
        dialer: Dialer = PLAIN,
        tenants: TenantQueries | None = None,
        times: FrontTimes = TIMES,
    ) -> None:
        self._times = times
        self._member = member
        self._machine = machine
        self._worker = worker
        self._stored = stored
        self._members = members
        self._channels = AioChannels(dialer)
        self._tenants = tenants or TenantQueries(stored, machine)

    async def _sought(self, attempt: Callable[[], Awaitable[T]]) -> T:
        seek_s = self._times.seek_s
        deadline = time.monotonic() + seek_s
        for pause_s in pauses_s():
            try:
                return await attempt()
            except Unavailable as error:
                if time.monotonic() + pause_s > deadline:
                    raise DeadlineExceeded(
                        f"no owner was found in {seek_s:.0f} s: {error}"
                    ) from error
            await asyncio.sleep(pause_s)
        raise AssertionError("pauses do not end")

    async def apply(self, partition: int, requests: Sequence[ChangeRequest]) -> Sequence[Outcome]:
        """Applies change requests; repeats them at a new owner if the old one disappears."""
        # After this time, the client of a waiting change knows that it failed.
        deadline_ms = now_ms() + round(self._times.seek_s * 1_000)

        calls = 0

        async def call_here() -> Sequence[Outcome]:
            nonlocal calls
            calls += 1
            if isinstance(requests, PlainRequests | RemovalRequests):
                taken = self._worker.change_in_columns(partition, requests, deadline_ms)
            else:
                taken = self._worker.change_queries(partition, requests, deadline_ms)
            return await asyncio.wrap_future(taken)

        async def call_there(stub: OwnerServiceStub) -> Sequence[Outcome]:
            nonlocal calls
            calls += 1
            outcomes: list[Outcome] = []
            for changes in parts([write_request(request) for request in requests]):
                request = pb.ApplyChangesRequest(
                    partition=partition, changes=changes, deadline_ms=deadline_ms
                )
                response = await stub.ApplyChanges(request, timeout=CALL_S)
                outcomes.extend(map(_decode_outcome, response.results))
            return tuple(outcomes)

        async def attempt() -> Sequence[Outcome]:
            outcomes = await self._ask(partition, call_here, call_there)
            if any(isinstance(error, Unavailable) for error in errors_of(outcomes)):
                raise Unavailable("the owner changed meanwhile")
            # An earlier owner may have removed it, and disappeared before it answered.
            return outcomes if calls == 1 else _with_removed(requests, outcomes)

        return await self._sought(attempt)

    async def read(self, request: pb.ReadQueriesRequest) -> pb.ReadQueriesResponse:
        """Reads live queries of one registry partition."""

        async def call_here() -> pb.ReadQueriesResponse:
            return await self._stored.read(request)

        async def call_there(stub: OwnerServiceStub) -> pb.ReadQueriesResponse:
            response: pb.ReadQueriesResponse = await stub.ReadQueries(request, timeout=CALL_S)
            return response

        return await self._sought(lambda: self._ask(request.partition, call_here, call_there))

    async def count(self, request: pb.CountQueriesRequest) -> pb.CountQueriesResponse:
        """Counts live queries of one registry partition."""

        async def call_here() -> pb.CountQueriesResponse:
            return await self._tenants.answer(request)

        async def call_there(stub: OwnerServiceStub) -> pb.CountQueriesResponse:
            response: pb.CountQueriesResponse = await stub.CountQueries(request, timeout=CALL_S)
            return response

        return await self._sought(lambda: self._ask(request.partition, call_here, call_there))

    async def _ask(
        self,
        partition: int,
        call_here: Callable[[], Awaitable[T]],
        call_there: Callable[[OwnerServiceStub], Awaitable[T]],
    ) -> T:
        owner = self._machine.holdings.view.owners.get((REGISTRY, partition))
        if owner is None:
            raise Unavailable("this part of the registry has no owner yet")
        if owner.member == self._member:
            if not self._machine.holdings.owns(REGISTRY, partition):
                raise Unavailable("this part of the registry is being loaded")
            return await call_here()
        # In a thread, because it reads the map store.
        members = await asyncio.to_thread(self._members)
        info = members.get(owner.member)
        if info is None:
            raise Unavailable("the owner of this part of the registry has ended")
        self._channels.keep(each.for_peers for each in members.values())
        try:
            return await call_there(OwnerServiceStub(self._channels.to(info.for_peers)))
        except grpc.aio.AioRpcError as error:
            if error.code() in {
                grpc.StatusCode.UNAVAILABLE,
                grpc.StatusCode.DEADLINE_EXCEEDED,
                grpc.StatusCode.CANCELLED,
            }:
                raise Unavailable(f"the owner at {info.address} did not answer") from error
            raise

    async def close(self) -> None:
        """Closes the channels to other routers."""
        await self._channels.close()


class OwnerBack(OwnerServiceServicer):
    """Serves other routers at the owner."""

    def __init__(
        self,
        worker: Worker,
        stored: StoredQueries,
        tenants: TenantQueries,
        pool: WorkPool | None = None,
    ) -> None:
        self._pool = pool or WorkPool("changes")
        self._worker = worker
        self._stored = stored
        self._tenants = tenants

    @unary
    async def ApplyChanges(  # noqa: N802 -- the contract's name
        self, request: pb.ApplyChangesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ApplyChangesResponse:
        """See `owner_service.proto`."""
        read = await self._pool.map(_read_or_refused, request.changes)
        requests = [each for each in read if isinstance(each, ChangeRequest)]
        deadline_ms = request.deadline_ms or None
        taken = self._worker.change_queries(request.partition, requests, deadline_ms)
        outcomes = await asyncio.wrap_future(taken)
        decided = iter(outcomes)
        outcomes = [each if isinstance(each, Outcome) else next(decided) for each in read]
        return pb.ApplyChangesResponse(results=[_encode_outcome(outcome) for outcome in outcomes])

    @unary
    async def ReadQueries(  # noqa: N802 -- the contract's name
        self, request: pb.ReadQueriesRequest, context: grpc.aio.ServicerContext
    ) -> pb.ReadQueriesResponse:
        """See `owner_service.proto`."""
        return await self._stored.read(request)

    @unary
    async def CountQueries(  # noqa: N802 -- the contract's name
        self, request: pb.CountQueriesRequest, context: grpc.aio.ServicerContext
    ) -> pb.CountQueriesResponse:
        """See `owner_service.proto`."""
        return await self._tenants.answer(request)


def _with_removed(
    requests: Sequence[ChangeRequest], outcomes: Sequence[Outcome]
) -> Sequence[Outcome]:
    """Returns the outcomes; queries that were to be removed, and are not there, are removed."""
    if isinstance(requests, PlainRequests):
        return outcomes
    return tuple(
        Outcome(NO_REVISION)
        if request.action == "unregister" and isinstance(outcome.error, NotFound)
        else outcome
        for request, outcome in zip(requests, outcomes, strict=True)
    )


def parts(changes: Sequence[pb.WantedChange]) -> Iterator[list[pb.WantedChange]]:
    """Yields changes in requests that their owner accepts.

    A client's request may have the largest size and as many elements as a message may hold. Here
    each of its queries is one element more.
    """
    sizes = [change.ByteSize() for change in changes]
    # Each element takes a byte or more. As the queries of most requests are short, they are not
    # counted.
    are_few = sum(sizes) + len(sizes) <= ELEMENTS_MAX
    part: list[pb.WantedChange] = []
    held = elements = 0
    for change, size in zip(changes, sizes, strict=True):
        # The change itself is an element of the request.
        own = 0 if are_few else 1 + elements_of(change.SerializeToString(), pb.WantedChange)
        if part and (held + size > REQUEST_BYTES_MAX or elements + own > ELEMENTS_MAX):
            yield part
            part, held, elements = [], 0, 0
        part.append(change)
        held += size
        elements += own
    if part:
        yield part


def write_request(request: ChangeRequest) -> pb.WantedChange:
    """Returns the message of a change request, for another router."""
    change = pb.WantedChange(
        action=_ACTIONS[request.action],
        start_ms=request.start_ms,
        start_given=request.is_start_given,
    )
    if request.query is not None:
        change.query.CopyFrom(write_query(request.query, request.subscriber))
        if request.past_ms != NO_PAST:
            change.past_ms = request.past_ms
    else:
        change.query.id = request.id
    return change


def read_request(change: pb.WantedChange) -> ChangeRequest:
    """Returns the change request of a message.

    Raises:
        InvalidArgument: Its action or its query is invalid.
    """
    action = _ACTION_NAMES.get(change.action)
    if action is None:
        raise InvalidArgument("is not known", field="changes.action")
    if action == "unregister":
        return ChangeRequest(
            action=action, id=change.query.id, query=None, subscriber="", start_ms=change.start_ms
        )
    query, subscriber = read_query(change.query, STORED_LIMITS)
    past_ms = change.past_ms if change.HasField("past_ms") else NO_PAST
    return ChangeRequest(
        action=action,
        id=query.id,
        query=query,
        subscriber=subscriber,
        start_ms=change.start_ms,
        past_ms=past_ms,
        is_start_given=change.start_given,
    )


def _read_or_refused(change: pb.WantedChange) -> ChangeRequest | Outcome:
    """Returns a change request, or why this one of many is refused."""
    try:
        return read_request(change)
    except InvalidArgument as error:
        return Outcome(NO_REVISION, error)


def _encode_outcome(outcome: Outcome) -> pb.ChangeResult:
    error = None if outcome.error is None else write_error(outcome.error)
    return pb.ChangeResult(revision=outcome.revision, error=error)


def _decode_outcome(result: pb.ChangeResult) -> Outcome:
    if not result.HasField("error"):
        return Outcome(result.revision)
    return Outcome(NO_REVISION, read_error(result.error))
