"""PublishService: takes objects from publishers into the log (the front of a router)."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import grpc
import numpy as np
from numpy.typing import NDArray
from sirocco_api.v1.publish_service_pb2 import (
    AdvanceTimeRequest,
    AdvanceTimeResponse,
    PublishRequest,
    PublishResponse,
    Rejection,
)
from sirocco_api.v1.publish_service_pb2_grpc import PublishServiceServicer

from services.router.admission import Admission
from services.router.quotas import PublishRates, TenantFigures
from sirocco.codec.arrays import check_time
from sirocco.codec.columns import read_objects
from sirocco.codec.errors import write_error
from sirocco.model.access import SEPARATOR, Grant
from sirocco.model.errors import FailedPrecondition, InvalidArgument, SiroccoError
from sirocco.model.objects import ObjectColumns, split_valid
from sirocco.model.text import hash_rows
from sirocco.protocol.messages import INTAKE, NEVER_MS, NO_OBJECTS, Taken
from sirocco.protocol.sessions import NUMBER_MAX
from sirocco.runtime.appender import Appender
from sirocco.runtime.authentication import caller
from sirocco.runtime.clock import now_ms
from sirocco.runtime.edge import connection
from sirocco.runtime.failures import streaming, unary
from sirocco.runtime.shares import Shares
from sirocco.telemetry.metrics import RouterMetrics

# Requests of one stream that may wait for the log: with the SDK's batches of 1,000 objects twice
# what a 20 ms round trip needs. The stream is not read any further meanwhile.
IN_FLIGHT_MAX = 64

# Objects of one request; a larger batch delays everybody else's in the back.
OBJECTS_MAX = 16_384

# Streams of publishers, of this router and of one tenant (of one connection, where there are none).
# Each may hold 64 requests on their way to the log; a publisher of the SDK has one.
STREAMS_MAX = 4_096
STREAMS_EACH_MAX = 1_024
STREAMS_RETRY_MS = 1_000

# What a request counts in a tenant's `bytes_per_s`, at least: it becomes a record of its own, which
# costs as much as a kilobyte of objects does.
REQUEST_BYTES_MIN = 1_024

# A Mersenne-like odd factor: sessions are random, but a client may count them from 1.
_SPREAD = 0x9E3779B97F4A7C15


def intake_partition(session: int, partitions: int) -> int:
    """The intake partition of a session, always the same."""
    return ((session * _SPREAD & 0xFFFFFFFFFFFFFFFF) >> 32) % partitions


def session_of(grant: Grant, session: int) -> int:
    """A tenant's session as the cluster knows it.

    Subscribers read sessions in what they are told. Without this another tenant could publish in
    the name of one that it has read, and have what comes from there taken for repeats.
    """
    if not grant.tenant:
        return session
    key = f"{grant.tenant}{SEPARATOR}{session}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())


def with_ids(objects: ObjectColumns) -> ObjectColumns:
    """Fills the ids of objects that have a name: clients need no hash function."""
    if not len(objects.names):
        return objects
    is_named = np.diff(objects.name_offsets) > 0
    ids = np.where(is_named, hash_rows(objects.names, objects.name_offsets), objects.ids)
    return replace(objects, ids=ids)


@dataclass(slots=True)
class Pending:
    """A request whose record is on its way to the log."""

    last_number: int
    rejections: list[Rejection]
    partition: int
    appended: asyncio.Future[int]
    received_ms: int


class PublishFront(PublishServiceServicer):
    """Checks, appends, acknowledges in order."""

    def __init__(
        self,
        appender: Appender,
        admission: Admission,
        partitions: int,
        metrics: RouterMetrics,
        *,
        event_time: bool = False,
        skew_max_ms: int | None = None,
        figures: TenantFigures | None = None,
    ) -> None:
        self._rates = PublishRates(figures or TenantFigures(metrics))
        self._streams = Shares("publish streams", STREAMS_MAX, STREAMS_EACH_MAX, STREAMS_RETRY_MS)
        self._appender = appender
        self._admission = admission
        self._partitions = partitions
        self._metrics = metrics
        self._event_time = event_time
        self._skew_max_ms = skew_max_ms

    @streaming
    async def Publish(  # noqa: N802 -- the contract's name
        self, requests: AsyncIterator[PublishRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[PublishResponse]:
        """See `publish_service.proto`."""
        with self._streams.place(caller().grant.tenant or connection()):
            async for response in self._acknowledgements(requests):
                yield response

    async def _acknowledgements(
        self, requests: AsyncIterator[PublishRequest]
    ) -> AsyncIterator[PublishResponse]:
        pending: deque[Pending] = deque()
        changed = asyncio.Condition()
        reading = asyncio.create_task(self._read(requests, pending, changed))
        self._metrics.publish_streams.inc()
        try:
            while True:
                async with changed:
                    await changed.wait_for(lambda: pending or reading.done())
                if not pending:
                    # Whatever ended the reading, what it took before is acknowledged by now.
                    reading.result()
                    return
                yield await self._acknowledged(pending, changed)
        finally:
            self._metrics.publish_streams.dec()
            reading.cancel()

    @unary
    async def AdvanceTime(  # noqa: N802 -- the contract's name
        self, request: AdvanceTimeRequest, context: grpc.aio.ServicerContext
    ) -> AdvanceTimeResponse:
        """See `publish_service.proto`."""
        check_time(request.time_ms, "time_ms")
        if not self._event_time and request.time_ms > now_ms():
            raise FailedPrecondition("arrivals follow the clock here, and it has not come so far")
        if request.time_ms > self._latest_ms(now_ms()):
            raise self._too_far("time_ms", request.time_ms - now_ms())
        time = Taken(0, 1, 0, 0, request.time_ms, NO_OBJECTS, None)
        ends = [
            (partition, self._appender.append(INTAKE, partition, time))
            for partition in range(self._partitions)
        ]
        positions = [f"{partition}.{await appended}" for partition, appended in ends]
        return AdvanceTimeResponse(position_token=",".join(positions))

    async def _read(
        self,
        requests: AsyncIterator[PublishRequest],
        pending: deque[Pending],
        changed: asyncio.Condition,
    ) -> None:
        session: int | None = None
        who = caller()
        try:
            async for request in requests:
                who.check()
                if session is not None and request.session != session:
                    raise InvalidArgument("changed within a stream", field="session")
                session = request.session
                request.session = session_of(who.grant, session)
                async with changed:
                    await changed.wait_for(lambda: len(pending) < IN_FLIGHT_MAX)
                size = request.ByteSize()
                count = min(request.objects.count, OBJECTS_MAX)
                async with self._rates.room(who, count, max(size, REQUEST_BYTES_MIN)):
                    await self._admission.room(size)
                pending.append(self._take_counted(request))
                # A stream may be idle for days; nothing is kept of what it sent last.
                del request
                async with changed:
                    changed.notify_all()
        finally:
            async with changed:
                changed.notify_all()

    async def _acknowledged(
        self, pending: deque[Pending], changed: asyncio.Condition
    ) -> PublishResponse:
        response = PublishResponse()
        # A failed append ends the stream here: nothing behind it is acknowledged. A client that
        # hangs up takes nothing back.
        await asyncio.shield(pending[0].appended)
        # What else the log has by now goes into the same answer.
        while pending:
            appended = pending[0].appended
            if not appended.done() or appended.exception() is not None:
                break
            done = pending.popleft()
            response.acknowledged_to = done.last_number
            response.rejections.extend(done.rejections)
            response.position_token = f"{done.partition}.{appended.result()}"
            self._metrics.publish_latency.observe((now_ms() - done.received_ms) / 1_000)
        async with changed:
            changed.notify_all()
        return response

    def _take_counted(self, request: PublishRequest) -> Pending:
        """Takes what was let in, and has it counted until evaluators have it, or nobody will."""
        size = request.ByteSize()
        try:
            taken = self._take(request)
        except BaseException:
            self._admission.failed(size)
            raise

        def settled(appended: asyncio.Future[int]) -> None:
            if appended.cancelled() or appended.exception() is not None:
                self._admission.failed(size)
            else:
                self._admission.appended(taken.partition, appended.result(), size)

        # Also when nobody waits for it any more: the client may have hung up.
        taken.appended.add_done_callback(settled)
        return taken

    def _take(self, request: PublishRequest) -> Pending:
        received_ms = now_ms()
        if not 1 <= request.first_number <= NUMBER_MAX - OBJECTS_MAX:
            raise InvalidArgument("numbers begin with 1 and are below 2^63", field="first_number")
        if request.acknowledged_to >= request.first_number:
            raise InvalidArgument("not below first_number", field="acknowledged_to")
        objects = with_ids(read_objects(request.objects))
        span = len(objects)
        if not 1 <= span <= OBJECTS_MAX:
            raise InvalidArgument(
                f"{span} objects in a request, must be 1 to {OBJECTS_MAX}", field="objects"
            )
        good, refused = self._in_time(objects, *split_valid(objects), received_ms)
        deltas = None
        rejections: list[Rejection] = []
        if refused:
            deltas = np.asarray(good, np.uint32)
            objects = objects.take(good)
            rejections = [self._rejection(request, row, error) for row, error in refused]
        taken = Taken(
            request.session,
            request.first_number,
            span,
            request.acknowledged_to,
            received_ms,
            objects,
            deltas,
        )
        partition = intake_partition(request.session, self._partitions)
        appended = self._appender.append(INTAKE, partition, taken)
        self._metrics.published_objects.inc(len(objects))
        last_number = request.first_number + span - 1
        return Pending(last_number, rejections, partition, appended, received_ms)

    def _latest_ms(self, received_ms: int) -> int:
        """The latest time that an object, or the time of all, may bear."""
        if not self._event_time or self._skew_max_ms is None:
            return NEVER_MS
        return received_ms + self._skew_max_ms

    def _in_time(
        self,
        objects: ObjectColumns,
        good: NDArray[np.int64],
        refused: list[tuple[int, InvalidArgument]],
        received_ms: int,
    ) -> tuple[NDArray[np.int64], list[tuple[int, InvalidArgument]]]:
        """Sets aside objects that are too far ahead.

        Time never goes back: one object of a far year would be the time of all that follow, and
        have every step of every standing query until then evaluated, and every lifetime ended.
        """
        far = objects.ts[good] > self._latest_ms(received_ms)
        if not far.any():
            return good, refused
        ahead = good[far].tolist()
        self._metrics.far_objects.inc(len(ahead))
        errors = [(row, self._too_far("ts", int(objects.ts[row]) - received_ms)) for row in ahead]
        return good[~far], sorted([*refused, *errors], key=lambda each: each[0])

    def _too_far(self, field: str, ahead_ms: int) -> InvalidArgument:
        return InvalidArgument(
            f"is {ahead_ms} ms ahead of this cluster's clock, the limit is {self._skew_max_ms} "
            "(SIROCCO_ARRIVAL_SKEW_MAX)",
            field=field,
        )

    def _rejection(self, request: PublishRequest, row: int, error: SiroccoError) -> Rejection:
        self._metrics.rejected_objects.labels(field=error.field or "").inc()
        return Rejection(number=request.first_number + row, error=write_error(error))
