"""Reports of standing queries other than matches: changed lists, steps and ends."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from sirocco_api.v1.columns_pb2 import ListColumns

from sirocco_client.errors import Internal
from sirocco_client.notifications.highlights import Highlight
from sirocco_client.objects.object import Object
from sirocco_client.objects.object_rows import strings_of

# Time of a list that has none.
_NO_TIME_MS = -(2**63)

# Row of an object that the message does not contain.
_NO_ROW = 2**32 - 1


@dataclass(frozen=True, slots=True)
class KnnChange:
    """The list of a standing knn query has changed.

    The changes of one query are in order: `added` and `removed` lead from each list to the next.

    Attributes:
        query: Id of the query.
        added: Objects that entered the list, nearest first.
        removed: Ids of objects that left it.
        entries: The list as it is now: (object id, distance in metres), nearest first, ties by id.
        cursor: As `Notification.cursor`.
        highlights: Of each of `added` the places of the words that matched, if the query asks for
            them (`KnnQuery.highlight`); empty if there are none.
    """

    query: str
    added: tuple[Object, ...]
    removed: tuple[int | str, ...]
    entries: tuple[tuple[int | str, float], ...]
    cursor: str
    highlights: tuple[tuple[Highlight, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class TermsStep:
    """The most frequent terms of a standing terms query at a step; every step is reported.

    Attributes:
        query: Id of the query.
        at_ms: The step, epoch ms.
        terms: (term, objects that contain it), most frequent first, ties by term.
        cursor: As `Notification.cursor`.
        is_partial: Some parts of the system did not answer in time and are missing, or the list was
            shortened to fit a message.
    """

    query: str
    at_ms: int
    terms: tuple[tuple[str, int], ...]
    cursor: str
    is_partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedChange:
    """The list of a standing ranked query at a step at which its ids have changed.

    Attributes:
        query: Id of the query.
        at_ms: The step, epoch ms.
        entries: (object id, score), best first, ties by id.
        new: The objects that were not in the list before. Very large ones may be left out.
        cursor: As `Notification.cursor`.
        is_partial: As `TermsStep.is_partial`; reported even if the list has not changed.
        highlights: Of each of `new` the places of the keywords, if the query asks for them
            (`RankedQuery.highlight`); empty if there are none.
    """

    query: str
    at_ms: int
    entries: tuple[tuple[int | str, float], ...]
    new: tuple[Object, ...]
    cursor: str
    is_partial: bool = False
    highlights: tuple[tuple[Highlight, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Ended:
    """A standing query with "ended" in `events` has ended; its reports are complete.

    Attributes:
        query: Id of the query.
        reason: "ttl" if its lifetime was over, "removed" if it was removed.
        cursor: As `Notification.cursor`.
    """

    query: str
    reason: str
    cursor: str


ListChange: TypeAlias = KnnChange | TermsStep | RankedChange | Ended

# Reasons for the end of a query, by their numbers on the wire.
_REASONS = ("", "ttl", "removed")


def check_lists(lists: ListColumns) -> None:
    """Refuses columns that do not fit together.

    Raises:
        Internal: They do not fit.
    """
    count, entries = len(lists.queries) // 4, len(lists.values) // 8
    removed = len(lists.removed_ids) // 8
    fits = (
        len(lists.queries) == 4 * count
        and len(lists.at_ms) == 8 * count
        and len(lists.values) == 8 * entries
        and len(lists.objects) == 4 * entries
        and len(lists.ids) == 8 * entries
        and len(lists.removed_ids) == 8 * removed
        and len(lists.entry_offsets) == 4 * (count + 1)
        and len(lists.removed_offsets) == 4 * (count + 1)
        and len(lists.partial) in (0, count)
        and len(lists.ended) in (0, count)
        and max(lists.ended, default=0) < len(_REASONS)
    )
    if not fits:
        raise Internal("columns of lists do not fit together")


def read_lists(
    lists: ListColumns,
    query_ids: Sequence[str],
    specs: Sequence[str],
    objects: Sequence[Object],
    cursors: Sequence[str],
    highlights: Mapping[int, tuple[Highlight, ...]],
) -> list[ListChange]:
    """Returns the lists as values.

    Args:
        lists: Columns that fit together.
        query_ids: Ids of the queries to which they refer.
        specs: Each query's JSON form; empty if there are none.
        objects: The objects of the message.
        cursors: Of each list.
        highlights: Places of words by entry; empty if no query asks for them.
    """
    values = memoryview(lists.values).cast("d").tolist()
    names = strings_of(lists.names, lists.name_offsets, len(values))
    ids = _named(names, lists.ids)
    removed_count = len(lists.removed_ids) // 8
    removed_names = strings_of(lists.removed_names, lists.removed_name_offsets, removed_count)
    removed = _named(removed_names, lists.removed_ids)
    rows = memoryview(lists.objects).cast("I").tolist()
    bounds = pairwise(memoryview(lists.entry_offsets).cast("I").tolist())
    removals = pairwise(memoryview(lists.removed_offsets).cast("I").tolist())
    partial = [flag != 0 for flag in lists.partial] or [False] * (len(lists.queries) // 4)
    ended = lists.ended or bytes(len(lists.queries) // 4)
    heads = zip(
        memoryview(lists.queries).cast("I").tolist(),
        memoryview(lists.at_ms).cast("q").tolist(),
        bounds,
        removals,
        cursors,
        partial,
        ended,
        strict=True,
    )
    kinds: dict[int, Any] = {}
    changes: list[ListChange] = []
    for query, at_ms, (begin, end), (first, last), cursor, is_partial, reason in heads:
        query_id, at = query_ids[query], slice(begin, end)
        if reason:
            changes.append(Ended(query_id, _REASONS[reason], cursor))
            continue
        fresh = [i for i in range(begin, end) if rows[i] != _NO_ROW]
        new = tuple([objects[rows[i]] for i in fresh])
        shown = tuple([highlights.get(i, ()) for i in fresh]) if highlights else ()
        if at_ms == _NO_TIME_MS:
            entries = tuple(zip(ids[at], values[at], strict=True))
            left = tuple(removed[first:last])
            changes.append(KnnChange(query_id, new, left, entries, cursor, shown))
            continue
        if query not in kinds:
            kinds[query] = json.loads(specs[query] or "{}").get("kind") if specs else None
        if kinds[query] == "terms":
            terms = tuple([(names[i], int(values[i])) for i in range(begin, end)])
            changes.append(TermsStep(query_id, at_ms, terms, cursor, is_partial))
        else:
            entries = tuple(zip(ids[at], values[at], strict=True))
            changes.append(
                RankedChange(
                    query=query_id,
                    at_ms=at_ms,
                    entries=entries,
                    new=new,
                    cursor=cursor,
                    is_partial=is_partial,
                    highlights=shown,
                )
            )
    return changes


def _named(names: Sequence[str], ids: bytes) -> list[int | str]:
    """Returns the ids of objects: names, or numbers (u8) where there is none."""
    numbers = memoryview(ids).cast("Q").tolist()
    return [name or number for name, number in zip(names, numbers, strict=True)]
