"""Searches over a slot's stored objects: by region and text, and the nearest.

A search reads a view, slice by slice, newest first; it may be stopped after any slice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.active_slice import ActiveView
from sirocco.index.store.gathering import gather_rows, gather_table
from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store import StoreView
from sirocco.index.store.store_condition import ALL_TIME, ANY_OBJECT, Bounds, Condition
from sirocco.index.store.text_check import TextCheck
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.kernels.store.slice_active import nearest_active, search_active
from sirocco.kernels.store.slice_nearest import nearest_rows, nearest_sealed
from sirocco.kernels.store.slice_range import search_sealed
from sirocco.kernels.store.slice_table import N_ROWS
from sirocco.model.attributes import Filter

__all__ = [
    "Hits",
    "Nearest",
    "RangeHits",
    "filtered_rows",
    "gather",
    "satisfying_rows",
    "scan_range",
    "search_knn",
    "search_knn_of",
    "search_range",
]

_UNLIMITED = (1 << 63) - 1
# Initial capacity in rows; few searches find more in one slice.
_ROOM = 1 << 14
# With a filter on attributes, or a phrase, this many times the candidates are searched, and finally
# all rows: the tree does not contain them.
_FILTERED_FACTOR = 8
_FILTERED_MAX = 1 << 15
# Texts copied at once to be checked: about a megabyte.
_CHECKED_ROWS = 1 << 14


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Rows of one slice.

    Attributes:
        source: the slice.
        rows: i8[m], each once.
    """

    source: SealedSlice | ActiveView
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def seqs(self) -> NDArray[np.int64]:
        """Returns the number of each object within the slot, in log order."""
        if isinstance(self.source, ActiveView):
            return self.source.first_seq + self.rows
        return self.source.first_seq + self.source.seqs[self.rows].astype(np.int64)

    def gather(self) -> StoredRows:
        """Returns the objects, in the order of `rows`."""
        return gather_rows((self.source,), np.zeros(len(self.rows), np.int64), self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class RangeHits:
    """The rows that a range search found.

    Attributes:
        hits: slice by slice, newest first, without empty ones.
    """

    hits: tuple[Hits, ...]

    def __len__(self) -> int:
        return sum(map(len, self.hits))

    def gather(self) -> StoredRows | None:
        """Returns the objects, None if there are none."""
        return gather(self.hits)


def gather(hits: Sequence[Hits], *, terms: bool = True) -> StoredRows | None:
    """Returns the objects of hits in order, optionally with their terms; None without hits."""
    if not hits:
        return None
    numbers = np.repeat(np.arange(len(hits)), [len(one) for one in hits])
    rows = np.concatenate([one.rows for one in hits])
    return gather_rows([one.source for one in hits], numbers, rows, terms=terms)


def search_range(
    view: StoreView,
    condition: Condition = ANY_OBJECT,
    bounds: Bounds = ALL_TIME,
    limit: int | None = None,
) -> RangeHits:
    """Finds the objects that satisfy a condition.

    Args:
        view: view of the store.
        condition: region, text, filter.
        bounds: part of the slot's objects.
        limit: maximum number of objects; newest slices first, unordered within a slice.
    """
    hits = []
    left = _UNLIMITED if limit is None else limit
    if left > 0:
        for one in scan_range(view, condition, bounds, left):
            hits.append(one)
            left -= len(one)
    return RangeHits(tuple(hits))


def scan_range(
    view: StoreView,
    condition: Condition = ANY_OBJECT,
    bounds: Bounds = ALL_TIME,
    limit: int = _UNLIMITED,
) -> Iterator[Hits]:
    """Yields the results of `search_range` slice by slice, at most `limit` ≥ 1 objects."""
    bounds = condition.within(bounds)
    wanted = limit if condition.is_exact else _UNLIMITED
    left = limit
    for hits in _unfiltered(view, condition, bounds, wanted):
        rows = hits.rows
        if not condition.is_exact:
            rows = satisfying_rows(hits.source, rows, condition)[:left]
        if len(rows):
            yield Hits(hits.source, rows)
            left -= len(rows)
            if left == 0:
                return


def _unfiltered(
    view: StoreView, condition: Condition, bounds: Bounds, limit: int
) -> Iterator[Hits]:
    """Yields objects that satisfy everything that kernels decide."""
    left = limit
    rows = _active_rows(view.active, condition, bounds, left)
    if len(rows):
        yield Hits(view.active, rows)
        left -= len(rows)
    slices, sealed = len(view.sealed), view.sealed
    out, counts = np.empty(_ROOM, np.uint32), np.empty(slices, np.int64)
    while slices and left:
        todo = search_sealed(
            view.table, slices, condition.words, condition.values, condition.quads,
            condition.hashes, bounds.arrival_from_ms, bounds.arrival_to_ms, bounds.seq_before,
            left, out, counts,
        )  # fmt: skip
        end = 0
        for i in range(slices - 1, todo - 1, -1):
            if counts[i]:
                begin, end = end, end + int(counts[i])
                yield Hits(sealed[i], out[begin:end].astype(np.int64))
        left -= end
        if todo == slices:
            # Untouched memory costs nothing.
            out = np.empty(len(sealed[todo - 1]), np.uint32)
        slices = todo


def _active_rows(
    active: ActiveView, condition: Condition, bounds: Bounds, limit: int
) -> NDArray[np.int64]:
    rows = min(active.rows, bounds.seq_before - active.first_seq)
    if rows <= 0:
        return np.empty(0, np.int64)
    out = np.empty(min(rows, limit), np.uint32)
    count = search_active(
        active.table_row, rows, condition.words, condition.values, condition.hashes,
        bounds.arrival_from_ms, bounds.arrival_to_ms, limit, out,
    )  # fmt: skip
    return out[:count].astype(np.int64)


def satisfying_rows(
    source: SealedSlice | ActiveView, rows: NDArray[np.int64], condition: Condition
) -> NDArray[np.int64]:
    """Returns those rows whose attributes and text satisfy what kernels leave open."""
    if condition.where is not None:
        rows = filtered_rows(source, rows, condition.where)
    if condition.text is None:
        return rows
    kept = [
        part[_texts_hold(source, part, condition.text)]
        for part in np.array_split(rows, max(1, -(-len(rows) // _CHECKED_ROWS)))
    ]
    return np.concatenate(kept)


def _texts_hold(
    source: SealedSlice | ActiveView, rows: NDArray[np.int64], check: TextCheck
) -> NDArray[np.bool_]:
    data: NDArray[np.uint8]
    offsets: NDArray[Any]
    if isinstance(source, ActiveView):
        data, offsets = source.text, source.text_offsets
    elif source.text is None:
        return np.zeros(len(rows), np.bool_)
    else:
        data, offsets = source.text
    begins = offsets[rows].astype(np.int64)
    lengths = offsets[rows + 1].astype(np.int64) - begins
    own = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=own[1:])
    return check.holds(data[np.arange(own[-1]) + np.repeat(begins - own[:-1], lengths)], own)


def filtered_rows(
    source: SealedSlice | ActiveView, rows: NDArray[np.int64], where: Filter
) -> NDArray[np.int64]:
    """Returns those rows whose attributes satisfy a filter."""
    data: NDArray[np.uint8]
    offsets: NDArray[Any]
    if isinstance(source, ActiveView):
        data, offsets = source.attributes, source.attribute_offsets
    elif source.attributes is None:
        # Without attributes no filter holds.
        return rows[:0] if where.conditions else rows
    else:
        data, offsets = source.attributes
    keep = np.empty(len(rows), np.bool_)
    # Attributes repeat: a result for some bytes holds for them everywhere.
    known: dict[bytes, bool] = {}
    begins, ends = offsets[rows].tolist(), offsets[rows + 1].tolist()
    for i, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        attributes = data[begin:end].tobytes()
        holds = known.get(attributes)
        if holds is None:
            holds = known[attributes] = where.matches(_members(attributes))
        keep[i] = holds
    return rows[keep]


def _members(attributes: bytes) -> dict[str, Any]:
    # The front has checked them; an object of a broken writer has no attributes.
    try:
        members = orjson.loads(attributes) if attributes else {}
    except orjson.JSONDecodeError:
        return {}
    return members if isinstance(members, dict) else {}


# Nearest neighbours ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Nearest:
    """The nearest objects, ordered by (distance rounded to 1 mm, id, session, number).

    Attributes:
        distances_m: f8[m], rounded to 1 mm.
        ids, sessions, numbers: u8[m].
        sources: their slices.
        table: i8[s, TABLE_WORDS], the slices in the kernels' form.
        refs: i8[m], row | number of the source << 32.
    """

    distances_m: NDArray[np.float64]
    ids: NDArray[np.uint64]
    sessions: NDArray[np.uint64]
    numbers: NDArray[np.uint64]
    sources: tuple[SealedSlice | ActiveView, ...]
    table: NDArray[np.int64]
    refs: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.refs)

    def take(self, places: NDArray[np.integer]) -> Nearest:
        """Returns some of the objects, in the given order."""
        return Nearest(
            distances_m=self.distances_m[places],
            ids=self.ids[places],
            sessions=self.sessions[places],
            numbers=self.numbers[places],
            sources=self.sources,
            table=self.table,
            refs=self.refs[places],
        )

    def gather(self, *, terms: bool = True) -> StoredRows | None:
        """Returns the objects in order, optionally with their terms; None if there are none."""
        if len(self.refs) == 0:
            return None
        numbers, rows = self.refs >> 32, self.refs & 0xFFFFFFFF
        return gather_table(self.table, numbers, rows, terms=terms)


def search_knn(
    view: StoreView,
    lon: float,
    lat: float,
    k: int,
    condition: Condition = ANY_OBJECT,
    bounds: Bounds = ALL_TIME,
    radius_m_max: float = math.inf,
) -> Nearest:
    """Finds the k nearest objects of one store; see `search_knn_of`."""
    return search_knn_of((view,), lon, lat, k, condition, bounds, radius_m_max)


def search_knn_of(
    views: Sequence[StoreView],
    lon: float,
    lat: float,
    k: int,
    condition: Condition = ANY_OBJECT,
    bounds: Bounds = ALL_TIME,
    radius_m_max: float = math.inf,
) -> Nearest:
    """Finds the k nearest objects that satisfy a condition.

    Args:
        views: views of stores, at least one; results of one bound the search in the others, so that
            the most promising should be first.
        lon, lat: the point, degrees.
        k: at least 1.
        condition: text, filter, and possibly a region.
        bounds: part of the objects of each slot.
        radius_m_max: objects farther than this (rounded to 1 mm) do not count.
    """
    bounds = condition.within(bounds)
    point = lon, lat, radius_m_max
    if condition.is_exact:
        return _nearest(views, point, k, condition, bounds)
    wanted, checked, kept = _FILTERED_FACTOR * k, 0, np.empty(0, np.int64)
    while wanted <= _FILTERED_MAX:
        nearest = _nearest(views, point, wanted, condition, bounds)
        fresh = np.arange(checked, len(nearest))
        kept = np.concatenate([kept, fresh[_satisfying(nearest.take(fresh), condition)]])
        checked = len(nearest)
        if len(kept) >= k or len(nearest) < wanted:
            return nearest.take(kept[:k])
        wanted *= _FILTERED_FACTOR
    return _nearest_of_all(views, point, k, condition, bounds)


class _Best:
    """The k nearest so far, in the kernels' form.

    Attributes:
        sources: the sealed slices of all stores, then their active ones.
        table: i8[s, TABLE_WORDS], the slices in the kernels' form.
        columns: see `slice_best`.
    """

    def __init__(self, views: Sequence[StoreView], k: int) -> None:
        sealed = chain.from_iterable(view.sealed for view in views)
        self.sources: tuple[SealedSlice | ActiveView, ...] = (
            *sealed,
            *(view.active for view in views),
        )
        active = np.array([view.active.table_row for view in views])
        self.table = np.concatenate([*(view.table for view in views), active])
        room = min(k, int(self.table[:, N_ROWS].sum()))
        self.columns = (
            np.empty(room),
            np.empty(3 * room, np.uint64),
            np.empty(room, np.int64),
            np.zeros(1, np.int64),
        )

    def ordered(self) -> Nearest:
        """Returns the objects in order."""
        metres, keys, refs, state = self.columns
        count = int(state[0])
        ids, sessions, numbers = keys[: 3 * count].reshape(-1, 3).T
        order = np.lexsort((numbers, sessions, ids, metres[:count]))
        return Nearest(
            distances_m=metres[order],
            ids=ids[order],
            sessions=sessions[order],
            numbers=numbers[order],
            sources=self.sources,
            table=self.table,
            refs=refs[order],
        )


def _nearest(
    views: Sequence[StoreView],
    point: tuple[float, float, float],
    k: int,
    condition: Condition,
    bounds: Bounds,
) -> Nearest:
    best = _Best(views, k)
    sealed = len(best.table) - len(views)
    if sealed:
        # The first view, where the point probably is, comes first, and in each view the largest
        # slice: its k nearest objects bound the search in the others.
        owners = np.repeat(np.arange(len(views)), [len(view.sealed) for view in views])
        order = np.lexsort((-best.table[:sealed, N_ROWS], owners))
        nearest_sealed(
            best.table, order, condition.words, condition.values, condition.quads,
            condition.hashes, bounds.arrival_from_ms, bounds.arrival_to_ms, bounds.seq_before,
            *point, *best.columns,
        )  # fmt: skip
    nearest_active(
        best.table, sealed, condition.words, condition.values, condition.hashes,
        bounds.arrival_from_ms, bounds.arrival_to_ms, bounds.seq_before, *point, *best.columns,
    )  # fmt: skip
    return best.ordered()


def _satisfying(nearest: Nearest, condition: Condition) -> NDArray[np.int64]:
    """Returns the places of objects that satisfy what kernels leave open."""
    numbers, rows = nearest.refs >> 32, nearest.refs & 0xFFFFFFFF
    keep = np.zeros(len(nearest), np.bool_)
    for number in sorted_distinct(numbers).tolist():
        own = np.flatnonzero(numbers == number)
        kept = satisfying_rows(nearest.sources[number], rows[own], condition)
        keep[own] = np.isin(rows[own], kept)
    return np.flatnonzero(keep)


def _nearest_of_all(
    views: Sequence[StoreView],
    point: tuple[float, float, float],
    k: int,
    condition: Condition,
    bounds: Bounds,
) -> Nearest:
    """Returns the nearest by reading every object that satisfies the condition, slice by slice."""
    best = _Best(views, k)
    numbers = {id(source): number for number, source in enumerate(best.sources)}
    for hits in chain.from_iterable(scan_range(view, condition, bounds) for view in views):
        source, rows = hits.source, hits.rows
        if isinstance(source, ActiveView):
            keys = source.sessions[rows], source.numbers[rows]
        else:
            keys = source.event_keys(rows)
        nearest_rows(
            rows, source.lon[rows], source.lat[rows], source.ids[rows], *keys, *point,
            numbers[id(source)], *best.columns,
        )  # fmt: skip
    return best.ordered()
