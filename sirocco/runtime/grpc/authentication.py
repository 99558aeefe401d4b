"""Tokens of clients: checked once a call, before anything of it is processed.

A servicer finds out who makes a call with `caller()`. Streams last for days: between two of its
messages a stream checks whether its token is still valid, which costs a comparison.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import grpc

from sirocco.model.access import (
    EVERYTHING,
    UNLIMITED,
    Access,
    Grant,
    Limits,
    check_time,
    read_access,
)
from sirocco.model.errors import (
    InvalidArgument,
    PermissionDenied,
    SiroccoError,
    Unauthenticated,
    Unavailable,
)
from sirocco.runtime.grpc.grpc_errors import abort
from sirocco.runtime.grpc.tls import kind_of
from sirocco.runtime.process.clock import now_ms
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# Interval between checks of the file. Kubernetes updates a changed secret within about a minute; a
# revoked token should not be valid much longer than that.
LOOK_S = 1.0

# Service → the scope of its calls; empty: any token will do. Services not listed need `admin`.
_SCOPES = {
    "PublishService": "publish",
    "QueryService": "query",
    "ReceiveService": "subscribe",
    "SearchService": "search",
    # Every client asks it where mergers are; the service decides what each may see.
    "ClusterService": "",
    "BalanceService": "admin",
    "MapService": "admin",
}
# It moves the time of all tenants.
_METHOD_SCOPES = {"/sirocco.v1.PublishService/AdvanceTime": "admin"}


def scope_of(method: str) -> str:
    """Returns the scope that a method needs, by its path."""
    service = method.rpartition("/")[0].rpartition(".")[2]
    return _METHOD_SCOPES.get(method, _SCOPES.get(service, "admin"))


class TokenFile:
    """The operator's file of tokens, read again when it changes.

    Raises:
        InvalidArgument: at the start it is unreadable or invalid. Later the tokens that were read
            last stay valid until the file is valid again.
    """

    def __init__(self, path: str | Path, look_s: float = LOOK_S) -> None:
        self._look_s = look_s
        self._path = Path(path)
        self._looked_s = time.monotonic()
        self._seen = self._look()
        try:
            self._access = read_access(self._path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{path}: cannot be read", field="SIROCCO_TOKENS") from error
        except InvalidArgument as error:
            raise error.within("SIROCCO_TOKENS") from None

    @property
    def access(self) -> Access:
        """The contents of the file."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= self._look_s:
            self._looked_s = now_s
            self._refresh()
        return self._access

    def limits(self, tenant: str) -> Limits:
        """Returns what a tenant may use."""
        return self.access.limits.get(tenant, UNLIMITED)

    def _refresh(self) -> None:
        seen = self._look()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._access = read_access(self._path.read_text())
        except (OSError, UnicodeDecodeError, InvalidArgument) as error:
            reason = str(error) if isinstance(error, InvalidArgument) else type(error).__name__
            extra = event("tokens_unreadable", reason=reason)
            logger.error("the token file cannot be read; the former tokens stay", extra=extra)
            return
        extra = event("tokens_read", tokens=len(self._access.grants))
        logger.info("tokens read", extra=extra)

    def _look(self) -> tuple[int, int, int]:
        try:
            stat = self._path.stat()
        except OSError:
            return (0, 0, 0)
        return stat.st_mtime_ns, stat.st_ino, stat.st_size


class Caller:
    """The caller of a call, and whether its token is still valid.

    Attributes:
        grant: what the caller may do.
    """

    def __init__(
        self, grant: Grant, tokens: TokenFile | None = None, authorization: str = ""
    ) -> None:
        self.grant = grant
        self._tokens = tokens
        self._authorization = authorization
        self._access = None if tokens is None else tokens.access

    @property
    def limits(self) -> Limits:
        """What the caller's tenant may use."""
        return UNLIMITED if self._tokens is None else self._tokens.limits(self.grant.tenant)

    @property
    def is_open(self) -> bool:
        """Whether calls need no token here."""
        return self._tokens is None

    def allows(self, scope: str) -> bool:
        """Whether the caller has a scope."""
        return not scope or scope in self.grant.scopes

    def check(self) -> None:
        """Checks the token again.

        Raises:
            Unauthenticated: It is no longer valid, or is another tenant's.
            Unavailable: It allows something else by now, which applies to the next call.
        """
        if self._tokens is None:
            return
        if (access := self._tokens.access) is not self._access:
            grant = access.grant(self._authorization, now_ms())
            if grant.tenant != self.grant.tenant:
                # Sessions and names would be different: a resumed stream would not be the same one.
                raise Unauthenticated("the token is another tenant's by now")
            if grant != self.grant:
                raise Unavailable("what the token opens has changed; call again")
            self._access = access
        check_time(self.grant, now_ms())


EVERYBODY = Caller(EVERYTHING)

_CALLER: ContextVar[Caller] = ContextVar("caller", default=EVERYBODY)


def caller() -> Caller:
    """Returns the caller of the present call; without tokens everybody may do anything."""
    return _CALLER.get()


class Authenticated(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Checks the token of each call.

    Args:
        tokens: the valid ones.
        refused: called with a word that says why a call was refused.
    """

    def __init__(self, tokens: TokenFile, refused: Callable[[str], None]) -> None:
        self._tokens = tokens
        self._refused = refused

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler:
        """See gRPC."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        metadata = dict(handler_call_details.invocation_metadata or ())
        header = metadata.get("authorization", "")
        authorization = header if isinstance(header, str) else ""
        try:
            found = self._admitted(authorization, scope_of(handler_call_details.method))
        except SiroccoError as error:
            self._refused(error.code.lower())
            return _refusing(handler, error)
        return _as_caller(handler, found)

    def _admitted(self, authorization: str, scope: str) -> Caller:
        grant = self._tokens.access.grant(authorization, now_ms())
        found = Caller(grant, self._tokens, authorization)
        if not found.allows(scope):
            raise PermissionDenied(f"token {grant.id} has no scope {scope!r}")
        return found


def _as_caller(handler: grpc.RpcMethodHandler, found: Caller) -> grpc.RpcMethodHandler:
    kind = kind_of(handler)
    inner = getattr(handler, kind)

    async def single(request: Any, context: grpc.aio.ServicerContext) -> Any:
        _CALLER.set(found)
        return await inner(request, context)

    async def stream(request: Any, context: grpc.aio.ServicerContext) -> Any:
        _CALLER.set(found)
        async with aclosing(inner(request, context)) as responses:
            async for response in responses:
                try:
                    found.check()
                except SiroccoError as error:
                    await abort(context, error)
                yield response

    return handler._replace(**{kind: stream if inspect.isasyncgenfunction(inner) else single})


def _refusing(handler: grpc.RpcMethodHandler, error: SiroccoError) -> grpc.RpcMethodHandler:
    """Returns the handler of a refused call: nothing of what it sends is read."""

    async def single(_requests: Any, context: grpc.aio.ServicerContext) -> Any:
        await abort(context, error)

    async def stream(_requests: Any, context: grpc.aio.ServicerContext) -> Any:
        await abort(context, error)
        yield None

    if handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(stream)
    return grpc.stream_unary_rpc_method_handler(single)
