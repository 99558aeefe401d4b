"""Lists for subscribers, with the objects and queries that they name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.ragged import take_ragged
from sirocco.model.objects import ObjectColumns, concat
from sirocco.protocol.contract.columns import NO_ROW, EventColumns, ListColumns, QueryNames
from sirocco.protocol.contract.record_sizes import MATCH_BYTES, OBJECT_BYTES

# The fixed columns of an entry, and of a removed entry.
ENTRY_BYTES = 40
REMOVED_BYTES = 12


@dataclass(frozen=True, slots=True)
class ListBatch:
    """Lists to send to subscribers.

    Attributes:
        objects: n rows, the new objects of the lists.
        events: n rows.
        queries: q rows.
        lists: l rows.
    """

    objects: ObjectColumns
    events: EventColumns
    queries: QueryNames
    lists: ListColumns

    def __len__(self) -> int:
        return len(self.lists)


def take_lists(lists: ListColumns, rows: NDArray[np.integer]) -> ListColumns:
    """Returns some of the lists, in the given order; they refer to the same objects and queries."""
    entry_offsets, entries = take_ragged(lists.entry_offsets, rows)
    name_offsets, names = take_ragged(lists.name_offsets, entries)
    removed_offsets, removed = take_ragged(lists.removed_offsets, rows)
    removed_name_offsets, removed_names = take_ragged(lists.removed_name_offsets, removed)
    return ListColumns(
        queries=lists.queries[rows],
        at_ms=lists.at_ms[rows],
        entry_offsets=entry_offsets,
        values=lists.values[entries],
        names=lists.names[names],
        name_offsets=name_offsets,
        ids=lists.ids[entries],
        sessions=lists.sessions[entries],
        numbers=lists.numbers[entries],
        objects=lists.objects[entries],
        removed_offsets=removed_offsets,
        removed_ids=lists.removed_ids[removed],
        removed_names=lists.removed_names[removed_names],
        removed_name_offsets=removed_name_offsets,
        partial=None if lists.partial is None else lists.partial[rows],
        ended=None if lists.ended is None else lists.ended[rows],
    )


def referring(
    lists: ListColumns, queries: NDArray[np.uint32], objects: NDArray[np.uint32]
) -> ListColumns:
    """Returns the same lists with other rows of queries and objects."""
    return ListColumns(
        queries=queries,
        at_ms=lists.at_ms,
        entry_offsets=lists.entry_offsets,
        values=lists.values,
        names=lists.names,
        name_offsets=lists.name_offsets,
        ids=lists.ids,
        sessions=lists.sessions,
        numbers=lists.numbers,
        objects=objects,
        removed_offsets=lists.removed_offsets,
        removed_ids=lists.removed_ids,
        removed_names=lists.removed_names,
        removed_name_offsets=lists.removed_name_offsets,
        partial=lists.partial,
        ended=lists.ended,
    )


def joined_lists(parts: Sequence[ListBatch]) -> ListBatch:
    """Returns all lists of several parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    lists = [part.lists for part in parts]
    query_bases = np.cumsum([0, *(len(part.queries) for part in parts[:-1])])
    object_bases = np.cumsum([0, *(len(part.objects) for part in parts[:-1])])
    object_rows = [
        np.where(each.objects == NO_ROW, NO_ROW, each.objects + base)
        for each, base in zip(lists, object_bases, strict=True)
    ]
    return ListBatch(
        concat([part.objects for part in parts]),
        EventColumns.concat([part.events for part in parts]),
        joined_names([part.queries for part in parts]),
        ListColumns(
            queries=np.concatenate(
                [each.queries + base for each, base in zip(lists, query_bases, strict=True)]
            ).astype(np.uint32),
            at_ms=np.concatenate([each.at_ms for each in lists]),
            entry_offsets=joined_offsets([each.entry_offsets for each in lists]),
            values=np.concatenate([each.values for each in lists]),
            names=np.concatenate([each.names for each in lists]),
            name_offsets=joined_offsets([each.name_offsets for each in lists]),
            ids=np.concatenate([each.ids for each in lists]),
            sessions=np.concatenate([each.sessions for each in lists]),
            numbers=np.concatenate([each.numbers for each in lists]),
            objects=np.concatenate(object_rows).astype(np.uint32),
            removed_offsets=joined_offsets([each.removed_offsets for each in lists]),
            removed_ids=np.concatenate([each.removed_ids for each in lists]),
            removed_names=np.concatenate([each.removed_names for each in lists]),
            removed_name_offsets=joined_offsets([each.removed_name_offsets for each in lists]),
            partial=_joined_flags([part.partial for part in lists], lists, np.bool_),
            ended=_joined_flags([part.ended for part in lists], lists, np.uint8),
        ),
    )


def _joined_flags(
    flags: Sequence[NDArray[Any] | None], parts: Sequence[ListColumns], dtype: Any
) -> NDArray[Any] | None:
    """Joins a column of all parts, with zeros for missing ones; None when all are missing."""
    if all(each is None for each in flags):
        return None
    pairs = zip(flags, parts, strict=True)
    return np.concatenate(
        [np.zeros(len(part), dtype) if each is None else each for each, part in pairs]
    )


def joined_offsets(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Returns the offsets of ragged columns that are joined one after the other."""
    lengths = np.concatenate([np.diff(offsets) for offsets in parts])
    joined = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=joined[1:])
    return joined


def joined_names(parts: Sequence[QueryNames]) -> QueryNames:
    """Returns all queries of several parts; each subscriber occurs once."""
    if len(parts) == 1:
        return parts[0]
    numbers: dict[str, int] = {}
    subscriber_rows = []
    for part in parts:
        own = [numbers.setdefault(name, len(numbers)) for name in part.subscribers]
        subscriber_rows.append(np.array(own, np.uint32)[part.subscriber_rows])
    specs = None
    if any(part.specs is not None for part in parts):
        specs = tuple(text for part in parts for text in (part.specs or ("",) * len(part.handles)))
    return QueryNames(
        np.concatenate([part.handles for part in parts]),
        np.concatenate([part.ids for part in parts]),
        joined_offsets([part.id_offsets for part in parts]),
        np.concatenate(subscriber_rows),
        tuple(numbers),
        specs,
    )


def take_names(names: QueryNames, rows: NDArray[np.integer]) -> QueryNames:
    """Returns some of the queries, in the given order."""
    offsets, places = take_ragged(names.id_offsets, rows)
    specs = None
    if names.specs is not None:
        specs = tuple([names.specs[row] for row in rows.tolist()])
    return QueryNames(
        names.handles[rows],
        names.ids[places],
        offsets,
        names.subscriber_rows[rows],
        names.subscribers,
        specs if specs is not None and any(specs) else None,
    )


def bytes_of_lists(batch: ListBatch) -> NDArray[np.int64]:
    """i8[l], the most bytes each list takes in a record, with its query and its objects."""
    lists, queries = batch.lists, batch.queries
    entries = np.diff(lists.name_offsets) + ENTRY_BYTES
    rows = np.flatnonzero(lists.objects != NO_ROW)
    entries[rows] += bytes_of_objects(batch.objects)[lists.objects[rows]]
    removed = np.diff(lists.removed_name_offsets) + REMOVED_BYTES
    names = np.diff(queries.id_offsets) + MATCH_BYTES
    if queries.specs is not None:
        names = names + np.array([len(text.encode()) for text in queries.specs], np.int64)
    subscribers = np.array([len(name.encode()) for name in queries.subscribers], np.int64)
    names = names + subscribers[queries.subscriber_rows]
    sizes = _sums(entries, lists.entry_offsets) + _sums(removed, lists.removed_offsets)
    sizes += names[lists.queries]
    return sizes


def bytes_of_objects(objects: ObjectColumns) -> NDArray[np.int64]:
    """i8[n], the most bytes each object takes in a record."""
    sizes = np.full(len(objects), OBJECT_BYTES, np.int64)
    for offsets in (objects.text_offsets, objects.attribute_offsets, objects.name_offsets):
        sizes += np.diff(offsets)
    return sizes


def _sums(values: NDArray[np.int64], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=ends[1:])
    return ends[offsets[1:]] - ends[offsets[:-1]]
