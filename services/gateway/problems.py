"""Errors as RFC 9457 problem details, with the field that is wrong.

One table gives the status of each kind of error, of two hierarchies: the client's, for errors of
the cluster, and the engine's, for what the gateway itself refuses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from sirocco_client import CursorExpired, PartialResult, PublishFailed, WindowTooLong
from sirocco_client.errors import SiroccoError as ClientError
from starlette.exceptions import HTTPException

from sirocco.model.errors import SiroccoError as EngineError

MEDIA_TYPE = "application/problem+json"

# Code of an error → status. A missing one is 500.
STATUSES = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "FAILED_PRECONDITION": 409,
    "OUT_OF_RANGE": 410,
    "PAYLOAD_TOO_LARGE": 413,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "PARTIAL_RESULT": 503,
    "DEADLINE_EXCEEDED": 504,
}

# Members of the cluster's requests → parameters of this API that they come from.
_PARAMETERS = {
    "position_token": "position",
    "now_ms": "now",
    "open.subscriber": "subscriber",
    "open.cursor": "cursor",
}

# Pause for a client of a cluster that cannot be reached, if the error names none: a coordinator's
# failover takes about 6 s.
RETRY_S = 2


class PayloadTooLarge(EngineError):  # noqa: N818 - named as HTTP names it
    """A body is larger than this gateway takes."""

    code = "PAYLOAD_TOO_LARGE"


class UnsupportedMediaType(EngineError):  # noqa: N818 - named as HTTP names it
    """A body is of a type, or packed in a way, that is not read here."""

    code = "UNSUPPORTED_MEDIA_TYPE"


def problem_of(error: ClientError | EngineError) -> dict[str, Any]:
    """Returns the members of an error's problem details."""
    # What failed says more than that a publisher gave up.
    cause: ClientError | EngineError = error.cause if isinstance(error, PublishFailed) else error
    field = _PARAMETERS.get(cause.field or "", cause.field)
    members = problem(STATUSES.get(cause.code, 500), cause.message, cause.code, field=field)
    if (after_ms := getattr(cause, "retry_after_ms", None)) is not None:
        members["retry_after_ms"] = after_ms
    if isinstance(error, PublishFailed):
        members["unacknowledged"] = error.unacknowledged
    if isinstance(error, CursorExpired):
        members["earliest"] = error.earliest
    if isinstance(error, WindowTooLong):
        members["earliest_ms"] = error.earliest_ms
    if isinstance(error, PartialResult):
        members["missing_slots"] = list(error.missing_slots)
    return members


def problem(
    status: int, detail: str, code: str, *, field: str | None = None, **more: Any
) -> dict[str, Any]:
    """Returns the members of problem details."""
    members: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }
    if field is not None:
        members["field"] = field
    return members | more


def problem_response(members: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Returns the answer that holds problem details."""
    status = members["status"]
    found = dict(headers or {})
    if status == HTTPStatus.UNAUTHORIZED:
        found["WWW-Authenticate"] = "Bearer"
    if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        after_s = math.ceil(members.get("retry_after_ms", 1_000 * RETRY_S) / 1_000)
        found["Retry-After"] = str(max(1, after_s))
    return Response(orjson.dumps(members), status, found, MEDIA_TYPE)


async def on_error(_: Request, error: Exception) -> Response:
    """Answers a request that failed for a reason that we know."""
    assert isinstance(error, ClientError | EngineError)
    return problem_response(problem_of(error))


async def on_http_error(_: Request, error: Exception) -> Response:
    """Answers a request for a path or a method that there is not."""
    assert isinstance(error, HTTPException)
    codes = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}
    members = problem(error.status_code, str(error.detail), codes.get(error.status_code, "UNKNOWN"))
    return problem_response(members, error.headers)


async def on_parameter_error(_: Request, error: Exception) -> Response:
    """Answers a request with a parameter of a wrong type or a missing one."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"][1:])) or None
    return problem_response(problem(400, str(first["msg"]), "INVALID_ARGUMENT", field=name))


async def on_defect(_: Request, __: Exception) -> Response:
    """Answers a request that met a defect of ours; the log has the reason."""
    return problem_response(
        problem(500, "an internal error; the log of the gateway names it", "INTERNAL")
    )
