"""MapService at a router: forwards proposals to the leading coordinator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc
from sirocco_api.v1 import map_service_pb2 as pb
from sirocco_api.v1.map_service_pb2_grpc import MapServiceServicer, MapServiceStub

from sirocco.model.errors import Unavailable
from sirocco.protocol.contract.control_view import ControlView
from sirocco.protocol.contract.map_change import ChangePhase, progress
from sirocco.runtime.grpc.call_audit import audited
from sirocco.runtime.grpc.grpc_errors import unary
from sirocco.runtime.grpc.peer_channels import PLAIN, Dialer
from sirocco.runtime.process.membership import MemberInfo
from sirocco.runtime.settings import ClusterSettings

# How long the leader may take: it reads its record back from the log before it answers.
LEADER_S = 20.0

_PHASES = {
    ChangePhase.NONE: pb.MAP_CHANGE_PHASE_NONE,
    ChangePhase.COPYING: pb.MAP_CHANGE_PHASE_COPYING,
    ChangePhase.SWITCHING: pb.MAP_CHANGE_PHASE_SWITCHING,
    ChangePhase.RETIRING: pb.MAP_CHANGE_PHASE_RETIRING,
}


class MapFront(MapServiceServicer):
    """Answers from the view of `control`; forwards proposed maps to the leader."""

    def __init__(
        self,
        settings: ClusterSettings,
        view: ControlView,
        members: Callable[[], dict[str, MemberInfo]],
        dialer: Dialer = PLAIN,
    ) -> None:
        self._settings = settings
        self._view = view
        self._members = members
        self._dialer = dialer

    @unary
    async def ProposeMap(  # noqa: N802 -- the contract's name
        self, request: pb.ProposeMapRequest, context: grpc.aio.ServicerContext
    ) -> pb.ProposeMapResponse:
        """See `map_service.proto`."""
        names = [f"map of {len(request.partition_map)} bytes"]
        with audited("propose_map", names):
            response = await self._proposed(request)
            names[0] = f"map {response.map_version}"
        return response

    async def _proposed(self, request: pb.ProposeMapRequest) -> pb.ProposeMapResponse:
        # In a thread, because it reads the map store.
        info = (await asyncio.to_thread(self._members)).get(self._view.leader)
        if info is None:
            raise Unavailable("no coordinator leads at the moment; try again")
        async with self._dialer.open_aio(info.for_peers) as channel:
            response: pb.ProposeMapResponse = await MapServiceStub(channel).ProposeMap(
                request, timeout=LEADER_S
            )
        return response

    @unary
    async def DescribeMapChange(  # noqa: N802 -- the contract's name
        self, request: pb.DescribeMapChangeRequest, context: grpc.aio.ServicerContext
    ) -> pb.DescribeMapChangeResponse:
        """See `map_service.proto`."""
        view, settings = self._view, self._settings
        now = progress(view, settings.intake_partitions, settings.registry_partitions)
        return pb.DescribeMapChangeResponse(
            map_version=view.map_version,
            phase=_PHASES[now.phase],
            next_version=0 if now.phase is ChangePhase.NONE else now.version,
            waiting=now.waiting,
            partitions=now.partitions,
            partition_map=view.partition_map if request.partition_map else b"",
        )
