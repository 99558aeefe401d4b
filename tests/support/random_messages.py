"""Seeded random messages of every type, and a comparison by columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.compile import compile_queries
from sirocco.index.base.kinds import kind_number
from sirocco.index.standing.locators import HOME, Alternative, write_locator
from sirocco.model.objects import MISSING_TS, ObjectColumns, ObjectColumnsBuilder, ObjectRow
from sirocco.model.query import Query, parse_query, query_handle
from sirocco.model.text import TermColumns, analyse_batch
from sirocco.protocol.contract.columns import EventColumns, MatchColumns, QueryNames
from sirocco.protocol.contract.control_records import (
    Attempted,
    CheckpointTaken,
    Granted,
    LeaderElected,
    MapActivated,
    MapCopied,
    MapPrepared,
    MapSwitched,
    Skipped,
)
from sirocco.protocol.contract.messages import (
    NO_PAST,
    NO_REVISION,
    Change,
    Delivered,
    Found,
    FurtherValues,
    Installed,
    IntakeObjects,
    Keywords,
    Message,
    Prepare,
    Progress,
    Retire,
    Routed,
    Switch,
    TrackedMember,
    TrackedMemberSet,
)
from sirocco.protocol.contract.positions import Intervals
from sirocco.protocol.contract.query_definitions import spec_of
from tests.support.random_lists import random_lists, random_steps

WORDS = [
    "coffee",
    "free",
    "pizza",
    "Straße東京",
    "light",
    "NOTHING",
    "café",
    "x_1",
    "напиток",
    "①",
    "a",
]

# Members that only range queries have, and plain ones have not.
_OF_TRACKED = ("track", "events", "dwell", "leave_after")


def random_objects(rng: np.random.Generator, count: int) -> ObjectColumns:
    builder = ObjectColumnsBuilder()
    has_names, has_attributes = rng.random(2) < 0.5
    for _ in range(count):
        name = f"n{rng.integers(1000)}é" if has_names and rng.random() < 0.7 else ""
        number = query_handle(name) if name else int(rng.integers(0, 1 << 64, dtype=np.uint64))
        builder.add(
            ObjectRow(
                id=number,
                name=name,
                lon=float(rng.uniform(-180, 180)),
                lat=float(rng.uniform(-90, 90)),
                ts=MISSING_TS if rng.random() < 0.2 else int(rng.integers(0, 1 << 41)),
                text=" ".join(rng.choice(WORDS, rng.integers(0, 9))),
                attributes=b'{"a": 1}' if has_attributes and rng.random() < 0.5 else b"",
            )
        )
    return builder.build()


def random_query(rng: np.random.Generator) -> Query:
    """Returns a query of any kind."""
    form = random_range(rng)
    kind = rng.choice(["range", "knn", "terms", "ranked"])
    if kind == "range":
        return parse_query(form)
    form = {name: value for name, value in form.items() if name not in _OF_TRACKED}
    form |= {"kind": str(kind), "k": int(rng.integers(1, 10_001))}
    is_continuous = form["mode"] == "continuous"
    point = {"lon": float(rng.uniform(-180, 180)), "lat": float(rng.integers(-90, 91))}
    if kind == "knn":
        left_out = {"region", "window"} if is_continuous else {"region"}
        form["point"] = point
    elif kind == "terms":
        left_out = {"window"}
        if is_continuous:
            form["step"] = f"{rng.integers(1, 10**9)}s"
    else:
        left_out = {"region", "text", "window"}
        form |= {"point": point, "radius_m": float(rng.random() * 1e6) + 1}
        form["keywords"] = [str(word) for word in rng.choice(WORDS[:3], rng.integers(1, 4))]
        if rng.random() < 0.7:
            text, space = float(rng.random() / 2), float(rng.random() / 2)
            form["weights"] = {"text": text, "space": space, "time": 1 - text - space}
            form["half_life"] = f"{rng.integers(1, 10**9)}ms"
    return parse_query({name: value for name, value in form.items() if name not in left_out})


def random_range(rng: np.random.Generator) -> dict[str, Any]:
    """Returns the members of a range query."""
    form: dict[str, Any] = {
        "id": f"q-{rng.integers(1 << 40)}-ü",
        "kind": "range",
        "mode": "continuous" if rng.random() < 0.8 else "snapshot",
    }
    lon, lat = float(rng.uniform(-150, 150)), float(rng.uniform(-60, 60))
    kind = rng.integers(5)
    if kind == 0:
        form["region"] = {"rect": {"west": lon, "south": lat, "east": lon + 20, "north": lat + 5}}
    elif kind == 1:
        form["region"] = {"rect": {"west": 170, "south": lat, "east": -lon, "north": lat}}
    elif kind == 2:
        form["region"] = {"circle": {"lon": lon, "lat": lat, "radius_m": float(rng.random() * 1e6)}}
    elif kind == 3:
        outer = [[lon, lat], [lon + 9, lat], [lon + 9, lat + 9], [lon, lat + 9], [lon, lat]]
        hole = [[lon + 1, lat + 1], [lon + 2, lat + 1], [lon + 2, lat + 2]]
        form["region"] = {"polygon": [outer, hole][: rng.integers(1, 3)]}
    if rng.random() < 0.8:
        texts = [
            "(coffee AND free) OR pizza",
            "ANY(louvre musée)",
            "fire AND NOT drill NOT x",
            "東",
        ]
        form["text"] = str(rng.choice(texts))
    if rng.random() < 0.4:
        form["where"] = {"status": "öpen", "size": {"gte": 3, "lt": 10.5}, "ok": True}
    if rng.random() < 0.5:
        form["window"] = f"{rng.integers(0, 1000)}m"
    if form["mode"] == "continuous":
        if rng.random() < 0.5:
            form["ttl"] = f"{rng.integers(1, 10**9)}ms"
        if rng.random() < 0.3:
            form |= {"track": "vehicle", "events": ["exit", "inside"][: rng.integers(1, 3)]}
            waits = ["dwell", "leave_after"][: rng.integers(0, 3)]
            form |= {name: f"{rng.integers(1, 10**9)}ms" for name in waits}
    return form


def random_events(rng: np.random.Generator, count: int) -> EventColumns:
    return EventColumns(
        rng.integers(0, 1 << 64, count, np.uint64),
        rng.integers(1, 1 << 63, count).astype(np.uint64),
        np.sort(rng.integers(0, 1 << 41, count)),
    )


def random_intervals(rng: np.random.Generator, count: int) -> Intervals:
    begins = rng.integers(0, 1 << 50, count)
    return Intervals(
        rng.integers(0, 64, count).astype(np.uint32),
        begins,
        begins + rng.integers(0, 1 << 30, count),
        rng.integers(0, 1 << 41, count),
    )


def random_names(rng: np.random.Generator, count: int) -> QueryNames:
    ids = [f"id{i}-{rng.integers(100)}é" for i in range(count)]
    subscribers = tuple(f"s{i}" for i in range(int(rng.integers(1, 5))))
    encoded = [i.encode() for i in ids]
    return QueryNames(
        np.array([query_handle(i) for i in ids], np.uint64),
        np.frombuffer(b"".join(encoded), np.uint8),
        np.cumsum([0, *map(len, encoded)]),
        rng.integers(0, len(subscribers), count).astype(np.uint32),
        subscribers,
    )


def random_matches(
    rng: np.random.Generator, count: int, objects: int, queries: int
) -> MatchColumns:
    if not objects or not queries:
        count = 0
    return MatchColumns(
        np.sort(rng.integers(0, max(objects, 1), count)).astype(np.uint32),
        rng.integers(0, max(queries, 1), count).astype(np.uint32),
    )


def taken(rng: np.random.Generator, count: int) -> IntakeObjects:
    is_whole = rng.random() < 0.5
    span = count if is_whole else count + int(rng.integers(1, 9))
    deltas = None if is_whole else np.sort(rng.permutation(span)[:count]).astype(np.uint32)
    objects = random_objects(rng, count)
    return IntakeObjects(
        session=int(rng.integers(1 << 63)),
        first_number=17,
        span=span,
        acknowledged_to=16,
        received_ms=int(rng.integers(1 << 41)),
        objects=objects,
        number_deltas=deltas,
    )


def change(rng: np.random.Generator, _: int) -> Change:
    query = random_query(rng)
    handle = query_handle(query.id)
    if rng.random() < 0.2:
        return Change(
            handle=handle, query=None, subscriber="", start_ms=5, expected_revision=7, digest=0
        )
    digest = int(rng.integers(0, 1 << 64, dtype=np.uint64))
    start_ms, epoch = int(rng.integers(1 << 41)), int(rng.integers(1 << 41))
    past_ms = int(rng.choice([NO_PAST, 0, 5_000, (1 << 63) - 1]))
    locator = random_locator(rng)
    is_given = bool(rng.random() < 0.5)
    return Change(
        handle=handle,
        query=query,
        subscriber="sub-é",
        start_ms=start_ms,
        expected_revision=NO_REVISION,
        digest=digest,
        epoch=epoch,
        past_ms=past_ms,
        locator=locator,
        is_start_given=is_given,
    )


def random_locator(rng: np.random.Generator) -> bytes:
    """Returns a locator: where objects count for a query, mostly as its region implies."""
    if rng.random() < 0.5:
        return b""
    alternatives = []
    for _ in range(int(rng.integers(1, 4))):
        terms = rng.integers(1, 1 << 64, int(rng.integers(1, 5)), np.uint64).tolist()
        held = int(rng.integers(1, len(terms), endpoint=True))
        key = terms[int(rng.integers(held))]
        alternatives.append(Alternative(key, tuple(terms[:held]), tuple(terms[held:])))
    return write_locator([*alternatives, HOME][int(rng.integers(2)) :])


def random_repeats(rng: np.random.Generator, found: TermColumns) -> TermColumns:
    """Returns the terms with repeats in their texts: none, some, or very many."""
    most = int(rng.choice([1, 3, 255, 256, 65_535]))
    counts = rng.integers(1, most, len(found.terms), endpoint=True).astype(np.uint16)
    ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])[found.offsets]
    return TermColumns(found.terms, found.offsets, np.diff(ends).astype(np.int32), counts)


def routed(rng: np.random.Generator, count: int) -> Routed:
    objects = random_objects(rng, count)
    intervals = random_intervals(rng, 4)
    terms = random_repeats(rng, analyse_batch(objects.text, objects.text_offsets))
    homes = via = None
    if count and rng.random() < 0.5:
        homes, via = rng.random(count) < 0.5, rng.random(len(terms.terms)) < 0.5
    routed = Routed(
        map_version=3,
        intervals=intervals,
        objects=objects,
        events=random_events(rng, count),
        positions=rng.integers(0, 1 << 60, count),
        interval_rows=np.sort(rng.integers(0, 4, count)).astype(np.uint32),
        terms=terms,
        homes=homes,
        via=via,
        least_version=int(rng.integers(0, 4)),
    )
    return routed if rng.random() < 0.5 else with_copies(rng, routed)


def with_copies(rng: np.random.Generator, routed: Routed) -> Routed:
    """Returns rows of which some are copies, and some of these name further values."""
    tracks = rng.integers(0, 3, len(routed.objects)).astype(np.uint32)
    copies = np.flatnonzero(tracks)
    if not len(copies):
        return routed
    rows = np.sort(rng.choice(copies, int(rng.integers(0, 5))))
    members = rng.integers(1, 3, len(rows)).astype(np.uint32)
    further = FurtherValues(rows, members, random_u8(rng, len(rows)))
    return replace(
        routed,
        track_keys=("bus", "line"),
        tracks=tracks,
        track_values=random_u8(rng, len(tracks)),
        further=further if len(rows) else None,
    )


def random_u8(rng: np.random.Generator, count: int) -> NDArray[np.uint64]:
    return rng.integers(0, 1 << 64, count, np.uint64, endpoint=False)


def installed(rng: np.random.Generator, count: int) -> Installed:
    queries = [random_query(rng) for _ in range(count)]
    if rng.random() < 0.3:
        # Only plain range queries, as in most records.
        forms = [random_range(rng) for _ in range(count)]
        queries = [
            parse_query({k: v for k, v in form.items() if k not in _OF_TRACKED}) for form in forms
        ]
    rows = compile_queries(queries, [0] * count)
    filters = tuple('{"a": {"gt": 1}}' if flag else "" for flag in rows.flags)
    kinds = np.array([kind_number(query) for query in queries], np.uint8)
    specs = tuple(spec_of(q) if kind else "" for q, kind in zip(queries, kinds, strict=True))
    ids = [query.id.encode() for query in queries]
    names = replace(
        random_names(rng, count),
        handles=np.array([query_handle(query.id) for query in queries], np.uint64),
        ids=np.frombuffer(b"".join(ids), np.uint8),
        id_offsets=np.cumsum([0, *map(len, ids)]),
        specs=specs if any(specs) else None,
    )
    plain = Installed.plain(
        5,
        99,
        names,
        rng.integers(0, 1 << 40, count),
        rows,
        filters if any(filters) else None,
        rng.integers(0, 1 << 64, 3, np.uint64),
        rng.integers(0, 1 << 40, 3),
    )
    locators = tuple(random_locator(rng) for _ in range(count))
    if any(locators):
        plain = replace(plain, locators=locators)
    if count and rng.random() < 0.3:
        plain = replace(plain, begins_ms=rng.integers(-(1 << 63), 1 << 41, count))
    asks_past = rng.random() < 0.5
    if not (kinds.any() or asks_past):
        return plain
    past_ms = rng.integers(-1, 1 << 41, count) if asks_past else np.full(count, NO_PAST)
    return replace(
        plain,
        kinds=kinds,
        starts_ms=rng.integers(0, 1 << 41, count) if count else plain.starts_ms,
        past_ms=past_ms,
        slot_counts=rng.integers(0, 99, count).astype(np.uint32),
        homes=rng.random(count) < 0.5,
    )


def found(rng: np.random.Generator, count: int) -> Found:
    names = random_names(rng, 1 + count // 2)
    intervals = random_intervals(rng, 2)
    if not count:
        names = random_names(np.random.default_rng(0), 0)
        names = QueryNames(names.handles, names.ids, names.id_offsets, names.subscriber_rows, ())
    matches, steps = random_matches(rng, 3 * count, count, len(names)), None
    if rng.random() < 0.5:
        names, matches = with_specs(rng, names), with_figures(rng, matches)
    if len(names) and rng.random() < 0.5:
        steps = random_steps(
            rng, 1 + count // 3, queries=len(names), intervals=len(intervals), objects=count
        )
    return Found(
        intervals=intervals,
        objects=random_objects(rng, count),
        events=random_events(rng, count),
        positions=rng.integers(0, 1 << 60, count),
        interval_rows=np.sort(rng.integers(0, 2, count)).astype(np.uint32),
        queries=names,
        matches=matches,
        steps=steps,
    )


def with_specs(rng: np.random.Generator, names: QueryNames) -> QueryNames:
    """Returns the same queries, some of them not plain range queries."""
    specs = tuple('{"id": "é"}' if rng.random() < 0.5 else "" for _ in range(len(names)))
    return replace(names, specs=specs if any(specs) else None)


def with_figures(rng: np.random.Generator, matches: MatchColumns) -> MatchColumns:
    """Returns the same matches with kinds of change and distances."""
    if not len(matches):
        return matches
    changes = rng.integers(0, 4, len(matches)).astype(np.uint8)
    return replace(matches, changes=changes, distances_m=rng.uniform(0, 2e7, len(matches)))


def delivered(rng: np.random.Generator, count: int) -> Delivered:
    names = random_names(rng, 1 + count // 2)
    matches = random_matches(rng, 3 * count, count, len(names))
    inner = np.sort(rng.integers(0, len(matches) + 1, len(names.subscribers) - 1))
    offsets = np.array([0, *inner, len(matches)], np.int64)
    lists = list_offsets = None
    if rng.random() < 0.5:
        names, matches = with_specs(rng, names), with_figures(rng, matches)
        lists = random_lists(rng, 1 + count // 3, queries=len(names), objects=count)
        inner = np.sort(rng.integers(0, len(lists) + 1, len(names.subscribers) - 1))
        list_offsets = np.array([0, *inner, len(lists)], np.int64)
    objects, events = random_objects(rng, count), random_events(rng, count)
    return Delivered(
        objects=objects,
        events=events,
        queries=names,
        matches=matches,
        match_offsets=offsets,
        lists=lists,
        list_offsets=list_offsets,
    )


def progress(rng: np.random.Generator, count: int) -> Progress:
    slots = np.sort(rng.permutation(2 * count + 1)[:count]).astype(np.uint32)
    return Progress(5, slots, rng.integers(0, 1 << 60, count), rng.integers(0, 1 << 41, count))


def keywords(rng: np.random.Generator, count: int) -> Keywords:
    terms = rng.integers(0, 1 << 63, count).astype(np.uint64)
    words = int(rng.integers(1, 4)) if count else 1
    slots = rng.integers(0, 1 << 63, (count, words)).astype(np.uint64)
    begins, ends, is_withdrawn = (rng.random(3) < 0.5).tolist()
    return Keywords(
        partition=3,
        epoch=1 << 40,
        terms=terms,
        slots=slots,
        begins=begins,
        ends=ends,
        is_withdrawn=is_withdrawn,
    )


MAKERS: dict[type, Callable[[np.random.Generator, int], Message]] = {
    IntakeObjects: taken,
    TrackedMember: lambda rng, count: (
        TrackedMember(f"vehicle {count}")
        if rng.random() < 0.5
        else TrackedMember("bus", count, 2 * count)
    ),
    TrackedMemberSet: lambda rng, count: TrackedMemberSet(
        count, 7, tuple(f"vehicle {number}" for number in range(count))
    ),
    Keywords: keywords,
    Change: change,
    Routed: routed,
    Installed: installed,
    Found: found,
    Delivered: delivered,
    Progress: progress,
    LeaderElected: lambda rng, _: LeaderElected("member-é"),
    Granted: lambda rng, count: Granted(9, "slots", count, "evaluator-3", count % 2 == 0),
    MapActivated: lambda rng, count: MapActivated(9, 4, rng.bytes(count)),
    MapPrepared: lambda rng, count: MapPrepared(9, 1 + count, rng.bytes(count)),
    MapCopied: lambda rng, count: MapCopied(count, 1 << 40, 1 << 41),
    MapSwitched: lambda rng, count: MapSwitched(9, 1 + count),
    Attempted: lambda rng, count: Attempted("slots", count, 1 << 40, 1 << 41, (1 << 41) + count),
    Skipped: lambda rng, count: Skipped("slots", count, 1 << 40),
    Switch: lambda rng, count: Switch(1 + count),
    Prepare: lambda rng, count: Prepare(1 + count),
    Retire: lambda rng, count: Retire(1 + count, (1 << 63) - 1 - count),
    CheckpointTaken: lambda rng, count: CheckpointTaken(
        "slots", count, 4, 1 << 40, "a/b", 3 * count
    ),
}


def differences(left: Any, right: Any, path: str = "") -> list[str]:
    """Returns where two values differ; arrays by type, shape and content."""
    if isinstance(left, np.ndarray):
        same = left.dtype == right.dtype and left.shape == right.shape and (left == right).all()
        return [] if same else [f"{path}: {left!r} {right!r}"]
    if is_dataclass(left) and type(left) is type(right) and _has_arrays(left):
        return [
            difference
            for each in fields(left)
            for difference in differences(
                getattr(left, each.name), getattr(right, each.name), f"{path}.{each.name}"
            )
        ]
    return [] if left == right else [f"{path}: {left!r} {right!r}"]


def _has_arrays(value: Any) -> bool:
    members = [getattr(value, each.name) for each in fields(value)]
    return any(isinstance(m, np.ndarray) or (is_dataclass(m) and _has_arrays(m)) for m in members)
