"""Columns that several messages share: events, queries, matches, steps, lists.

As in `columns.proto`. Each row is one thing; columns of one class have the same number of rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.ragged import take_ragged
from sirocco.model.query import query_handle

# The effect of an object on a query.
MATCHES = 0
ENTERS = 1
STAYS = 2
LEAVES = 3

# The cause of a query's end.
NOT_ENDED = 0
BY_TTL = 1
BY_REMOVAL = 2

# The row of an object that is not in the message.
NO_ROW = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class EventColumns:
    """The event keys of objects, which identify them in all services.

    Attributes:
        sessions: u8[n], publishing session.
        numbers: u8[n], number within the session, from 1.
        arrivals_ms: i8[n], epoch ms, non-decreasing within one intake partition.
    """

    sessions: NDArray[np.uint64]
    numbers: NDArray[np.uint64]
    arrivals_ms: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sessions)

    def take(self, rows: NDArray[np.integer]) -> EventColumns:
        """Returns the given rows, in the given order."""
        return EventColumns(self.sessions[rows], self.numbers[rows], self.arrivals_ms[rows])

    def slice(self, begin: int, end: int) -> EventColumns:
        """Returns the rows from `begin` to before `end`, as views."""
        return EventColumns(
            self.sessions[begin:end], self.numbers[begin:end], self.arrivals_ms[begin:end]
        )

    @classmethod
    def concat(cls, parts: list[EventColumns]) -> EventColumns:
        """Joins columns, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.sessions for part in parts]),
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.arrivals_ms for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class QueryNames:
    """The queries that a record refers to; q rows.

    Attributes:
        handles: u8[q], xxh3-64 of the query id.
        ids: u1[b], UTF-8.
        id_offsets: i8[q + 1]
        subscriber_rows: u4[q], row of `subscribers`.
        subscribers: names.
        specs: the canonical JSON of each query, empty for plain range queries; None when all are
            plain.
    """

    handles: NDArray[np.uint64]
    ids: NDArray[np.uint8]
    id_offsets: NDArray[np.int64]
    subscriber_rows: NDArray[np.uint32]
    subscribers: tuple[str, ...]
    specs: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.handles)


@dataclass(frozen=True, slots=True)
class MatchColumns:
    """Which query matched which object; m rows.

    Attributes:
        objects: u4[m], row of the object columns of the message.
        queries: u4[m], row of the query columns of the message.
        changes: u1[m], `MATCHES`, `ENTERS`, `STAYS` or `LEAVES`; None when all are `MATCHES`.
        distances_m: f8[m], from the query's point; None when no query has one.
    """

    objects: NDArray[np.uint32]
    queries: NDArray[np.uint32]
    changes: NDArray[np.uint8] | None = None
    distances_m: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.objects)

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> MatchColumns:
        """Returns some of the matches, in the given order."""
        return MatchColumns(
            self.objects[rows],
            self.queries[rows],
            None if self.changes is None else self.changes[rows],
            None if self.distances_m is None else self.distances_m[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepColumns:
    """Reports of slots on steps of terms and ranked queries; s steps.

    A step that is too large for a record is sent in parts, which are added up.

    Attributes:
        queries: u4[s], row of the query columns of the message.
        at_ms: i8[s], epoch ms.
        positions: i8[s], in the slot.
        interval_rows: u4[s], row of the intervals of the message.
        entry_offsets: i8[s + 1], of terms queries: the entries of each step; e in all.
        terms: u1[b], UTF-8.
        term_offsets: i8[e + 1]
        counts: u8[e], objects that hold the term.
        totals: u8[s, 2], of ranked queries: objects of the window within the radius, and the sum
            of their lengths in tokens.
        holder_offsets: i8[s + 1], h in all.
        holders: u8[h], how many of those objects hold each keyword, in the query's order.
        candidate_offsets: i8[s + 1], c in all.
        candidates: u4[c], row of the object columns of the message.
        token_counts: u4[c], length of each.
        distances_m: f8[c], from the query's point.
        frequencies: u2[f], how often each candidate holds each keyword, candidate by candidate.
        slot_counts: u4[s], of the first step of a query that asks for the past: how many slots
            report it, each once it has the query; 0 of others. None: 0 of all.
    """

    queries: NDArray[np.uint32]
    at_ms: NDArray[np.int64]
    positions: NDArray[np.int64]
    interval_rows: NDArray[np.uint32]
    entry_offsets: NDArray[np.int64]
    terms: NDArray[np.uint8]
    term_offsets: NDArray[np.int64]
    counts: NDArray[np.uint64]
    totals: NDArray[np.uint64]
    holder_offsets: NDArray[np.int64]
    holders: NDArray[np.uint64]
    candidate_offsets: NDArray[np.int64]
    candidates: NDArray[np.uint32]
    token_counts: NDArray[np.uint32]
    distances_m: NDArray[np.float64]
    frequencies: NDArray[np.uint16]
    slot_counts: NDArray[np.uint32] | None = None

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListColumns:
    """Answers that are lists; l of them with e entries.

    Attributes:
        queries: u4[l], row of the query columns of the message.
        at_ms: i8[l], the step, epoch ms; `NO_TIME_MS` for a knn query, which has none.
        entry_offsets: i8[l + 1]
        values: f8[e], metres, score or count.
        names: u1[b], UTF-8: terms, or the names of objects that have string ids.
        name_offsets: i8[e + 1]
        ids: u8[e], of objects; 0 for terms.
        sessions, numbers: u8[e], event keys of objects; 0 for terms.
        objects: u4[e], row of the object columns of the message for new entries of the list,
            `NO_ROW` for the rest.
        removed_offsets: i8[l + 1], objects that have left a knn list; r in all.
        removed_ids: u8[r]
        removed_names: u1[b], UTF-8
        removed_name_offsets: i8[r + 1]
        partial: bool[l], whether slots are missing in a step; None where none are.
        ended: u1[l], `NOT_ENDED`, or the cause of the query's end in place of a list; None where
            none has ended.
    """

    queries: NDArray[np.uint32]
    at_ms: NDArray[np.int64]
    entry_offsets: NDArray[np.int64]
    values: NDArray[np.float64]
    names: NDArray[np.uint8]
    name_offsets: NDArray[np.int64]
    ids: NDArray[np.uint64]
    sessions: NDArray[np.uint64]
    numbers: NDArray[np.uint64]
    objects: NDArray[np.uint32]
    removed_offsets: NDArray[np.int64]
    removed_ids: NDArray[np.uint64]
    removed_names: NDArray[np.uint8]
    removed_name_offsets: NDArray[np.int64]
    partial: NDArray[np.bool_] | None = None
    ended: NDArray[np.uint8] | None = None

    def __len__(self) -> int:
        return len(self.queries)


NO_EVENTS = EventColumns(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64))
NO_NAMES = QueryNames(
    np.empty(0, np.uint64), np.empty(0, np.uint8), np.zeros(1, np.int64), np.empty(0, np.uint32), ()
)
NO_MATCHES = MatchColumns(np.empty(0, np.uint32), np.empty(0, np.uint32))


def event_keys(events: EventColumns) -> NDArray[np.uint64]:
    """Returns a u64 for each object, computed from its event key, to break ties."""
    return (events.sessions * np.uint64(0x9E3779B97F4A7C15)) ^ (
        events.numbers * np.uint64(0xC2B2AE3D27D4EB4F)
    )


def names_of_pairs(
    pairs: list[tuple[str, str]], handles: NDArray[np.uint64] | None = None
) -> QueryNames:
    """Returns the names of queries from id and subscriber; `handles` u8[n] if they are known."""
    if handles is None:
        handles = np.array([query_handle(query) for query, _ in pairs], np.uint64)
    ids = [query.encode() for query, _ in pairs]
    offsets = np.zeros(len(ids) + 1, np.int64)
    np.cumsum([len(text) for text in ids], out=offsets[1:])
    names: dict[str, int] = {}
    subscriber_rows = [names.setdefault(subscriber, len(names)) for _, subscriber in pairs]
    return QueryNames(
        handles,
        np.frombuffer(b"".join(ids), np.uint8),
        offsets,
        np.array(subscriber_rows, np.uint32),
        tuple(names),
    )


def take_names(names: QueryNames, rows: NDArray[np.integer]) -> QueryNames:
    """Returns some of the names of plain queries, with those subscribers alone that they have."""
    id_offsets, places = take_ragged(names.id_offsets, rows)
    subscriber_rows, subscribers = names.subscriber_rows[rows], names.subscribers
    if not len(rows):
        subscribers = ()
    elif len(subscribers) > 1:
        # In the order of their appearance, as `names_of_pairs` writes them.
        used, first, place = np.unique(subscriber_rows, return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order), np.uint32)
        rank[order] = np.arange(len(order))
        subscribers = tuple(subscribers[row] for row in used[order].tolist())
        subscriber_rows = rank[place]
    return QueryNames(
        names.handles[rows], names.ids[places], id_offsets, subscriber_rows, subscribers
    )
