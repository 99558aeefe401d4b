"""Turns the results that mergers accepted into few records on `deliveries`.

It also returns each subscriber's part. Matches and lists have separate records: a query has either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from sirocco.model.objects import ObjectColumns, concat
from sirocco.protocol.contract.columns import (
    NO_MATCHES,
    NO_ROW,
    EventColumns,
    ListColumns,
    MatchColumns,
    QueryNames,
)
from sirocco.protocol.contract.messages import Delivered, Found
from sirocco.protocol.contract.record_sizes import (
    MATCH_BYTES,
    OBJECT_BYTES,
    RECORD_LIMITS,
    RecordLimits,
)
from sirocco.protocol.merger.list_batch import (
    ListBatch,
    bytes_of_lists,
    joined_lists,
    joined_names,
    referring,
    take_lists,
    take_names,
)


def bytes_of(part: Found | Delivered) -> int:
    """Returns the most bytes that a part takes in a record."""
    ragged = (part.objects.text, part.objects.attributes, part.objects.names, part.queries.ids)
    fixed = len(part.objects) * OBJECT_BYTES + len(part.matches) * MATCH_BYTES
    if part.queries.specs is not None:
        fixed += sum(len(spec.encode()) for spec in part.queries.specs)
    fixed += sum(len(name.encode()) for name in part.queries.subscribers)
    return fixed + sum(len(column) for column in ragged)


def deliveries(parts: Sequence[Found], limits: RecordLimits = RECORD_LIMITS) -> Iterator[Delivered]:
    """Turns matches into records for subscribers."""
    group: list[Found] = []
    size = 0
    for part in parts:
        part_bytes = bytes_of(part)
        # A part fits one record: the evaluator has split it.
        if group and size + part_bytes > limits.bytes_max:
            yield _delivered(group)
            group, size = [], 0
        group.append(part)
        size += part_bytes
    if group:
        yield _delivered(group)


def list_deliveries(
    parts: Sequence[ListBatch], limits: RecordLimits = RECORD_LIMITS
) -> Iterator[Delivered]:
    """Turns lists into records for subscribers; those of one query stay in order."""
    if not parts:
        return
    batch = joined_lists(parts)
    owners = batch.queries.subscriber_rows[batch.lists.queries]
    order = np.argsort(owners, kind="stable")
    lists, owners = take_lists(batch.lists, order), owners[order]
    ends = np.cumsum(bytes_of_lists(batch)[order])
    begin = 0
    while begin < len(lists):
        before = int(ends[begin - 1]) if begin else 0
        end = int(np.searchsorted(ends, before + limits.bytes_max, side="right"))
        end = max(begin + 1, end)
        yield _list_delivered(batch, take_lists(lists, np.arange(begin, end)), owners[begin:end])
        begin = end


def _list_delivered(batch: ListBatch, lists: ListColumns, owners: NDArray[np.uint32]) -> Delivered:
    present, counts = np.unique(owners, return_counts=True)
    names = batch.queries
    queries, rows = used_rows(lists.queries, len(names))
    kept = names if queries is None else take_names(names, queries)
    named = QueryNames(
        kept.handles,
        kept.ids,
        kept.id_offsets,
        np.searchsorted(present, kept.subscriber_rows).astype(np.uint32),
        tuple([names.subscribers[row] for row in present.tolist()]),
        kept.specs,
    )
    return compacted(
        Delivered(
            objects=batch.objects,
            events=batch.events,
            queries=named,
            matches=NO_MATCHES,
            match_offsets=np.zeros(len(present) + 1, np.int64),
            lists=referring(lists, rows, lists.objects),
            list_offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
        )
    )


def _delivered(parts: Sequence[Found]) -> Delivered:
    objects, events, names, matches = _joined(parts)
    owners = names.subscriber_rows[matches.queries]
    if len(names.subscribers) == 1:
        bounds = np.array([0, len(matches)], np.int64)
    else:
        order = np.argsort(owners, kind="stable")
        matches = matches.take(order)
        counts = np.bincount(owners, minlength=len(names.subscribers))
        bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return compacted(
        Delivered(
            objects=objects, events=events, queries=names, matches=matches, match_offsets=bounds
        )
    )


def joined(group: Sequence[Delivered]) -> Delivered:
    """Returns one subscriber's parts of records, which have no lists, as one."""
    if len(group) == 1:
        return group[0]
    objects, events, names, matches = _joined(group)
    return Delivered(
        objects=objects,
        events=events,
        queries=names,
        matches=matches,
        match_offsets=np.array([0, len(matches)], np.int64),
    )


def _joined(
    parts: Sequence[Found | Delivered],
) -> tuple[ObjectColumns, EventColumns, QueryNames, MatchColumns]:
    if len(parts) == 1:
        part = parts[0]
        return part.objects, part.events, part.queries, part.matches
    object_bases = np.cumsum([0, *(len(part.objects) for part in parts[:-1])])
    query_bases = np.cumsum([0, *(len(part.queries) for part in parts[:-1])])
    pairs = [part.matches for part in parts]
    changes = None
    if any(m.changes is not None for m in pairs):
        changes = np.concatenate(
            [np.zeros(len(m), np.uint8) if m.changes is None else m.changes for m in pairs]
        )
    return (
        concat([part.objects for part in parts]),
        EventColumns.concat([part.events for part in parts]),
        joined_names([part.queries for part in parts]),
        MatchColumns(
            np.concatenate(
                [m.objects + base for m, base in zip(pairs, object_bases, strict=True)]
            ).astype(np.uint32),
            np.concatenate(
                [m.queries + base for m, base in zip(pairs, query_bases, strict=True)]
            ).astype(np.uint32),
            changes,
        ),
    )


def compacted(delivered: Delivered) -> Delivered:
    """Leaves out the objects and queries that nothing refers to."""
    matches, lists = delivered.matches, delivered.lists
    object_references, query_references = matches.objects, matches.queries
    if lists is not None:
        is_new = lists.objects != NO_ROW
        object_references = np.concatenate([object_references, lists.objects[is_new]])
        query_references = np.concatenate([query_references, lists.queries])
    objects, object_rows = used_rows(object_references, len(delivered.objects))
    queries, query_rows = used_rows(query_references, len(delivered.queries))
    if objects is None and queries is None:
        return delivered
    kept_objects, kept_events = delivered.objects, delivered.events
    if objects is not None:
        kept_objects, kept_events = kept_objects.take(objects), kept_events.take(objects)
    count = len(matches)
    if lists is not None:
        list_objects = lists.objects.copy()
        list_objects[is_new] = object_rows[count:]
        lists = referring(lists, query_rows[count:], list_objects)
    return Delivered(
        objects=kept_objects,
        events=kept_events,
        queries=delivered.queries if queries is None else take_names(delivered.queries, queries),
        matches=MatchColumns(
            object_rows[:count], query_rows[:count], matches.changes, matches.distances_m
        ),
        match_offsets=delivered.match_offsets,
        lists=lists,
        list_offsets=delivered.list_offsets,
    )


def of_subscriber(delivered: Delivered, subscriber: str) -> Delivered | None:
    """Returns the part of a record for one subscriber; None when it has none."""
    names = delivered.queries
    try:
        row = names.subscribers.index(subscriber)
    except ValueError:
        return None
    begin, end = delivered.match_offsets[row : row + 2].tolist()
    first = last = 0
    if delivered.list_offsets is not None:
        first, last = delivered.list_offsets[row : row + 2].tolist()
    if begin == end and first == last:
        return None
    if len(names.subscribers) == 1:
        return delivered
    if end - begin == 1 and first == last:
        return _of_match(delivered, begin, subscriber)
    lists = None
    if delivered.lists is not None and first < last:
        lists = take_lists(delivered.lists, np.arange(first, last))
    return compacted(
        Delivered(
            objects=delivered.objects,
            events=delivered.events,
            queries=QueryNames(
                names.handles,
                names.ids,
                names.id_offsets,
                np.zeros(len(names), np.uint32),
                (subscriber,),
                names.specs,
            ),
            matches=_slice(delivered.matches, begin, end),
            match_offsets=np.array([0, end - begin], np.int64),
            lists=lists,
            list_offsets=None if lists is None else np.array([0, last - first], np.int64),
        )
    )


def _of_match(delivered: Delivered, match: int, subscriber: str) -> Delivered:
    """Returns a record of one match: slices of the columns, a quarter of what finding rows takes.

    Where many subscribers get a few matches a second each, most parts of records are such.
    """
    names, matches = delivered.queries, _slice(delivered.matches, match, match + 1)
    row, query = int(matches.objects[0]), int(matches.queries[0])
    begin, end = names.id_offsets[query : query + 2].tolist()
    spec = None if names.specs is None else names.specs[query]
    return Delivered(
        objects=delivered.objects.slice(row, row + 1),
        events=delivered.events.slice(row, row + 1),
        queries=QueryNames(
            names.handles[query : query + 1],
            names.ids[begin:end],
            np.array([0, end - begin], np.int64),
            np.zeros(1, np.uint32),
            (subscriber,),
            (spec,) if spec else None,
        ),
        matches=MatchColumns(np.zeros(1, np.uint32), np.zeros(1, np.uint32), matches.changes),
        match_offsets=np.array([0, 1], np.int64),
    )


def _slice(matches: MatchColumns, begin: int, end: int) -> MatchColumns:
    changes = matches.changes
    return MatchColumns(
        matches.objects[begin:end],
        matches.queries[begin:end],
        None if changes is None else changes[begin:end],
    )


def used_rows(
    references: NDArray[np.uint32], count: int
) -> tuple[NDArray[np.intp] | None, NDArray[np.uint32]]:
    """Returns the rows that are referred to (None: all), and the references into them."""
    is_used = np.zeros(count, np.bool_)
    is_used[references] = True
    if is_used.all():
        return None, references
    places = np.cumsum(is_used) - 1
    return np.flatnonzero(is_used), places[references].astype(np.uint32)
