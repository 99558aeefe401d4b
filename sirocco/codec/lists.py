"""Steps and lists (`StepColumns`, `ListColumns` of `columns.proto`) ⇄ values; see `columns`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sirocco_api.v1 import columns_pb2 as pb

from sirocco.codec.arrays import (
    F8,
    I8,
    U1,
    U2,
    U4,
    U8,
    check_between,
    pack,
    read_column,
    read_offsets,
    read_rows,
)
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.text import invalid_utf8_rows
from sirocco.protocol.contract.columns import NO_ROW, ListColumns, StepColumns
from sirocco.protocol.contract.positions import NO_TIME_MS

# Farther than any two points on the sphere.
DISTANCE_M_MAX = 2.1e7


def put_steps(message: pb.StepColumns, steps: StepColumns) -> None:
    """Fills `message`."""
    message.queries = pack(steps.queries, U4)
    message.at_ms = pack(steps.at_ms, I8)
    message.positions = pack(steps.positions, I8)
    message.interval_rows = pack(steps.interval_rows, U4)
    message.entry_offsets = pack(steps.entry_offsets, U4)
    message.terms = pack(steps.terms, U1)
    message.term_offsets = pack(steps.term_offsets, U4)
    message.counts = pack(steps.counts, U8)
    message.totals = pack(steps.totals, U8)
    message.holder_offsets = pack(steps.holder_offsets, U4)
    message.holders = pack(steps.holders, U8)
    message.candidate_offsets = pack(steps.candidate_offsets, U4)
    message.candidates = pack(steps.candidates, U4)
    message.token_counts = pack(steps.token_counts, U4)
    message.distances_m = pack(steps.distances_m, F8)
    message.frequencies = pack(steps.frequencies, U2)
    if steps.slot_counts is not None and steps.slot_counts.any():
        message.slot_counts = pack(steps.slot_counts, U4)


def read_steps(message: pb.StepColumns, queries: int, intervals: int, objects: int) -> StepColumns:
    """Returns the steps of `queries` queries, with candidates among `objects` objects.

    Raises:
        InvalidArgument: Columns that do not fit together.
    """
    count = len(message.queries) // U4.itemsize
    counts = read_column(message.counts, U8, "counts")
    terms = read_column(message.terms, U1, "terms")
    term_offsets = read_offsets(message.term_offsets, len(counts), len(terms), "term_offsets")
    if len(invalid_utf8_rows(terms, term_offsets)):
        raise InvalidArgument("is no valid UTF-8", field="terms")
    holders = read_column(message.holders, U8, "holders")
    holder_offsets = read_offsets(message.holder_offsets, count, len(holders), "holder_offsets")
    candidates = len(message.candidates) // U4.itemsize
    candidate_offsets = read_offsets(
        message.candidate_offsets, count, candidates, "candidate_offsets"
    )
    frequencies = int((np.diff(holder_offsets) * np.diff(candidate_offsets)).sum())
    at_ms = read_column(message.at_ms, I8, "at_ms", rows=count)
    check_between(at_ms, -DEFAULT_LIMITS.ts_ms, DEFAULT_LIMITS.ts_ms, "at_ms")
    distances_m = read_column(message.distances_m, F8, "distances_m", rows=candidates)
    check_between(distances_m, 0.0, DISTANCE_M_MAX, "distances_m")
    return StepColumns(
        queries=read_rows(message.queries, count, queries, "queries"),
        at_ms=at_ms,
        positions=read_column(message.positions, I8, "positions", rows=count),
        interval_rows=read_rows(message.interval_rows, count, intervals, "interval_rows"),
        entry_offsets=read_offsets(message.entry_offsets, count, len(counts), "entry_offsets"),
        terms=terms,
        term_offsets=term_offsets,
        counts=counts,
        totals=read_column(message.totals, U8, "totals", rows=2 * count).reshape(-1, 2),
        holder_offsets=holder_offsets,
        holders=holders,
        candidate_offsets=candidate_offsets,
        candidates=read_rows(message.candidates, candidates, objects, "candidates"),
        token_counts=read_column(message.token_counts, U4, "token_counts", rows=candidates),
        distances_m=distances_m,
        frequencies=read_column(message.frequencies, U2, "frequencies", rows=frequencies),
        slot_counts=read_column(message.slot_counts, U4, "slot_counts", rows=count)
        if message.slot_counts
        else None,
    )


def put_lists(message: pb.ListColumns, lists: ListColumns) -> None:
    """Fills `message`."""
    message.queries = pack(lists.queries, U4)
    message.at_ms = pack(lists.at_ms, I8)
    message.entry_offsets = pack(lists.entry_offsets, U4)
    message.values = pack(lists.values, F8)
    message.names = pack(lists.names, U1)
    message.name_offsets = pack(lists.name_offsets, U4)
    message.ids = pack(lists.ids, U8)
    message.sessions = pack(lists.sessions, U8)
    message.numbers = pack(lists.numbers, U8)
    message.objects = pack(lists.objects, U4)
    message.removed_offsets = pack(lists.removed_offsets, U4)
    message.removed_ids = pack(lists.removed_ids, U8)
    message.removed_names = pack(lists.removed_names, U1)
    message.removed_name_offsets = pack(lists.removed_name_offsets, U4)
    if lists.partial is not None and lists.partial.any():
        message.partial = pack(lists.partial, U1)
    if lists.ended is not None and lists.ended.any():
        message.ended = pack(lists.ended, U1)


def read_lists(message: pb.ListColumns, queries: int, objects: int) -> ListColumns:
    """Returns the lists of `queries` queries, which may name `objects` objects.

    Raises:
        InvalidArgument: Columns that do not fit together.
    """
    count = len(message.queries) // U4.itemsize
    values = read_column(message.values, F8, "values")
    entries = len(values)
    names = read_column(message.names, U1, "names")
    removed_ids = read_column(message.removed_ids, U8, "removed_ids")
    removed_names = read_column(message.removed_names, U1, "removed_names")
    return ListColumns(
        queries=read_rows(message.queries, count, queries, "queries"),
        at_ms=_times(message.at_ms, count),
        entry_offsets=read_offsets(message.entry_offsets, count, entries, "entry_offsets"),
        values=values,
        names=names,
        name_offsets=read_offsets(message.name_offsets, entries, len(names), "name_offsets"),
        ids=read_column(message.ids, U8, "ids", rows=entries),
        sessions=read_column(message.sessions, U8, "sessions", rows=entries),
        numbers=read_column(message.numbers, U8, "numbers", rows=entries),
        objects=_object_rows(message.objects, entries, objects),
        removed_offsets=read_offsets(
            message.removed_offsets, count, len(removed_ids), "removed_offsets"
        ),
        removed_ids=removed_ids,
        removed_names=removed_names,
        removed_name_offsets=read_offsets(
            message.removed_name_offsets,
            len(removed_ids),
            len(removed_names),
            "removed_name_offsets",
        ),
        partial=read_column(message.partial, U1, "partial", rows=count) != 0
        if message.partial
        else None,
        ended=read_column(message.ended, U1, "ended", rows=count) if message.ended else None,
    )


def _times(data: bytes, rows: int) -> NDArray[np.int64]:
    at_ms = read_column(data, I8, "at_ms", rows=rows)
    check_between(at_ms, NO_TIME_MS, DEFAULT_LIMITS.ts_ms, "at_ms")
    return at_ms


def _object_rows(data: bytes, rows: int, objects: int) -> NDArray[np.uint32]:
    column = read_column(data, U4, "objects", rows=rows)
    if ((column >= objects) & (column != NO_ROW)).any():
        raise InvalidArgument(f"names a row beyond {objects}", field="objects")
    return column
