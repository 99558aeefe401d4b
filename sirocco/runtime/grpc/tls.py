"""TLS of servers and of calls between services, from files that may be renewed while running.

All services of a cluster have certificates of one authority with one common name. Services reach
each other by addresses, which no certificate names. So both sides of a call between them check that
common name: the caller that the server has it, the server that the caller has it.
"""

from __future__ import annotations

import inspect
import logging
import ssl
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from sirocco.model.errors import InvalidArgument, PermissionDenied
from sirocco.runtime.grpc.grpc_errors import abort
from sirocco.telemetry.logging import event

# The property in gRPC's description of a connection that holds a certificate's names.
_NAMES = "x509_subject_alternative_name"

logger = logging.getLogger(__name__)

Options = Sequence[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of a service's certificate, PEM.

    Attributes:
        certificate, key: paths of the chain and its private key.
        ca: path of the authority that signed the services' certificates.
        name: a DNS name that all of these certificates have.
    """

    certificate: str
    key: str
    ca: str
    name: str


@dataclass(frozen=True, slots=True)
class _Loaded:
    certificate: bytes
    key: bytes
    ca: bytes


class Tls:
    """The files as credentials; checked for each connection, so that a renewal needs no restart.

    Args:
        files: where they are.

    Raises:
        InvalidArgument: one cannot be read.
    """

    def __init__(self, files: TlsFiles) -> None:
        self.name = files.name
        self._paths = (Path(files.certificate), Path(files.key), Path(files.ca))
        self._lock = threading.Lock()
        self._generation = 1
        try:
            self._seen = self._look()
            self._loaded = self._load()
        except OSError as error:
            raise InvalidArgument(
                f"cannot be used with its key and authority: {error.strerror or error}",
                field="SIROCCO_TLS_CERTIFICATE",
            ) from error

    @property
    def generation(self) -> int:
        """Grows with each renewal: channels of an older one present a soon expired certificate."""
        self._refresh()
        return self._generation

    def server_credentials(self, *, peers_only: bool) -> grpc.ServerCredentials:
        """Returns the credentials of one port.

        Args:
            peers_only: callers have to show a certificate of the same authority.
        """
        given = self._generation

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal given
            self._refresh()
            if given == self._generation:
                return None
            given = self._generation
            return self._configuration()

        return grpc.dynamic_ssl_server_credentials(self._configuration(), fetch, peers_only)

    def channel(self, address: str, options: Options) -> grpc.Channel:
        """Returns a channel to another service, for a thread."""
        return grpc.secure_channel(address, self._credentials(), self._named(options))

    def aio_channel(self, address: str, options: Options) -> grpc.aio.Channel:
        """Returns a channel to another service, for a loop."""
        return grpc.aio.secure_channel(address, self._credentials(), self._named(options))

    def _named(self, options: Options) -> list[tuple[str, Any]]:
        return [*options, ("grpc.ssl_target_name_override", self.name)]

    def _credentials(self) -> grpc.ChannelCredentials:
        self._refresh()
        loaded = self._loaded
        return grpc.ssl_channel_credentials(loaded.ca, loaded.key, loaded.certificate)

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        loaded = self._loaded
        return grpc.ssl_server_certificate_configuration(
            [(loaded.key, loaded.certificate)], loaded.ca
        )

    def _refresh(self) -> None:
        with self._lock:
            try:
                seen = self._look()
                if seen == self._seen:
                    return
                self._seen = seen
                self._loaded = self._load()
            except OSError as error:
                # While a renewal is under way, some files may be new and others not: the files that
                # were read before are used until they change again.
                reason = error.strerror or str(error)
                extra = event("certificate_unusable", reason=reason)
                logger.warning("the certificate cannot be used; the former one stays", extra=extra)
                return
            self._generation += 1
            extra = event("certificate_renewed", generation=self._generation)
            logger.info("certificate renewed", extra=extra)

    def _load(self) -> _Loaded:
        """Reads the files. OpenSSL's errors about their contents are OSErrors, too."""
        _try_out(*self._paths, self.name)
        return _Loaded(*(path.read_bytes() for path in self._paths))

    def _look(self) -> tuple[tuple[int, int, int], ...]:
        stats = (path.stat() for path in self._paths)
        return tuple((each.st_mtime_ns, each.st_ino, each.st_size) for each in stats)


def _try_out(certificate: Path, key: Path, ca: Path, name: str) -> None:
    """Lets a service connect to another one with the same files, in memory.

    Otherwise a wrong name, usage, authority or date would only fail in calls between services, long
    after the start.

    Raises:
        OSError: a file cannot be read, or (`ssl.SSLError`) one side would not trust the other.
    """
    contexts = {}
    for side, kind in (("server", ssl.PROTOCOL_TLS_SERVER), ("client", ssl.PROTOCOL_TLS_CLIENT)):
        contexts[side] = ssl.SSLContext(kind)
        contexts[side].verify_mode = ssl.CERT_REQUIRED
        contexts[side].load_cert_chain(certificate, key)
        contexts[side].load_verify_locations(ca)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = contexts["client"].wrap_bio(down, up, server_hostname=name)
    server = contexts["server"].wrap_bio(up, down, server_side=True)
    open_sides = [client, server]
    while open_sides:
        for each in tuple(open_sides):
            try:
                each.do_handshake()
                open_sides.remove(each)
            except ssl.SSLWantReadError:
                # It waits for data of the other side.
                continue


class PeersAlone(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Refuses callers whose certificate is valid but does not have the services' name.

    An authority may have signed others too, for example that of a whole Kubernetes cluster.
    """

    def __init__(self, name: str) -> None:
        self._name = name.encode()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """See gRPC."""
        handler = await continuation(handler_call_details)
        return None if handler is None else before(handler, self._check)

    async def _check(self, context: grpc.aio.ServicerContext) -> None:
        if self._name not in context.auth_context().get(_NAMES, ()):
            await abort(context, PermissionDenied("only services of the cluster may call this"))


def before(
    handler: grpc.RpcMethodHandler,
    check: Callable[[grpc.aio.ServicerContext], Awaitable[None]],
) -> grpc.RpcMethodHandler:
    """Returns the handler of a method that runs a check first, once a call; it may abort it."""
    kind = kind_of(handler)
    inner = getattr(handler, kind)
    if not inspect.isasyncgenfunction(inner):

        async def single(request: Any, context: grpc.aio.ServicerContext) -> Any:
            await check(context)
            return await inner(request, context)

        return handler._replace(**{kind: single})

    async def stream(request: Any, context: grpc.aio.ServicerContext) -> Any:
        await check(context)
        async with aclosing(inner(request, context)) as responses:
            async for response in responses:
                yield response

    return handler._replace(**{kind: stream})


def kind_of(handler: grpc.RpcMethodHandler) -> str:
    """The attribute of a handler that holds its method; a streaming one may yield, or write."""
    takes = "stream" if handler.request_streaming else "unary"
    return f"{takes}_{'stream' if handler.response_streaming else 'unary'}"
