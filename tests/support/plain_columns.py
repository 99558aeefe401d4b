"""Change requests and changes as values → the same as columns, by the codec that services use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
from sirocco_api.v1.query_service_pb2 import RegisterQueriesRequest

from sirocco.codec.hops import encode
from sirocco.codec.plain_queries import read_plain_changes, read_plain_queries
from sirocco.codec.queries import write_query
from sirocco.protocol.contract.effects import ChangeRequest, Entry, PlainRequests
from sirocco.protocol.contract.messages import NO_PAST, REGISTRY, Change
from sirocco.protocol.contract.plain_queries import PlainQueries, PlainRecords


def plain_queries_of(requests: Sequence[ChangeRequest]) -> PlainQueries | None:
    """Returns the queries of requests; None if one is not plain."""
    queries = [write_query(r.query, r.subscriber) for r in requests if r.query is not None]
    message = RegisterQueriesRequest(queries=queries)
    found = read_plain_queries(message.SerializeToString(), len(queries))
    if found is None or len(found[0]) != len(requests):
        return None
    return found[1]


def plain_requests(requests: Sequence[ChangeRequest]) -> PlainRequests | None:
    """Returns requests as columns; None if they differ too much, or are not plain."""
    first = requests[0]
    shared = {(r.action, r.start_ms, r.is_start_given, r.past_ms) for r in requests}
    if len(shared) > 1 or first.past_ms != NO_PAST or first.query is None:
        return None
    if len({request.id for request in requests}) < len(requests):
        return None
    queries = plain_queries_of(requests)
    if queries is None:
        return None
    return PlainRequests(
        is_update=first.action == "update",
        queries=queries,
        start_ms=first.start_ms,
        is_start_given=first.is_start_given,
    )


def plain_entries(partition: int, records: Sequence[tuple[int, Change]]) -> list[Entry]:
    """Returns consecutive records, (offset, change), those of plain queries as columns."""
    values = [encode(change)[1].SerializeToString() for _, change in records]
    found = read_plain_changes(values)
    if found is None:
        return [Entry(REGISTRY, partition, offset, change) for offset, change in records]
    rows, changes = found
    row_of = {row: i for i, row in enumerate(rows.tolist())}
    entries: list[Entry] = []
    for is_plain, some in groupby(range(len(records)), row_of.__contains__):
        places = list(some)
        offsets = np.array([records[place][0] for place in places], np.int64)
        if is_plain:
            taken = changes.take(np.array([row_of[place] for place in places]))
            message = PlainRecords(offsets, taken)
            entries.append(Entry(REGISTRY, partition, records[places[0]][0], message))
        else:
            entries += [Entry(REGISTRY, partition, *records[place]) for place in places]
    return entries
