"""The searches of one stream: many at a time, each answered by itself.

A call for each search costs client and merger several times what the search itself does. On a
stream, what arrives in one message is begun in one turn of the loop, its questions leave in few
messages, and answers that wait together share one. All limits are those of single searches: each
has a place among those of its caller, or is refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from sirocco_api.v1 import search_service_pb2 as pb

from sirocco.codec.errors import put_error
from sirocco.model.errors import Internal, InvalidArgument, SiroccoError
from sirocco.protocol.search.gather_events import (
    Begin,
    Finish,
    GatherEffect,
    GatherEvent,
    TakeMore,
    TimePassed,
)
from sirocco.protocol.search.limits import SearchLimits
from sirocco.runtime.process.clock import monotonic_ms
from sirocco.services.merger.search_run import SearchRun, Took
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# Of one message, unless a single response is larger.
GROUP_BYTES_MAX = 256 << 10
GROUP_MAX = 1_024

# Interval between checks for searches that are due: the shortest pause before another try.
TICK_S = 0.01


@dataclass(frozen=True, slots=True)
class Begun:
    """A search that has begun.

    Attributes:
        run: carries out its decisions.
        ended: counts its end: its outcome, and whether slots are missing.
    """

    run: SearchRun
    ended: Callable[[str, bool], None]


class Front(Protocol):
    """What begins the searches of a stream's caller."""

    def is_ready_for(self, request: pb.SearchRequest) -> bool:
        """Whether a search need not wait: its query is read in no time, and the map is compiled."""

    def begun_now(self, request: pb.SearchRequest, left_s: float | None, took: Took) -> Begun:
        """Begins such a search.

        Args:
            request: the search.
            left_s: seconds that the call may still last; None without limit.
            took: takes the parts that arrive.
        """

    async def begun(self, request: pb.SearchRequest, left_s: float | None, took: Took) -> Begun:
        """Begins any search."""

    def place(self) -> AbstractContextManager[None]:
        """Holds a place of the caller for one search."""

    def check(self) -> None:
        """Checks before each message that the caller may still search, and this merger is open.

        Raises:
            SiroccoError: The stream ends.
        """


class SearchStream:
    """The searches of one stream; belongs to the gRPC loop.

    Args:
        front: answers them.
        left_s: returns how long the call may still last; None without limit.
        limits: of searches.
    """

    def __init__(
        self, front: Front, left_s: Callable[[], float | None], limits: SearchLimits
    ) -> None:
        self._front = front
        self._limits = limits
        self._left_s = left_s
        self._open: dict[int, _OpenSearch] = {}
        self._outgoing: deque[_Outgoing] = deque()
        self._held_bytes = 0
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_ending = False

    def end(self) -> None:
        """Ends the stream as soon as no search is under way."""
        self._is_ending = True
        self._wake.set()

    async def responses(
        self, first: pb.SearchManyRequest, others: AsyncIterator[pb.SearchManyRequest]
    ) -> AsyncIterator[pb.SearchManyResponse]:
        """Yields the answers; raises the error that ended the requests, after the last one."""
        reading = asyncio.get_running_loop().create_task(self._read(first, others))
        # A stream may be open for days.
        del first
        reading.add_done_callback(lambda _: self._wake.set())
        try:
            while True:
                while self._outgoing:
                    message, sent = self._group()
                    yield message
                    for each in sent:
                        each.written()
                    self._room.set()
                if not self._open and reading.done():
                    reading.result()
                    return
                if not self._open and self._is_ending:
                    return
                self._wake.clear()
                await self._wake.wait()
        finally:
            reading.cancel()
            self._close()

    async def _read(
        self, first: pb.SearchManyRequest, others: AsyncIterator[pb.SearchManyRequest]
    ) -> None:
        await self._take(first)
        del first
        async for request in others:
            await self._take(request)

    async def _take(self, request: pb.SearchManyRequest) -> None:
        """Begins the searches of a message; returns when there is room for another one."""
        self._front.check()
        for each in request.searches:
            # A copy: a part of a message keeps all of it in memory.
            search = pb.SearchRequest()
            search.CopyFrom(each.search)
            self._begin(each.number, search)
        while self._is_full:
            self._room.clear()
            await self._room.wait()

    @property
    def _is_full(self) -> bool:
        limits = self._limits
        return (
            self._held_bytes > limits.stream_bytes_max
            or len(self._outgoing) > limits.stream_responses_max
        )

    def _begin(self, number: int, request: pb.SearchRequest) -> None:
        if number in self._open:
            error = InvalidArgument("a search with this number is under way", field="number")
            self._put(_Outgoing(number, error=error))
            return
        place = self._front.place()
        try:
            place.__enter__()
        except SiroccoError as error:
            self._put(_Outgoing(number, error=error))
            return
        opened = self._open[number] = _OpenSearch(self, number, request, place)
        self._held_bytes += opened.size
        opened.begin(self._front)
        if self._timer is None:
            self._tick()

    def _tick(self) -> None:
        """Steps the searches that are due."""
        now_ms = monotonic_ms()
        for opened in [each for each in self._open.values() if each.due_ms <= now_ms]:
            opened.advance(TimePassed())
        self._timer = None
        if self._open:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def left_s(self) -> float | None:
        """Returns how long the call may still last; None without limit."""
        return self._left_s()

    def start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs something beside, until the stream ends."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def send(self, outgoing: _Outgoing) -> None:
        """Sends a response of a search."""
        self._put(outgoing)

    def last_of(self, number: int) -> pb.SearchResponse | None:
        """Takes back the newest response if it is of this search and has not been sent."""
        newest = self._outgoing[-1] if self._outgoing else None
        if newest is None or newest.number != number or newest.response is None or newest.after:
            return None
        return self._outgoing.pop().response

    def after_sent(self, what: Callable[[], None]) -> None:
        """Calls something when all that waits now is sent: at once if nothing does."""
        if self._outgoing:
            self._outgoing[-1].after.append(what)
        else:
            what()

    def ended(self, opened: _OpenSearch) -> None:
        """Forgets a search, whose last response waits to be sent; then its place is free."""
        del self._open[opened.number]
        self._held_bytes -= opened.size
        self._room.set()
        self.after_sent(opened.leave)

    def _put(self, outgoing: _Outgoing) -> None:
        self._outgoing.append(outgoing)
        self._wake.set()

    def _group(self) -> tuple[pb.SearchManyResponse, list[_Outgoing]]:
        """Returns the next message, and what is in it."""
        message, size = pb.SearchManyResponse(), 0
        sent: list[_Outgoing] = []
        while self._outgoing and len(sent) < GROUP_MAX:
            each = self._outgoing[0]
            size += 0 if each.response is None else each.response.ByteSize()
            if sent and size > GROUP_BYTES_MAX:
                break
            sent.append(self._outgoing.popleft())
            each.put_into(message.responses.add())
        return message, sent

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        for opened in self._open.values():
            opened.stop()
        self._open.clear()
        while self._outgoing:
            # Places of searches that had ended are free when their answers are sent, or never.
            self._outgoing.popleft().written()


class _Outgoing:
    """A response on its way.

    Attributes:
        number: of the search.
        response: the response; None for an error alone.
        error: why the search ends without an answer, or with a part of it.
        after: called when it is sent.
    """

    __slots__ = ("after", "error", "number", "response")

    def __init__(
        self,
        number: int,
        response: pb.SearchResponse | None = None,
        error: SiroccoError | None = None,
    ) -> None:
        self.number = number
        self.response = response
        self.error = error
        self.after: list[Callable[[], None]] = []

    def put_into(self, message: pb.NumberedResponse) -> None:
        """Writes the response."""
        message.number = self.number
        if self.response is not None:
            message.response.CopyFrom(self.response)
        if self.error is not None:
            put_error(message.error, self.error)

    def written(self) -> None:
        """Does what waits for it."""
        for each in self.after:
            each()


class _OpenSearch:
    """One search that is under way.

    Attributes:
        number: on its stream.
        size: bytes of its request.
        due_ms: when its next tick is needed, on the monotonic clock.
    """

    def __init__(
        self,
        stream: SearchStream,
        number: int,
        request: pb.SearchRequest,
        place: AbstractContextManager[None],
    ) -> None:
        self.number = number
        self.size = request.ByteSize()
        self.due_ms = 1 << 62
        self._stream = stream
        self._request = request
        self._place = place
        self._begun: Begun | None = None
        self._inbox: deque[GatherEvent] = deque()
        # It is being stepped, here or in another thread: what arrives meanwhile waits.
        self._is_stepping = False
        self._has_ended = False

    def begin(self, front: Front) -> None:
        """Reads and plans it, and asks the first questions."""
        if not front.is_ready_for(self._request):
            self._is_stepping = True
            self._stream.start(self._begin_beside(front))
            return
        try:
            self._begun = front.begun_now(self._request, self._stream.left_s(), self.advance)
        except SiroccoError as error:
            self._end(error)
            return
        except Exception as error:
            # Else its stream would wait for it for ever, and all others of the stream with it.
            self._end_unexpectedly(error)
            return
        self.advance(Begin())

    def advance(self, event: GatherEvent) -> None:
        """Takes a step."""
        self._inbox.append(event)
        if not self._is_stepping:
            self._go_on()

    def stop(self) -> None:
        """Ends it: the client has gone."""
        if not self._has_ended:
            self._finish("stopped")
            self.leave()

    def leave(self) -> None:
        """Gives back its place."""
        self._place.__exit__(None, None, None)

    async def _begin_beside(self, front: Front) -> None:
        try:
            self._begun = await front.begun(self._request, self._stream.left_s(), self.advance)
        except SiroccoError as error:
            self._end(error)
            return
        except Exception as error:
            self._end_unexpectedly(error)
            return
        self._inbox.append(Begin())
        self._go_on()

    def _go_on(self) -> None:
        """Takes the steps that wait."""
        if self._begun is None:
            return
        run = self._begun.run
        self._is_stepping = True
        try:
            while self._inbox and not self._has_ended:
                step = self._inbox.popleft()
                if run.is_large(step):
                    self._stream.start(self._step_beside(run, step))
                    return
                self._carry_out(run, run.step(step))
        except Exception as error:
            self._end_unexpectedly(error)
        self._is_stepping = False
        if not self._has_ended:
            self.due_ms = run.deadline_ms()

    async def _step_beside(self, run: SearchRun, step: GatherEvent) -> None:
        try:
            effects = await asyncio.to_thread(run.step, step)
            if not self._has_ended:
                self._carry_out(run, effects)
        except Exception as error:
            self._end_unexpectedly(error)
        self._go_on()

    def _carry_out(self, run: SearchRun, effects: list[GatherEffect]) -> None:
        stream = self._stream
        for effect in effects:
            if isinstance(effect, Finish):
                held = stream.last_of(self.number)
                responses = list(run.last(effect, held))
                is_partial = bool(responses and responses[-1].end.missing_slots)
                for response in responses:
                    stream.send(_Outgoing(self.number, response))
                self._end(run.error_of(effect), is_partial=is_partial)
                return
            if isinstance(effect, TakeMore):
                # A client that reads slowly holds back its own searches.
                stream.after_sent(partial(run.take_more, effect.ask))
                continue
            for response in run.carried_out(effect):
                stream.send(_Outgoing(self.number, response))

    def _end_unexpectedly(self, error: Exception) -> None:
        extra = event("call_failed", method="SearchMany")
        logger.error("search failed", exc_info=error, extra=extra)
        self._end(Internal("unexpected error; see the server's log"))

    def _end(self, error: SiroccoError | None, *, is_partial: bool = False) -> None:
        if self._has_ended:
            return
        if error is not None:
            # With the last response: then that one is known not to end the answer well.
            held = self._stream.last_of(self.number)
            self._stream.send(_Outgoing(self.number, held, error))
        self._finish("ok" if error is None else error.code.lower(), is_partial=is_partial)
        self._stream.ended(self)

    def _finish(self, outcome: str, *, is_partial: bool = False) -> None:
        self._has_ended = True
        if self._begun is not None:
            self._begun.run.close()
            self._begun.ended(outcome, is_partial)
