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
from typing import Any, Protocol

import grpc

from sirocco.codec.arrays import U4, read_column
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
from sirocco.services.evaluator.leftovers import LeftoverBook, Run
from sirocco.services.evaluator.progress_watch import StepWatch
from sirocco.services.evaluator.slot_search import SlotSearch, answer, nothing_known
from sirocco.telemetry.logging import event
from sirocco.telemetry.metrics import EvaluatorMetrics

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


@dataclass(slots=True)
class _OpenQuestion:
    """A question in progress.

    Attributes:
        number: number of the question on its stream.
        end_s: monotonic time at which the caller stops waiting.
        credit: parts that may be sent.
        more: set when there is credit.
        is_stopped: the caller does not wait any more.
        has_moved: a slot is no longer here, or not yet.
    """

    number: int
    end_s: float
    credit: int
    more: asyncio.Event = field(default_factory=asyncio.Event)
    is_stopped: bool = False
    has_moved: bool = False

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
        leftovers: makes the book of the slots' leftovers, given what runs its work; None: nothing
            is said of them.
        limits: of searches.
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
    ) -> None:
        self.limits = limits
        self.metrics = metrics
        self.hashing = hashing
        self._watch = watch
        self._slots = slots
        self._intake_partitions = intake_partitions
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="search")
        self._beside = ThreadPoolExecutor(1, thread_name_prefix="leftovers")
        self.leftovers = None if leftovers is None else leftovers(self._beside.submit)
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

    async def answered(
        self, opened: _OpenQuestion, message: pb.SlotQuestion
    ) -> AsyncIterator[pb.SearchSlotsResponse]:
        """Yields the messages of an answer; raises the error if there is none."""
        if self._under_way >= self.limits.questions_max:
            raise ResourceExhausted(
                f"{self.limits.questions_max} questions are under way",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self._under_way += 1
        try:
            arrived = self._arrived(message)
            if message.position_token and not self._watch.holds(arrived.check):
                yield write_part(opened.number, Part(is_waiting=True))
                if not await self._watch.wait(arrived.check, opened.end_s - time.monotonic()):
                    raise DeadlineExceeded("the slots have not reached the position token yet")
            loop = asyncio.get_running_loop()
            slots = arrived.slot if message.position_token else self._slots
            parts = _Parts(opened, message, slots, self.hashing, self.leftovers, self.limits)
            making = loop.run_in_executor(self._pool, parts.next)
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
        finally:
            self._under_way -= 1

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
            question = read_question(self._message)
            known = self._leftovers.of if self._leftovers else nothing_known
            self._parts = answer(
                question, self._search, self._opened.is_over, self._hashing, known, self._limits
            )
        part = next(self._parts)
        if part is not None and (part.states == MOVED).any():
            self._opened.has_moved = True
        return None if part is None else write_part(self._opened.number, part)

    def _search(self, number: int) -> SlotSearch | None:
        slot = self._slots(number)
        return None if slot is None else slot.search()


class _Stream:
    """The questions of one merger."""

    def __init__(self, front: SlotSearchFront, context: grpc.aio.ServicerContext) -> None:
        self.reading: asyncio.Task[None] | None = None
        self._front = front
        self._context = context
        # A call accepts one message at a time.
        self._writing = asyncio.Lock()
        self._writes: set[asyncio.Task[None]] = set()
        self._opened: dict[int, tuple[_OpenQuestion, asyncio.Task[None]]] = {}

    async def read(self, requests: AsyncIterator[pb.SearchSlotsRequest]) -> None:
        """Takes requests until the merger ends the stream."""
        async for request in requests:
            self._take(request)

    def _take(self, request: pb.SearchSlotsRequest) -> None:
        """Processes a request; one for a question that has ended is late, and ignored."""
        step = request.WhichOneof("step")
        if step == "ask" and request.question not in self._opened:
            end_s = time.monotonic() + request.ask.timeout_ms / 1_000
            opened = _OpenQuestion(request.question, end_s, max(1, request.ask.parts))
            task = asyncio.create_task(self._answer(opened, request.ask))
            self._opened[opened.number] = opened, task
            return
        known = self._opened.get(request.question)
        if known is None:
            return
        opened, task = known
        if step == "more":
            opened.credit += request.more.parts
            opened.more.set()
        elif step == "stop":
            opened.is_stopped = True
            task.cancel()

    def close(self) -> None:
        """Ends the questions: the merger is gone."""
        for opened, task in self._opened.values():
            opened.is_stopped = True
            task.cancel()

    async def _answer(self, opened: _OpenQuestion, message: pb.SlotQuestion) -> None:
        kind = message.query.WhichOneof("kind") or "unknown"
        begin_s = time.monotonic()
        outcome = "ok"
        try:
            try:
                async for response in self._front.answered(opened, message):
                    await self._send(response)
                outcome = "moved" if opened.has_moved else "ok"
            except SiroccoError as error:
                outcome = error.code.lower()
                await self._send(write_failure(opened.number, error))
            except grpc.aio.BaseError:
                raise
            except Exception:
                outcome = "internal"
                logger.exception("search failed", extra=event("search_failed", kind=kind))
                failure = Internal("unexpected error; see the evaluator's log")
                await self._send(write_failure(opened.number, failure))
        except (asyncio.CancelledError, grpc.aio.BaseError):
            # Stopped, or the merger disconnected during the write.
            outcome = "stopped"
            opened.is_stopped = True
        finally:
            del self._opened[opened.number]
            self._front.metrics.searches.labels(kind=kind, outcome=outcome).inc()
            self._front.metrics.search_seconds.labels(kind=kind).observe(time.monotonic() - begin_s)

    async def _send(self, response: pb.SearchSlotsResponse) -> None:
        # A message being written cannot be withdrawn: cancelling a call during a write would break
        # it for all other questions. So only the waiting is cancelled.
        write = asyncio.create_task(self._write(response))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)
        try:
            await asyncio.shield(write)
        except asyncio.CancelledError:
            write.add_done_callback(_ignore_result)
            raise

    async def _write(self, response: pb.SearchSlotsResponse) -> None:
        async with self._writing:
            try:
                await self._context.write(response)
            except grpc.aio.BaseError:
                # Only the merger can repair the loss; it sees the end of the stream.
                if self.reading is not None:
                    self.reading.cancel()
                raise


def _ignore_result(one: asyncio.Future[Any]) -> None:
    """Retrieves the error of an abandoned future, so that it is not logged."""
    if not one.cancelled():
        one.exception()
