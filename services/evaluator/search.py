"""SlotSearchService: answers mergers' questions about the owned slots.

Each question is a task of the gRPC loop whose parts are made, one at a time, in a separate pool:
never in the worker's loop, and not in the gRPC loop, which must receive cancellations meanwhile.
Between two parts, and between two slots, a question checks whether its caller still waits.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import grpc
import numpy as np
from numpy.typing import NDArray

from sirocco.codec.arrays import U4, U8, read_column
from sirocco.codec.search import read_question, write_failure, write_part
from sirocco.codec.tokens import read_position_token
from sirocco.internal_api.v1 import slot_search_service_pb2 as pb
from sirocco.internal_api.v1.slot_search_service_pb2_grpc import SlotSearchServiceServicer
from sirocco.model.errors import DeadlineExceeded, Internal, ResourceExhausted, SiroccoError
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.protocol.contract.positions import Reached
from sirocco.protocol.evaluator.search_visibility import TokenCheck
from sirocco.protocol.search.limits import LIMITS, SearchLimits
from sirocco.protocol.search.messages import MOVED, Part
from sirocco.runtime.grpc.call_contexts import read_message
from sirocco.services.evaluator.answers.slot_interface import SlotSearch
from sirocco.services.evaluator.leftovers import LeftoverBook, Run
from sirocco.services.evaluator.outgoing_responses import OutgoingResponses
from sirocco.services.evaluator.progress_watch import StepWatch
from sirocco.services.evaluator.slot_search import answer, nothing_known
from sirocco.services.evaluator.waiting_questions import WaitingQuestions
from sirocco.telemetry.logging import event
from sirocco.telemetry.metrics.evaluator import EvaluatorMetrics

if TYPE_CHECKING:
    from sirocco.telemetry.spans import Span, Spans

logger = logging.getLogger(__name__)

# Kernels release the interpreter lock, so that threads beyond the cores would only wait in turns.
# The second thread keeps a long search from blocking all others.
THREADS = max(2, min(8, os.cpu_count() or 1))

# Pause for a refused merger: some dozens of searches have ended by that time.
RETRY_AFTER_MS = 50


class SearchedSlot(Protocol):
    """The searchable side of an owned slot."""

    @property
    def reached(self) -> Reached:
        """Positions that the slot has reached in each intake partition."""

    def search(self) -> SlotSearch:
        """Returns a search of what is stored now."""


# The next message of an answer, None to go on later, or why there is none.
Made: TypeAlias = "pb.SearchSlotsResponse | BaseException | None"


@dataclass(slots=True, kw_only=True)
class _OpenQuestion:
    """A question in progress.

    Attributes:
        number: number of the question on its stream.
        message: the question.
        begin_s: monotonic time at which it arrived.
        end_s: monotonic time at which the caller stops waiting.
        credit: parts that may be sent.
        more: set when there is credit.
        is_stopped: the caller does not wait any more.
        has_moved: a slot is no longer here, or not yet.
        has_place: it counts among the questions under way.
        arrived: whether its slots have reached its position token, if it has one.
        parts: makes the messages of its answer, once it need not wait.
        terms_wanted: u8[m], the terms whose counts are wanted after a list; empty for all.
        task: sends the answer, if it has more than one part or has to wait.
        span: of a trace.
    """

    number: int
    message: pb.SlotQuestion
    begin_s: float
    end_s: float
    credit: int
    more: asyncio.Event = field(default_factory=asyncio.Event)
    is_stopped: bool = False
    has_moved: bool = False
    has_place: bool = False
    arrived: TokenCheck[SearchedSlot] | None = None
    parts: _Parts | None = None
    terms_wanted: bytes = b""
    task: asyncio.Task[None] | None = None
    span: Span | None = None

    @property
    def kind(self) -> str:
        """The kind of its query."""
        return self.message.query.WhichOneof("kind") or "unknown"

    def is_over(self) -> bool:
        """Whether the caller has stopped waiting; may be called by any thread."""
        return self.is_stopped or time.monotonic() > self.end_s


class SlotSearchFront(SlotSearchServiceServicer):
    """Serves the mergers' streams.

    Args:
        watch: runs the machine whose slots are searched.
        slots: number → slot, None if it is not owned (yet, or any more).
        intake_partitions: number in the cluster.
        metrics: receives the counts.
        hashing: numbers the terms of what is searched.
        leftovers: makes the book of the slots' leftovers, given what runs its work; None: they are
            not reported.
        limits: of searches.
        spans: makes those of questions that are traced; None: none is.
    """

    def __init__(
        self,
        watch: StepWatch,
        slots: Callable[[int], SearchedSlot | None],
        intake_partitions: int,
        metrics: EvaluatorMetrics,
        hashing: TermHashing = WIRE_TERMS,
        leftovers: Callable[[Run], LeftoverBook] | None = None,
        limits: SearchLimits = LIMITS,
        spans: Spans | None = None,
    ) -> None:
        self._spans = spans
        self.limits = limits
        self.metrics = metrics
        self.hashing = hashing
        self._watch = watch
        self._slots = slots
        self._intake_partitions = intake_partitions
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="search")
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="leftovers")
        self.leftovers = None if leftovers is None else leftovers(self._beside.submit)
        self._turns: WaitingQuestions[pb.SearchSlotsResponse | None] = WaitingQuestions(
            self._pool, THREADS
        )
        self._under_way = 0
        self._readings: set[asyncio.Task[None]] = set()
        self._is_ending = False

    async def SearchSlots(  # noqa: N802 -- the contract's name
        self, requests: AsyncIterator[pb.SearchSlotsRequest], context: grpc.aio.ServicerContext
    ) -> None:
        """See `slot_search_service.proto`."""
        stream = _Stream(self, context)
        reading = stream.reading = asyncio.create_task(stream.read(requests))
        self._readings.add(reading)
        try:
            await reading
        except asyncio.CancelledError:
            # If this process hung up, the stream ends normally. Otherwise the merger is gone.
            if not self._is_ending:
                raise
        finally:
            self._readings.discard(reading)
            reading.cancel()
            stream.close()

    async def hang_up(self) -> None:
        """Ends all streams; waiting mergers ask elsewhere."""
        self._is_ending = True
        for reading in self._readings:
            reading.cancel()

    def close(self) -> None:
        """Ends the threads."""
        for pool in (self._pool, self._beside):
            pool.shutdown(wait=False, cancel_futures=True)

    def begin(self, opened: _OpenQuestion, made: Callable[[Made], None]) -> bool:
        """Has the first part of an answer made; returns False if the question has to wait.

        Args:
            opened: the question.
            made: receives the part, or why there is none, in the loop.

        Raises:
            ResourceExhausted: too many questions are under way.
        """
        self._take_place(opened)
        message = opened.message
        slots = self._slots
        if message.position_token:
            opened.arrived = self._arrived(message)
            if not self._watch.holds(opened.arrived.check):
                return False
            slots = opened.arrived.slot
        opened.parts = self._parts(opened, slots)
        self._turns.put(opened.parts.next, made)
        return True

    def end(self, opened: _OpenQuestion) -> None:
        """Gives back the place of a question."""
        self._under_way -= opened.has_place
        opened.has_place = False
        if opened.span is not None:
            opened.span.end()
            opened.span = None

    async def answered(
        self, opened: _OpenQuestion, first: pb.SearchSlotsResponse | None
    ) -> AsyncIterator[pb.SearchSlotsResponse]:
        """Yields the messages of an answer; raises the error if there is none.

        Args:
            opened: the question, which has begun.
            first: its first message, if that is made.
        """
        loop = asyncio.get_running_loop()
        if opened.parts is None:
            assert opened.arrived is not None
            yield write_part(opened.number, Part(is_waiting=True))
            if not await self._watch.wait(opened.arrived.check, opened.end_s - time.monotonic()):
                raise DeadlineExceeded("the slots have not reached the position token yet")
            opened.parts = self._parts(opened, opened.arrived.slot)
        parts = opened.parts
        making: asyncio.Future[pb.SearchSlotsResponse | None] = loop.create_future()
        if first is None:
            making = loop.run_in_executor(self._pool, parts.next)
        else:
            making.set_result(first)
        try:
            while True:
                made = await making
                if made is not None and made.is_last:
                    yield made
                    return
                if made is not None:
                    opened.credit -= 1
                    if opened.credit <= 0:
                        yield made
                        made = None
                while opened.credit <= 0:
                    opened.more.clear()
                    await opened.more.wait()
                # The next part is made while this one is sent.
                making = loop.run_in_executor(self._pool, parts.next)
                if made is not None:
                    yield made
        finally:
            making.add_done_callback(_ignore_result)

    def _take_place(self, opened: _OpenQuestion) -> None:
        if self._under_way >= self.limits.questions_max:
            raise ResourceExhausted(
                f"{self.limits.questions_max} questions are under way",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self._under_way += 1
        opened.has_place = True
        if self._spans is not None and opened.message.HasField("trace"):
            parent = read_message(opened.message.trace)
            opened.span = self._spans.begin("answer", parent, "SERVER")

    def _parts(self, opened: _OpenQuestion, slots: Callable[[int], SearchedSlot | None]) -> _Parts:
        return _Parts(opened, opened.message, slots, self.hashing, self.leftovers, self.limits)

    def _arrived(self, message: pb.SlotQuestion) -> TokenCheck[SearchedSlot]:
        return TokenCheck(
            self._slots,
            read_column(message.slots, U4, "slots").tolist(),
            read_position_token(message.position_token, self._intake_partitions),
        )


class _Parts:
    """Makes the messages of one answer, in whichever pool thread runs it."""

    def __init__(
        self,
        opened: _OpenQuestion,
        message: pb.SlotQuestion,
        slots: Callable[[int], SearchedSlot | None],
        hashing: TermHashing,
        leftovers: LeftoverBook | None,
        limits: SearchLimits,
    ) -> None:
        self._opened = opened
        self._limits = limits
        self._hashing = hashing
        self._leftovers = leftovers
        self._message = message
        self._slots = slots
        self._parts: Iterator[Part | None] | None = None

    def next(self) -> pb.SearchSlotsResponse | None:
        """Returns the next message; None to let other questions use the thread."""
        if self._parts is None:
            if self._opened.is_over():
                raise DeadlineExceeded("nobody waits for the answer any more")
            question = read_question(self._message)
            known = self._leftovers.of if self._leftovers else nothing_known
            self._parts = answer(
                question,
                self._search,
                self._opened.is_over,
                self._hashing,
                known,
                self._limits,
                self._terms_wanted,
            )
        part = next(self._parts)
        if part is not None and MOVED in part.states.tolist():
            self._opened.has_moved = True
        return None if part is None else write_part(self._opened.number, part)

    def _terms_wanted(self) -> NDArray[np.uint64] | None:
        data = self._opened.terms_wanted
        return read_column(data, U8, "terms") if data else None

    def _search(self, number: int) -> SlotSearch | None:
        slot = self._slots(number)
        return None if slot is None else slot.search()


class _Stream:
    """The questions of one merger."""

    def __init__(self, front: SlotSearchFront, context: grpc.aio.ServicerContext) -> None:
        self.reading: asyncio.Task[None] | None = None
        self._front = front
        self._outgoing = OutgoingResponses(context.write, self._broken)
        self._opened: dict[int, _OpenQuestion] = {}

    async def read(self, requests: AsyncIterator[pb.SearchSlotsRequest]) -> None:
        """Takes requests until the merger ends the stream."""
        async for request in requests:
            self._outgoing.takes_groups |= request.takes_groups
            self._take(request)
            for other in request.others:
                self._take(other)

    def _take(self, request: pb.SearchSlotsRequest | pb.OtherRequest) -> None:
        """Processes a request; one for a question that has ended is late, and ignored."""
        step = request.WhichOneof("step")
        if step == "ask" and request.question not in self._opened:
            self._begin(request.question, request.ask)
            return
        opened = self._opened.get(request.question)
        if opened is None:
            return
        if step == "more":
            opened.terms_wanted = request.more.terms or opened.terms_wanted
            opened.credit += request.more.parts
            opened.more.set()
        elif step == "stop":
            self._stop(opened)

    def close(self) -> None:
        """Ends the questions: the merger is gone."""
        for opened in list(self._opened.values()):
            self._stop(opened)
        self._outgoing.close()

    def _begin(self, number: int, message: pb.SlotQuestion) -> None:
        begin_s = time.monotonic()
        opened = _OpenQuestion(
            number=number,
            message=message,
            begin_s=begin_s,
            end_s=begin_s + message.timeout_ms / 1_000,
            credit=max(1, message.parts),
        )
        self._opened[number] = opened
        try:
            if not self._front.begin(opened, partial(self._first_made, opened)):
                self._continue(opened)
        except SiroccoError as error:
            self._fail(opened, error)

    def _first_made(self, opened: _OpenQuestion, made: Made) -> None:
        """Takes the first part of an answer, which is mostly the last one as well."""
        if opened.is_stopped:
            return
        if isinstance(made, SiroccoError):
            self._fail(opened, made)
        elif isinstance(made, BaseException):
            self._fail_unexpectedly(opened, made)
        elif made is not None and made.is_last:
            self._outgoing.put(made)
            self._end(opened, "moved" if opened.has_moved else "ok")
        else:
            self._continue(opened, made)

    def _continue(self, opened: _OpenQuestion, first: pb.SearchSlotsResponse | None = None) -> None:
        opened.task = asyncio.create_task(self._answer(opened, first))

    async def _answer(self, opened: _OpenQuestion, first: pb.SearchSlotsResponse | None) -> None:
        try:
            async for response in self._front.answered(opened, first):
                await self._outgoing.sent(response)
            self._end(opened, "moved" if opened.has_moved else "ok")
        except SiroccoError as error:
            self._fail(opened, error)
        except (asyncio.CancelledError, grpc.aio.BaseError):
            # Stopped, or the merger disconnected during the write.
            self._stop(opened)
        except Exception as error:
            self._fail_unexpectedly(opened, error)

    def _stop(self, opened: _OpenQuestion) -> None:
        opened.is_stopped = True
        if opened.task is not None and opened.task is not asyncio.current_task():
            opened.task.cancel()
        self._end(opened, "stopped")

    def _fail(self, opened: _OpenQuestion, error: SiroccoError) -> None:
        self._outgoing.put(write_failure(opened.number, error))
        self._end(opened, error.code.lower())

    def _fail_unexpectedly(self, opened: _OpenQuestion, error: BaseException) -> None:
        extra = event("search_failed", kind=opened.kind)
        logger.error("search failed", exc_info=error, extra=extra)
        failure = Internal("unexpected error; see the evaluator's log")
        self._outgoing.put(write_failure(opened.number, failure))
        self._end(opened, "internal")

    def _end(self, opened: _OpenQuestion, outcome: str) -> None:
        """Forgets a question; only its first end counts."""
        if self._opened.pop(opened.number, None) is None:
            return
        self._front.end(opened)
        metrics = self._front.metrics
        kind = opened.kind
        # By place: names are sorted at each call.
        metrics.searches.labels(kind, outcome).inc()
        took_s = time.monotonic() - opened.begin_s
        metrics.search_seconds.labels(kind).observe(took_s)

    def _broken(self) -> None:
        # Only the merger can repair the loss; it sees the end of the stream.
        if self.reading is not None:
            self.reading.cancel()


def _ignore_result(one: asyncio.Future[Any]) -> None:
    """Retrieves the error of an abandoned future, so that it is not logged."""
    if not one.cancelled():
        one.exception()
