"""The gateway's application: its routes, and what holds for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_to_bytes

from fastapi import FastAPI, Response, WebSocket
from fastapi.exceptions import RequestValidationError
from sirocco_client import SiroccoError
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sirocco import __version__
from sirocco.model.errors import SiroccoError as EngineError
from sirocco.services.gateway import openapi, pages, problems
from sirocco.services.gateway.front import Front
from sirocco.services.gateway.live.stream import LiveViews
from sirocco.services.gateway.notifications import Notifications
from sirocco.services.gateway.objects import Objects
from sirocco.services.gateway.queries import Queries
from sirocco.services.gateway.searches import Searches


class _NameConvertor(Convertor[str]):
    """A name in a path: any characters. With `path` a line feed at its end would be lost."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        """Returns the name."""
        return value

    def to_string(self, value: str) -> str:
        """Returns the name."""
        return value


register_url_convertor("name", _NameConvertor())

# OpenTelemetry in a browser sends them.
TRACE_HEADERS = ("traceparent", "tracestate")

# What is written of an answer at once: the rest waits here instead of in the connection's buffer,
# for a client that reads nothing of pages of a megabyte.
_PIECE_BYTES = 1 << 16

_STREAM = "/v1/subscribers/{name:name}/notifications"


def make_app(front: Front) -> FastAPI:
    """Returns the application of a gateway."""
    app = FastAPI(
        title="Sirocco",
        summary="Standing and one-off questions over a live stream of objects",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        exception_handlers={
            SiroccoError: problems.on_error,
            EngineError: problems.on_error,
            RequestValidationError: problems.on_parameter_error,
            HTTPException: problems.on_http_error,
            Exception: problems.on_defect,
        },
    )
    _add_calls(app, front)
    _add_pages(app, front)
    described = app.openapi
    app.openapi = lambda: openapi.completed(described())  # type: ignore[method-assign]
    if front.settings.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=front.settings.origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["authorization", "content-type", "last-event-id", *TRACE_HEADERS],
            expose_headers=["retry-after"],
        )
    app.add_middleware(_InPieces)
    app.add_middleware(_Readable)
    app.add_middleware(_Measured, front=front)
    return app


def _add_calls(app: FastAPI, front: Front) -> None:
    objects, queries, searches = Objects(front), Queries(front), Searches(front)
    notifications, views = Notifications(front), LiveViews(front)
    # The last names the call: to clients that are generated from the description.
    calls: tuple[tuple[str, str, Callable[..., Any], dict[str, Any], str], ...] = (
        ("POST", "/v1/objects", objects.publish, openapi.PUBLISH, "publish"),
        ("GET", "/v1/queries", queries.list, openapi.LIST_QUERIES, "listQueries"),
        ("PUT", "/v1/queries/{id:name}", queries.put, openapi.PUT_QUERY, "putQuery"),
        ("GET", "/v1/queries/{id:name}", queries.get, openapi.GET_QUERY, "getQuery"),
        ("DELETE", "/v1/queries/{id:name}", queries.delete, openapi.DELETE_QUERY, "deleteQuery"),
        ("POST", "/v1/search", searches.search, openapi.SEARCH, "search"),
        ("POST", "/v1/searches", searches.search_many, openapi.SEARCHES, "searchMany"),
        ("POST", "/v1/explain", searches.explain, openapi.EXPLAIN, "explain"),
        ("GET", "/v1/live", views.stream, openapi.LIVE, "live"),
        ("GET", _STREAM, notifications.stream, openapi.NOTIFICATIONS, "notifications"),
    )
    for method, path, call, extra, name in calls:
        app.add_api_route(
            path,
            call,
            methods=[method],
            operation_id=name,
            openapi_extra=extra,
            response_class=Response,
        )
    app.add_api_websocket_route(_STREAM, notifications.socket)


def _add_pages(app: FastAPI, front: Front) -> None:

    async def healthz() -> Response:
        return Response(b"", 200)

    async def readyz() -> Response:
        return Response(b"", 200 if await front.is_ready() else 503)

    app.add_api_route("/healthz", healthz, include_in_schema=False)
    app.add_api_route("/readyz", readyz, include_in_schema=False)
    for path, page in pages.all_pages().items():
        app.add_api_route(path, page, methods=["GET", "HEAD"], include_in_schema=False)


class _InPieces:
    """Writes answers a piece at a time, as their clients read them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""

        async def cut(message: Message) -> None:
            body = message.get("body", b"")
            if message["type"] != "http.response.body" or len(body) <= _PIECE_BYTES:
                await send(message)
                return
            last = len(body) - _PIECE_BYTES
            for begin in range(0, len(body), _PIECE_BYTES):
                more = begin < last or message.get("more_body", False)
                piece = body[begin : begin + _PIECE_BYTES]
                await send({**message, "body": piece, "more_body": more})

        await self._app(scope, receive, cut)


class _Readable:
    """Refuses addresses that are no UTF-8: replaced bytes would make one name of several."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        is_socket = scope["type"] == "websocket"
        if scope["type"] == "http" or is_socket:
            for field, part in (("path", scope["raw_path"]), ("query", scope["query_string"])):
                try:
                    unquote_to_bytes(part).decode()
                except UnicodeDecodeError:
                    answer = problems.problem_response(
                        problems.problem(400, "is no UTF-8", "INVALID_ARGUMENT", field=field)
                    )
                    if is_socket:
                        await WebSocket(scope, receive, send).send_denial_response(answer)
                    else:
                        await answer(scope, receive, send)
                    return
        await self._app(scope, receive, send)


class _Measured:
    """Counts requests and their time by route."""

    def __init__(self, app: ASGIApp, front: Front) -> None:
        self._app = app
        self._metrics = front.metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        begin_s, status = time.perf_counter(), "none"
        is_stream = scope["type"] == "websocket"

        async def observed(message: Message) -> None:
            nonlocal status, is_stream
            if message["type"].endswith("response.start"):
                status = str(message["status"])
                is_stream |= (b"content-type", b"text/event-stream; charset=utf-8") in message.get(
                    "headers", ()
                )
            elif message["type"] == "websocket.accept":
                status = "101"
            await send(message)

        try:
            await self._app(scope, receive, observed)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._metrics.requests.labels(route=route, status=status).inc()
            if not is_stream:
                elapsed_s = time.perf_counter() - begin_s
                self._metrics.latency.labels(route=route).observe(elapsed_s)
