"""`GET /v1/subscribers/{name}/notifications`: server-sent events, or a WebSocket.

A cursor of the cluster lies between two messages, and a message holds many notifications. The place
of a single one is therefore written `CURSOR~N`: N notifications after the cursor. Messages are
records of the log, several at once where a stream is behind: the same cursor always leads to the
same notifications in the same order, and a client that resumes at any of them gets each of the
others once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Annotated

from fastapi import Query, Request, Response, WebSocket
from sirocco_client import (
    AsyncClient,
    AsyncSubscription,
    DeadlineExceeded,
    InvalidArgument,
    NotificationBatch,
    PermissionDenied,
    Unavailable,
)
from sirocco_client.errors import SiroccoError as ClientError
from starlette.types import Receive, Scope, Send

from sirocco.model.errors import ResourceExhausted
from sirocco.model.errors import SiroccoError as EngineError
from sirocco.services.gateway.callers import Caller
from sirocco.services.gateway.front import Front
from sirocco.services.gateway.problems import problem_of, problem_response
from sirocco.services.gateway.wires import Event, EventWire, GoneError, SocketWire, Wire
from sirocco.services.notification_json import notifications_of

EVENT_STREAM = "text/event-stream"

# The subprotocol of a WebSocket whose client names its token as another one.
SUBPROTOCOL = "sirocco.v1"

# Matches that the cluster may send ahead of a client. What has been sent for a client that does not
# read waits in memory, message by message; what there is no credit for comes together, up to 64 kB.
CREDIT = 4

# Memory of a message with its events, as a multiple of its bytes; small ones are not counted.
_EVENT_FACTOR = 5
_SMALL_BYTES = 1 << 14

# Events of a message, some 4 us each, after which others have their turn: a message may have
# 32,768, and hundreds of streams get it at the same time.
_TURN_EVENTS = 64

_POSITION = re.compile(r"([0-9]{1,10}[.][0-9]{1,19})(?:~([0-9]{1,9}))?")


@dataclass(frozen=True, slots=True)
class Position:
    """Where a stream begins.

    Attributes:
        cursor: Of the cluster; None: the present end.
        skip: Notifications after it that the client has.
    """

    cursor: str | None
    skip: int = 0


def position_of(text: str, field: str) -> Position:
    """Reads the id of an event; empty: the present end.

    Raises:
        InvalidArgument: It is no id of this gateway and no cursor.
    """
    if not text:
        return Position(None)
    found = _POSITION.fullmatch(text)
    if found is None:
        raise InvalidArgument("is no cursor", field=field)
    return Position(found[1], int(found[2] or 0))


def events_of(batch: NotificationBatch, skip: int = 0) -> Iterator[Event]:
    """Yields the notifications of a message after the first `skip`."""
    total = len(batch)
    if skip >= total:
        return
    for number, data in enumerate(notifications_of(batch), 1):
        if number > skip:
            place = batch.cursor if number == total else f"{batch.begin_cursor}~{number}"
            yield Event(place, data)


class Notifications:
    """The streams of a gateway."""

    def __init__(self, front: Front) -> None:
        self._front = front

    async def stream(
        self,
        request: Request,
        name: str,
        cursor: Annotated[str, Query(description="an event's id: everything after it")] = "",
        from_earliest: Annotated[
            bool, Query(description="without a cursor: everything that is kept")
        ] = False,
    ) -> Response:
        """Sends the notifications of a subscriber as server-sent events, from now on.

        The id of an event is where to resume; `Last-Event-ID`, which browsers send by themselves,
        goes before `cursor`. A silent stream sends a comment every 15 seconds.
        """
        last = request.headers.get("last-event-id", "")
        begin = position_of(last or cursor, "Last-Event-ID" if last else "cursor")
        return _EventStream(self._front, name, begin, from_earliest, resumes=bool(last))

    async def socket(
        self, websocket: WebSocket, name: str, cursor: str = "", from_earliest: bool = False
    ) -> None:
        """Sends the same over a WebSocket: `{"id": …, "data": …}` for each notification."""
        front = self._front
        try:
            check_origin(websocket, front.settings.origins)
            begin = position_of(cursor, "cursor")
            async with (
                front.stream(websocket) as (caller, connected),
                await _opened(connected.client, name, begin, from_earliest) as opened,
            ):
                await websocket.accept(_subprotocol(websocket))
                wire = SocketWire(front, websocket)
                await _Writer(front, caller, opened, begin, wire).run()
        except (ClientError, EngineError) as error:
            await websocket.send_denial_response(problem_response(problem_of(error)))


async def _opened(
    client: AsyncClient, name: str, begin: Position, from_earliest: bool
) -> AsyncSubscription:
    """Returns a subscription whose place in the log the cluster has confirmed."""
    opened = client.subscribe(
        name, begin.cursor, from_earliest=from_earliest, credit=CREDIT, joined=True, shared=True
    )
    try:
        await opened.open()
    except BaseException:
        await opened.close()
        raise
    return opened


def check_origin(websocket: WebSocket, origins: Iterable[str]) -> None:
    """Refuses pages of other origins: browsers do not, for WebSockets.

    Raises:
        PermissionDenied: The page is of another origin, and not of those that may call.
    """
    origin = websocket.headers.get("origin")
    if origin is None or origin in origins or "*" in origins:
        return
    # Not parsed: a parser of addresses raises for some texts.
    if origin.partition("://")[2] != websocket.headers.get("host"):
        raise PermissionDenied("pages of this origin may not call", field="Origin")


def _subprotocol(websocket: WebSocket) -> str | None:
    return SUBPROTOCOL if SUBPROTOCOL in websocket.scope.get("subprotocols", ()) else None


class _EventStream(Response):
    """The answer that is a stream of events."""

    def __init__(
        self, front: Front, name: str, begin: Position, from_earliest: bool, *, resumes: bool
    ) -> None:
        self._front = front
        self._name = name
        self._begin = begin
        self._from_earliest = from_earliest
        self._resumes = resumes
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        wire = EventWire(self._front, scope, receive, send)
        try:
            async with (
                self._front.stream(Request(scope)) as (caller, connected),
                await _opened(
                    connected.client, self._name, self._begin, self._from_earliest
                ) as opened,
            ):
                await wire.start()
                await _Writer(self._front, caller, opened, self._begin, wire).run()
        except (ClientError, EngineError) as error:
            if self._resumes and isinstance(error, Unavailable | DeadlineExceeded):
                # A browser tries again after the end of a stream, and never after an error.
                await wire.start()
                await wire.end()
                return
            await problem_response(problem_of(error))(scope, receive, send)


class _Writer:
    """Writes the notifications of a subscription until one of both sides ends.

    Args:
        front: of the gateway.
        caller: whose stream it is.
        opened: the subscription, whose place is confirmed.
        begin: where the client asked to begin.
        wire: how events are written.
    """

    def __init__(
        self,
        front: Front,
        caller: Caller,
        opened: AsyncSubscription,
        begin: Position,
        wire: Wire,
    ) -> None:
        self._front = front
        self._caller = caller
        self._opened = opened
        self._skip = begin.skip
        self._wire = wire
        cursor = opened.cursor
        # The place that was sent to the client last.
        self._sent_place = f"{cursor}~{begin.skip}" if begin.skip else cursor
        self._is_idle = False
        self._is_quiet = True

    async def run(self) -> None:
        """Returns at the end of the stream; errors are written as its last event."""
        helpers = (
            asyncio.create_task(self._until_gone()),
            asyncio.create_task(self._until_stopped()),
            asyncio.create_task(self._keep_alive()),
        )
        self._front.metrics.streams.inc()
        try:
            await self._wire.place(self._sent_place)
            await self._write_all()
            await self._wire.end()
        except GoneError:
            # The server learns of the cut in the next turn, and would report an unfinished answer.
            await asyncio.sleep(0)
        except (ClientError, EngineError) as error:
            with suppress(GoneError):
                await self._wire.problem(problem_of(error))
                await self._wire.end()
        finally:
            self._front.metrics.streams.dec()
            for helper in helpers:
                helper.cancel()

    async def _write_all(self) -> None:
        while True:
            self._is_idle = True
            batch = await self._opened.next_batch()
            self._is_idle = False
            if batch is None:
                return
            # The client stopped within the first message, or a later one if that was longer then.
            skip = min(self._skip, len(batch))
            self._skip -= skip
            async with self._held(batch):
                await self._write(batch, skip)
            # Its memory is free while the next one is waited for.
            del batch

    async def _write(self, batch: NotificationBatch, skip: int) -> None:
        count = 0
        for event in events_of(batch, skip):
            await self._wire.event(event)
            self._sent_place = event.id
            count += 1
            if count % _TURN_EVENTS == 0:
                # Writing to a client that reads waits for nothing.
                await asyncio.sleep(0)
        await self._wire.flush()
        self._is_quiet = False
        self._front.metrics.notifications.inc(count)

    @asynccontextmanager
    async def _held(self, batch: NotificationBatch) -> AsyncIterator[None]:
        """Holds the memory of a message until its client has read it.

        Raises:
            GoneError: There is none, since many do not read: the client comes back.
        """
        events, caller, front = self._front.events, self._caller, self._front
        share = front.clients.share_of(caller)
        size = _EVENT_FACTOR * batch.message_bytes
        if size <= _SMALL_BYTES:
            yield
            return
        try:
            await events.wait(share, size, front.limits.room_s, peer=caller.peer)
        except ResourceExhausted:
            front.count_refused("events")
            self._wire.cut()
            raise GoneError from None
        try:
            yield
        finally:
            events.give_back(share, size, peer=caller.peer)

    async def _until_gone(self) -> None:
        await self._wire.gone()
        await self._opened.close()

    async def _until_stopped(self) -> None:
        await self._front.stopping.wait()
        await self._opened.close()

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._front.limits.keep_alive_s)
            if not self._is_quiet:
                self._is_quiet = True
                continue
            # The place of a silent subscriber moves on, and so must the browser's: what lies
            # before the earliest place that is kept cannot be resumed from.
            cursor = self._opened.cursor
            moved = self._is_idle and not self._skip and cursor != self._sent_place
            if moved:
                self._sent_place = cursor
            try:
                await self._wire.keep_alive(cursor if moved else "")
            except GoneError:
                await self._opened.close()
                return
