"""Fetches a JWKS over HTTPS, within bounds of size and time; follows no redirects."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from contextlib import suppress
from urllib.parse import urlsplit

# The JWKS of large issuers take some 20 KB.
BYTES_MAX = 256 << 10

# For each step of a fetch, and from the connection to the last byte: an issuer that sends a byte
# now and then must not hold up the keys for ever.
STEP_S = 5.0
WHOLE_S = 10.0

_NOT_WHOLE = "the answer is not whole"


def fetch(url: str, ca: str, bytes_max: int = BYTES_MAX, whole_s: float = WHOLE_S) -> bytes:
    """Returns the body of an answer.

    Args:
        url: address of the JWKS.
        ca: file of the authorities to believe (PEM); empty: those of the system.
        bytes_max: of the body.
        whole_s: from the connection to the last byte.

    Raises:
        OSError: It cannot be reached, does not answer with 200, or is too long or too slow.
    """
    parts = urlsplit(url)
    connection = _connection(parts.scheme, parts.hostname or "", parts.port, ca)
    try:
        connection.connect()
        late = threading.Event()
        timer = threading.Timer(whole_s, _cut, (connection.sock, late))
        timer.daemon = True
        timer.start()
        try:
            path = parts.path or "/"
            connection.request("GET", f"{path}?{parts.query}" if parts.query else path)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise OSError(f"the answer has status {answer.status}")
            data = answer.read(bytes_max + 1)
        except (OSError, http.client.HTTPException) as error:
            # The error depends on what was waited for when the connection was cut.
            if late.is_set():
                raise OSError(_NOT_WHOLE) from error
            raise
        finally:
            timer.cancel()
        # `length` is what is left of a body whose length was announced.
        if late.is_set() or (answer.length and len(data) <= bytes_max):
            raise OSError(_NOT_WHOLE)
    except http.client.HTTPException as error:
        raise OSError(f"the answer cannot be read ({type(error).__name__})") from error
    finally:
        connection.close()
    if len(data) > bytes_max:
        raise OSError(f"the answer has more than {bytes_max} bytes")
    return data


def _connection(scheme: str, host: str, port: int | None, ca: str) -> http.client.HTTPConnection:
    if scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=STEP_S)
    context = ssl.create_default_context(cafile=ca or None)
    return http.client.HTTPSConnection(host, port, timeout=STEP_S, context=context)


def _cut(opened: socket.socket, late: threading.Event) -> None:
    """Ends what waits for a connection."""
    late.set()
    with suppress(OSError):
        opened.shutdown(socket.SHUT_RDWR)
