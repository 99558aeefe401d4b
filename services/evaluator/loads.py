"""LoadService at an evaluator: its counts of leaves, requested by the coordinator."""

from __future__ import annotations

import asyncio
from functools import partial

import grpc

from sirocco.codec.loads import write_details, write_loads, write_sample
from sirocco.internal_api.v1 import load_service_pb2 as pb
from sirocco.internal_api.v1.load_service_pb2_grpc import LoadServiceServicer
from sirocco.model.errors import FailedPrecondition, InvalidArgument
from sirocco.protocol.contract.effects import SaveRequest
from sirocco.protocol.contract.messages import SLOTS
from sirocco.protocol.evaluator.drain import offsets, unsaved
from sirocco.protocol.evaluator.load.leaf_counts import Counted
from sirocco.protocol.evaluator.load.leaf_reports import details_of, loads_of, sample_of
from sirocco.protocol.evaluator.machine import EvaluatorMachine
from sirocco.runtime.grpc.grpc_errors import unary
from sirocco.runtime.loop.worker import Worker

# Leaves with details in one answer: each has 128 columns and rows at most, so 1 MB.
DETAILS_MAX = 256

# Rows of a sample: with ten terms each some 2 MB.
SAMPLE_MAX = 16_384

# Between checks of checkpoints being written.
LOOK_S = 0.02


class LoadBack(LoadServiceServicer):
    """Takes the counts from the loop, and processes them outside it."""

    def __init__(self, worker: Worker, machine: EvaluatorMachine) -> None:
        self._worker = worker
        self._machine = machine

    @unary
    async def TellLoads(  # noqa: N802 -- the contract's name
        self, request: pb.TellLoadsRequest, context: grpc.aio.ServicerContext
    ) -> pb.TellLoadsResponse:
        """See `load_service.proto`."""
        counted = None
        if request.ends_round:
            counted = await self._look(ends_round=True)
        elif not request.slots_only:
            counted = await asyncio.wrap_future(self._worker.look(self._machine.leaf_counts_so_far))
        if counted is None:
            slots = await asyncio.wrap_future(
                self._worker.look(lambda: sorted(self._machine.searchable))
            )
            return pb.TellLoadsResponse(slots=slots)
        return write_loads(await asyncio.to_thread(loads_of, counted))

    @unary
    async def TellDetails(  # noqa: N802 -- the contract's name
        self, request: pb.TellDetailsRequest, context: grpc.aio.ServicerContext
    ) -> pb.TellDetailsResponse:
        """See `load_service.proto`."""
        if len(request.leaves) > DETAILS_MAX:
            raise InvalidArgument(f"are more than {DETAILS_MAX}", field="leaves")
        counted = await self._round()
        if counted.map.version != request.map_version:
            raise FailedPrecondition(f"leaves are counted by map {counted.map.version}")
        details = await asyncio.to_thread(details_of, counted, list(request.leaves))
        return write_details(details)

    @unary
    async def TellSample(  # noqa: N802 -- the contract's name
        self, request: pb.TellSampleRequest, context: grpc.aio.ServicerContext
    ) -> pb.TellSampleResponse:
        """See `load_service.proto`."""
        counted = await self._round()
        sizes = min(request.objects_max, SAMPLE_MAX), min(request.queries_max, SAMPLE_MAX)
        return write_sample(await asyncio.to_thread(sample_of, counted, *sizes))

    @unary
    async def SaveSlots(  # noqa: N802 -- the contract's name
        self, request: pb.SaveSlotsRequest, context: grpc.aio.ServicerContext
    ) -> pb.SaveSlotsResponse:
        """See `load_service.proto`."""
        await self._save(tuple(request.slots))
        return pb.SaveSlotsResponse()

    @unary
    async def WarmSlots(  # noqa: N802 -- the contract's name
        self, request: pb.WarmSlotsRequest, context: grpc.aio.ServicerContext
    ) -> pb.WarmSlotsResponse:
        """See `load_service.proto`."""
        view = self._machine.holdings.view
        checkpoints = await asyncio.wrap_future(
            self._worker.look(lambda: [view.checkpoints.get((SLOTS, n)) for n in request.slots])
        )
        for each in checkpoints:
            if each is not None:
                await asyncio.to_thread(self._worker.warm, each)
        return pb.WarmSlotsResponse()

    async def _save(self, slots: tuple[int, ...]) -> None:
        """Writes checkpoints of slots at their present positions; returns when they are declared.

        Slots lost meanwhile are not waited for.
        """
        begun = partial(offsets, self._machine, slots)
        wanted = await asyncio.wrap_future(self._worker.look(begun))
        self._worker.post(SaveRequest(tuple(wanted)))
        waiting = partial(unsaved, self._machine, wanted)
        while await asyncio.wrap_future(self._worker.look(waiting)):
            await asyncio.sleep(LOOK_S)

    async def _round(self) -> Counted:
        counted = await self._look(ends_round=False)
        if counted is None:
            raise FailedPrecondition("no round has ended yet")
        return counted

    async def _look(self, *, ends_round: bool) -> Counted | None:
        look = partial(self._machine.leaf_counts, ends_round=ends_round)
        return await asyncio.wrap_future(self._worker.look(look))
