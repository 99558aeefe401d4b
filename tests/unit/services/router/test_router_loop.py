"""The loop that answers all clients never waits for the map store or the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from sirocco_api.v1 import map_service_pb2 as map_pb
from sirocco_api.v1.map_service_pb2_grpc import MapServiceStub

from sirocco.services.embedded import EmbeddedCluster
from tests.support.plain_client import (
    DEADLINE_S,
    PlainClient,
    new_session,
    publish_request,
    query_message,
    refused,
)


def test_routers_read_the_map_store_and_the_log_in_threads(
    cluster: EmbeddedCluster, plain: PlainClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, in_loop = [], []

    def watched(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def watching(*arguments: Any) -> Any:
            asked.append(name)
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                return call(*arguments)
            in_loop.append((name, *arguments))
            return call(*arguments)

        return watching

    for part, name in ((cluster.services[0].parts.store, "scan"), (cluster.log, "bounds")):
        monkeypatch.setattr(part, name, watched(name, getattr(part, name)))
    proposed = map_pb.ProposeMapRequest(partition_map=b"none")
    for router in (0, 1):
        # Some of each partition of the registry and of the intake, so that both routers ask each
        # other.
        for number in range(6):
            plain.register(query_message(f"loop-{router}-{number}", "s-loop"), router)
            (answer,) = plain.publish(
                publish_request(new_session(), 1, [{"id": number, "lon": 1.0, "lat": 1.0}]),
                router=router,
            )
            plain.processed(answer.position_token, router)
        stub = MapServiceStub(plain._channels[router])
        refused(lambda stub=stub: stub.ProposeMap(proposed, timeout=DEADLINE_S))
    assert set(asked) == {"scan", "bounds"}
    assert in_loop == []
