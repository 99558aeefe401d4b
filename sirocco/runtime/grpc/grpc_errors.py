"""Turns typed errors into gRPC statuses, for all servicers."""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn

import grpc
from sirocco_api.v1 import errors_pb2 as pb

from sirocco.codec.errors import read_error, write_error
from sirocco.model.errors import (
    DeadlineExceeded,
    Internal,
    SiroccoError,
    Unavailable,
)
from sirocco.runtime.grpc.status_details import write_status
from sirocco.telemetry.logging import event

logger = logging.getLogger(__name__)

# Trailing metadata that carries the serialised `sirocco.v1.Error`.
ERROR_METADATA = "sirocco-error-bin"

# The same with a serialised `google.rpc.Status`, by the name that all of gRPC has for it.
STATUS_METADATA = "grpc-status-details-bin"

_CODES = {each.value[0]: each for each in grpc.StatusCode}


async def abort(context: grpc.aio.ServicerContext, error: SiroccoError) -> NoReturn:
    """Ends a call with the status and the details of an error."""
    sent = write_error(error)
    status = write_status(error, sent)
    trailers = (
        (ERROR_METADATA, sent.SerializeToString()),
        (STATUS_METADATA, status.SerializeToString()),
    )
    await context.abort(_CODES[status.code], status.message, trailers)
    raise AssertionError("abort raises")


def of_peer(error: grpc.aio.AioRpcError) -> SiroccoError:
    """Returns another process's answer to a forwarded call as a typed error."""
    for name, value in error.trailing_metadata() or ():
        if name == ERROR_METADATA:
            return read_error(pb.Error.FromString(value))
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded("another process did not answer in time")
    return Unavailable(f"another process did not answer: {error.details()}")


def _typed(error: Exception, method: str) -> SiroccoError:
    """Returns the error that the caller gets; logs an unexpected one."""
    if isinstance(error, SiroccoError):
        return error
    if isinstance(error, grpc.aio.AioRpcError):
        return of_peer(error)
    logger.error("call failed", exc_info=error, extra=event("call_failed", method=method))
    return Internal("unexpected error; see the server's log")


def unary(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Turns the errors of a unary method into statuses; unknown ones into INTERNAL, logged."""

    @functools.wraps(method)
    async def guarded(self: object, request: Any, context: grpc.aio.ServicerContext) -> Any:
        try:
            return await method(self, request, context)
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            await abort(context, _typed(error, method.__name__))

    return guarded


def streaming(
    method: Callable[..., AsyncIterator[Any]],
) -> Callable[..., AsyncIterator[Any]]:
    """Does the same for a method that streams its answers, and perhaps takes a stream."""

    @functools.wraps(method)
    async def guarded(
        self: object, requests: Any, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        try:
            async for response in method(self, requests, context):
                yield response
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            await abort(context, _typed(error, method.__name__))

    return guarded
