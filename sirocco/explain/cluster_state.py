"""What the report asks a running cluster: the query, the map, loads, recent matches."""

from __future__ import annotations

from sirocco_client import (
    Client,
    DeadlineExceeded,
    FailedPrecondition,
    InvalidArgument,
    OutOfRange,
    PartialResult,
    PermissionDenied,
    RegisteredQuery,
    Unavailable,
    query_from_json,
)
from sirocco_client.queries.query import write_query

from sirocco.codec.queries import read_query
from sirocco.explain.report import Cluster, ExplainedQuery, RecentMatches, count_search
from sirocco.schemes.map.map_bytes import from_bytes

# Objects that are counted; for more, the exact number does not matter.
COUNTED_MAX = 100_000


def read_registered(client: Client, query_id: str) -> ExplainedQuery:
    """Returns a registered query; raises `NotFound` if there is none."""
    return explained_of(client.get(query_id))


def explained_of(found: RegisteredQuery) -> ExplainedQuery:
    """Returns a registered query as the report takes it."""
    query, subscriber = read_query(write_query(found.query))
    return ExplainedQuery(query, subscriber, found.revision, found.start_ms, found.start_given)


def read_cluster(client: Client) -> Cluster:
    """Returns the known state of the cluster; a client with fewer rights gets less."""
    try:
        described = client.describe(leaves=True)
        change = client.map_change(with_map=True)
        balance = client.balance()
    except PermissionDenied as error:
        # A tenant sees the processes alone.
        return Cluster(client.describe(), None, "", None, str(error))
    if not change.map_version:
        return Cluster(described, None, "", balance, "the cluster has no map yet")
    return Cluster(described, from_bytes(change.partition_map), change.phase, balance)


def count_recent(client: Client, explained: ExplainedQuery, window_ms: int) -> RecentMatches:
    """Counts the query's objects within the window, by a search for the same conditions."""
    count = 0
    try:
        search = query_from_json(count_search(explained.query, window_ms), "")
        for part in client.search_parts(search):
            count += len(part)
            if count >= COUNTED_MAX:
                break
    except FailedPrecondition as error:
        return RecentMatches(window_ms, why=str(error), has_store=False)
    except (
        DeadlineExceeded,
        InvalidArgument,
        OutOfRange,
        PartialResult,
        PermissionDenied,
        Unavailable,
    ) as error:
        return RecentMatches(window_ms, why=str(error))
    return RecentMatches(window_ms, min(count, COUNTED_MAX), count >= COUNTED_MAX, has_store=True)
