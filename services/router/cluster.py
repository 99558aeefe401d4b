"""ClusterService: the state of the cluster, and its progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping

import grpc
from sirocco_api.v1 import cluster_service_pb2 as pb
from sirocco_api.v1.cluster_service_pb2_grpc import ClusterServiceServicer, ClusterServiceStub

from sirocco.codec.tokens import read_position_token
from sirocco.model.errors import (
    DeadlineExceeded,
    InvalidArgument,
    PermissionDenied,
    Unavailable,
)
from sirocco.protocol.contract.effects import FlushRequest
from sirocco.protocol.contract.messages import DELIVERIES, INTAKE, SLOTS, Progress
from sirocco.protocol.contract.positions import position_of
from sirocco.protocol.router.machine import RouterMachine
from sirocco.runtime.grpc.authentication import caller
from sirocco.runtime.grpc.edge import connection
from sirocco.runtime.grpc.grpc_errors import unary
from sirocco.runtime.grpc.peer_channels import PLAIN, Dialer
from sirocco.runtime.grpc.shares import Shares
from sirocco.runtime.loop.progress import last_progress
from sirocco.runtime.loop.worker import Worker
from sirocco.runtime.process.membership import MemberInfo
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.map_bytes import from_bytes
from sirocco.transport.log import Log

# Between looks at the log while a call waits; marks pass the whole way in half a second.
LOOK_S = 0.05

# Calls that wait for a position, in this router and for one tenant (for one connection, without
# tenants).
WAITING_MAX = 256
WAITING_EACH_MAX = 64
WAITING_RETRY_MS = 500

# How long a record of another router may take to become visible here.
SEEN_S = 2.0

# Time limit of a call that names none: longer than any backlog that retention allows.
WAIT_S_MAX = 3_600.0

# How long another router may take before the client is asked to try again.
PEER_S = 20.0


class ClusterFront(ClusterServiceServicer):
    """Answers from the view of `control`, the map store and the log."""

    def __init__(
        self,
        settings: ClusterSettings,
        member: str,
        machine: RouterMachine,
        worker: Worker,
        log: Log,
        members: Callable[[], dict[str, MemberInfo]],
        dialer: Dialer = PLAIN,
    ) -> None:
        self._settings = settings
        self._member = member
        self._machine = machine
        self._worker = worker
        self._log = log
        self._members = members
        self._dialer = dialer
        # The bytes that were read last, and what they hold.
        self._known: tuple[bytes, PartitionMap] | None = None
        self._looking: asyncio.Future[list[Progress | None]] | None = None
        self._waiting = Shares("waits", WAITING_MAX, WAITING_EACH_MAX, WAITING_RETRY_MS)

    @unary
    async def DescribeCluster(  # noqa: N802 -- the contract's name
        self, request: pb.DescribeClusterRequest, context: grpc.aio.ServicerContext
    ) -> pb.DescribeClusterResponse:
        """See `cluster_service.proto`."""
        return await asyncio.to_thread(self._describe, request)

    @unary
    async def AwaitProcessed(  # noqa: N802 -- the contract's name
        self, request: pb.AwaitProcessedRequest, context: grpc.aio.ServicerContext
    ) -> pb.AwaitProcessedResponse:
        """See `cluster_service.proto`."""
        wanted = read_position_token(request.position_token, self._settings.intake_partitions)
        if not wanted:
            raise InvalidArgument(f"is missing (from `{INTAKE}`)", field="position_token")
        try:
            with self._waiting.place(caller().grant.tenant, peer=connection()):
                async with asyncio.timeout(WAIT_S_MAX):
                    return await self._processed(request, wanted)
        except TimeoutError:
            raise DeadlineExceeded(f"not processed within {WAIT_S_MAX:.0f} s") from None

    async def _processed(
        self, request: pb.AwaitProcessedRequest, wanted: Mapping[int, int]
    ) -> pb.AwaitProcessedResponse:
        """Returns once everything before some intake positions is processed."""
        await self._exist(wanted)
        for partition, offset in wanted.items():
            await self._routed(partition, offset)
        if request.routed:
            return pb.AwaitProcessedResponse()
        # By now the slots' logs include everything that was routed.
        slots = await asyncio.to_thread(self._ends, SLOTS, self._settings.slots)
        await self._delivered(slots)
        partitions = self._settings.partials_partitions
        delivered = await asyncio.to_thread(self._ends, DELIVERIES, partitions)
        cursors = [f"{partition}.{end}" for partition, end in enumerate(delivered)]
        return pb.AwaitProcessedResponse(cursors=cursors)

    def _ends(self, topic: str, partitions: int) -> list[int]:
        """Returns where each partition of a topic ends; reads the log."""
        return [self._log.bounds(topic, partition)[1] for partition in range(partitions)]

    async def _exist(self, wanted: Mapping[int, int]) -> None:
        """Returns when some positions are visible in the log.

        Raises:
            InvalidArgument: They do not exist. A publish returns only existing positions; nothing
                says when others will exist.
        """
        end_s = time.monotonic() + SEEN_S
        while True:
            ends = await asyncio.to_thread(self._ends_of, wanted)
            if all(offset < ends[partition] for partition, offset in wanted.items()):
                return
            if time.monotonic() > end_s:
                raise InvalidArgument("names a position that there is not", field="position_token")
            await asyncio.sleep(LOOK_S)

    def _ends_of(self, partitions: Iterable[int]) -> dict[int, int]:
        """Returns where some intake partitions end; reads the log."""
        return {partition: self._log.bounds(INTAKE, partition)[1] for partition in partitions}

    async def _routed(self, partition: int, offset: int) -> None:
        """Returns when every slot has received a mark for an intake position."""
        wanted = position_of(offset + 1)
        # Owners may change meanwhile: the owner is looked up again each time.
        while True:
            owner = self._machine.holdings.view.owners.get((INTAKE, partition))
            if owner is None:
                raise Unavailable("this part of the intake has no owner yet; try again")
            if owner.member != self._member:
                return await self._routed_there(owner.member, partition, offset)
            source = self._machine.intake.sources.get(partition)
            if source is not None and int(source.sent.min()) >= wanted:
                return await asyncio.wrap_future(self._worker.settled())
            # Before it has reached the position, its marks would report too little.
            if source is not None and source.position >= wanted:
                self._worker.post(FlushRequest())
            await asyncio.sleep(LOOK_S)

    async def _routed_there(self, member: str, partition: int, offset: int) -> None:
        """Asks the owner."""
        # In a thread, because it reads the map store.
        info = (await asyncio.to_thread(self._members)).get(member)
        if info is None:
            raise Unavailable("the owner of this part of the intake has ended; try again")
        request = pb.AwaitProcessedRequest(position_token=f"{partition}.{offset}", routed=True)
        async with self._dialer.open_aio(info.for_peers) as channel:
            try:
                # Bounded, so that an owner that hangs is detected.
                await ClusterServiceStub(channel).AwaitProcessed(request, timeout=PEER_S)
            except grpc.aio.AioRpcError as error:
                raise Unavailable(
                    f"the router at {info.address} did not answer: {error.code().name}; try again"
                ) from error

    async def _delivered(self, ends: list[int]) -> None:
        """Returns when all partitions are delivered as far as slots end at some offsets."""
        # Bounded by the client's deadline, which cancels this coroutine.
        while not all(each is not None and _covers(each, ends) for each in await self._progress()):
            await asyncio.sleep(LOOK_S)

    async def _progress(self) -> list[Progress | None]:
        """Looks up how far each partition is delivered, once for all calls that wait.

        One that has begun already is of use: progress only grows.
        """
        if self._looking is None:
            self._looking = asyncio.ensure_future(asyncio.to_thread(self._last_progress))
            self._looking.add_done_callback(self._looked)
        return await asyncio.shield(self._looking)

    def _looked(self, looking: asyncio.Future[list[Progress | None]]) -> None:
        self._looking = None
        # Its callers may have gone: asyncio logs errors that nobody has taken.
        if not looking.cancelled():
            looking.exception()

    def _last_progress(self) -> list[Progress | None]:
        partitions = range(self._settings.partials_partitions)
        return [last_progress(self._log, partition) for partition in partitions]

    def _describe(self, request: pb.DescribeClusterRequest) -> pb.DescribeClusterResponse:
        view = self._machine.holdings.view
        response = pb.DescribeClusterResponse(
            cluster=self._settings.cluster,
            map_version=view.map_version,
            slot_count=self._settings.slots,
            leader=view.leader,
            tenant=caller().grant.tenant,
            open=caller().is_open,
        )
        # Tenants need the addresses of mergers, but not the loads of others.
        is_whole = not caller().grant.tenant
        if request.leaves and not is_whole:
            raise PermissionDenied(
                "leaves are shown only to tokens without a tenant", field="leaves"
            )
        for member in sorted(self._members().values(), key=lambda each: each.id):
            response.members.append(
                pb.Member(
                    id=member.id,
                    service=member.service,
                    address=member.address,
                    http_address=member.http_address,
                    started_ms=member.started_ms,
                    loads=member.loads if is_whole else {},
                )
            )
        for (topic, partition), owner in sorted(view.owners.items()) if is_whole else ():
            response.ownerships.append(
                pb.Ownership(
                    topic=topic, partition=partition, member=owner.member, epoch=owner.epoch
                )
            )
        if view.map_version:
            self._describe_map(response, request.leaves)
        return response

    def _describe_map(self, response: pb.DescribeClusterResponse, leaves: bool) -> None:
        partition_map = self._map()
        response.scheme = partition_map.scheme
        response.leaf_count = len(partition_map.leaves)
        if not leaves:
            return
        objects = self._machine.intake.arrivals.objects
        for leaf, slot in zip(
            partition_map.leaves, partition_map.slot_of_leaf.tolist(), strict=True
        ):
            west, south, east, north = leaf.box
            response.leaves.append(
                pb.LeafDescription(
                    id=leaf.id,
                    slot=slot,
                    west=west,
                    south=south,
                    east=east,
                    north=north,
                    is_text=leaf.within is not None,
                    objects=int(objects[leaf.id]) if leaf.id < len(objects) else 0,
                )
            )

    def _map(self) -> PartitionMap:
        """Returns the map in force. Reading it takes 8 us a leaf, and everybody may ask for it."""
        data, known = self._machine.holdings.view.partition_map, self._known
        if known is None or known[0] != data:
            known = self._known = data, from_bytes(data)
        return known[1]


def _covers(progress: Progress, ends: list[int]) -> bool:
    reached = dict(zip(progress.slots.tolist(), progress.positions.tolist(), strict=True))
    return all(
        end == 0 or reached.get(slot, 0) >= position_of(end) for slot, end in enumerate(ends)
    )
