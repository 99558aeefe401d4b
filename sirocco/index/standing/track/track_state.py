"""The state of a track index as columns, for checkpoints and moves."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
import numpy.typing as npt

from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.export import export_queries
from sirocco.index.standing.range_index import RangeIndex
from sirocco.index.standing.track.last_objects import NOT_KNOWN, LastObjects
from sirocco.index.standing.track.stays import Stays
from sirocco.index.standing.track.tracked_rows import TrackedRows
from sirocco.index.standing.track.value_sets import ValueSets
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.standing.pyramid import BORN, DEAD, ROW_WORDS, STATE_FREE, STATE_MASK
from sirocco.kernels.standing.track_sets import DUE, NEVER_DUE, PHASE, REPORTED
from sirocco.model.term_hashing import WIRE_TERMS

__all__ = ["state_of"]


def state_of(
    ranges: RangeIndex,
    tracked: TrackedRows,
    sets: ValueSets,
    former: Set[int],
    last_objects: LastObjects,
    rows: npt.NDArray[np.int32] | None,
) -> dict[str, npt.NDArray[Any]]:
    """Returns queries and the values inside them as named columns; see `TrackIndex.state`.

    Args:
        ranges: holds the queries' conditions; tracked: the rest of them.
        sets: the values inside queries.
        former: handles of sets that are stored under former hashes of their values.
        last_objects: the newest objects of values.
        rows: i4[n], rows in use; None: all, ascending.
    """
    store = ranges.row_store
    if rows is None:
        rows = np.flatnonzero(store.state & STATE_MASK != STATE_FREE).astype(np.int32)
    queries = export_queries(ranges, rows)
    words = store.words.reshape(-1, ROW_WORDS)[rows]
    place = np.full(len(tracked.keys.array), -1, np.int32)
    place[rows] = np.arange(len(rows))
    handles, member_rows, generations, numbers, former_values, stays = sets.members()
    is_live = (generations == tracked.generations.array[member_rows]) & (place[member_rows] >= 0)
    handles, member_rows, numbers = handles[is_live], member_rows[is_live], numbers[is_live]
    former_values, stays = former_values[is_live], stays[is_live]
    values = sets.handles_of(tracked.keys.array[member_rows], handles)
    order = np.lexsort((values, place[member_rows]))
    is_former = np.array([handle in former for handle in handles.tolist()], np.uint8)
    # The hash of earlier versions, if known.
    known = np.where(former_values == 0, values, former_values)
    named = sorted_distinct(numbers[numbers != NOT_KNOWN])
    # With wire hashes, as the next owner may number terms differently.
    last = last_objects.take(named).with_terms(WIRE_TERMS).columns() if len(named) else {}
    number_of = np.where(numbers == NOT_KNOWN, NOT_KNOWN, np.searchsorted(named, numbers))
    return {
        **{name: getattr(queries, name) for name in QueryRows.__slots__},
        "flags": tracked.flags.array[rows],
        "keys": tracked.keys.array[rows],
        "events": tracked.events.array[rows],
        "tenants": tracked.tenants_of(rows),
        "born": words[:, BORN].copy(),
        "dead": words[:, DEAD].copy(),
        "member_queries": place[member_rows][order],
        "member_values": known[order],
        "member_identities": values[order],
        "member_is_former": is_former[order],
        "member_objects": number_of[order].astype(np.int32),
        **{f"last.{name}": column for name, column in last.items()},
        **_waits_state(tracked, sets.stays, rows, stays[order]),
    }


def _waits_state(
    tracked: TrackedRows,
    stays: Stays,
    rows: npt.NDArray[np.int32],
    member_stays: npt.NDArray[np.int64],
) -> dict[str, npt.NDArray[Any]]:
    """Returns what queries wait for, if any of them does; `member_stays` i8[m], -1 for none."""
    if not tracked.has_stays.array[rows].any():
        return {}
    has_stay = member_stays >= 0
    phases = np.full(len(member_stays), REPORTED, np.int64)
    dues_ms = np.full(len(member_stays), NEVER_DUE, np.int64)
    phases[has_stay] = stays.table[member_stays[has_stay], PHASE]
    dues_ms[has_stay] = stays.table[member_stays[has_stay], DUE]
    return {
        "dwells_ms": tracked.dwells_ms.array[rows],
        "leaves_ms": tracked.leaves_ms.array[rows],
        "has_stays": tracked.has_stays.array[rows],
        "member_phases": phases,
        "member_dues_ms": dues_ms,
    }
