"""Has routers tell the slots at once how far the intake has come, while a search waits for it."""

from __future__ import annotations

import asyncio

import grpc
from sirocco_api.v1 import cluster_service_pb2 as pb
from sirocco_api.v1.cluster_service_pb2_grpc import ClusterServiceStub

from services.merger.members import Members
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.messages import INTAKE
from sirocco.runtime.grpc.peer_channels import PLAIN, AioChannels, Dialer

# How long an owner is asked before it is looked who owns the intake now: longer than routing takes
# where nothing is wrong. Marks, which tell as much, come once a second.
ASKED_S = 1.0

# Between looks for an owner where there is none.
AGAIN_S = 0.1


class Hurrying:
    """Asks the owners of intake partitions; belongs to the gRPC loop."""

    def __init__(self, view: ControlView, members: Members, dialer: Dialer = PLAIN) -> None:
        self._view = view
        self._members = members
        self._channels = AioChannels(dialer)

    async def hurry(self, token: str) -> None:
        """Asks again and again, until cancelled or all have said that they are there."""
        await asyncio.gather(*(self._hurry(part) for part in token.split(",")))

    async def close(self) -> None:
        """Closes the channels."""
        await self._channels.close()

    async def _hurry(self, part: str) -> None:
        request = pb.AwaitProcessedRequest(position_token=part, routed=True)
        partition = int(part.partition(".")[0])
        while True:
            owner = self._view.owners.get((INTAKE, partition))
            info = None if owner is None else self._members.get(owner.member)
            if info is not None:
                self._channels.keep(self._members.addresses)
                stub = ClusterServiceStub(self._channels.to(info.for_peers))
                try:
                    await stub.AwaitProcessed(request, timeout=ASKED_S)
                    return
                except grpc.aio.AioRpcError as error:
                    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                        continue
            # Nobody to ask at the moment; marks come without being asked for, too.
            await asyncio.sleep(AGAIN_S)
