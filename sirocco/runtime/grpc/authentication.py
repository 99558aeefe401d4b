"""Tokens of clients: checked once a call, before anything of it is processed.

A token is one of the operator's file, or a JWT (`jwt_tokens`). A servicer finds out who makes a
call with `caller()`. Streams last for days: between two of its messages a stream checks whether its
token is still valid, which costs a comparison.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from sirocco.model.access import (
    EVERYTHING,
    UNLIMITED,
    Access,
    Grant,
    Limits,
    bearer_of,
    check_time,
    digest_of,
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
from sirocco.runtime.grpc.shares import host_of
from sirocco.runtime.grpc.tls import kind_of
from sirocco.runtime.process.clock import now_ms
from sirocco.runtime.process.watched_file import LOOK_S, WatchedFile
from sirocco.telemetry.audit import AUDIT, who

if TYPE_CHECKING:
    # Libraries of cryptography are loaded only where JWTs are turned on.
    from sirocco.runtime.access.jwt_tokens import CheckedJwt, JwtTokens

# What `next_valid` returns after the last response.
END = object()

# Of a process without the file.
NO_TOKENS = Access()

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
    # It shows the contract of clients, which is public.
    "ServerReflection": "",
}
# It moves the time of all tenants.
_METHOD_SCOPES = {"/sirocco.v1.PublishService/AdvanceTime": "admin"}

# Services that need no token, as probes have none; the edge bounds their calls apart.
OPEN_SERVICES = frozenset({"grpc.health.v1.Health"})


def is_open(method: str) -> bool:
    """Whether a method, by its path, needs no token."""
    return method.rpartition("/")[0].removeprefix("/") in OPEN_SERVICES


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
        self._file = WatchedFile(path, _read, "tokens", "SIROCCO_TOKENS", look_s)

    @property
    def access(self) -> Access:
        """The contents of the file."""
        return self._file.contents

    def limits(self, tenant: str) -> Limits:
        """Returns what a tenant may use."""
        return self.access.limits.get(tenant, UNLIMITED)


def _read(data: bytes) -> Access:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidArgument("is no text in UTF-8") from None
    return read_access(text)


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


class JwtCaller(Caller):
    """The caller of a call with a JWT.

    Args:
        jwts: checks it again.
        known: the token.
        tokens: the operator's file, which holds the limits of tenants; None without.
    """

    def __init__(self, jwts: JwtTokens, known: CheckedJwt, tokens: TokenFile | None) -> None:
        super().__init__(known.grant, tokens)
        self._jwts = jwts
        self._known = known

    @property
    def is_open(self) -> bool:
        """See `Caller`."""
        return False

    def check(self) -> None:
        """See `Caller`."""
        self._jwts.check(self._known)


EVERYBODY = Caller(EVERYTHING)

# Whose token, if there is one, is not looked at.
NOBODY = Caller(Grant("", "", frozenset(), None))

_CALLER: ContextVar[Caller] = ContextVar("caller", default=EVERYBODY)


def caller() -> Caller:
    """Returns the caller of the present call; without tokens everybody may do anything."""
    return _CALLER.get()


class Authenticated(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Checks the token of each call.

    Args:
        tokens: the operator's file; None without.
        refused: called with a word that says why a call was refused.
        jwts: checks JWTs; None where there are none.
    """

    def __init__(
        self,
        tokens: TokenFile | None,
        refused: Callable[[str], None],
        jwts: JwtTokens | None = None,
    ) -> None:
        self._tokens = tokens
        self._refused = refused
        self._jwts = jwts

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
        method = handler_call_details.method
        return self._guarded(handler, authorization, method)

    def _guarded(
        self, handler: grpc.RpcMethodHandler, authorization: str, method: str
    ) -> grpc.RpcMethodHandler:
        """Returns the handler of a call: of one that is refused nothing is read."""
        kind = kind_of(handler)
        inner = getattr(handler, kind)

        async def single(request: Any, context: grpc.aio.ServicerContext) -> Any:
            found = await self._caller(context, authorization, method)
            _CALLER.set(found)
            try:
                return await inner(request, context)
            except grpc.aio.AbortError:
                _audit_end(context, found, method)
                raise

        async def stream(request: Any, context: grpc.aio.ServicerContext) -> Any:
            found = await self._caller(context, authorization, method)
            _CALLER.set(found)
            async with aclosing(inner(request, context)) as responses:
                try:
                    while (response := await next_valid(responses, found)) is not END:
                        yield response
                except SiroccoError as error:
                    _audit_refusal(method, error.code, str(error), found.grant, context.peer())
                    await abort(context, error)
                except grpc.aio.AbortError:
                    _audit_end(context, found, method)
                    raise

        return handler._replace(**{kind: stream if inspect.isasyncgenfunction(inner) else single})

    async def _caller(
        self, context: grpc.aio.ServicerContext, authorization: str, method: str
    ) -> Caller:
        """Returns who calls, or ends the call."""
        if is_open(method):
            return NOBODY
        found, scope = NOBODY, scope_of(method)
        try:
            found = self._admitted(authorization, context.peer())
            if not found.allows(scope):
                raise PermissionDenied(f"token {found.grant.id} has no scope {scope!r}")
        except SiroccoError as error:
            self._refused(error.code.lower())
            _audit_refusal(method, error.code, str(error), found.grant, context.peer())
            await abort(context, error)
        return found

    def _admitted(self, authorization: str, peer: str) -> Caller:
        tokens, jwts = self._tokens, self._jwts
        # A JWT has three parts; the operator's own tokens may look as they like.
        if jwts is not None and authorization.count(".") == 2:
            token = bearer_of(authorization)
            digest = digest_of(token)
            if tokens is None or digest not in tokens.access.grants:
                return JwtCaller(jwts, jwts.checked(token, digest, peer, host_of(peer)), tokens)
        access = NO_TOKENS if tokens is None else tokens.access
        return Caller(access.grant(authorization, now_ms()), tokens, authorization)


# Of calls that were let in: the rest of their errors says nothing of rights or quotas.
_REFUSALS = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"})


def _audit_end(context: grpc.aio.ServicerContext, found: Caller, method: str) -> None:
    """Writes into the audit log that a call was ended with an error, if it was a refusal."""
    code = context.code()
    if AUDIT.writes_refusals and isinstance(code, grpc.StatusCode):
        _audit_refusal(method, code.name, context.details() or "", found.grant, context.peer())


def _audit_refusal(method: str, code: str, reason: str, grant: Grant, peer: str) -> None:
    if AUDIT.writes_refusals and code in _REFUSALS:
        AUDIT.refused(method.rpartition("/")[2], code.lower(), reason, who(grant, peer))


async def next_valid(responses: AsyncIterator[Any], found: Caller) -> Any:
    """Returns the next response of a stream, `END` after the last one.

    A token that ends by itself ends the stream at that time, also one that waits. What is changed
    in the operator's file, or taken back by an issuer, ends it before the next response.

    Raises:
        Unauthenticated: The token is no longer valid.
        Unavailable: It opens something else by now.
    """
    end_ms = found.grant.expires_ms
    left_s = None if end_ms is None else max(0, end_ms - now_ms()) / 1_000
    try:
        async with asyncio.timeout(left_s) as ending:
            response = await anext(responses, END)
    except TimeoutError:
        if ending.expired():
            raise Unauthenticated(f"token {found.grant.id} has expired") from None
        raise
    if response is not END:
        found.check()
    return response
