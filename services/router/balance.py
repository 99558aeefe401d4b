"""BalanceService at a router: the coordinator's report of its last round."""

from __future__ import annotations

import asyncio

import grpc
from google.protobuf.message import DecodeError
from sirocco_api.v1 import balance_service_pb2 as pb
from sirocco_api.v1.balance_service_pb2_grpc import BalanceServiceServicer

from sirocco.runtime.grpc.grpc_errors import unary
from sirocco.runtime.process.membership import BALANCE_REPORT
from sirocco.runtime.settings import ClusterSettings
from sirocco.transport.map_store import MapStore


class BalanceFront(BalanceServiceServicer):
    """Reads the map store."""

    def __init__(self, settings: ClusterSettings, store: MapStore) -> None:
        self._settings = settings
        self._store = store

    @unary
    async def DescribeBalance(  # noqa: N802 -- the contract's name
        self, request: pb.DescribeBalanceRequest, context: grpc.aio.ServicerContext
    ) -> pb.DescribeBalanceResponse:
        """See `balance_service.proto`."""
        if not self._settings.balances:
            return pb.DescribeBalanceResponse(is_on=False)
        written = await asyncio.to_thread(self._store.get, BALANCE_REPORT)
        if written is None:
            return pb.DescribeBalanceResponse(is_on=True, state="no round has ended yet")
        try:
            return pb.DescribeBalanceResponse.FromString(written)
        except DecodeError:
            return pb.DescribeBalanceResponse(is_on=True, state="its report cannot be read")
