"""What standing knn queries send after a merge: the changed lists as they are now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.model.objects import ObjectColumns, concat
from sirocco.protocol.contract.columns import (
    NO_EVENTS,
    NO_ROW,
    EventColumns,
    ListColumns,
    QueryNames,
)
from sirocco.protocol.contract.messages import NO_OBJECTS, Found
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.contract.query_definitions import ASKS, shown_spec
from sirocco.protocol.merger.list_batch import ListBatch, joined_names, take_names
from sirocco.protocol.merger.list_entries import Entries, names_of, pack_names


@dataclass(slots=True)
class Candidates:
    """Objects of one record that entered lists of slots; c rows.

    Attributes:
        found: the record.
        lists: i4[c], row of each query's list; -1 if it has ended since.
        objects: u4[c], rows of the record's objects.
        queries: u4[c], rows of its queries.
        distances_m: f8[c]
    """

    found: Found
    lists: NDArray[np.int32]
    objects: NDArray[np.uint32]
    queries: NDArray[np.uint32]
    distances_m: NDArray[np.float64]

    def slice(self, begin: int, end: int) -> Candidates:
        """Returns rows [begin, end)."""
        return Candidates(
            self.found,
            self.lists[begin:end],
            self.objects[begin:end],
            self.queries[begin:end],
            self.distances_m[begin:end],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """One merge: the old entries of the lists concerned, the candidates, and the result.

    Attributes:
        entries: old ones first, then candidates.
        olds: number of old ones.
        owners: i8[e], number of each entry's list among those concerned.
        kept: i8, rows that the changed lists hold, list by list and in order.
        is_known: bool, which of these were sent for a version before.
        removed: i8, rows of old entries that have left, list by list.
        changed: i8[l], numbers of the changed lists, ascending.
    """

    entries: Entries
    olds: int
    owners: NDArray[np.int64]
    kept: NDArray[np.int64]
    is_known: NDArray[np.bool_]
    removed: NDArray[np.int64]
    changed: NDArray[np.int64]


def entries_of(
    group: Sequence[Candidates],
    parts: NDArray[np.int64],
    objects: NDArray[np.uint32],
    distances_m: NDArray[np.float64],
) -> Entries:
    """Returns the candidates as entries; `parts` ascends."""
    bounds = np.searchsorted(parts, np.arange(len(group) + 1)).tolist()
    ids, sessions, numbers, names = [], [], [], []
    for i, each in enumerate(group):
        rows = objects[bounds[i] : bounds[i + 1]]
        found = each.found
        ids.append(found.objects.ids[rows])
        sessions.append(found.events.sessions[rows])
        numbers.append(found.events.numbers[rows])
        names.append(names_of(found.objects.names, found.objects.name_offsets, rows))
    return Entries(
        distances_m,
        np.concatenate(ids),
        np.concatenate(sessions),
        np.concatenate(numbers),
        np.concatenate(names),
    )


def changed_lists(
    group: Sequence[Candidates],
    merged: Merged,
    parts: NDArray[np.int64],
    objects: NDArray[np.uint32],
    queries: NDArray[np.uint32],
    counts: NDArray[np.int64],
) -> ListBatch:
    """Returns the changed lists, with the objects that are new in them.

    Args:
        group: what was merged.
        merged: its result; the candidates among its entries are rows of the next three.
        parts: i8[c], number of each candidate's record in the group.
        objects, queries: u4[c], rows of the record.
        counts: i8[l], length of each changed list.
    """
    kept = merged.entries.take(merged.kept)
    removed = merged.entries.take(merged.removed)
    # For each kept candidate: its place among the candidates.
    places = merged.kept - merged.olds
    is_new = (places >= 0) & ~merged.is_known
    new = places[is_new]
    object_rows = np.full(len(places), NO_ROW, np.uint32)
    new_objects, new_events, object_rows[is_new] = _objects(group, parts[new], objects[new])
    # Each changed list holds at least one of the candidates, new or not.
    _, first = np.unique(merged.owners[merged.kept[places >= 0]], return_index=True)
    first = places[places >= 0][first]
    query_parts, query_rows = parts[first], queries[first]
    names, by_list = _queries(group, query_parts, query_rows)
    kept_names, kept_offsets = pack_names(kept.names)
    removals = np.bincount(
        np.searchsorted(merged.changed, merged.owners[merged.removed]),
        minlength=len(merged.changed),
    )
    removed_names, removed_offsets = pack_names(removed.names)
    return ListBatch(
        new_objects,
        new_events,
        names,
        ListColumns(
            queries=by_list,
            at_ms=np.full(len(counts), NO_TIME_MS, np.int64),
            entry_offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
            values=kept.distances_m,
            names=kept_names,
            name_offsets=kept_offsets,
            ids=kept.ids,
            sessions=kept.sessions,
            numbers=kept.numbers,
            objects=object_rows,
            removed_offsets=np.concatenate([np.zeros(1, np.int64), np.cumsum(removals)]),
            removed_ids=removed.ids,
            removed_names=removed_names,
            removed_name_offsets=removed_offsets,
        ),
    )


def _objects(
    group: Sequence[Candidates], parts: NDArray[np.int64], rows: NDArray[np.uint32]
) -> tuple[ObjectColumns, EventColumns, NDArray[np.uint32]]:
    """Returns the objects of some candidates, each once, and each candidate's row in them."""
    if not len(rows):
        return NO_OBJECTS, NO_EVENTS, rows
    ends = np.cumsum([len(each.found.objects) for each in group])
    begins = ends - [len(each.found.objects) for each in group]
    distinct, places = np.unique(begins[parts] + rows, return_inverse=True)
    bounds = np.searchsorted(distinct, [0, *ends]).tolist()
    taken = [
        (each.found, distinct[bounds[i] : bounds[i + 1]] - begins[i])
        for i, each in enumerate(group)
        if bounds[i] < bounds[i + 1]
    ]
    return (
        concat([found.objects.take(some) for found, some in taken]),
        EventColumns.concat([found.events.take(some) for found, some in taken]),
        places.astype(np.uint32),
    )


def _queries(
    group: Sequence[Candidates], parts: NDArray[np.int64], rows: NDArray[np.uint32]
) -> tuple[QueryNames, NDArray[np.uint32]]:
    """Returns the queries of lists, and each list's row in them."""
    order = np.argsort(parts, kind="stable")
    bounds = np.searchsorted(parts[order], np.arange(len(group) + 1)).tolist()
    taken = [
        _shown(take_names(each.found.queries, rows[order[bounds[i] : bounds[i + 1]]]))
        for i, each in enumerate(group)
        if bounds[i] < bounds[i + 1]
    ]
    places = np.empty(len(order), np.uint32)
    places[order] = np.arange(len(order))
    return joined_names(taken), places


def _shown(names: QueryNames) -> QueryNames:
    """Returns the queries without specs, but for what readers need to show words."""
    # A list without a time belongs to a knn query: its spec is not needed to know that.
    specs = tuple([shown_spec(spec) if ASKS in spec else "" for spec in names.specs or ()])
    return replace(names, specs=specs if any(specs) else None)
