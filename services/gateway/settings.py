"""Settings and limits of a gateway."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from sirocco_client import Tls
from sirocco_client.connection.endpoints import parse_addresses
from sirocco_client.errors import InvalidArgument as BadAddress

from sirocco.model.errors import InvalidArgument
from sirocco.runtime.process.environment import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLimits:
    """How much a gateway takes from its clients at a time.

    A caller is a token, or one connection where there are no tokens.

    Attributes:
        connections: open connections; each takes a file of the process. Beyond it new ones are
            closed.
        header_bytes: request line and headers of one request. The parser itself has no bound.
        headers_s: for a request's headers, from its first byte or the connection's begin.
        idle_s: for the next request on an open connection.
        body_bytes: of one body, unpacked. A body is taken as a whole or not at all.
        body_s: for a whole body.
        pause_s: between two pieces of a body.
        linger_s: for the rest of a body whose request is answered, and for a client to read the
            last answer of a connection that is closed.
        memory_bytes: of all bodies and answers that are read, made or unread, as they take it.
        caller_memory_bytes: the same of one caller.
        room_s: how long a body waits for room in memory before it is refused.
        objects: objects of one body.
        containers: arrays and objects within one JSON text: each takes 60 bytes once it is read,
            though it may have been written in 2.
        errors: bad lines that an answer names; the rest is counted.
        query_bytes: of a query's JSON.
        calls: requests under way, without streams.
        caller_calls: the same of one caller.
        streams: open streams of notifications.
        caller_streams: the same of one caller. Without tokens the callers of one host share.
        event_bytes: memory of messages of the cluster that streams hold until they are read.
        caller_event_bytes: the same of one caller.
        unread_s: how long a client may leave what was sent unread.
        searches: queries of one list of searches.
        answer_objects: objects of one search's answer, or of all answers to one list.
        answer_bytes: the same, as the cluster sends it.
        explanations: reports of `explain` at a time, each of which makes some calls.
        tokens: tokens whose clients are kept connected; the longest unused goes first.
        keep_alive_s: between two comments of a silent stream. Proxies end silent connections after
            30 to 60 s.
        call_s: for one call to the cluster, with all its retries.
        publish_s: for the acknowledgement of a body's objects.
        message_bytes: of one message of a WebSocket client, who has nothing to say.
        stop_s: for requests under way when the process is stopped.
    """

    connections: int = 8_192
    header_bytes: int = 32 << 10
    headers_s: float = 10.0
    idle_s: float = 60.0
    body_bytes: int = 16 << 20
    body_s: float = 60.0
    pause_s: float = 15.0
    linger_s: float = 2.0
    memory_bytes: int = 512 << 20
    caller_memory_bytes: int = 256 << 20
    room_s: float = 5.0
    objects: int = 200_000
    containers: int = 1_000_000
    errors: int = 1_000
    query_bytes: int = 1 << 20
    calls: int = 1_024
    caller_calls: int = 256
    streams: int = 4_096
    caller_streams: int = 2_048
    event_bytes: int = 512 << 20
    caller_event_bytes: int = 256 << 20
    unread_s: float = 30.0
    searches: int = 1_000
    answer_objects: int = 100_000
    answer_bytes: int = 64 << 20
    explanations: int = 8
    tokens: int = 1_024
    keep_alive_s: float = 15.0
    call_s: float = 30.0
    publish_s: float = 30.0
    message_bytes: int = 4 << 10
    stop_s: float = 5.0


LIMITS = GatewayLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Settings of one gateway.

    Attributes:
        routers: host:port of routers, separated by commas.
        host: address to listen on.
        port: of the API; 0 for a free one.
        metrics_port: of /metrics and the probes; 0 for a free one.
        origins: web origins whose pages may call; empty: only pages of the gateway itself.
        ca: file of the authority that signed the certificates of the services; empty: plain text.
        server_name: the name in these certificates.
        log_level: least level of the log lines on stderr.
        name: the operator's name of the process.
        limits: what is taken at a time.
    """

    routers: str
    host: str = "127.0.0.1"
    port: int = 0
    metrics_port: int = 0
    origins: tuple[str, ...] = ()
    ca: str = ""
    server_name: str = "sirocco"
    log_level: str = "info"
    name: str = ""
    limits: GatewayLimits = field(default_factory=GatewayLimits)

    def tls(self) -> Tls | None:
        """Returns how the routers and mergers are reached.

        Raises:
            InvalidArgument: The authority's certificate cannot be read.
        """
        if not self.ca:
            return None
        try:
            roots = Path(self.ca).read_bytes()
        except OSError as error:
            raise InvalidArgument(f"{self.ca}: {error.strerror}", field="SIROCCO_TLS_CA") from error
        return Tls(root_certificates=roots, server_name=self.server_name)


def from_environment(environment: Mapping[str, str] | None = None) -> GatewaySettings:
    """Reads all settings.

    Raises:
        InvalidArgument: One is missing or out of range; `field` is the variable's name.
    """
    read = Reader(os.environ if environment is None else environment)
    return GatewaySettings(
        routers=_routers(read.text("SIROCCO_ROUTER", None)),
        host=read.text("SIROCCO_HOST", "127.0.0.1"),
        port=read.integer("SIROCCO_GATEWAY_PORT", 0, 65_535, least=0),
        metrics_port=read.integer("SIROCCO_HTTP_PORT", 0, 65_535, least=0),
        origins=_origins(read.text("SIROCCO_GATEWAY_ORIGINS", "")),
        ca=read.text("SIROCCO_TLS_CA", ""),
        server_name=read.text("SIROCCO_TLS_NAME", "sirocco"),
        log_level=read.choice("SIROCCO_LOG_LEVEL", "info", ("debug", "info", "warning", "error")),
        name=read.text("SIROCCO_NAME", ""),
        limits=GatewayLimits(
            connections=read.integer("SIROCCO_GATEWAY_CONNECTIONS", LIMITS.connections, 1 << 20),
            body_bytes=read.integer("SIROCCO_GATEWAY_BODY", LIMITS.body_bytes, 1 << 30, least=1024),
            memory_bytes=read.integer("SIROCCO_GATEWAY_MEMORY", LIMITS.memory_bytes, 1 << 40),
            caller_memory_bytes=read.integer(
                "SIROCCO_GATEWAY_TENANT_MEMORY", LIMITS.caller_memory_bytes, 1 << 40
            ),
            streams=read.integer("SIROCCO_GATEWAY_STREAMS", LIMITS.streams, 1 << 20),
            caller_streams=read.integer(
                "SIROCCO_GATEWAY_TENANT_STREAMS", LIMITS.caller_streams, 1 << 20
            ),
            unread_s=read.duration_ms("SIROCCO_UNREAD_TIMEOUT", 30_000, 100) / 1_000,
        ),
    )


def _routers(text: str) -> str:
    try:
        return ",".join(parse_addresses(text, "SIROCCO_ROUTER"))
    except BadAddress as error:
        raise InvalidArgument(error.message, field="SIROCCO_ROUTER") from None


def _origins(text: str) -> tuple[str, ...]:
    origins = tuple(part.strip() for part in text.split(",") if part.strip())
    for origin in origins:
        parts = urlsplit(origin)
        is_whole = parts.scheme in {"http", "https"} and parts.netloc and not parts.path
        if origin != "*" and not is_whole:
            raise InvalidArgument(
                f"{origin!r:.80} is no origin such as https://example.org, nor *",
                field="SIROCCO_GATEWAY_ORIGINS",
            )
    return origins
