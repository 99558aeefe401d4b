"""ArrivalService at a router: reports what it has sent to leaves, when the coordinator asks."""

from __future__ import annotations

import grpc

from sirocco.codec.loads import write_arrivals
from sirocco.internal_api.v1 import arrival_service_pb2 as pb
from sirocco.internal_api.v1.arrival_service_pb2_grpc import ArrivalServiceServicer
from sirocco.protocol.router.objects.intake_router import IntakeRouter
from sirocco.runtime.grpc.grpc_errors import unary


class ArrivalBack(ArrivalServiceServicer):
    """Reads the loop's counters outside the loop: frequent callers need not wait for it."""

    def __init__(self, intake: IntakeRouter) -> None:
        self._intake = intake

    @unary
    async def TellArrivals(  # noqa: N802 -- the contract's name
        self, request: pb.TellArrivalsRequest, context: grpc.aio.ServicerContext
    ) -> pb.TellArrivalsResponse:
        """See `arrival_service.proto`."""
        return write_arrivals(self._intake.arrivals.report())
