"""PublishService: writes publishers' objects to the log (the front of a router)."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import grpc
import numpy as np
from numpy.typing import NDArray
from sirocco_api.v1.publish_service_pb2 import (
    AdvanceTimeRequest,
    AdvanceTimeResponse,
    PublishNumberedRequest,
    PublishNumberedResponse,
    PublishRequest,
    PublishResponse,
)
from sirocco_api.v1.publish_service_pb2_grpc import PublishServiceServicer

from sirocco.codec.arrays import check_time, read_rows
from sirocco.codec.columns import read_objects
from sirocco.codec.rejections import pack_rejections
from sirocco.model.access import SEPARATOR, Grant
from sirocco.model.errors import FailedPrecondition, InvalidArgument
from sirocco.model.json_text import may_exceed_64_bits
from sirocco.model.objects import ObjectColumns, split_valid
from sirocco.model.text import hash_rows
from sirocco.protocol.contract.messages import INTAKE, NEVER_MS, NO_OBJECTS, IntakeObjects
from sirocco.protocol.router.objects.publish_sessions import NUMBER_MAX
from sirocco.runtime.grpc.authentication import caller
from sirocco.runtime.grpc.call_contexts import read_message, read_metadata
from sirocco.runtime.grpc.edge import connection, from_start
from sirocco.runtime.grpc.grpc_errors import streaming, unary
from sirocco.runtime.grpc.shares import Shares
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.runtime.loop.appender import Appender
from sirocco.runtime.process.clock import now_ms
from sirocco.services.router.admission import Admission
from sirocco.services.router.limits import TIMES, FrontTimes
from sirocco.services.router.publish_traces import PublishSpan, PublishTraces
from sirocco.services.router.quotas import PublishRates, TenantFigures
from sirocco.telemetry.metrics.router import RouterMetrics
from sirocco.telemetry.trace_context import TraceContext

AnyRequest: TypeAlias = PublishRequest | PublishNumberedRequest
# Both have the same fields.
AnyResponse = TypeVar("AnyResponse", PublishResponse, PublishNumberedResponse)

# Requests of one stream that may wait for the log: twice what a 20 ms round trip needs with the
# SDK's batches of 1,000 objects. The stream is not read further meanwhile.
IN_FLIGHT_MAX = 64

# Objects per request; a larger batch delays all others in the back.
OBJECTS_MAX = 16_384

# Numbers of one request, with those that are skipped: a record has room for twice as many.
SPAN_MAX = 1 << 31

# Bytes of refusals in one answer about several requests. For about 64 requests of 16,384 objects it
# would be larger than a message may be, and block the loop that answers all clients.
REJECTION_BYTES_MAX = 1 << 20

# Attributes read in the loop: at most this many bytes, of this many objects, and this many bytes if
# some integers exceed 64 bits. A batch of the SDK has 1,000 objects.
ATTRIBUTE_BYTES_LIGHT = 128 << 10
ATTRIBUTE_OBJECTS_LIGHT = 4_096
LONG_BYTES_LIGHT = 4 << 10

# Streams of publishers, in this router and of one tenant (of one connection, without tenants). Each
# may hold 64 requests on their way to the log; a publisher of the SDK has one stream.
STREAMS_MAX = 4_096
STREAMS_EACH_MAX = 1_024
STREAMS_RETRY_MS = 1_000

# Minimum that a request counts in a tenant's `bytes_per_s`: it becomes a record of its own, which
# costs as much as a kilobyte of objects.
REQUEST_BYTES_MIN = 1_024

# A Mersenne-like odd factor: sessions are random, but a client may count them from 1.
_SPREAD = 0x9E3779B97F4A7C15


def intake_partition(session: int, partitions: int) -> int:
    """The intake partition of a session, always the same."""
    return ((session * _SPREAD & 0xFFFFFFFFFFFFFFFF) >> 32) % partitions


def session_of(grant: Grant, session: int) -> int:
    """Returns a tenant's session under its internal number.

    Subscribers see sessions in notifications. Without this, another tenant could publish under a
    session that it has seen, and the owner's objects would be dropped as repeats.
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


def is_light(request: AnyRequest) -> bool:
    """Whether a request can be checked in a few milliseconds, whatever it holds."""
    attributes = request.objects.attributes
    if len(attributes) > ATTRIBUTE_BYTES_LIGHT:
        return False
    if attributes and request.objects.count > ATTRIBUTE_OBJECTS_LIGHT:
        return False
    return len(attributes) <= LONG_BYTES_LIGHT or not may_exceed_64_bits(attributes)


def read_deltas(request: AnyRequest, count: int) -> NDArray[np.uint32] | None:
    """Returns the numbers of a request's objects less the first; None if none is skipped.

    Raises:
        InvalidArgument: They do not fit to the objects, or do not ascend.
    """
    if not isinstance(request, PublishNumberedRequest) or not request.number_deltas:
        return None
    deltas = read_rows(request.number_deltas, count, SPAN_MAX, "number_deltas")
    if (deltas[1:] <= deltas[:-1]).any():
        raise InvalidArgument("must ascend", field="number_deltas")
    return None if int(deltas[-1]) == count - 1 else deltas


def fields_of(errors: Iterable[InvalidArgument]) -> Counter[str]:
    """Counts errors by the first name of their field paths: clients choose the rest."""
    found: Counter[str] = Counter()
    for path, count in Counter(error.field or "" for error in errors).items():
        found[re.split(r"[.\[]", path, maxsplit=1)[0]] += count
    return found


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of checking a request's objects.

    Attributes:
        objects: the valid ones.
        span: how many numbers the request takes.
        deltas: offsets of the valid ones; None for all.
        fields: number of refusals per field.
        rejections: the refusals, for `PublishResponse.MergeFromString`.
        far: number of refused objects whose time is too far ahead.
    """

    objects: ObjectColumns
    span: int
    deltas: NDArray[np.uint32] | None = None
    fields: Counter[str] = field(default_factory=Counter)
    rejections: bytes = b""
    far: int = 0


@dataclass(slots=True)
class Pending:
    """A request whose record is on its way to the log."""

    last_number: int
    rejections: bytes
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
        pool: WorkPool | None = None,
        times: FrontTimes = TIMES,
        traces: PublishTraces | None = None,
    ) -> None:
        self._traces = traces
        self._times = times
        self._pool = pool or WorkPool("publishes")
        self._rates = PublishRates(figures or TenantFigures(metrics), times)
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
        with self._streams.place(caller().grant.tenant, peer=connection()):
            async for response in self._acknowledgements(
                requests, PublishResponse, self._asked(context)
            ):
                yield response

    @streaming
    async def PublishNumbered(  # noqa: N802 -- the contract's name
        self, requests: AsyncIterator[PublishNumberedRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[PublishNumberedResponse]:
        """See `publish_service.proto`."""
        with self._streams.place(caller().grant.tenant, peer=connection()):
            async for response in self._acknowledgements(
                requests, PublishNumberedResponse, self._asked(context)
            ):
                yield response

    async def _acknowledgements(
        self,
        requests: AsyncIterator[AnyRequest],
        new_response: type[AnyResponse],
        asked: TraceContext | None = None,
    ) -> AsyncIterator[AnyResponse]:
        """Answers a stream; `asked`: the trace that its first request is part of."""
        pending: deque[Pending] = deque()
        changed = asyncio.Condition()
        reading = asyncio.create_task(self._read(requests, asked, pending, changed))
        self._metrics.publish_streams.inc()
        try:
            while True:
                async with changed:
                    await changed.wait_for(lambda: pending or reading.done())
                if not pending:
                    # If reading failed, the requests taken before are acknowledged by now.
                    reading.result()
                    return
                yield await self._acknowledged(pending, changed, new_response())
        finally:
            self._metrics.publish_streams.dec()
            reading.cancel()

    def _asked(self, context: grpc.aio.ServicerContext) -> TraceContext | None:
        """Returns what the metadata say: of the first request, as a stream lasts for days."""
        return None if self._traces is None else read_metadata(context)

    @unary
    async def AdvanceTime(  # noqa: N802 -- the contract's name
        self, request: AdvanceTimeRequest, context: grpc.aio.ServicerContext
    ) -> AdvanceTimeResponse:
        """See `publish_service.proto`."""
        check_time(request.time_ms, "time_ms")
        if not self._event_time and request.time_ms > now_ms():
            raise FailedPrecondition(
                "arrival times follow the clock here, and the clock has not reached this time"
            )
        if request.time_ms > self._latest_ms(now_ms()):
            raise self._too_far("time_ms", request.time_ms - now_ms())
        time = IntakeObjects(
            session=0,
            first_number=1,
            span=0,
            acknowledged_to=0,
            received_ms=request.time_ms,
            objects=NO_OBJECTS,
            number_deltas=None,
        )
        ends = [
            (partition, self._appender.append(INTAKE, partition, time))
            for partition in range(self._partitions)
        ]
        positions = [f"{partition}.{await appended}" for partition, appended in ends]
        return AdvanceTimeResponse(position_token=",".join(positions))

    async def _read(
        self,
        requests: AsyncIterator[AnyRequest],
        asked: TraceContext | None,
        pending: deque[Pending],
        changed: asyncio.Condition,
    ) -> None:
        session: int | None = None
        client = caller()
        try:
            async for request in from_start(requests, self._times.begin_s):
                client.check()
                if session is not None and request.session != session:
                    raise InvalidArgument("changed within a stream", field="session")
                session = request.session
                request.session = session_of(client.grant, session)
                async with changed:
                    await changed.wait_for(lambda: len(pending) < IN_FLIGHT_MAX)
                size = request.ByteSize()
                count = min(request.objects.count, OBJECTS_MAX)
                async with self._rates.room(client, count, max(size, REQUEST_BYTES_MIN)):
                    await self._admission.room(size)
                trace = None
                if self._traces is not None:
                    if request.HasField("trace"):
                        asked = read_message(request.trace)
                    trace, asked = self._traces.begin(asked), None
                pending.append(await self._take_counted(request, trace))
                # A stream may be idle for days; its last request is not kept.
                del request
                async with changed:
                    changed.notify_all()
        finally:
            async with changed:
                changed.notify_all()

    async def _acknowledged(
        self, pending: deque[Pending], changed: asyncio.Condition, response: AnyResponse
    ) -> AnyResponse:
        # A failed append ends the stream here: nothing after it is acknowledged. A client that
        # disconnects withdraws nothing.
        await asyncio.shield(pending[0].appended)
        # Other records that the log has confirmed by now go into the same answer.
        rejections_sent = 0
        while pending:
            appended = pending[0].appended
            if not appended.done() or appended.exception() is not None:
                break
            if (
                rejections_sent
                and rejections_sent + len(pending[0].rejections) > REJECTION_BYTES_MAX
            ):
                break
            done = pending.popleft()
            rejections_sent += len(done.rejections)
            response.acknowledged_to = done.last_number
            response.MergeFromString(done.rejections)
            response.position_token = f"{done.partition}.{appended.result()}"
            self._metrics.publish_latency.observe((now_ms() - done.received_ms) / 1_000)
        async with changed:
            changed.notify_all()
        return response

    async def _take_counted(self, request: AnyRequest, trace: PublishSpan | None) -> Pending:
        """Appends an admitted request, and counts it until evaluators have it or it has failed."""
        size = request.ByteSize()
        try:
            taken = await self._take(request, trace)
        except BaseException:
            self._admission.failed(size)
            if trace is not None:
                trace.failed()
            raise

        def settled(appended: asyncio.Future[int]) -> None:
            if appended.cancelled() or appended.exception() is not None:
                self._admission.failed(size)
            else:
                self._admission.appended(taken.partition, appended.result(), size)

        # Also if no caller waits any more: the client may have disconnected.
        taken.appended.add_done_callback(settled)
        if trace is not None:
            taken.appended.add_done_callback(trace.appended)
        return taken

    async def _take(self, request: AnyRequest, trace: PublishSpan | None) -> Pending:
        received_ms = now_ms()
        if not 1 <= request.first_number <= NUMBER_MAX - SPAN_MAX:
            raise InvalidArgument("numbers begin with 1 and are below 2^63", field="first_number")
        if request.acknowledged_to >= request.first_number:
            raise InvalidArgument("not below first_number", field="acknowledged_to")
        # The stream waits for it, so that its requests stay in order.
        if is_light(request):
            checked = self._checked(request, received_ms)
        else:
            checked = await self._pool.run(lambda: self._checked(request, received_ms))
        return self._append(request, checked, received_ms, trace)

    def _append(
        self, request: AnyRequest, checked: Checked, received_ms: int, trace: PublishSpan | None
    ) -> Pending:
        taken = IntakeObjects(
            session=request.session,
            first_number=request.first_number,
            span=checked.span,
            acknowledged_to=request.acknowledged_to,
            received_ms=received_ms,
            objects=checked.objects,
            number_deltas=checked.deltas,
        )
        partition = intake_partition(request.session, self._partitions)
        headers = () if trace is None else trace.headers(taken)
        appended = self._appender.append(INTAKE, partition, taken, headers)
        self._metrics.published_objects.inc(len(checked.objects))
        self._metrics.far_objects.inc(checked.far)
        for name, count in checked.fields.items():
            self._metrics.rejected_objects.labels(field=name).inc(count)
        last_number = request.first_number + checked.span - 1
        return Pending(last_number, checked.rejections, partition, appended, received_ms)

    def _checked(self, request: AnyRequest, received_ms: int) -> Checked:
        """Separates valid objects from refused ones; may run in any thread."""
        objects = with_ids(read_objects(request.objects))
        count = len(objects)
        if not 1 <= count <= OBJECTS_MAX:
            raise InvalidArgument(
                f"{count} objects in a request, must be 1 to {OBJECTS_MAX}", field="objects"
            )
        deltas = read_deltas(request, count)
        span = count if deltas is None else int(deltas[-1]) + 1
        good, refused = split_valid(objects)
        is_far = objects.ts[good] > self._latest_ms(received_ms)
        far = good[is_far].tolist()
        if far:
            # Time never goes back. One object from a far year would set the time of all later
            # objects: every step of every standing query until then would be evaluated, and every
            # lifetime would end.
            error = InvalidArgument(
                f"is more than {self._skew_max_ms} ms ahead of this cluster's clock "
                "(SIROCCO_ARRIVAL_SKEW_MAX)",
                field="ts",
            )
            good = good[~is_far]
            refused = sorted([*refused, *((row, error) for row in far)], key=lambda each: each[0])
        if not refused:
            return Checked(objects, span, deltas)
        if deltas is not None:
            refused = [(int(deltas[row]), error) for row, error in refused]
        return Checked(
            objects.take(good),
            span,
            good.astype(np.uint32) if deltas is None else deltas[good],
            fields_of(error for _, error in refused),
            pack_rejections(request.first_number, refused),
            len(far),
        )

    def _latest_ms(self, received_ms: int) -> int:
        """Returns the latest time that an object, or `AdvanceTime`, may carry."""
        if not self._event_time or self._skew_max_ms is None:
            return NEVER_MS
        return received_ms + self._skew_max_ms

    def _too_far(self, field: str, ahead_ms: int) -> InvalidArgument:
        return InvalidArgument(
            f"is {ahead_ms} ms ahead of this cluster's clock, the limit is {self._skew_max_ms} "
            "(SIROCCO_ARRIVAL_SKEW_MAX)",
            field=field,
        )
