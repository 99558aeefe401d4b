"""A client that asks and never reads."""

from __future__ import annotations

import struct


def requests_of_one_that_never_reads(
    address: str, method: str, count: int, *, window: int = 65_535
) -> bytes:
    """Calls with an empty message as HTTP/2 writes them; the token is `acme`.

    `window` is how many bytes of each answer it takes, and never more.
    """

    def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        return (
            struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload
        )

    def text(value: str) -> bytes:
        return bytes((len(value),)) + value.encode()

    headers = b"\x83\x86\x04" + text(method) + b"\x01" + text(address)
    headers += b"\x0f\x10" + text("application/grpc") + b"\x00" + text("te") + text("trailers")
    headers += b"\x00" + text("authorization") + text("acme")
    settings = frame(4, 0, 0, struct.pack(">HI", 4, window)) + frame(4, 1, 0, b"")
    data = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + settings
    for stream in range(1, 2 * count, 2):
        data += frame(1, 4, stream, headers) + frame(0, 1, stream, b"\0\0\0\0\0")
    return data
