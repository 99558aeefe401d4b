"""Reads the body of a request: whole, unpacked, within its bound and the memory of all bodies."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from operator import attrgetter

from starlette.requests import ClientDisconnect, Request

from sirocco.model.errors import DeadlineExceeded, InvalidArgument, SiroccoError
from sirocco.runtime.grpc.shares import Shares
from sirocco.services.gateway.callers import Caller
from sirocco.services.gateway.problems import PayloadTooLarge, UnsupportedMediaType
from sirocco.services.gateway.settings import GatewayLimits

# Window bits of zlib that read what an encoding names.
_ENCODINGS = {"gzip": 31, "x-gzip": 31, "deflate": 15}

# Taken from the memory at a time while a body of unknown length arrives.
_STEP_BYTES = 1 << 16

# How much is unpacked between two turns of the loop.
_UNPACKED_BYTES = 1 << 20

# Members of a gzip file. Each costs a decompressor; empty ones would cost nothing of the body.
_MEMBERS_MAX = 1_000


class Bodies:
    """Reads bodies within the memory for all of them.

    Args:
        limits: of one body and of all.
        count_refused: called with the reason whenever one is refused.
        share_of: returns whose share a caller takes from.
    """

    def __init__(
        self,
        limits: GatewayLimits,
        count_refused: Callable[[str], None],
        share_of: Callable[[Caller], str] = attrgetter("key"),
    ) -> None:
        self._limits = limits
        self._share_of = share_of
        self._count_refused = count_refused
        self.memory = Shares(
            "bytes of bodies",
            limits.memory_bytes,
            limits.caller_memory_bytes,
            1_000,
            connection_max=limits.caller_memory_bytes,
        )

    def room(self, caller: Caller) -> Room:
        """Returns memory of a caller, which holds nothing yet."""
        return Room(self.memory, self._share_of(caller), caller.peer, self._limits.room_s)

    @asynccontextmanager
    async def held(self, caller: Caller, size: int) -> AsyncIterator[Room]:
        """Yields memory for an answer; raises ResourceExhausted if there is none in time."""
        room = self.room(caller)
        await room.hold(size)
        try:
            yield room
        finally:
            room.give_back()

    @asynccontextmanager
    async def whole(
        self, request: Request, caller: Caller, bytes_max: int, factor: int = 1
    ) -> AsyncIterator[bytes]:
        """Yields a body, whose memory is held until the end of the context.

        Args:
            request: whose body it is.
            caller: who pays for it.
            bytes_max: of the body, unpacked.
            factor: memory that processing takes, as a multiple of the body.

        Raises:
            PayloadTooLarge: The body is larger.
            UnsupportedMediaType: It is packed in a way that is not read here.
            ResourceExhausted: There is no room for it now.
            DeadlineExceeded: It did not arrive in time.
            InvalidArgument: It is cut off or damaged.
        """
        room = self.room(caller)
        try:
            try:
                body = await self._read(request, room, min(bytes_max, self._limits.body_bytes))
                await room.hold(factor * len(body))
            except SiroccoError as error:
                self._count_refused(_REASONS.get(error.code, "body"))
                raise
            yield body
        finally:
            room.give_back()

    async def _read(self, request: Request, room: Room, bytes_max: int) -> bytes:
        length = _length_of(request)
        if length is not None and length > bytes_max:
            raise PayloadTooLarge(
                f"has {length} bytes, the limit is {bytes_max}: send several", field="body"
            )
        unpack = _unpacker(request.headers.get("content-encoding", "identity"))
        # Before anything is read. A packed body may grow to the whole bound.
        await room.hold(min(length or _STEP_BYTES, bytes_max))
        # One array: a client may send a few bytes at a time, and each piece would be an object.
        whole = bytearray()
        try:
            async with asyncio.timeout(self._limits.body_s):
                async for piece in self._pieces(request):
                    for part in unpack.parts(piece, bytes_max - len(whole) + 1):
                        whole += part
                        if len(whole) > bytes_max:
                            raise PayloadTooLarge(
                                f"has more than {bytes_max} bytes: send several", field="body"
                            )
                        if len(whole) > room.held:
                            await room.hold(min(len(whole) + _UNPACKED_BYTES, bytes_max))
                        if not unpack.is_plain:
                            await asyncio.sleep(0)
        except TimeoutError:
            raise DeadlineExceeded("the body did not arrive in time", field="body") from None
        unpack.check_end()
        return bytes(whole)

    async def _pieces(self, request: Request) -> AsyncIterator[bytes]:
        pieces = request.stream()
        try:
            while True:
                async with asyncio.timeout(self._limits.pause_s):
                    piece = await anext(pieces, None)
                if piece is None:
                    return
                yield piece
        except ClientDisconnect:
            raise InvalidArgument("was cut off by its client", field="body") from None
        finally:
            await pieces.aclose()


_REASONS = {
    "PAYLOAD_TOO_LARGE": "size",
    "RESOURCE_EXHAUSTED": "memory",
    "DEADLINE_EXCEEDED": "late",
}


class Room:
    """Memory that one body, or one answer, holds."""

    def __init__(self, memory: Shares, share: str, peer: str, room_s: float) -> None:
        self._memory = memory
        # Of its begin: whose share it is may become known later.
        self._share = share
        self._peer = peer
        self._room_s = room_s
        self.held = 0

    async def hold(self, size: int) -> None:
        """Holds at least so many bytes."""
        more = size - self.held
        if more > 0:
            await self._memory.wait(self._share, more, self._room_s, peer=self._peer)
            self.held += more

    def take(self, size: int) -> None:
        """Holds at least so many bytes, at once or never."""
        more = size - self.held
        if more > 0:
            self._memory.take(self._share, more, peer=self._peer)
            self.held += more

    def moved(self) -> Room:
        """Returns what holds from now on what this held."""
        other = Room(self._memory, self._share, self._peer, self._room_s)
        other.held, self.held = self.held, 0
        return other

    def give_back(self, left: int = 0) -> None:
        """Gives back what is held beyond `left`."""
        less = self.held - left
        if less > 0:
            self._memory.give_back(self._share, less, peer=self._peer)
            self.held -= less


class _Plain:
    is_plain = True

    def parts(self, piece: bytes, left: int) -> Iterator[bytes]:
        """Yields the piece."""
        yield piece

    def check_end(self) -> None:
        """Accepts any end."""


class _Packed:
    """Unpacks piece by piece; what one piece becomes is bounded too."""

    is_plain = False

    def __init__(self, window_bits: int) -> None:
        self._window_bits = window_bits
        self._inflate = zlib.decompressobj(window_bits)
        self._is_begun = False
        self._members = 1

    def parts(self, piece: bytes, left: int) -> Iterator[bytes]:
        """Yields what the piece holds, at most `left` bytes and one part more."""
        rest = piece
        while rest and left > 0:
            if self._inflate.eof:
                # Members of a gzip file follow each other.
                self._members += 1
                if self._members > _MEMBERS_MAX:
                    raise InvalidArgument(
                        f"is packed in more than {_MEMBERS_MAX} members", field="body"
                    )
                self._inflate = zlib.decompressobj(self._window_bits)
            self._is_begun = True
            try:
                part = self._inflate.decompress(rest, min(left, _UNPACKED_BYTES))
            except zlib.error as error:
                raise InvalidArgument(f"cannot be unpacked: {error}", field="body") from None
            rest = self._inflate.unused_data or self._inflate.unconsumed_tail
            left -= len(part)
            yield part

    def check_end(self) -> None:
        """Refuses a body whose end is missing."""
        if self._is_begun and not self._inflate.eof:
            raise InvalidArgument("is packed, and its end is missing", field="body")


def _unpacker(encoding: str) -> _Plain | _Packed:
    name = encoding.strip().lower()
    if name in {"", "identity"}:
        return _Plain()
    if name in _ENCODINGS:
        return _Packed(_ENCODINGS[name])
    raise UnsupportedMediaType(
        f"{encoding!r:.60} is none of identity, gzip, deflate", field="Content-Encoding"
    )


def _length_of(request: Request) -> int | None:
    text = request.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
