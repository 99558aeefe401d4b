"""The open streams to evaluators, one each, shared by all searches of this merger."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from sirocco.codec.search import read_part
from sirocco.internal_api.v1 import slot_search_service_pb2 as pb
from sirocco.internal_api.v1.slot_search_service_pb2_grpc import SlotSearchServiceStub
from sirocco.model.errors import Internal, InvalidArgument, SiroccoError, Unavailable
from sirocco.protocol.search.messages import Part
from sirocco.runtime.grpc.peer_channels import OLD_CHANNEL_S, PLAIN, Dialer
from sirocco.runtime.grpc.server import OPTIONS
from sirocco.runtime.process.retries import pauses_s
from sirocco.services.merger.members import Members
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# HTTP/2 frame size; gRPC's default is 16 KB. Each frame of a large answer costs both ends a few
# microseconds. No longer than the longest part, so that a stream waits for one part at most.
FRAME_BYTES = 1 << 20

# gRPC itself would wait up to two minutes before it reconnects.
_OPTIONS = (
    *OPTIONS,
    ("grpc.http2.max_frame_size", FRAME_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

# Of one message with several requests: the first questions are answered while the others are sent.
GROUP_BYTES_MAX = 256 << 10
GROUP_MAX = 256

# A stream that lasted this long was sound: the next failure starts a new count.
SOUND_S = 5.0

Sink = Callable[[Part | SiroccoError], None]


@dataclass(frozen=True, slots=True)
class QuestionKey:
    """One question in progress."""

    member: str
    number: int


class Evaluators:
    """Asks evaluators; all methods belong to the gRPC loop."""

    def __init__(self, members: Members, dialer: Dialer = PLAIN) -> None:
        self._members = members
        self._dialer = dialer
        self._links: dict[str, _Link] = {}
        self._numbers = itertools.count(1)

    def ask(self, member: str, question: pb.SlotQuestion, sink: Sink) -> QuestionKey:
        """Asks an evaluator.

        Args:
            member: its id.
            question: the question.
            sink: receives the parts of the answer until the last one, or the error that ended it;
                never called before this returns.
        """
        asked = QuestionKey(member, next(self._numbers))
        link = self._links.get(member) or self._open(member)
        if link is None:
            error = Unavailable(f"evaluator {member} is not known, or has ended")
            asyncio.get_running_loop().call_soon(sink, error)
            return asked
        link.ask(asked.number, question, sink)
        return asked

    def take_more(self, asked: QuestionKey, terms: bytes = b"") -> None:
        """Allows one more part to be sent: after a list of terms, the counts of these (u8[m])."""
        if (link := self._links.get(asked.member)) is not None:
            link.take_more(asked.number, terms)

    def stop(self, asked: QuestionKey) -> None:
        """Stops a question whose caller has gone; its sink is not called again."""
        if (link := self._links.get(asked.member)) is not None:
            link.stop(asked.number)

    async def close(self) -> None:
        """Ends all streams."""
        for link in self._links.values():
            await link.close()

    def _open(self, member: str) -> _Link | None:
        info = self._members.get(member)
        if info is None:
            return None
        # A new evaluator often replaces another one.
        for former in [m for m, link in self._links.items() if link.is_broken]:
            if self._members.get(former) is None:
                asyncio.get_running_loop().create_task(self._links.pop(former).close())
        self._links[member] = _Link(member, info.for_peers, self._dialer)
        return self._links[member]


class _Link:
    """The stream to one evaluator, opened when it is needed."""

    def __init__(self, member: str, address: str, dialer: Dialer) -> None:
        self._member = member
        self._address = address
        self._dialer = dialer
        self._generation = dialer.generation
        self._channel = dialer.open_aio(address, _OPTIONS)
        self._stub = SlotSearchServiceStub(self._channel)
        self._call: Any = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._outgoing: deque[pb.SearchSlotsRequest] = deque()
        self._is_writing = False
        # Of the evaluator at the other end of the stream, once it has answered.
        self._takes_groups = False
        self._sinks: dict[int, Sink] = {}
        self._pauses = pauses_s()
        self._opened_s = 0.0
        self._rests_until_s = 0.0

    @property
    def is_broken(self) -> bool:
        """Whether there is no stream, and therefore no waiting question."""
        return self._call is None

    def ask(self, number: int, question: pb.SlotQuestion, sink: Sink) -> None:
        if time.monotonic() < self._rests_until_s:
            # It was just found broken; the caller retries after a pause.
            asyncio.get_running_loop().call_soon(sink, self._unreachable("rests"))
            return
        self._sinks[number] = sink
        if self._call is None:
            self._open()
        self._send(pb.SearchSlotsRequest(question=number, ask=question))

    def take_more(self, number: int, terms: bytes = b"") -> None:
        if number in self._sinks:
            more = pb.MoreParts(parts=1, terms=terms)
            self._send(pb.SearchSlotsRequest(question=number, more=more))

    def stop(self, number: int) -> None:
        if self._sinks.pop(number, None) is not None:
            self._send(pb.SearchSlotsRequest(question=number, stop=pb.StopQuestion()))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._channel.close()

    def _open(self) -> None:
        self._opened_s = time.monotonic()
        self._renew()
        self._call = self._stub.SearchSlots()
        self._takes_groups = False
        self._outgoing.clear()
        self._start(self._read(self._call))

    def _renew(self) -> None:
        """Makes the next connection use the present certificate."""
        if self._generation == self._dialer.generation:
            return
        self._generation = self._dialer.generation
        self._start(self._channel.close(OLD_CHANNEL_S))
        self._channel = self._dialer.open_aio(self._address, _OPTIONS)
        self._stub = SlotSearchServiceStub(self._channel)

    def _start(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _send(self, request: pb.SearchSlotsRequest) -> None:
        if self._call is None:
            return
        self._outgoing.append(request)
        if not self._is_writing:
            self._begin_writing()

    def _begin_writing(self) -> None:
        self._is_writing = True
        self._start(self._write(self._call))

    async def _write(self, call: Any) -> None:
        """Writes outgoing messages one at a time, as a call requires."""
        try:
            while call is self._call and self._outgoing:
                await call.write(self._next_message())
        except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):
            # The reader receives the error.
            pass
        finally:
            self._is_writing = False
            if self._outgoing and self._call is not None:
                # The stream broke during this write and was reopened meanwhile.
                self._begin_writing()

    def _next_message(self) -> pb.SearchSlotsRequest:
        """Returns the next message, with all requests that wait if the evaluator takes them."""
        message = self._outgoing.popleft()
        message.takes_groups = True
        size = message.ByteSize()
        while self._takes_groups and self._outgoing and len(message.others) < GROUP_MAX:
            other = self._outgoing[0]
            size += other.ByteSize()
            if size > GROUP_BYTES_MAX:
                break
            _copy_request(self._outgoing.popleft(), message.others.add())
        return message

    async def _read(self, call: Any) -> None:
        why = "ended the stream"
        try:
            async for response in call:
                self._takes_groups |= response.takes_groups
                self._took(response)
                for other in response.others:
                    self._took(other)
        except grpc.aio.AioRpcError as error:
            why = f"{error.code().name}: {error.details()}"
        except asyncio.CancelledError:
            why = "was cancelled"
        finally:
            self._broken(why)

    def _took(self, response: pb.SearchSlotsResponse) -> None:
        sink = self._sinks.get(response.question)
        if sink is None:
            # Belongs to a question that was stopped meanwhile.
            return
        part: Part | SiroccoError
        try:
            part = read_part(response)
        except InvalidArgument as error:
            part = Internal(f"evaluator {self._member} sent what makes no sense: {error}")
        if isinstance(part, SiroccoError) or part.is_last:
            del self._sinks[response.question]
        sink(part)

    def _broken(self, why: str) -> None:
        self._call = None
        now_s = time.monotonic()
        if now_s - self._opened_s > SOUND_S:
            self._pauses = pauses_s()
        self._rests_until_s = now_s + next(self._pauses)
        sinks, self._sinks = self._sinks, {}
        extra = event("evaluator_link_broken", member=self._member, reason=why)
        logger.info("connection to an evaluator lost; searches ask again", extra=extra)
        for sink in sinks.values():
            sink(self._unreachable(why))

    def _unreachable(self, why: str) -> Unavailable:
        return Unavailable(f"evaluator {self._member} cannot be reached ({why})")


def _copy_request(request: pb.SearchSlotsRequest, other: pb.OtherRequest) -> None:
    """Copies a request into a message that begins with another one."""
    other.question = request.question
    match request.WhichOneof("step"):
        case "ask":
            other.ask.CopyFrom(request.ask)
        case "more":
            other.more.CopyFrom(request.more)
        case "stop":
            other.stop.SetInParent()
