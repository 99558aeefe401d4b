"""State of a client's connections, and the meaning of a failed call.

No I/O; the same for both clients.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from sirocco_client.connection.channels import error_of, error_without_details
from sirocco_client.errors import (
    InvalidArgument,
    SiroccoError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)

# Names of servers in errors, and the field of an address.
ROUTER, MERGER = "router", "merger"

# Calls that servers did not always have: one that lacks them may be older.
NEWER_CALLS = frozenset(
    {
        "DescribeBalance",
        "DescribeMapChange",
        "ProposeMap",
        "AdvanceTime",
        "SearchMany",
        "ReceiveMany",
    }
)

# gRPC's texts when the other side speaks another protocol, for example an HTTP server's port.
_OTHER_PROTOCOLS = ("Failed parsing HTTP/2", "http1.x server", "http2 header with status")


@dataclass(frozen=True, slots=True)
class ConnectionChange:
    """A connection was lost or restored.

    Attributes:
        address: host:port of the server.
        is_up: Whether it is connected now.
        was_up: Whether it was connected before.
        error: Why it was lost; None if it is connected.
    """

    address: str
    is_up: bool
    was_up: bool
    error: SiroccoError | None = None


class Contact:
    """The connections of one client. Safe to share between threads."""

    def __init__(
        self,
        notify: Callable[[ConnectionChange], None] | None = None,
        *,
        renews_token: bool = False,
    ) -> None:
        """Starts without connections.

        Args:
            notify: Called at a change, on the thread that notices it.
            renews_token: Whether a call that is refused for its token may be sent with a newer one.
        """
        self._renews_token = renews_token
        self._notify = notify
        self._lock = threading.Lock()
        self._reached: set[str] = set()
        # Address → service.
        self._lost: dict[str, str] = {}

    def reached(self, address: str, service: str) -> None:
        """Records that a server answered."""
        # Called for every answer; most change nothing.
        if address in self._reached and not self._lost:
            return
        with self._lock:
            was_up = address in self._reached
            self._reached.add(address)
            # One server of a kind is enough.
            known = self._lost
            self._lost = {lost: kind for lost, kind in known.items() if kind != service}
            is_back = len(self._lost) < len(known)
        if is_back and self._notify is not None:
            self._notify(ConnectionChange(address, True, was_up))

    def failed(self, address: str, service: str, call: str, failure: BaseException) -> SiroccoError:
        """Records a failed call; returns its error, with the address if that is the problem."""
        error = self._meaning(address, service, call, failure)
        if isinstance(error, Unavailable) and address:
            self._note_lost(address, service, error)
        if isinstance(error, Unauthenticated) and self._renews_token:
            error.retryable = True
        return error

    def _note_lost(self, address: str, service: str, error: SiroccoError) -> None:
        with self._lock:
            is_known, was_up = address in self._lost, address in self._reached
            self._lost[address] = service
        if not is_known and self._notify is not None:
            self._notify(ConnectionChange(address, False, was_up, error))

    def _meaning(
        self, address: str, service: str, call: str, failure: BaseException
    ) -> SiroccoError:
        error = error_of(failure)
        if not (isinstance(failure, grpc.RpcError) and error_without_details(failure)):
            return error
        text, is_new = error.message, address not in self._reached
        if is_new and any(words in text for words in _OTHER_PROTOCOLS):
            return InvalidArgument(
                f"{address} is not a {service}: what answers there does not speak gRPC, as an "
                f"HTTP port does not",
                field=service,
            )
        if is_new and isinstance(error, Unimplemented) and call not in NEWER_CALLS:
            return InvalidArgument(
                f"{address} is not a {service}: it does not know the call {call}", field=service
            )
        if isinstance(error, Unavailable):
            return Unavailable(f"cannot reach the {service} at {address}: {_reason(text)}")
        return error


def _reason(text: str) -> str:
    """Returns the end of gRPC's text about a connection, which holds the reason."""
    # After a failed handshake, gRPC adds the status "OK" of the following step.
    reason = text.removesuffix(": OK").rpartition(": ")[2].rstrip("]")
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"the server's certificate is refused, {reason}"
    if "Hostname Verification" in text:
        return "the server's certificate is of another name"
    if "handshake failed" in text:
        return f"the TLS handshake failed, {reason}"
    return reason or text
