"""Change requests and changes as values → the same as columns, by the codec that services use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from sirocco_api.v1.query_service_pb2 import RegisterQueriesRequest, UnregisterQueriesRequest

from sirocco.codec.change_columns import read_change_columns
from sirocco.codec.hops import encode
from sirocco.codec.plain_queries import read_plain_queries, read_removed_queries
from sirocco.codec.queries import write_query
from sirocco.protocol.contract.effects import (
    ChangeRequest,
    Entry,
    PlainRequests,
    RemovalRequests,
)
from sirocco.protocol.contract.messages import NO_PAST, REGISTRY, Change
from sirocco.protocol.contract.plain_queries import ChangeRecords, PlainQueries


def plain_queries_of(requests: Sequence[ChangeRequest]) -> PlainQueries | None:
    """Returns the queries of requests; None if one is not plain."""
    queries = [write_query(r.query, r.subscriber) for r in requests if r.query is not None]
    message = RegisterQueriesRequest(queries=queries)
    found = read_plain_queries(message.SerializeToString(), len(queries))
    if found is None or len(found[0]) != len(requests):
        return None
    return found[1]


def column_requests(
    requests: Sequence[ChangeRequest],
) -> PlainRequests | RemovalRequests | None:
    """Returns requests as columns; None if they differ too much, or cannot be columns."""
    first = requests[0]
    shared = {(r.action, r.start_ms, r.is_start_given, r.past_ms) for r in requests}
    if len(shared) > 1 or first.past_ms != NO_PAST:
        return None
    if len({request.id for request in requests}) < len(requests):
        return None
    if first.query is None:
        return removal_requests(requests)
    queries = plain_queries_of(requests)
    if queries is None:
        return None
    return PlainRequests(
        is_update=first.action == "update",
        queries=queries,
        start_ms=first.start_ms,
        is_start_given=first.is_start_given,
    )


def removal_requests(requests: Sequence[ChangeRequest]) -> RemovalRequests | None:
    """Returns removals as columns; None if an id is too long for it."""
    message = UnregisterQueriesRequest(ids=[request.id for request in requests])
    rows, queries = read_removed_queries(message.SerializeToString(), len(requests))
    if len(rows) < len(requests):
        return None
    return RemovalRequests(queries=queries, start_ms=requests[0].start_ms)


def column_entries(partition: int, records: Sequence[tuple[int, Change]]) -> list[Entry]:
    """Returns consecutive records, (offset, change), as columns where they can be."""
    found = read_change_columns([encode(change)[1].SerializeToString() for _, change in records])
    kind_of: dict[int, tuple[int, int]] = {}
    for kind, (rows, _) in enumerate(found):
        kind_of |= {row: (kind, place) for place, row in enumerate(rows.tolist())}
    entries: list[Entry] = []
    for kind, some in groupby(range(len(records)), lambda row: kind_of.get(row, (-1, 0))[0]):
        places = list(some)
        if kind < 0:
            entries += [Entry(REGISTRY, partition, *records[place]) for place in places]
            continue
        offsets = np.array([records[place][0] for place in places], np.int64)
        taken = found[kind][1].take(np.array([kind_of[place][1] for place in places]))
        message = ChangeRecords(offsets, taken)
        entries.append(Entry(REGISTRY, partition, records[places[0]][0], message))
    return entries
