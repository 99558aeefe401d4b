"""Channels to servers, and the meaning of their failures: the gRPC code that both clients share."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc
import grpc.aio

from sirocco_client.connection.error_messages import error_from_wire
from sirocco_client.connection.tokens import Token, present_token
from sirocco_client.errors import InvalidArgument, SiroccoError, Unavailable

# Trailing metadata that carries the serialised `sirocco.v1.Error`.
ERROR_METADATA = "sirocco-error-bin"

# Largest message in either direction, as on servers.
MESSAGE_BYTES_MAX = 8 << 20

# HTTP/2 frame size; gRPC's default is 16 KB. Each frame of a large answer costs both ends a few
# microseconds. Equal to the longest message of an answer.
FRAME_BYTES = 1 << 20

# A silent connection is detected within 20 s even if nothing is sent. Without pings, a subscriber
# of a router that forgot it would wait for ever, and a publisher would wait as long as its router
# hangs or is cut off. A loaded process answers within seconds. gRPC's keepalive time limit applies
# only to unanswered packets, which a hanging process does not cause: its kernel answers. For pings
# gRPC has another limit, of a minute (grpc/grpc#39239).
KEEPALIVE_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 10_000

# The longest pause between tries to connect; gRPC's default of two minutes would outlive all of our
# retries.
RECONNECT_MS_MAX = 5_000

Metadata: TypeAlias = "tuple[tuple[str, str], ...]"


@dataclass(frozen=True, slots=True)
class Tls:
    """Encryption of connections and trusted certificates. All values are PEM contents.

    Attributes:
        root_certificates: Trusted roots; None: those included in gRPC.
        certificate_chain: The client's certificate, for servers that require one (mutual TLS).
        private_key: Its key.
        server_name: Name in the server's certificate, if it is not the host.
    """

    root_certificates: bytes | None = None
    certificate_chain: bytes | None = None
    private_key: bytes | None = field(default=None, repr=False)
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """Settings of all channels of a client.

    Attributes:
        tls: None: plain text.
        token: Bearer token sent with every call, or what returns the present one; use it with TLS,
            or inside a mesh that encrypts.
        message_bytes_max: Largest message in either direction, bytes.
        window_bytes: See `Client`.
        named: The host:port values given by the user. Certificates do not name the addresses that
            the cluster reports; those servers' certificates must name the host of the first.
    """

    tls: Tls | None = None
    token: Token = field(default=None, repr=False)
    message_bytes_max: int = MESSAGE_BYTES_MAX
    window_bytes: int | None = None
    named: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses what could not be sent; gRPC would report that no server can be reached."""
        if not callable(self.token):
            present_token(self.token)
        if self.tls is not None and not _are_certificates(self.tls.root_certificates):
            raise InvalidArgument("holds no certificate in PEM form", field="tls.root_certificates")

    @property
    def metadata(self) -> Metadata:
        """Returns the metadata sent with a call now.

        Raises:
            InvalidArgument: What the function returns is no token.
        """
        token = present_token(self.token) if callable(self.token) else self.token
        return () if token is None else (("authorization", f"Bearer {token}"),)

    def options(self, address: str, number: int = 0) -> Sequence[tuple[str, Any]]:
        """gRPC's channel arguments; channels of another `number` have another connection."""
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", self.message_bytes_max),
            ("grpc.max_send_message_length", self.message_bytes_max),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.max_frame_size", FRAME_BYTES),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", RECONNECT_MS_MAX),
            # The client itself resumes streams, because it knows what was acknowledged.
            ("grpc.enable_retries", 0),
            ("grpc.primary_user_agent", "sirocco-client-python"),
            # The thread that sent a search also reads its answer, instead of another thread that
            # passes it on: a third of a millisecond less.
            ("SingleThreadedUnaryStream", 1),
        ]
        if number:
            # Unknown to gRPC, which only shares connections among channels with equal arguments.
            options.append(("sirocco.connection", number))
        if self.window_bytes is not None:
            # Without probes the window stays as it is.
            options += [
                ("grpc.http2.bdp_probe", 0),
                ("grpc.http2.lookahead_bytes", self.window_bytes),
            ]
        if self.tls is not None and (name := self._server_name(self.tls, address)):
            options.append(("grpc.ssl_target_name_override", name))
        return options

    def _server_name(self, tls: Tls, address: str) -> str | None:
        if tls.server_name is not None or not self.named or address in self.named:
            return tls.server_name
        return self.named[0].rpartition(":")[0]

    def _credentials(self, tls: Tls) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            root_certificates=tls.root_certificates,
            private_key=tls.private_key,
            certificate_chain=tls.certificate_chain,
        )

    def open(self, address: str, number: int = 0) -> grpc.Channel:
        """Returns a channel for the sync client; it connects at the first call."""
        if self.tls is None:
            return grpc.insecure_channel(address, self.options(address, number))
        return grpc.secure_channel(
            address, self._credentials(self.tls), self.options(address, number)
        )

    def open_async(self, address: str, number: int = 0) -> grpc.aio.Channel:
        """Returns a channel for the asyncio client; it connects at the first call."""
        if self.tls is None:
            return grpc.aio.insecure_channel(address, self.options(address, number))
        return grpc.aio.secure_channel(
            address, self._credentials(self.tls), self.options(address, number)
        )


def _are_certificates(pem: object) -> bool:
    """Whether a value can be read as trusted roots; None stands for those of gRPC."""
    if pem is None:
        return True
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
            cadata=pem.decode("ascii") if isinstance(pem, bytes) else ""
        )
    except (ssl.SSLError, ValueError):
        return False
    return True


def error_without_details(failure: grpc.RpcError) -> bool:
    """Whether the connection or a proxy failed, rather than a Sirocco server."""
    return all(key != ERROR_METADATA for key, _ in failure.trailing_metadata() or ())


def error_of(failure: BaseException) -> SiroccoError:
    """Returns the error of a failed call."""
    if isinstance(failure, SiroccoError):
        return failure
    if not isinstance(failure, grpc.RpcError):
        # gRPC raises this for a call or channel that was closed meanwhile.
        return Unavailable(f"the call ended: {failure}")
    details = next(
        (value for key, value in failure.trailing_metadata() or () if key == ERROR_METADATA), None
    )
    return error_from_wire(failure.code().name, failure.details() or "", details)
