"""Converts the state of a slot to the columns of a checkpoint, and back.

A checkpoint holds the queries (their compiled rows, not the tables of the indexes: loading inserts
them again), the newest objects, and the names of the slices that hold all older ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from sirocco.index.base.compile import analysed_anew, compile_queries
from sirocco.index.base.query_rows import TEXT_COLUMNS, QueryRows
from sirocco.index.standing.export import export_queries
from sirocco.index.standing.query_table import NO_REVISION, NamedQueries, QueryTable
from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store import SlotStore
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.model.text import ANALYSIS
from sirocco.protocol.contract.byte_columns import packed, unpacked
from sirocco.protocol.contract.effects import State
from sirocco.protocol.contract.messages import NOT_COPIED
from sirocco.protocol.contract.positions import NO_TIME_MS
from sirocco.protocol.contract.query_words import analysed_from, is_former, words_of
from sirocco.protocol.evaluator.slot.archived_slices import Span
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.evaluator.standing.definitions import (
    condition_of_spec,
    spec_query,
    step_kind,
    tracked_member,
)
from sirocco.protocol.evaluator.standing.query_families import KNN, RANGE, STEPS, TRACKED
from sirocco.protocol.evaluator.standing.query_locators import locators_of
from sirocco.protocol.evaluator.standing.standing_queries import StandingQueries
from sirocco.protocol.evaluator.standing.tracked_queries import former_track_key, track_key

Columns = dict[str, NDArray[Any]]


def slot_state(slot: Slot, now_ms: int, stands_on: Sequence[Span]) -> State:
    """Returns the whole state of a slot except the slices of its store, which are archived."""
    slot.saved_offset, slot.saved_ms, slot.queries.unsaved = slot.offset, now_ms, 0
    reached = slot.reached
    sources = sorted(reached.positions.keys() | reached.times_ms.keys())
    standing = slot.standing
    return {
        "sources": np.array(sources, np.int64),
        "positions": np.array([reached.positions.get(s, 0) for s in sources], np.int64),
        "times_ms": np.array([reached.times_ms.get(s, NO_TIME_MS) for s in sources], np.int64),
        "map_version": np.array([slot.map_version], np.int64),
        "settled": np.array(slot.settled, np.int64),
        **_copied_state(slot),
        **_waiting_state(standing),
        "floors": np.array(sorted(slot.queries.floors.items()), np.int64).reshape(-1, 2),
        **slot.queries.removed.state(),
        **packed("subscriber_names", [n.encode() for n in standing.names.subscriber_names]),
        **_ranges_state(standing),
        **_knn_state(standing),
        **_steps_state(standing),
        **_tracked_state(standing),
        **_prefixed("store", slot.past.store.state(slot.hashing)),
        **slot.queries.endings.state(),
        **slot.past.manifest.state(),
        "slices": np.array(stands_on, np.int64).reshape(-1, 2),
        "analysis": np.array([ANALYSIS - slot.queries.has_former_texts], np.int64),
    }


def restore_slot(slot: Slot, state: State, slices: tuple[SealedSlice, ...] | None) -> None:
    """Takes the state of a checkpoint, and its slices; the slot must be opened and empty.

    Args:
        slot: to take them.
        state: of the checkpoint.
        slices: None if they are loaded later.
    """
    sources = state["sources"].tolist()
    slot.reached.positions = dict(zip(sources, state["positions"].tolist(), strict=True))
    slot.reached.times_ms = {
        source: time_ms
        for source, time_ms in zip(sources, state["times_ms"].tolist(), strict=True)
        if time_ms != NO_TIME_MS
    }
    if "map_version" in state:
        slot.map_version = int(state["map_version"][0])
    if "settled" in state:
        version, seq = state["settled"].tolist()
        slot.settled = version, seq
    slot.queries.floors = {int(k): int(v) for k, v in state["floors"]}
    slot.queries.removed.restore(state)
    subscribers = tuple(text.decode() for text in unpacked("subscriber_names", state))
    standing = slot.standing
    queries = QueryRows.from_columns(state, "query.")
    locators = unpacked("range.locators", state) if "range.locators" in state else None
    if is_former(state, ANALYSIS):
        queries = analysed_anew(queries)
        if slot.queries.definitions:
            names = state["range.handles"], state["range.revisions"]
            queries = analysed_from(queries, *names, slot.queries.definitions)
        locators = locators_of(queries, locators, np.zeros(len(queries), np.bool_))
    rows = standing.ranges.insert(queries, slot.offset)
    if locators is not None:
        standing.locators.put(rows, locators)
    _put_names(standing.families[RANGE].table, "range", state, rows, subscribers)
    rows = standing.knn.restore(_with_words("knn", state))
    _put_names(standing.families[KNN].table, "knn", state, rows, subscribers)
    _restore_steps(standing, state, subscribers)
    rows = standing.tracked.restore(_tracked(state))
    _put_names(standing.families[TRACKED].table, "tracked", state, rows, subscribers)
    slot.queries.follow_lifetimes(rows, state["tracked.expires_ms"])
    slot.queries.endings.restore(state)
    _restore_copied(slot, state)
    _restore_waiting(standing, state)
    # Checkpoints have the hashes of the wire; a process numbers terms anew.
    slot.past.store = SlotStore.restore(
        _without("store", state), slot.limits, slot.hashing, is_former=is_former(state, ANALYSIS)
    )
    if slices is None:
        slot.past.expect_slices(state)
    else:
        slot.past.put_slices(state, slices)
    slot.reports.add_targets()


def _copied_state(slot: Slot) -> Columns:
    """Returns the registry offsets at which queries were copied, for those that were."""
    handles, places = [], []
    for family, copied in zip(slot.standing.families, slot.queries.copied, strict=True):
        rows = np.sort(family.table.live())
        each = copied.of(rows)
        is_copied = each != NOT_COPIED
        handles.append(family.table.names(rows[is_copied]).handles)
        places.append(each[is_copied])
    return {"copied_queries": np.concatenate(handles), "copied_by": np.concatenate(places)}


def _restore_copied(slot: Slot, state: State) -> None:
    if "copied_by" not in state:
        return
    found, _ = slot.standing.names.find(state["copied_queries"])
    for family, rows in found:
        is_here = rows >= 0
        for place in sorted_distinct(state["copied_by"][is_here]).tolist():
            some = rows[is_here & (state["copied_by"] == place)]
            slot.queries.copied[family].enter(some, place)


def _waiting_state(standing: StandingQueries) -> Columns:
    """Returns which queries have not begun, and when they do."""
    handles, begins_ms = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
    for family, waiting in standing.waiting.items():
        table = standing.families[family].table
        is_live = table.revisions[waiting.rows] != NO_REVISION
        handles.append(table.handle_rows(waiting.rows[is_live]))
        begins_ms.append(waiting.begins_ms[is_live])
    return {
        "waiting_queries": np.concatenate(handles),
        "waiting_until_ms": np.concatenate(begins_ms),
    }


def _restore_waiting(standing: StandingQueries, state: State) -> None:
    if "waiting_queries" not in state:
        return
    found, _ = standing.names.find(state["waiting_queries"])
    for family, rows in found:
        is_here = rows >= 0
        standing.waiting[family].add(rows[is_here], state["waiting_until_ms"][is_here])


def _ranges_state(standing: StandingQueries) -> Columns:
    table = standing.families[RANGE].table
    rows = np.sort(table.live())
    queries = export_queries(standing.ranges, rows)
    locators: Columns = {}
    own = standing.locators.get(rows)
    if any(own):
        locators = packed("range.locators", own)
    return {
        **_names_state("range", table, rows),
        **locators,
        **{f"query.{name}": getattr(queries, name) for name in QueryRows.__slots__},
    }


def _knn_state(standing: StandingQueries) -> Columns:
    table = standing.families[KNN].table
    rows = np.sort(table.live())
    return {**_names_state("knn", table, rows), **_prefixed("knn", standing.knn.state(rows))}


def _steps_state(standing: StandingQueries) -> Columns:
    table = standing.families[STEPS].table
    rows = np.sort(table.live())
    return {**_names_state("steps", table, rows), **_prefixed("steps", standing.steps.state(rows))}


def _tracked_state(standing: StandingQueries) -> Columns:
    table = standing.families[TRACKED].table
    rows = np.sort(table.live())
    state = _prefixed("tracked", standing.tracked.state(rows))
    # As older versions know them, whose evaluators may own the slot next.
    specs = table.names(rows).specs or ()
    keys = np.array([former_track_key(tracked_member(spec)) for spec in specs], np.uint64)
    return {**state, "tracked.keys": keys, **_names_state("tracked", table, rows)}


def _tracked(state: State) -> State:
    """Returns the state of the tracked queries, with the keys that this version uses."""
    specs = [spec.decode() for spec in unpacked("tracked.specs", state)]
    keys = np.array([track_key(tracked_member(spec)) for spec in specs], np.uint64)
    return {**_with_words("tracked", state), "keys": keys}


def _restore_steps(standing: StandingQueries, state: State, subscribers: tuple[str, ...]) -> None:
    specs = [spec.decode() for spec in unpacked("steps.specs", state)]
    filters = [text.decode() for text in unpacked("steps.filters", state)]
    starts_ms = state["steps.starts_ms"].tolist()
    conditions = [
        partial(condition_of_spec, spec, text, start_ms, standing.hashing)
        for spec, text, start_ms in zip(specs, filters, starts_ms, strict=True)
    ]
    rows = standing.steps.restore(
        [step_kind(spec) for spec in specs], conditions, _without("steps", state)
    )
    _put_names(standing.families[STEPS].table, "steps", state, rows, subscribers)


def _names_state(prefix: str, table: QueryTable, rows: NDArray[np.int32]) -> Columns:
    names = table.names(rows)
    texts = [b""] * len(rows)
    if table.filters:
        filters = [table.filters.get(row) for row in rows.tolist()]
        texts = [b"" if f is None else orjson.dumps(f.canonical()) for f in filters]
    specs = names.specs or ("",) * len(rows)
    return {
        f"{prefix}.revisions": table.revisions[rows],
        f"{prefix}.handles": names.handles,
        f"{prefix}.ids": names.ids,
        f"{prefix}.id_offsets": names.id_offsets,
        f"{prefix}.subscribers": names.subscribers,
        **packed(f"{prefix}.filters", texts),
        **packed(f"{prefix}.specs", [spec.encode() for spec in specs] if any(specs) else []),
    }


def _put_names(
    table: QueryTable,
    prefix: str,
    state: State,
    rows: NDArray[np.int32],
    subscribers: tuple[str, ...],
) -> None:
    filters = [text.decode() for text in unpacked(f"{prefix}.filters", state)]
    specs = tuple(text.decode() for text in unpacked(f"{prefix}.specs", state))
    names = NamedQueries(
        state[f"{prefix}.handles"],
        state[f"{prefix}.ids"],
        state[f"{prefix}.id_offsets"],
        state[f"{prefix}.subscribers"],
        specs or None,
    )
    revisions = state[f"{prefix}.revisions"]
    table.put(rows, names, subscribers, revisions, filters if any(filters) else None)


def _prefixed(prefix: str, columns: State) -> Columns:
    return {f"{prefix}.{name}": column for name, column in columns.items()}


def _without(prefix: str, state: State) -> Columns:
    start = f"{prefix}."
    return {n.removeprefix(start): column for n, column in state.items() if n.startswith(start)}


def _with_words(prefix: str, state: State) -> Columns:
    """Returns the columns of queries; definitions supply the words that an old state lacks."""
    columns = _without(prefix, state)
    specs = [spec.decode() for spec in unpacked(f"{prefix}.specs", state)]
    if is_former(state, ANALYSIS) and all(specs) and specs:
        queries = [spec_query(spec) for spec in specs]
        compiled = compile_queries(queries, [0] * len(queries))
        return columns | {name: getattr(compiled, name) for name in TEXT_COLUMNS}
    if "word_offsets" in columns or not all(specs) or not specs:
        return columns
    return columns | words_of([spec_query(spec) for spec in specs], columns)
