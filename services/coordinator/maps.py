"""MapService at a coordinator: the leader accepts proposals; routers report the progress."""

from __future__ import annotations

import asyncio

import grpc
from sirocco_api.v1 import map_service_pb2 as pb
from sirocco_api.v1.map_service_pb2_grpc import MapServiceServicer

from sirocco.protocol.contract.map_change import check_compiled
from sirocco.runtime.grpc.grpc_errors import unary
from sirocco.runtime.loop.worker import Worker


class MapBack(MapServiceServicer):
    """Hands proposals to the machine, which checks them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        # One at a time: the memory of one compilation is bounded, that of several is not.
        self._compiling = asyncio.Lock()

    @unary
    async def ProposeMap(  # noqa: N802 -- the contract's name
        self, request: pb.ProposeMapRequest, context: grpc.aio.ServicerContext
    ) -> pb.ProposeMapResponse:
        """See `map_service.proto`."""
        # Before it is written to the log: every process compiles the maps in the log, also after a
        # restart.
        async with self._compiling:
            await asyncio.to_thread(check_compiled, request.partition_map)
        (outcome,) = await asyncio.wrap_future(self._worker.propose(request.partition_map))
        if outcome.error is not None:
            raise outcome.error
        return pb.ProposeMapResponse(map_version=outcome.revision)
