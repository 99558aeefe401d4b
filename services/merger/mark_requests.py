"""Asks routers to send marks of the intake to the slots at once, while a search waits for them."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc
from sirocco_api.v1 import cluster_service_pb2 as pb
from sirocco_api.v1.cluster_service_pb2_grpc import ClusterServiceStub

from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.messages import INTAKE
from sirocco.runtime.grpc.peer_channels import PLAIN, AioChannels, Dialer
from sirocco.runtime.process.retries import pauses_s
from sirocco.services.merger.members import Members

# Time limit of one call, after which the owner is looked up again. Routing normally takes less; and
# marks, which have the same effect, are sent once a second anyway.
REQUEST_S = 1.0

# A request is repeated for so long. A token may name a position that will never exist.
REPEATED_S = 5.0

# Requests of one intake partition at a time: each makes its owner send marks for all that wait.
REQUESTS_MAX = 4


class MarkRequests:
    """Sends flush requests to the owners of intake partitions; belongs to the gRPC loop."""

    def __init__(
        self,
        view: ControlView,
        members: Members,
        dialer: Dialer = PLAIN,
        repeated_s: float = REPEATED_S,
    ) -> None:
        self._repeated_s = repeated_s
        self._turns: dict[int, asyncio.Semaphore] = {}
        self._view = view
        self._members = members
        self._channels = AioChannels(dialer)

    async def request(self, token: str) -> None:
        """Repeats the request for a while, or until all owners have confirmed the position."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._repeated_s):
                await asyncio.gather(*(self._request(part) for part in token.split(",")))

    async def close(self) -> None:
        """Closes the channels."""
        await self._channels.close()

    async def _request(self, part: str) -> None:
        request = pb.AwaitProcessedRequest(position_token=part, routed=True)
        partition = int(part.partition(".")[0])
        turns = self._turns.setdefault(partition, asyncio.Semaphore(REQUESTS_MAX))
        async with turns:
            await self._repeat(partition, request)

    async def _repeat(self, partition: int, request: pb.AwaitProcessedRequest) -> None:
        for pause_s in pauses_s():
            owner = self._view.owners.get((INTAKE, partition))
            info = None if owner is None else self._members.get(owner.member)
            if info is not None:
                self._channels.keep(self._members.addresses)
                stub = ClusterServiceStub(self._channels.to(info.for_peers))
                try:
                    await stub.AwaitProcessed(request, timeout=REQUEST_S)
                    return
                except grpc.aio.AioRpcError as error:
                    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                        continue
            # There is no owner at the moment, or it has no room.
            await asyncio.sleep(pause_s)
