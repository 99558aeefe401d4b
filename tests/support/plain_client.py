"""A minimal client: generated stubs and plain requests."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

import grpc
import numpy as np
import pytest
from sirocco_api.v1 import cluster_service_pb2 as cluster_pb
from sirocco_api.v1 import errors_pb2, publish_service_pb2, query_pb2, query_service_pb2
from sirocco_api.v1.cluster_service_pb2_grpc import ClusterServiceStub
from sirocco_api.v1.publish_service_pb2_grpc import PublishServiceStub
from sirocco_api.v1.query_service_pb2_grpc import QueryServiceStub
from sirocco_api.v1.receive_service_pb2 import Credit, Open, ReceiveRequest, ReceiveResponse
from sirocco_api.v1.receive_service_pb2_grpc import ReceiveServiceStub

from sirocco.codec.columns import put_objects
from sirocco.codec.queries import write_query
from sirocco.model.objects import ObjectColumns
from sirocco.model.query import parse_query
from sirocco.protocol.contract.record_sizes import partition_of
from sirocco.runtime.grpc.grpc_errors import ERROR_METADATA
from sirocco.services.embedded import EmbeddedCluster
from tests.support.values import columns_of

# A call without an answer by then has failed; tests do not wait for it otherwise.
DEADLINE_S = 300.0

_sessions = itertools.count(1)

# Of query id and object id; within `PlainClient`, `list` is a method.
Matches: TypeAlias = list[tuple[str, int]]


def new_session() -> int:
    """Returns a session that no other test uses."""
    return next(_sessions) * 0x9E3779B97F4A7C15 % (1 << 64)


def publish_request(
    session: int,
    first_number: int,
    members: Sequence[dict[str, Any]] | ObjectColumns,
    acknowledged_to: int | None = None,
) -> publish_service_pb2.PublishRequest:
    request = publish_service_pb2.PublishRequest(
        session=session,
        first_number=first_number,
        acknowledged_to=first_number - 1 if acknowledged_to is None else acknowledged_to,
    )
    columns = members if isinstance(members, ObjectColumns) else columns_of(members)
    put_objects(request.objects, columns)
    return request


def query_message(query_id: str, subscriber: str, **members: Any) -> query_pb2.Query:
    form = {"id": query_id, "kind": "range", "mode": "continuous", **members}
    return write_query(parse_query(form), subscriber)


def refused(call: Callable[[], Any]) -> tuple[str, errors_pb2.Error]:
    """Returns the status and the details of a call that has to fail."""

    def answered() -> None:
        answer = call()
        if hasattr(answer, "__next__"):
            list(answer)

    with pytest.raises(grpc.RpcError) as caught:
        answered()
    details = errors_pb2.Error()
    found = dict(caught.value.trailing_metadata() or ())
    assert ERROR_METADATA in found, f"no details: {caught.value.code()} {caught.value.details()}"
    details.ParseFromString(found[ERROR_METADATA])
    return caught.value.code().name, details


class Receiving:
    """One open stream of a subscriber."""

    def __init__(self, stub: ReceiveServiceStub, opened: Open) -> None:
        self._requests: queue.SimpleQueue[ReceiveRequest | None] = queue.SimpleQueue()
        self._requests.put(ReceiveRequest(open=opened))
        self.call = stub.Receive(iter(self._requests.get, None), timeout=DEADLINE_S)
        self.cursor = ""

    def credit(self, matches: int) -> None:
        self.send(ReceiveRequest(credit=Credit(matches=matches)))

    def send(self, request: ReceiveRequest) -> None:
        self._requests.put(request)

    def next(self) -> ReceiveResponse:
        response = next(self.call)
        self.cursor = response.cursor
        return response

    def matches(self) -> Iterator[list[tuple[str, int]]]:
        """Yields the matches of each response that has any."""
        while True:
            found = pairs(self.next())
            if found:
                yield found

    def upto(self, cursors: Sequence[str]) -> Matches:
        """Returns all matches until the stream has reached its partition's cursor."""
        found = pairs(self.next())
        ends: dict[int, int] = {}
        for cursor in cursors:
            partition, offset = map(int, cursor.split("."))
            ends[partition] = offset
        while True:
            partition, offset = map(int, self.cursor.split("."))
            if offset >= ends[partition]:
                return found
            found += pairs(self.next())

    def close(self) -> None:
        self.call.cancel()
        self._requests.put(None)


def pairs(response: ReceiveResponse) -> Matches:
    """Returns (query id, object id) of each match."""
    names = response.queries
    bounds = np.frombuffer(names.id_offsets, "<u4").tolist()
    ids = [names.ids[begin:end].decode() for begin, end in itertools.pairwise(bounds)]
    numbers = np.frombuffer(response.objects.ids, "<u8").tolist()
    rows = zip(
        np.frombuffer(response.matches.queries, "<u4").tolist(),
        np.frombuffer(response.matches.objects, "<u4").tolist(),
        strict=True,
    )
    return [(ids[query], numbers[row]) for query, row in rows]


class PlainClient:
    """Stubs for the two routers and the merger of a cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        addresses = [s.address for s in cluster.services if s.name == "router"]
        (merger,) = [s.address for s in cluster.services if s.name == "merger"]
        self._channels = [grpc.insecure_channel(address) for address in [*addresses, merger]]
        routers = self._channels[:-1]
        self.publishers = [PublishServiceStub(channel) for channel in routers]
        self.queries = [QueryServiceStub(channel) for channel in routers]
        self.clusters = [ClusterServiceStub(channel) for channel in routers]
        self.receiver = ReceiveServiceStub(self._channels[-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for channel in self._channels:
            channel.close()

    def publish(
        self, *requests: publish_service_pb2.PublishRequest, router: int = 0
    ) -> list[publish_service_pb2.PublishResponse]:
        """Sends these requests in one stream; returns all answers."""
        return list(self.publishers[router].Publish(iter(requests), timeout=DEADLINE_S))

    def processed(self, token: str, router: int = 0) -> Sequence[str]:
        """Waits until everything up to a token can be received; returns the cursors there."""
        request = cluster_pb.AwaitProcessedRequest(position_token=token)
        cursors: Sequence[str] = (
            self.clusters[router].AwaitProcessed(request, timeout=DEADLINE_S).cursors
        )
        return cursors

    def register(self, query: query_pb2.Query, router: int = 0, start_ms: int | None = None) -> int:
        request = query_service_pb2.RegisterQueryRequest(query=query, start_ms=start_ms)
        answer = self.queries[router].RegisterQuery(request, timeout=DEADLINE_S)
        revision: int = answer.revision
        return revision

    def update(self, query: query_pb2.Query, router: int = 0) -> int:
        request = query_service_pb2.UpdateQueryRequest(query=query)
        answer = self.queries[router].UpdateQuery(request, timeout=DEADLINE_S)
        revision: int = answer.revision
        return revision

    def unregister(self, query_id: str, router: int = 0) -> int:
        request = query_service_pb2.UnregisterQueryRequest(id=query_id)
        answer = self.queries[router].UnregisterQuery(request, timeout=DEADLINE_S)
        revision: int = answer.revision
        return revision

    def get(self, query_id: str, router: int = 0) -> query_service_pb2.RegisteredQuery:
        request = query_service_pb2.GetQueryRequest(id=query_id)
        answer = self.queries[router].GetQuery(request, timeout=DEADLINE_S)
        return answer.registered_query

    def list(self, router: int = 0, **members: Any) -> query_service_pb2.ListQueriesResponse:
        request = query_service_pb2.ListQueriesRequest(**members)
        return self.queries[router].ListQueries(request, timeout=DEADLINE_S)

    def receive(
        self,
        subscriber: str,
        *,
        cursor: str = "",
        earliest: bool = True,
        matches: int = 1 << 20,
        joined: bool = False,
    ) -> Receiving:
        opened = Open(
            subscriber=subscriber,
            cursor=cursor,
            from_earliest=earliest,
            matches=matches,
            joined=joined,
        )
        return Receiving(self.receiver, opened)

    def found(self, subscriber: str, cursors: Sequence[str], *, cursor: str = "") -> Matches:
        """Returns all matches that a subscriber receives up to these cursors."""
        stream = self.receive(subscriber, cursor=cursor)
        try:
            return stream.upto(cursors)
        finally:
            stream.close()


def partition(subscriber: str) -> int:
    """Returns the subscriber's partition of `deliveries`, in these clusters."""
    return partition_of(subscriber, 2)
