"""ReceiveService: sends notifications to subscribers within their credit.

A stream holds a cursor into `deliveries` and little else: a slow subscriber costs the memory of a
few records. It gets an error when its unread notifications are no longer stored.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import grpc
from sirocco_api.v1.receive_service_pb2 import (
    Open,
    ReceiveManyRequest,
    ReceiveManyResponse,
    ReceiveRequest,
    ReceiveResponse,
)
from sirocco_api.v1.receive_service_pb2_grpc import ReceiveServiceServicer

from sirocco.codec.columns import put_events, put_matches, put_names, put_objects
from sirocco.codec.lists import put_lists
from sirocco.model.access import Grant
from sirocco.model.errors import InvalidArgument, OutOfRange, ResourceExhausted, SiroccoError
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.members import read_string
from sirocco.protocol.contract.messages import DELIVERIES, Delivered
from sirocco.protocol.contract.record_sizes import partition_of
from sirocco.protocol.merger.delivery_parts import FewMatches, Joined, Part, joined_parts, size_of
from sirocco.runtime.grpc.authentication import caller
from sirocco.runtime.grpc.edge import REQUEST_S, from_start
from sirocco.runtime.grpc.grpc_errors import streaming
from sirocco.runtime.grpc.unread_streams import in_time
from sirocco.runtime.grpc.work_pool import WorkPool
from sirocco.runtime.loop.delivery_tail import SETTLED_S, Tail, TailRecord, Tails
from sirocco.runtime.loop.limits import TAIL, TailLimits
from sirocco.runtime.loop.log_readers import LogReaders
from sirocco.runtime.process.clock import now_ms
from sirocco.runtime.settings import MERGER_FRONT, MergerFrontLimits
from sirocco.services.merger.credit import Credit
from sirocco.services.merger.delivery_traces import DeliveryTraces, end_all
from sirocco.services.merger.few_responses import oldest_ms_of, put_few
from sirocco.services.merger.highlights import asks_for_highlights, highlights_of
from sirocco.services.merger.receive_many import ManyStreams
from sirocco.services.merger.shares import Places
from sirocco.services.merger.tenant_names import without_prefix
from sirocco.telemetry.metrics.merger import MergerMetrics
from sirocco.transport.errors import OffsetOutOfRange
from sirocco.transport.log import Log

if TYPE_CHECKING:
    from sirocco.telemetry.spans import Span

_Response = TypeVar("_Response", ReceiveResponse, ReceiveManyResponse)

# Several records in one response: a message costs as much as some hundred matches of it, and a
# gateway's window is as large, so that greater ones would only wait.
JOINED_BYTES = 1 << 16

# Partition and offset, as `cursor_of` writes them: `int` would accept more forms.
_CURSOR = re.compile("([0-9]{1,10})[.]([0-9]{1,19})")

# Streams that ask the log where they begin, at a time: a call of some milliseconds each.
OPENING_THREADS = 4

# Pause for a client without a place: streams are long, so that few end meanwhile.
STREAM_RETRY_MS = 2_000


@dataclass(eq=False, slots=True)
class _Stream:
    """An open subscription, for metrics.

    Attributes:
        tail: the tail of its Kafka partition, once known.
        offset: everything before it was sent, or belongs to others.
        is_waiting: whether the tail has nothing for it.
    """

    credit: Credit
    tail: Tail | None = None
    offset: int = 0
    is_waiting: bool = False

    @property
    def behind(self) -> int:
        """Number of records between the stream and the end of its deliveries."""
        if self.tail is None or self.is_waiting:
            return 0
        return max(0, self.tail.end - self.offset)


class _Parts:
    """What some records hold for one subscriber, as far as its credit goes.

    Attributes:
        starved_at: offset of the record for which there was no credit, once iterated.
        spans: of traces that what was yielded is part of.
    """

    def __init__(
        self,
        pieces: Sequence[TailRecord],
        opened: Open,
        credit: Credit,
        traces: DeliveryTraces | None,
    ) -> None:
        self._pieces = pieces
        self._opened = opened
        self._credit = credit
        self._traces = traces
        self.spans: list[Span] = []
        self.starved_at: int | None = None

    def __iter__(self) -> Iterator[tuple[Joined, int]]:
        """Yields what each response holds, and the offset after it."""
        return joined_parts(self._own(), JOINED_BYTES if self._opened.joined else 0)

    def _own(self) -> Iterator[tuple[Part, int]]:
        left = JOINED_BYTES if self._opened.joined and self._credit.matches > 0 else 0
        for piece in self._pieces:
            own = piece.part_of(self._opened.subscriber)
            if own is None:
                continue
            left -= size_of(own)
            if self._credit.matches <= 0 and left < 0:
                self.starved_at = piece.offset
                return
            self._credit.matches -= _matches_of(own)
            if self._traces is not None and piece.headers:
                whole = own.delivered() if isinstance(own, FewMatches) else own
                self.spans += self._traces.begin(piece.headers, whole, self._opened.subscriber)
            yield own, piece.next_offset


def _matches_of(part: Part) -> int:
    """Returns how much credit a part takes."""
    if isinstance(part, FewMatches):
        return len(part)
    return len(part.matches) + len(part.lists or ())


class ReceiveFront(ReceiveServiceServicer):
    """Serves any subscriber: every merger can read all `deliveries` partitions."""

    def __init__(
        self,
        log: Log,
        partitions: int,
        metrics: MergerMetrics,
        limits: MergerFrontLimits = MERGER_FRONT,
        begin_s: float = REQUEST_S,
        tail_limits: TailLimits = TAIL,
        traces: DeliveryTraces | None = None,
    ) -> None:
        self._traces = traces
        self._begin_s = begin_s
        self._log = log
        self._limits = limits
        self._places = Places("streams", limits.streams_max, STREAM_RETRY_MS, self._refused)
        self._calls = Places("calls", limits.streams_max, STREAM_RETRY_MS, self._refused)
        self._partitions = partitions
        self._metrics = metrics
        self._tails = Tails(log, tail_limits)
        self._readers = LogReaders(log)
        # In turns of callers: a text may take a second.
        self._highlighting = WorkPool("highlights", running_each_max=1)
        # Threads of their own: thousands of streams may ask the log for its ends at once, which may
        # be away for long. Searches and maps are worked on in the threads that all share.
        self._opening = ThreadPoolExecutor(OPENING_THREADS, "subscriptions")
        self._known: dict[int, Tail] = {}
        self._streams: set[_Stream] = set()

    @streaming
    async def Receive(  # noqa: N802 -- the contract's name
        self, requests: AsyncIterator[ReceiveRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[ReceiveResponse]:
        """See `receive_service.proto`."""
        requests = from_start(requests, self._begin_s)
        first = await anext(requests, None)
        if first is None or not first.HasField("open"):
            raise InvalidArgument("the first request has to open the stream", field="open")
        opened = _opened(first.open, caller().grant)
        # It may hold megabytes that are not needed, and the stream may last for days.
        del first
        with self._one(Credit.of(opened), context.peer()) as stream:
            responses = self._responses(opened, stream, requests)
            async for response in self._in_time(responses, context):
                yield response

    @streaming
    async def ReceiveMany(  # noqa: N802 -- the contract's name
        self, requests: AsyncIterator[ReceiveManyRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[ReceiveManyResponse]:
        """See `receive_service.proto`."""
        client, peer = caller(), context.peer()
        # A call without streams holds little; one for each place is enough for everybody.
        with self._calls.one(client.grant.tenant, client.limits.streams, peer):
            streams = ManyStreams(_CallersStreams(self, client.grant, peer))
            messages = streams.messages(from_start(requests, self._begin_s))
            async for message in self._in_time(messages, context):
                yield message

    async def one(
        self, opened: Open, credit: Credit, peer: str
    ) -> AsyncGenerator[ReceiveResponse, None]:
        """Yields the responses of one stream of many, which has a place meanwhile."""
        with self._one(credit, peer) as stream:
            async for response in self._stream(opened, stream):
                yield response

    def refresh(self) -> None:
        """Updates gauges; called from another thread."""
        streams = list(self._streams)
        credits = [max(0, stream.credit.matches) for stream in streams]
        self._metrics.streams.set(len(streams))
        self._metrics.credit.set(sum(credits))
        self._metrics.starved_streams.set(credits.count(0))
        self._metrics.behind.set(max((stream.behind for stream in streams), default=0))

    def close(self) -> None:
        """Stops reading the log."""
        self._tails.close()
        self._readers.close()
        self._highlighting.close()
        self._opening.shutdown(wait=False, cancel_futures=True)

    def _refused(self, limit: str) -> None:
        self._metrics.stream_refusals.labels(limit=limit).inc()

    @contextmanager
    def _one(self, credit: Credit, peer: str) -> Iterator[_Stream]:
        """Counts a stream, which takes a place of its caller's."""
        client = caller()
        with self._places.one(client.grant.tenant, client.limits.streams, peer):
            stream = _Stream(credit)
            self._streams.add(stream)
            try:
                yield stream
            finally:
                self._streams.discard(stream)

    def _in_time(
        self, responses: AsyncIterator[_Response], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[_Response]:
        unread_ms, ended = self._limits.unread_ms, self._metrics.unread_answers.inc
        return in_time(responses, context, unread_ms, ended)

    async def _responses(
        self, opened: Open, stream: _Stream, requests: AsyncIterator[ReceiveRequest]
    ) -> AsyncIterator[ReceiveResponse]:
        """Yields the responses of one stream, while reading its credit."""
        reading = asyncio.create_task(_read_credit(requests, stream.credit))
        try:
            async for response in self._stream(opened, stream):
                yield response
        finally:
            reading.cancel()

    async def _stream(self, opened: Open, stream: _Stream) -> AsyncIterator[ReceiveResponse]:
        credit = stream.credit
        partition = partition_of(opened.subscriber, self._partitions)
        tail = stream.tail = await self._tail(partition)
        loop = asyncio.get_running_loop()
        begin = partial(self._begin, opened, partition)
        offset = stream.offset = await loop.run_in_executor(self._opening, begin)
        # At once, so that a client that disconnects before its first match can resume.
        yield ReceiveResponse(cursor=cursor_of(partition, offset))
        cursor_s = self._limits.cursor_ms / 1_000
        # The cursor that the client has, and when the next cursor alone may be sent.
        sent_offset, due_s, is_settled = offset, 0.0, False
        while credit.refused is None:
            pieces, next_offset, is_tail = await self._after(tail, offset, credit)
            parts = _Parts(pieces, opened, credit, self._traces)
            part: Joined | None = None
            try:
                for part, end in parts:
                    yield await self._notification(part, cursor_of(partition, end))
                    sent_offset, due_s = end, time.monotonic() + cursor_s
            finally:
                # Also where the client ends the stream with what it has just been sent.
                end_all(parts.spans)
            if is_starved := parts.starved_at is not None:
                # Nothing is held for a client without credit: the record is read again.
                next_offset = parts.starved_at
            is_quiet = is_tail and not pieces and next_offset == offset
            # A waiting stream holds no records.
            pieces, part = [], None
            del parts
            offset = stream.offset = max(offset, next_offset)
            now_s = time.monotonic()
            if offset > sent_offset and (is_settled or now_s >= due_s):
                yield ReceiveResponse(cursor=cursor_of(partition, offset))
                sent_offset, due_s = offset, now_s + cursor_s
            is_settled = False
            if is_starved:
                await credit.some()
            elif is_quiet:
                # After the last window the cursor is sent: a caller may wait for completeness.
                is_reported = sent_offset == offset or tail.is_settling
                timeout_s = cursor_s if is_reported else SETTLED_S
                stream.is_waiting = True
                offset = stream.offset = await tail.wait(offset, timeout_s, opened.subscriber)
                stream.is_waiting = False
                is_settled = tail.end <= offset
        raise credit.refused

    async def _after(
        self, tail: Tail, offset: int, credit: Credit
    ) -> tuple[list[TailRecord], int, bool]:
        """Returns the pieces after an offset, their end, and whether the shared tail has them.

        If not, the log is read for this stream alone, and only when it has credit.
        """
        if (kept := tail.after(offset)) is not None:
            pieces, end = kept
            return pieces, pieces[-1].next_offset if pieces else end, True
        await credit.some()
        try:
            stretch = await self._readers.read(tail.partition, offset)
        except OffsetOutOfRange as error:
            raise _expired(tail.partition, error.earliest) from error
        return stretch.pieces, stretch.end, False

    async def _notification(self, own: Joined, cursor: str) -> ReceiveResponse:
        """Returns a response, with the places of words where queries ask for them."""
        response = self._response(own, cursor)
        if isinstance(own, Delivered) and asks_for_highlights(own):
            # Beyond the caller's share of time, matches have none.
            with suppress(ResourceExhausted):
                of_matches, of_lists = await self._highlighting.run(partial(highlights_of, own))
                response.highlights.CopyFrom(of_matches)
                response.list_highlights.CopyFrom(of_lists)
        return response

    def _response(self, own: Joined, cursor: str) -> ReceiveResponse:
        response = ReceiveResponse(cursor=cursor)
        if isinstance(own, tuple):
            self._note_matches(sum(len(part) for part in own), oldest_ms_of(own))
            put_few(response, own, caller().grant.prefix)
            return response
        if len(own.matches):
            # Lists also contain objects that arrived long ago.
            self._note_matches(len(own.matches), int(own.events.arrivals_ms.min()))
        put_objects(response.objects, own.objects)
        put_events(response.events, own.events)
        put_names(response.queries, without_prefix(own.queries, caller().grant.prefix))
        put_matches(response.matches, own.matches)
        if own.lists is not None:
            put_lists(response.lists, own.lists)
        return response

    def _note_matches(self, count: int, oldest_ms: int) -> None:
        self._metrics.delivered_matches.inc(count)
        self._metrics.delivery_latency.observe(max(0, now_ms() - oldest_ms) / 1_000)

    def _begin(self, opened: Open, partition: int) -> int:
        low, high = self._log.bounds(DELIVERIES, partition)
        if not opened.cursor:
            return low if opened.from_earliest else high
        offset = offset_of_cursor(opened.cursor, partition)
        if offset > high:
            raise InvalidArgument("is not one of this cluster", field="open.cursor")
        if offset < low:
            raise _expired(partition, low)
        return offset

    async def _tail(self, partition: int) -> Tail:
        if (tail := self._known.get(partition)) is None:
            loop = asyncio.get_running_loop()
            begin = partial(self._tails.open, partition, loop)
            tail = await loop.run_in_executor(self._opening, begin)
            self._known[partition] = tail
        return tail


class _CallersStreams:
    """What serves the streams of one call; see `receive_many.Front`."""

    def __init__(self, front: ReceiveFront, grant: Grant, peer: str) -> None:
        self._front = front
        self._grant = grant
        self._peer = peer

    def check(self, message: Open) -> Open:
        return _opened(message, self._grant)

    def responses(self, opened: Open, credit: Credit) -> AsyncGenerator[ReceiveResponse, None]:
        return self._front.one(opened, credit, self._peer)


def _opened(message: Open, grant: Grant) -> Open:
    """Returns the checked request that opens a stream, with the subscriber's internal name."""
    if not message.subscriber:
        raise InvalidArgument("is missing", field="open.subscriber")
    if message.matches < 0:
        raise InvalidArgument("must not be negative", field="open.matches")
    subscriber = read_string(
        grant.inward(message.subscriber), "open.subscriber", bytes_max=DEFAULT_LIMITS.id_bytes
    )
    if message.cursor and not _CURSOR.fullmatch(message.cursor):
        raise InvalidArgument("is no cursor", field="open.cursor")
    return Open(
        subscriber=subscriber,
        cursor=message.cursor,
        from_earliest=message.from_earliest,
        matches=message.matches,
        joined=message.joined,
    )


async def _read_credit(requests: AsyncIterator[ReceiveRequest], credit: Credit) -> None:
    try:
        async for request in requests:
            if not request.HasField("credit"):
                raise InvalidArgument("a stream is opened once", field="open")
            credit.add(request.credit.matches)
    except SiroccoError as error:
        # Also errors of the edge, which may have no room: a stream that stops reading gets no
        # credit.
        credit.refuse(error)


def cursor_of(partition: int, offset: int) -> str:
    """Returns the cursor from which a client resumes, as text."""
    return f"{partition}.{offset}"


def offset_of_cursor(cursor: str, partition: int) -> int:
    """Returns the offset of a cursor.

    Raises:
        InvalidArgument: it is not a cursor of this subscriber.
    """
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise InvalidArgument("is no cursor", field="open.cursor")
    named, offset = int(found[1]), int(found[2])
    if named != partition:
        raise InvalidArgument("is a cursor of another subscriber", field="open.cursor")
    return offset


def _expired(partition: int, earliest: int) -> OutOfRange:
    return OutOfRange(
        "what follows this cursor is no longer kept",
        field="open.cursor",
        earliest=cursor_of(partition, earliest),
    )
