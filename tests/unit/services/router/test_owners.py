"""Requests of one router to another, the owner of a query, over real gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import cast

import grpc
import pytest
from sirocco_api.v1.query_service_pb2 import RegisterQueriesRequest

from sirocco.codec.queries import write_query
from sirocco.codec.wire import ELEMENTS_MAX, elements_of
from sirocco.internal_api.v1 import owner_service_pb2 as pb
from sirocco.internal_api.v1.owner_service_pb2_grpc import (
    OwnerServiceStub,
    add_OwnerServiceServicer_to_server,
)
from sirocco.model.errors import InvalidArgument, NotFound, Unavailable
from sirocco.model.geometry import Polygon, Rectangle
from sirocco.model.query import RangeQuery
from sirocco.protocol.contract.control_view import Ownership
from sirocco.protocol.contract.effects import ChangeRequest, Outcome
from sirocco.protocol.contract.messages import NO_REVISION, REGISTRY
from sirocco.protocol.contract.partition_ownership import Holding, Holdings, Phase
from sirocco.protocol.router.machine import RouterMachine
from sirocco.runtime.grpc.edge import Edge
from sirocco.runtime.grpc.server import SERVER_OPTIONS
from sirocco.runtime.loop.worker import Worker
from sirocco.runtime.process.clock import now_ms
from sirocco.runtime.process.membership import MemberInfo
from sirocco.services.router.limits import TIMES
from sirocco.services.router.owners import REQUEST_BYTES_MAX, OwnerBack, Owners, write_request
from sirocco.services.router.quotas import TenantQueries
from sirocco.services.router.registry_definitions import StoredQueries
from tests.support.change_columns import removal_requests

REQUEST = ChangeRequest(
    action="register",
    id="q",
    query=RangeQuery(id="q", mode="continuous", region=Rectangle(0, 0, 1, 1)),
    subscriber="us",
    start_ms=5,
)


class Loop:
    """Takes change requests instead of the worker, and keeps their deadlines."""

    def __init__(self) -> None:
        self.deadlines_ms: list[int | None] = []

    def change_queries(
        self, partition: int, requests: Sequence[ChangeRequest], deadline_ms: int | None = None
    ) -> Future[tuple[Outcome, ...]]:
        self.deadlines_ms.append(deadline_ms)
        done: Future[tuple[Outcome, ...]] = Future()
        done.set_result(tuple(Outcome(7) for _ in requests))
        return done


class Machine:
    """Knows the owners."""

    def __init__(self, owner: str) -> None:
        self.holdings = Holdings("front", frozenset({REGISTRY}))
        self.holdings.view.owners[REGISTRY, 0] = Ownership(owner, 1)


async def forwarded(wanted: Sequence[ChangeRequest]) -> Sequence[Outcome]:
    """Returns what an owner in another process answers to changes."""
    server = grpc.aio.server(options=SERVER_OPTIONS)
    back = OwnerBack(cast(Worker, Loop()), cast(StoredQueries, None), cast(TenantQueries, None))
    add_OwnerServiceServicer_to_server(back, Edge(server))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    there = MemberInfo(id="back", service="router", address=address, http_address="", started_ms=0)
    owners = Owners(
        "front",
        cast(RouterMachine, Machine("back")),
        cast(Worker, Loop()),
        cast(StoredQueries, None),
        lambda: {"back": there},
    )
    try:
        return await owners.apply(0, wanted)
    finally:
        await owners.close()
        await server.stop(None)


def test_an_owner_learns_until_when_a_change_is_wanted() -> None:
    async def run() -> list[int | None]:
        loop = Loop()
        server = grpc.aio.server()
        back = OwnerBack(cast(Worker, loop), cast(StoredQueries, None), cast(TenantQueries, None))
        add_OwnerServiceServicer_to_server(back, server)
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        owners = Owners(
            "front",
            cast(RouterMachine, Machine("back")),
            cast(Worker, Loop()),
            cast(StoredQueries, None),
            lambda: {
                "back": MemberInfo(
                    id="back", service="router", address=address, http_address="", started_ms=0
                )
            },
        )
        assert await owners.apply(0, [REQUEST]) == (Outcome(7),)
        # A router of an earlier version sends no such time.
        async with grpc.aio.insecure_channel(address) as channel:
            request = pb.ApplyChangesRequest(changes=[write_request(REQUEST)])
            await OwnerServiceStub(channel).ApplyChanges(request)
        await owners.close()
        await server.stop(None)
        return loop.deadlines_ms

    begin_ms = now_ms()
    received, unsent = asyncio.run(run())
    assert unsent is None
    assert received is not None
    assert begin_ms + TIMES.seek_s * 1_000 <= received <= now_ms() + TIMES.seek_s * 1_000


def test_a_request_as_large_as_a_client_may_send_reaches_its_owner() -> None:
    """A forwarded query has one element more, and all were refused where these are too many."""
    ring = tuple((number / 200, number % 2) for number in range(9_980))
    queries = [
        RangeQuery(id=f"q{number}", mode="continuous", region=Polygon(((*ring, ring[0]),)))
        for number in range(13)
    ]
    wanted = [replace(REQUEST, id=query.id, query=query) for query in queries]
    # What the client has sent was let in.
    few = [RangeQuery(id=f"few{number}", mode="continuous") for number in range(1_200)]
    wanted += [replace(REQUEST, id=query.id, query=query) for query in few]
    messages = [write_query(query, "us") for query in (*queries, *few)]
    sent = RegisterQueriesRequest(queries=messages).SerializeToString()
    assert len(sent) < REQUEST_BYTES_MAX
    assert ELEMENTS_MAX - 600 < elements_of(sent, RegisterQueriesRequest) <= ELEMENTS_MAX

    assert asyncio.run(forwarded(wanted)) == (Outcome(7),) * len(wanted)


def test_a_change_that_its_owner_refuses_leaves_the_others_of_its_request() -> None:
    """The owner may be of another version, with other limits."""
    bad = replace(REQUEST, id="", query=RangeQuery(id="", mode="continuous"))
    first, second, third = asyncio.run(forwarded([REQUEST, bad, REQUEST]))
    assert (first, third) == (Outcome(7),) * 2
    assert isinstance(second.error, InvalidArgument)
    assert second.error.field == "id"


def test_a_change_at_its_owner_itself_has_the_same_end() -> None:
    loop, machine = Loop(), Machine("front")
    machine.holdings.held[REGISTRY, 0] = Holding(1, Phase.OWNED, 1)
    owners = Owners(
        "front", cast(RouterMachine, machine), cast(Worker, loop), cast(StoredQueries, None), dict
    )
    begin_ms = now_ms()
    asyncio.run(owners.apply(0, [REQUEST]))
    (received,) = loop.deadlines_ms
    assert received is not None
    assert begin_ms + TIMES.seek_s * 1_000 <= received <= now_ms() + TIMES.seek_s * 1_000


class NoSuchQuery(Loop):
    """Answers that there is no such query, once the former owner has left as often as given."""

    def __init__(self, gone: int) -> None:
        super().__init__()
        self.gone = gone

    def change_in_columns(
        self, partition: int, requests: Sequence[ChangeRequest], deadline_ms: int | None = None
    ) -> Future[tuple[Outcome, ...]]:
        return self.change_queries(partition, requests, deadline_ms)

    def change_queries(
        self, partition: int, requests: Sequence[ChangeRequest], deadline_ms: int | None = None
    ) -> Future[tuple[Outcome, ...]]:
        done: Future[tuple[Outcome, ...]] = Future()
        self.gone -= 1
        if self.gone >= 0:
            done.set_exception(Unavailable("this process has ended; try another one"))
        else:
            done.set_result((Outcome(NO_REVISION, NotFound("no query", field="id")),))
        return done


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize(("gone", "is_known"), [(0, True), (1, False)])
def test_a_missing_query_is_reported_unless_the_owner_with_its_removal_was_lost(
    gone: int, is_known: bool, in_columns: bool
) -> None:
    machine = Machine("front")
    machine.holdings.held[REGISTRY, 0] = Holding(1, Phase.OWNED, 1)
    del machine.holdings.view.owners[REGISTRY, 0]
    owners = Owners(
        "front",
        cast(RouterMachine, machine),
        cast(Worker, NoSuchQuery(gone)),
        cast(StoredQueries, None),
        dict,
    )

    async def run() -> Outcome:
        removal = ChangeRequest(action="unregister", id="q", query=None, subscriber="", start_ms=5)
        requests = removal_requests([removal]) if in_columns else [removal]
        assert requests is not None
        applied = asyncio.create_task(owners.apply(0, requests))
        # Meanwhile no router is asked: there is no owner yet.
        await asyncio.wait([applied], timeout=0.01)
        machine.holdings.view.owners[REGISTRY, 0] = Ownership("front", 1)
        (outcome,) = await applied
        return outcome

    assert isinstance(asyncio.run(run()).error, NotFound) == is_known


def test_nothing_is_left_open_to_owners_that_are_gone() -> None:
    async def run() -> list[str]:
        machine = Machine("back-0")
        known: dict[str, MemberInfo] = {}
        owners = Owners(
            "front",
            cast(RouterMachine, machine),
            cast(Worker, Loop()),
            cast(StoredQueries, None),
            lambda: dict(known),
        )
        # Each has an address of its own, as pods do, and the one before is gone.
        for number in range(3):
            server = grpc.aio.server()
            back = OwnerBack(
                cast(Worker, Loop()), cast(StoredQueries, None), cast(TenantQueries, None)
            )
            add_OwnerServiceServicer_to_server(back, server)
            address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
            await server.start()
            name = f"back-{number}"
            machine.holdings.view.owners[REGISTRY, 0] = Ownership(name, 1)
            known.clear()
            known[name] = MemberInfo(
                id=name, service="router", address=address, http_address="", started_ms=0
            )
            assert await owners.apply(0, [REQUEST]) == (Outcome(7),)
            await server.stop(None)
        left = set(owners._channels._channels) - {address}
        await owners.close()
        return sorted(left)

    assert asyncio.run(run()) == []
