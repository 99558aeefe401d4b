"""MapService at a coordinator: the leader accepts proposals; routers report the progress."""

from __future__ import annotations

import asyncio

import grpc
from sirocco_api.v1 import map_service_pb2 as pb
from sirocco_api.v1.map_service_pb2_grpc import MapServiceServicer

from sirocco.model.errors import FailedPrecondition
from sirocco.protocol.contract.map_change import check_compiled
from sirocco.runtime.grpc.grpc_errors import unary
from sirocco.runtime.loop.worker import Worker


class MapBack(MapServiceServicer):
    """Hands proposals to the machine, which checks them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        # One at a time: the memory of one compilation is bounded, that of several is not. Others do
        # not wait: one alone can be accepted, and a queue of the largest maps takes minutes.
        self._checking = asyncio.Lock()

    @unary
    async def ProposeMap(  # noqa: N802 -- the contract's name
        self, request: pb.ProposeMapRequest, context: grpc.aio.ServicerContext
    ) -> pb.ProposeMapResponse:
        """See `map_service.proto`."""
        if self._checking.locked():
            raise FailedPrecondition("another proposal is being checked; propose again after it")
        async with self._checking:
            # Before it is written to the log: every process compiles the maps in the log, also
            # after a restart. The thread continues and keeps the lock after the caller has gone.
            checking = asyncio.ensure_future(
                asyncio.to_thread(check_compiled, request.partition_map)
            )
            try:
                await asyncio.shield(checking)
            finally:
                await asyncio.wait([checking])
            (outcome,) = await asyncio.wrap_future(self._worker.propose(request.partition_map))
        if outcome.error is not None:
            raise outcome.error
        return pb.ProposeMapResponse(map_version=outcome.revision)
