"""Server reflection: `grpcurl` and the like ask a port for the contract of its services.

Only files of the services for clients are shown, with what they import. A process knows the
contracts between services as well, so what is shown has a pool of descriptors of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.rpc.error_details_pb2 import DESCRIPTOR as ERROR_DETAILS
from grpc_reflection.v1alpha import reflection_pb2 as pb
from grpc_reflection.v1alpha.reflection import SERVICE_NAME, aio
from grpc_reflection.v1alpha.reflection_pb2_grpc import add_ServerReflectionServicer_to_server
from sirocco_api.v1.errors_pb2 import DESCRIPTOR as ERRORS

from sirocco.model.errors import DeadlineExceeded, InvalidArgument
from sirocco.runtime.grpc.authentication import caller
from sirocco.runtime.grpc.grpc_errors import streaming
from sirocco.runtime.grpc.shares import Shares
from sirocco.runtime.grpc.unread_streams import in_time

# The same messages under the name that they have today: clients ask for it first.
SERVICE_NAME_V1 = "grpc.reflection.v1.ServerReflection"

# Streams of the process, and of one tenant or connection: each is a person who looks.
STREAMS_MAX = 64
TENANT_STREAMS_MAX = 8
RETRY_AFTER_MS = 1_000

# How long a client may leave a stream without a request, and an answer unread.
IDLE_S = 60.0
UNREAD_MS = 30_000

# Of a request, which names a symbol or a file, and which its answer repeats.
REQUEST_BYTES_MAX = 1 << 10


class ReflectionFront(aio.ReflectionServicer):  # type: ignore[misc]
    """Shows the contract of some services.

    Args:
        services: their full names.
        count_refused: called with `unread` when a client does not take its answer.
        idle_s: how long a stream may be without a request.
    """

    def __init__(
        self,
        services: Iterable[str],
        count_refused: Callable[[str], None],
        idle_s: float = IDLE_S,
    ) -> None:
        named = (*services, SERVICE_NAME)
        super().__init__(named, _shown(named))
        self._places = Shares(
            "streams of reflection", STREAMS_MAX, TENANT_STREAMS_MAX, RETRY_AFTER_MS
        )
        self._count_refused = count_refused
        self._idle_s = idle_s

    @streaming
    async def ServerReflectionInfo(  # noqa: N802 -- the contract's name
        self, requests: AsyncIterator[pb.ServerReflectionRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.ServerReflectionResponse]:
        """See `grpc/reflection/v1alpha/reflection.proto`."""
        with self._places.place(caller().grant.tenant, peer=context.peer()):
            answers = super().ServerReflectionInfo(self._checked(requests), context)
            async for answer in in_time(answers, context, UNREAD_MS, self._unread):
                yield answer

    async def _checked(
        self, requests: AsyncIterator[pb.ServerReflectionRequest]
    ) -> AsyncIterator[pb.ServerReflectionRequest]:
        each = aiter(requests)
        while True:
            try:
                async with asyncio.timeout(self._idle_s):
                    request = await anext(each)
            except TimeoutError:
                raise DeadlineExceeded("the next request did not arrive in time") from None
            except StopAsyncIteration:
                return
            if (size := request.ByteSize()) > REQUEST_BYTES_MAX:
                raise InvalidArgument(
                    f"{size} bytes, the limit of a request is {REQUEST_BYTES_MAX}",
                    field=request.WhichOneof("message_request"),
                )
            yield request

    def _unread(self) -> None:
        self._count_refused("unread")


def add_reflection(front: ReflectionFront, server: Any) -> None:
    """Adds it to a server under both of its names."""
    add_ServerReflectionServicer_to_server(front, server)
    handler = grpc.stream_stream_rpc_method_handler(
        front.ServerReflectionInfo,
        request_deserializer=pb.ServerReflectionRequest.FromString,
        response_serializer=pb.ServerReflectionResponse.SerializeToString,
    )
    server.add_registered_method_handlers(SERVICE_NAME_V1, {"ServerReflectionInfo": handler})


def _shown(services: Iterable[str]) -> DescriptorPool:
    """Returns a pool of the files of services, and of the details of errors in trailers."""
    everything, shown = descriptor_pool.Default(), DescriptorPool()
    added: set[str] = set()

    def add(file: FileDescriptor) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for needed in file.dependencies:
            add(needed)
        copied = FileDescriptorProto()
        file.CopyToProto(copied)
        shown.Add(copied)

    for name in services:
        add(everything.FindServiceByName(name).file)
    for file in (ERRORS, ERROR_DETAILS):
        add(file)
    return shown
