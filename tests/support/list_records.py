"""Builds records of `partials` with candidates and steps; shows sent lists as plain values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson

from sirocco.model.query import canonical, parse_query, query_handle
from sirocco.protocol.contract.columns import (
    MATCHES,
    NO_ROW,
    EventColumns,
    MatchColumns,
    QueryNames,
    StepColumns,
)
from sirocco.protocol.contract.messages import Delivered, Found
from sirocco.protocol.contract.positions import NO_TIME_MS, Intervals
from sirocco.protocol.contract.query_specs import end_spec, ended_spec, versioned_spec
from tests.support.values import columns_of

ObjectId = int | str


def spec_of(members: dict[str, Any]) -> str:
    """Returns the canonical JSON of a standing query."""
    return orjson.dumps(canonical(parse_query(members))).decode()


def knn_spec(query_id: str, k: int) -> str:
    point = {"lon": 1, "lat": 2}
    return spec_of({"id": query_id, "kind": "knn", "mode": "continuous", "point": point, "k": k})


def terms_spec(query_id: str, k: int) -> str:
    members = {"kind": "terms", "mode": "continuous", "window": "1h", "step": "1s"}
    return spec_of({"id": query_id, "k": k, **members})


def ranked_spec(query_id: str, k: int, keywords: Sequence[str] = ("a", "b")) -> str:
    members = {"kind": "ranked", "mode": "continuous", "window": "1h", "step": "1s"}
    point = {"lon": 1, "lat": 2}
    asked = {"id": query_id, "k": k, "point": point, "radius_m": 1_000, **members}
    return spec_of({**asked, "keywords": list(keywords)})


def tracked_spec(query_id: str) -> str:
    members = {"kind": "range", "mode": "continuous", "track": "vehicle"}
    return spec_of({"id": query_id, **members})


@dataclass(frozen=True, slots=True)
class ListVersion:
    """A version of a query; `spec` is empty for a plain range query."""

    id: str
    spec: str = ""
    subscriber: str = "ann"


def version(asked: ListVersion, number: int) -> ListVersion:
    """Returns a later version with the same question."""
    return replace(asked, spec=versioned_spec(asked.spec, number)) if number else asked


@dataclass(frozen=True, slots=True)
class Match:
    """A match or a candidate; its event is (slot + 1, position + 1)."""

    asked: ListVersion
    object: ObjectId
    distance_m: float = 0.0
    change: int = MATCHES


@dataclass(frozen=True, slots=True)
class Terms:
    """A part of a terms step."""

    asked: ListVersion
    at_ms: int
    counts: tuple[tuple[str, int], ...]
    slot_count: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """A candidate of a ranked step."""

    object: ObjectId
    event: tuple[int, int]
    arrival_ms: int
    length: int
    distance_m: float
    frequencies: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A part of a ranked step."""

    asked: ListVersion
    at_ms: int
    total: int
    tokens: int
    holders: tuple[int, ...]
    seen: tuple[Seen, ...]
    slot_count: int = 0


@dataclass(frozen=True, slots=True)
class End:
    """The slot no longer holds this version; always in a separate record.

    `by`: registry partition and offset of the change that ended it; `is_continued`: whether another
    version continues it.
    """

    asked: ListVersion
    time_ms: int = 0
    by: tuple[int, int] = (0, 0)
    is_continued: bool = False


@dataclass(frozen=True, slots=True)
class QueryEnd:
    """The slot has reached the end of a version, which is to be reported; in a separate record.

    `expires_ms`: the end of its lifetime; None: ended by the registry.
    """

    asked: ListVersion
    place: tuple[int, int]
    expires_ms: int | None = None
    has_expired: bool = False


Item = Match | Terms | Ranked | End | QueryEnd

# (slot, position, item)
Row = tuple[int, int, Item]


def found_of(
    intervals: Sequence[tuple[int, int, int, int]],
    rows: Iterable[Row] = (),
) -> Found:
    """Returns a record that covers intervals (slot, begin, end, time_ms) with the matches in them.

    An object has one row for each slot, position, id and event.
    """
    places = {slot: i for i, (slot, *_) in enumerate(intervals)}
    rows = sorted(rows, key=lambda row: (places[row[0]], row[1]))
    queries: dict[ListVersion, int] = {}
    for _, _, item in rows:
        asked = item.asked
        if isinstance(item, End):
            removed = ended_spec(asked.spec, item.time_ms, item.by, is_continued=item.is_continued)
            asked = replace(asked, spec=removed)
        if isinstance(item, QueryEnd):
            reported = end_spec(item.place, item.expires_ms, has_expired=item.has_expired)
            asked = replace(asked, spec=reported)
        queries.setdefault(asked, len(queries))
    rows = [row for row in rows if not isinstance(row[2], End | QueryEnd)]
    objects: dict[tuple[int, int, ObjectId, tuple[int, int]], int] = {}
    members, events, positions, interval_rows = [], [], [], []

    def object_row(
        slot: int, position: int, name: ObjectId, event: tuple[int, int], arrival_ms: int
    ) -> int:
        key = (slot, position, name, event)
        if key not in objects:
            objects[key] = len(objects)
            members.append({"id": name, "lon": 1, "lat": 2, "text": f"text of {name}"})
            events.append((*event, arrival_ms))
            positions.append(position)
            interval_rows.append(places[slot])
        return objects[key]

    matches: list[tuple[int, int, int, float]] = []
    for slot, position, item in rows:
        if isinstance(item, Match):
            row = object_row(slot, position, item.object, (slot + 1, position + 1), 1_000)
            matches.append((row, queries[item.asked], item.change, item.distance_m))
    matches.sort(key=lambda match: match[0])
    steps = _Steps()
    for slot, position, item in rows:
        if isinstance(item, Terms | Ranked):
            candidates = [
                object_row(slot, position, seen.object, seen.event, seen.arrival_ms)
                for seen in (item.seen if isinstance(item, Ranked) else ())
            ]
            steps.add(item, queries[item.asked], position, places[slot], candidates)
    session, number, arrival = (
        np.array([event[i] for event in events], np.int64) for i in range(3)
    )
    changes = np.array([match[2] for match in matches], np.uint8)
    is_knn = any(item.asked.spec and isinstance(item, Match) for _, _, item in rows)
    return Found(
        intervals=Intervals.of(list(intervals)),
        objects=columns_of(members),
        events=EventColumns(session.astype(np.uint64), number.astype(np.uint64), arrival),
        positions=np.array(positions, np.int64),
        interval_rows=np.array(interval_rows, np.uint32),
        queries=_names(list(queries)),
        matches=MatchColumns(
            np.array([match[0] for match in matches], np.uint32),
            np.array([match[1] for match in matches], np.uint32),
            changes if changes.any() else None,
            np.array([match[3] for match in matches]) if is_knn else None,
        ),
        steps=steps.columns() if steps.rows else None,
    )


def _names(queries: Sequence[ListVersion]) -> QueryNames:
    subscribers = sorted({asked.subscriber for asked in queries})
    ids = [asked.id.encode() for asked in queries]
    specs = tuple(asked.spec for asked in queries)
    return QueryNames(
        np.array([query_handle(asked.id) for asked in queries], np.uint64),
        np.frombuffer(b"".join(ids), np.uint8),
        np.cumsum([0, *map(len, ids)]).astype(np.int64),
        np.array([subscribers.index(asked.subscriber) for asked in queries], np.uint32),
        tuple(subscribers),
        specs if any(specs) else None,
    )


class _Steps:
    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []
        self.terms: list[list[tuple[str, int]]] = []
        self.ranked: list[Ranked | None] = []
        self.candidates: list[list[int]] = []
        self.slot_counts: list[int] = []

    def add(
        self, item: Terms | Ranked, query: int, position: int, interval: int, rows: list[int]
    ) -> None:
        self.rows.append((query, item.at_ms, position, interval))
        self.terms.append(list(item.counts) if isinstance(item, Terms) else [])
        self.ranked.append(item if isinstance(item, Ranked) else None)
        self.candidates.append(rows)
        self.slot_counts.append(item.slot_count)

    def columns(self) -> StepColumns:
        table = np.array(self.rows, np.int64)
        words = [word.encode() for part in self.terms for word, _ in part]
        holders = [part.holders if part else () for part in self.ranked]
        seen = [each for part in self.ranked if part for each in part.seen]
        totals = [(part.total, part.tokens) if part else (0, 0) for part in self.ranked]
        return StepColumns(
            queries=table[:, 0].astype(np.uint32),
            at_ms=table[:, 1].copy(),
            positions=table[:, 2].copy(),
            interval_rows=table[:, 3].astype(np.uint32),
            entry_offsets=np.cumsum([0, *map(len, self.terms)]),
            terms=np.frombuffer(b"".join(words), np.uint8),
            term_offsets=np.cumsum([0, *map(len, words)]),
            counts=np.array([count for part in self.terms for _, count in part], np.uint64),
            totals=np.array(totals, np.uint64).reshape(-1, 2),
            holder_offsets=np.cumsum([0, *map(len, holders)]),
            holders=np.array([count for part in holders for count in part], np.uint64),
            candidate_offsets=np.cumsum([0, *map(len, self.candidates)]),
            candidates=np.array([row for part in self.candidates for row in part], np.uint32),
            token_counts=np.array([each.length for each in seen], np.uint32),
            distances_m=np.array([each.distance_m for each in seen], np.float64),
            frequencies=np.array([f for each in seen for f in each.frequencies], np.uint16),
            slot_counts=np.array(self.slot_counts, np.uint32) if any(self.slot_counts) else None,
        )


# --- sent notifications, as plain values


@dataclass(frozen=True, slots=True, kw_only=True)
class ListChange:
    """A list as a subscriber receives it; `new` maps ids to texts of the objects sent with it."""

    subscriber: str
    query: str
    at_ms: int | None
    entries: tuple[tuple[ObjectId, float], ...]
    new: tuple[tuple[ObjectId, str], ...] = ()
    removed: tuple[ObjectId, ...] = ()
    is_partial: bool = False
    ended: int = 0


def texts_of(data: np.ndarray, offsets: np.ndarray) -> list[str]:  # type: ignore[type-arg]
    bounds = offsets.tolist()
    raw = data.tobytes()
    return [raw[a:b].decode() for a, b in itertools.pairwise(bounds)]


def lists_of(delivered: Delivered) -> list[ListChange]:
    """Returns the lists of a record, in order."""
    lists, names = delivered.lists, delivered.queries
    if lists is None or delivered.list_offsets is None:
        return []
    query_ids = texts_of(names.ids, names.id_offsets)
    entry_names = texts_of(lists.names, lists.name_offsets)
    removed_names = texts_of(lists.removed_names, lists.removed_name_offsets)
    object_names = texts_of(delivered.objects.names, delivered.objects.name_offsets)
    object_texts = texts_of(delivered.objects.text, delivered.objects.text_offsets)
    reported = []
    for row, subscriber in enumerate(names.subscribers):
        for at in range(*delivered.list_offsets[row : row + 2].tolist()):
            query = int(lists.queries[at])
            assert names.subscribers[int(names.subscriber_rows[query])] == subscriber
            entries, new = [], []
            for e in range(*lists.entry_offsets[at : at + 2].tolist()):
                name: ObjectId = entry_names[e] or int(lists.ids[e])
                entries.append((name, float(lists.values[e])))
                place = int(lists.objects[e])
                if place != NO_ROW:
                    assert int(delivered.objects.ids[place]) == int(lists.ids[e])
                    assert int(delivered.events.numbers[place]) == int(lists.numbers[e])
                    new.append((object_names[place] or int(lists.ids[e]), object_texts[place]))
            removed = [
                removed_names[r] or int(lists.removed_ids[r])
                for r in range(*lists.removed_offsets[at : at + 2].tolist())
            ]
            at_ms = int(lists.at_ms[at])
            reported.append(
                ListChange(
                    subscriber=subscriber,
                    query=query_ids[query],
                    at_ms=None if at_ms == NO_TIME_MS else at_ms,
                    entries=tuple(entries),
                    new=tuple(new),
                    removed=tuple(removed),
                    is_partial=lists.partial is not None and bool(lists.partial[at]),
                    ended=0 if lists.ended is None else int(lists.ended[at]),
                )
            )
    return reported
