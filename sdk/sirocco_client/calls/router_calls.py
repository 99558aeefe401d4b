"""Calls of routers that have one request and one response; the same for both clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sirocco_api.v1 import query_service_pb2 as pb
from sirocco_api.v1.balance_service_pb2 import DescribeBalanceRequest
from sirocco_api.v1.balance_service_pb2_grpc import BalanceServiceStub
from sirocco_api.v1.cluster_service_pb2 import AwaitProcessedRequest, DescribeClusterRequest
from sirocco_api.v1.cluster_service_pb2_grpc import ClusterServiceStub
from sirocco_api.v1.map_service_pb2 import DescribeMapChangeRequest, ProposeMapRequest
from sirocco_api.v1.map_service_pb2_grpc import MapServiceStub
from sirocco_api.v1.publish_service_pb2 import AdvanceTimeRequest
from sirocco_api.v1.publish_service_pb2_grpc import PublishServiceStub
from sirocco_api.v1.query_service_pb2_grpc import QueryServiceStub

from sirocco_client.base.durations import read_past_ms
from sirocco_client.base.members import read_bytes, read_text
from sirocco_client.base.numbers import TIME_MS_MAX, Moment, read_time_ms, read_whole
from sirocco_client.calls.balance import Balance, read_balance
from sirocco_client.calls.cluster import ClusterDescription, read_cluster
from sirocco_client.calls.map_change import MapChange, read_map_change
from sirocco_client.queries.query import (
    Duration,
    Query,
    QueryPage,
    RegisteredQuery,
    Registration,
    read_registered,
    write_query,
)

# Queries per page of `list`.
PAGE_SIZE = 1_000

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class RouterCall(Generic[Answer]):
    """One call.

    Attributes:
        stub: Makes the stub of a channel.
        method: Its method.
        request: The message.
        read: Reads the response.
        is_removal: Whether it removes what it names.
    """

    stub: Callable[[Any], Any]
    method: str
    request: object
    read: Callable[[Any], Answer]
    is_removal: bool = False


def register(
    query: Query, start_ms: Moment | None, past: Duration | None
) -> RouterCall[Registration]:
    """Registers a query; see `Client.register`."""
    request = pb.RegisterQueryRequest(
        query=write_query(query),
        start_ms=read_time_ms(start_ms, "start_ms"),
        past_ms=read_past_ms(past),
    )
    return RouterCall(QueryServiceStub, "RegisterQuery", request, _registration)


def update(
    query: Query, start_ms: Moment | None, past: Duration | None
) -> RouterCall[Registration]:
    """Replaces a query; see `Client.update`."""
    request = pb.UpdateQueryRequest(
        query=write_query(query),
        start_ms=read_time_ms(start_ms, "start_ms"),
        past_ms=read_past_ms(past),
    )
    return RouterCall(QueryServiceStub, "UpdateQuery", request, _registration)


def _registration(response: Any) -> Registration:
    return Registration(response.revision, response.warnings)


def unregister(query_id: str) -> RouterCall[None]:
    """Removes a query; see `Client.unregister`."""
    request = pb.UnregisterQueryRequest(id=read_text(query_id, "id"))
    return RouterCall(QueryServiceStub, "UnregisterQuery", request, lambda _: None, is_removal=True)


def get(query_id: str) -> RouterCall[RegisteredQuery]:
    """Reads a query; see `Client.get`."""
    request = pb.GetQueryRequest(id=read_text(query_id, "id"))
    return RouterCall(
        QueryServiceStub, "GetQuery", request, lambda found: read_registered(found.registered_query)
    )


def list_page(subscriber: str | None, page_size: int, page_token: str) -> RouterCall[QueryPage]:
    """Reads one page of queries; see `Client.list_page`."""
    request = pb.ListQueriesRequest(
        page_size=read_whole(page_size, "page_size", 1, PAGE_SIZE),
        page_token=read_text(page_token, "page_token"),
        subscriber=read_text(subscriber or "", "subscriber"),
    )
    return RouterCall(QueryServiceStub, "ListQueries", request, _page)


def _page(response: pb.ListQueriesResponse) -> QueryPage:
    found = tuple(map(read_registered, response.registered_queries))
    return QueryPage(found, response.next_page_token)


def describe(leaves: bool = False) -> RouterCall[ClusterDescription]:
    """Reads the state of the cluster; see `Client.describe`."""
    request = DescribeClusterRequest(leaves=leaves)
    return RouterCall(ClusterServiceStub, "DescribeCluster", request, read_cluster)


def propose_map(partition_map: bytes) -> RouterCall[int]:
    """Proposes a map; see `Client.propose_map`."""
    request = ProposeMapRequest(partition_map=read_bytes(partition_map, "partition_map"))
    return RouterCall(MapServiceStub, "ProposeMap", request, lambda found: int(found.map_version))


def balance() -> RouterCall[Balance]:
    """Reads loads and decisions; see `Client.balance`."""
    return RouterCall(BalanceServiceStub, "DescribeBalance", DescribeBalanceRequest(), read_balance)


def map_change(with_map: bool) -> RouterCall[MapChange]:
    """Reads the progress of a change of the map; see `Client.map_change`."""
    request = DescribeMapChangeRequest(partition_map=with_map)
    return RouterCall(MapServiceStub, "DescribeMapChange", request, read_map_change)


def await_processed(position_token: str) -> RouterCall[tuple[str, ...]]:
    """Waits for a position; see `Client.await_processed`."""
    request = AwaitProcessedRequest(position_token=read_text(position_token, "position_token"))
    return RouterCall(
        ClusterServiceStub, "AwaitProcessed", request, lambda found: tuple(found.cursors)
    )


def advance_time(time_ms: int) -> RouterCall[str]:
    """Reports the objects' own time; see `Client.advance_time`."""
    request = AdvanceTimeRequest(time_ms=read_whole(time_ms, "time_ms", -TIME_MS_MAX, TIME_MS_MAX))
    return RouterCall(
        PublishServiceStub, "AdvanceTime", request, lambda found: str(found.position_token)
    )
