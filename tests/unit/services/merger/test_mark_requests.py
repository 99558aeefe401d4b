"""Flush requests to routers: to which ones a merger connects, and when they answer."""

from __future__ import annotations

import asyncio

import pytest
from sirocco_api.v1 import cluster_service_pb2 as pb

from sirocco.protocol.contract.control_view import ControlView, Ownership
from sirocco.protocol.contract.messages import INTAKE
from sirocco.protocol.contract.positions import position_of
from sirocco.runtime.process.membership import MemberInfo
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.merger import mark_requests
from sirocco.services.merger.mark_requests import MarkRequests
from sirocco.services.merger.members import Members
from sirocco.services.router.cluster import ClusterFront
from sirocco.services.router.service import RouterService
from sirocco.transport.memory_map_store import MemoryMapStore
from tests.support.plain_client import DEADLINE_S, PlainClient, new_session, publish_request
from tests.support.waiting import until


def test_nothing_is_left_open_to_owners_that_are_gone() -> None:
    async def run() -> list[str]:
        store, view = MemoryMapStore(), ControlView()
        requests = MarkRequests(view, Members(store))
        # There is no server at any of them; only the opened channels count.
        for number in range(3):
            name, address = f"router-{number}", f"127.0.0.1:{number + 1}"
            store.put(
                f"member/{name}",
                MemberInfo(
                    id=name, service="router", address=address, http_address="", started_ms=0
                ).form(),
            )
            if number:
                store.delete(f"member/router-{number - 1}")
            view.owners[INTAKE, 0] = Ownership(name, 1)
            asking = asyncio.create_task(requests.request("0.7"))
            await until(lambda address=address: address in requests._channels._channels)
            asking.cancel()
        found = sorted(requests._channels._channels)
        await requests.close()
        return found

    assert asyncio.run(run()) == ["127.0.0.1:3"]


class Silent:
    """Owners that confirm nothing: the positions do not exist."""

    open = 0
    most = 0

    def __init__(self, channel: object) -> None:
        pass

    async def AwaitProcessed(  # noqa: N802 -- the contract's name
        self, request: pb.AwaitProcessedRequest, timeout: float
    ) -> None:
        Silent.open += 1
        Silent.most = max(Silent.most, Silent.open)
        try:
            async with asyncio.timeout(timeout):
                await asyncio.Event().wait()
        finally:
            Silent.open -= 1


def test_positions_that_do_not_exist_are_asked_for_by_few_and_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each search asked each owner ten times a second, for all of its time."""
    monkeypatch.setattr(mark_requests, "ClusterServiceStub", Silent)

    async def run() -> None:
        store, view = MemoryMapStore(), ControlView()
        info = MemberInfo(
            id="router-0", service="router", address="h:1", http_address="", started_ms=0
        )
        store.put("member/router-0", info.form())
        for partition in range(4):
            view.owners[INTAKE, partition] = Ownership("router-0", 1)
        requests = MarkRequests(view, Members(store), repeated_s=0.2)
        tokens = [",".join(f"{p}.{offset}" for p in range(4)) for offset in range(100)]
        await asyncio.gather(*(requests.request(token) for token in tokens))
        await requests.close()

    asyncio.run(run())
    assert 0 < Silent.most <= 4 * mark_requests.REQUESTS_MAX


@pytest.mark.parametrize("router", [0, 1])
def test_an_owner_answers_when_all_slots_have_its_marks(
    router: int,
    cluster: EmbeddedCluster,
    plain: PlainClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def wait(_front: ClusterFront, _ends: list[int]) -> None:
        raise AssertionError("waited for what evaluators make of it")

    monkeypatch.setattr(ClusterFront, "_delivered", wait)
    request = publish_request(new_session(), 1, [{"id": 1, "lon": 1.0, "lat": 1.0}])
    token = plain.publish(request, router=router)[-1].position_token
    asked = pb.AwaitProcessedRequest(position_token=token, routed=True)
    # One of the two owns the intake; the other forwards the request to it.
    answers = [each.AwaitProcessed(asked, timeout=DEADLINE_S) for each in plain.clusters]
    assert [list(answer.cursors) for answer in answers] == [[], []]
    partition, offset = map(int, token.split("."))
    routers = [each for each in cluster.services if isinstance(each, RouterService)]
    sources = [each.machine.intake.sources.get(partition) for each in routers]
    (received,) = [source.sent.min() for source in sources if source is not None]
    assert received >= position_of(offset + 1)
