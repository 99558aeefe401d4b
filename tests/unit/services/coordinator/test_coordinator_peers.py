"""The coordinator's knowledge of routers, and of those that do not report."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from sirocco.internal_api.v1.arrival_service_pb2_grpc import add_ArrivalServiceServicer_to_server
from sirocco.protocol.router.objects.intake_router import IntakeRouter, LeafArrivals
from sirocco.services.coordinator.peers import PeerTimes, Routers
from sirocco.services.router.arrivals import ArrivalBack


@pytest.fixture
def router() -> Iterator[tuple[IntakeRouter, str]]:
    """Returns a router's intake, and the address of its ArrivalService."""
    intake = IntakeRouter(slots=2, event_time=False)
    loop, found = asyncio.new_event_loop(), threading.Event()
    address: list[str] = []
    over = asyncio.Event()

    async def serve() -> None:
        server = grpc.aio.server()
        add_ArrivalServiceServicer_to_server(ArrivalBack(intake), server)
        address.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
        found.set()
        await over.wait()
        await server.stop(None)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert found.wait(120.0)
    yield intake, address[0]
    loop.call_soon_threadsafe(over.set)
    thread.join(120.0)
    loop.close()


def test_routers_report_objects_sent_by_the_map_in_force(router: tuple[IntakeRouter, str]) -> None:
    intake, address = router
    routers = Routers(lambda: {"r": address})
    (nothing,) = routers.arrivals(["r"]).values()
    assert (nothing.version, nothing.leaves.tolist()) == (0, [])

    intake.arrivals = LeafArrivals(7, np.zeros(5, np.int64))
    intake.arrivals.add(np.array([4, 1, 4], np.int32))

    (received,) = routers.arrivals(["r"]).values()
    routers.close()
    assert received.version == 7
    assert dict(zip(received.leaves.tolist(), received.objects.tolist(), strict=True)) == {
        1: 1.0,
        4: 2.0,
    }


def test_unreachable_or_unknown_peers_are_left_out(router: tuple[IntakeRouter, str]) -> None:
    _, address = router
    # There is no listener at port 1.
    times = PeerTimes(arrivals_s=0.2)
    routers = Routers(lambda: {"r": address, "away": "127.0.0.1:1"}, times=times)

    received = routers.arrivals(["r", "away", "unknown"])

    routers.close()
    assert list(received) == ["r"]


def test_addresses_are_looked_up_now_and_then_and_for_whoever_is_new(
    router: tuple[IntakeRouter, str],
) -> None:
    _, address = router
    looked: list[Any] = []

    def addresses() -> dict[str, str]:
        looked.append(len(looked))
        return {"r": address} | ({"new": address} if len(looked) > 1 else {})

    routers = Routers(addresses, times=PeerTimes(known_s=3_600.0))
    for _ in range(3):
        assert list(routers.arrivals(["r"])) == ["r"]
    assert looked == [0]

    assert list(routers.arrivals(["r", "new"])) == ["r", "new"]
    assert looked == [0, 1]
    routers.close()

    routers = Routers(addresses, times=PeerTimes(known_s=0.0))
    for _ in range(2):
        assert list(routers.arrivals(["r"])) == ["r"]
    assert looked == [0, 1, 2, 3]
    routers.close()
