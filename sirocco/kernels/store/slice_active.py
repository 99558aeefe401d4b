"""Searches active slices, whose rows are in order of arrival, without a tree and postings.

So all rows are examined, block by block: for a small region a test of a box excludes nearly all
blocks, and for a rare word a test of the tags of all terms of a block. A search for the nearest
objects that hold a word may have to look far. If a good share of the rows is near enough, to look
for the word in each row takes some 30 ns; to compare its tag with those of all terms of all rows at
once takes a tenth of that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.geometry import distance_m
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.store.slice_best import limit_of, offer
from sirocco.kernels.store.slice_reach import near_box
from sirocco.kernels.store.slice_region import (
    SHAPE_BOX,
    SHAPE_WORLD,
    is_any_near,
    point_inside,
    rows_near,
)
from sirocco.kernels.store.slice_table import (
    AT_ARRIVALS,
    AT_IDS,
    AT_LAT,
    AT_LON,
    AT_NUMBERS,
    AT_ROW_SESSIONS,
    AT_TAGS,
    AT_TERM_OFFSETS,
    AT_TERMS,
    FIRST_SEQ,
    N_ROWS,
    f8_at,
    i8_at,
    u2_at,
    u8_at,
)
from sirocco.kernels.store.slice_text import first_holding_hashes

__all__ = ["nearest_active", "search_active"]

_BLOCK = 64

# The box around the point is recomputed when the limit has shrunk to this share.
_SHRUNK = 0.9

# Rows are examined one by one if fewer than this share of the last rows, a sample of this size, is
# near enough: rows arrive in no spatial order.
_NEAR_SHARE = 0.125
_SAMPLE = 512
# Each further conjunction is one more comparison with all tags.
_CONJUNCTIONS_MAX = 4


_F8 = types.Array(types.float64, 1, "C", readonly=True)
_I8 = types.Array(types.int64, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_TABLE = types.Array(types.int64, 2, "C", readonly=True)
_OUT = types.Array(types.uint32, 1, "C")
_F8_OUT = types.Array(types.float64, 1, "C")
_U8_OUT = types.Array(types.uint64, 1, "C")
_I8_OUT = types.Array(types.int64, 1, "C")


@kernel
def _holding(active: Any, row: Any, words: Any, hashes: Any) -> Any:
    """Returns the first conjunction that a row satisfies, −1 for none; 0 if there is no text."""
    if words[3] == 0:
        return np.int64(0)
    offsets = i8_at(active[AT_TERM_OFFSETS], row + 2)
    terms = u8_at(active[AT_TERMS], offsets[row + 1])
    return first_holding_hashes(
        words, words[4], words[3], hashes, terms, offsets[row], offsets[row + 1]
    )


@kernel(inline=True)
def _is_any_alike(tags: Any, tag: Any) -> Any:
    """Returns whether one of some tags (u2[m]) is a given one.

    It has no branches and reads all of the array, so that the compiler emits vector instructions:
    a twelfth of the time.
    """
    alike = np.uint16(0)
    for i in range(tags.shape[0]):
        alike = np.uint16(alike | np.uint16(tags[i] == tag))
    return alike != 0


@kernel
def _is_any_tagged(tags: Any, words: Any, hashes: Any) -> Any:
    """Returns whether one of some tags (u2[m]) is that of the first term of a conjunction."""
    for i in range(words[3]):
        if _is_any_alike(tags, np.uint16(hashes[words[words[4] + 2 * i]] & np.uint64(0xFFFF))):
            return True
    return False


@kernel(
    types.int64(_I8, types.int64, _I8, _F8, _U8, types.int64, types.int64, types.int64, _OUT)
)  # fmt: skip
def search_active(
    active: Any,
    rows: Any,
    words: Any,
    values: Any,
    hashes: Any,
    arrival_from_ms: Any,
    arrival_to_ms: Any,
    found_max: Any,
    out: Any,
) -> Any:
    """Finds rows of an active slice.

    Args:
        active: i8[TABLE_WORDS], see `slice_table`.
        rows: how many of them to examine.
        words, values, hashes, arrival_from_ms, arrival_to_ms, found_max: see `search_sealed`.
        out: u4[m], overwritten, ascending; m ≥ min(rows, found_max).

    Returns:
        How many rows were written.
    """
    lon, lat = f8_at(active[AT_LON], rows), f8_at(active[AT_LAT], rows)
    arrivals_ms = i8_at(active[AT_ARRIVALS], rows)
    offsets = i8_at(active[AT_TERM_OFFSETS], rows + 1)
    tags = u2_at(active[AT_TAGS], offsets[rows])
    west, south, east, north = -180.0, -90.0, 180.0, 90.0
    if words[1] == 1:
        west, south, east, north = values[0], values[1], values[2], values[3]
    # In the only box of a region that is one, or anywhere.
    is_inside = words[0] == SHAPE_WORLD or (words[0] == SHAPE_BOX and words[1] == 1)
    by_tags = 0 < words[3] <= _CONJUNCTIONS_MAX
    near = np.empty(_BLOCK, np.int64)
    found = np.int64(0)
    for begin in range(0, rows, _BLOCK):
        end = min(begin + _BLOCK, rows)
        if not is_any_near(lon[begin:end], lat[begin:end], west, south, east, north):
            continue
        if by_tags and not _is_any_tagged(tags[offsets[begin] : offsets[end]], words, hashes):
            continue
        for i in range(rows_near(lon[begin:end], lat[begin:end], west, south, east, north, near)):
            row = begin + near[i]
            if found == found_max:
                return found
            if by_tags and not _is_any_tagged(tags[offsets[row] : offsets[row + 1]], words, hashes):
                continue
            if (
                (is_inside or point_inside(words, values, lon[row], lat[row]))
                and arrival_from_ms <= arrivals_ms[row] <= arrival_to_ms
                and _holding(active, row, words, hashes) >= 0
            ):
                out[found] = row
                found += 1
    return found


@kernel
def _offer_row(
    active: Any, row: Any, conjunction: Any, words: Any, values: Any, hashes: Any,
    arrival_from_ms: Any, arrival_to_ms: Any, x: Any, y: Any, limit_m: Any, source: Any,
    metres: Any, keys: Any, refs: Any, state: Any,
) -> None:  # fmt: skip
    """Offers a row to the k best if it satisfies the condition.

    Args:
        conjunction: the first one that it has to satisfy, −1 for any; see `nearest_active` for
            the others.
    """
    lon, lat = f8_at(active[AT_LON], row + 1)[row], f8_at(active[AT_LAT], row + 1)[row]
    arrival_ms = i8_at(active[AT_ARRIVALS], row + 1)[row]
    if not (
        arrival_from_ms <= arrival_ms <= arrival_to_ms and point_inside(words, values, lon, lat)
    ):
        return
    first = _holding(active, row, words, hashes)
    if first < 0 or (conjunction >= 0 and first != conjunction):
        return
    distance = distance_m(x, y, lon, lat)
    if distance <= limit_m:
        offer(
            metres, keys, refs, state, distance, u8_at(active[AT_IDS], row + 1)[row],
            u8_at(active[AT_ROW_SESSIONS], row + 1)[row], u8_at(active[AT_NUMBERS], row + 1)[row],
            (source << 32) | np.int64(row),
        )  # fmt: skip


@kernel
def _along_rows(
    active: Any, rows: Any, words: Any, values: Any, hashes: Any, arrival_from_ms: Any,
    arrival_to_ms: Any, x: Any, y: Any, radius_m: Any, source: Any, metres: Any, keys: Any,
    refs: Any, state: Any,
) -> None:  # fmt: skip
    """Examines one row after the other."""
    lon, lat = f8_at(active[AT_LON], rows), f8_at(active[AT_LAT], rows)
    boxed_m = limit_of(metres, state, radius_m)
    west, south, east, north = near_box(x, y, boxed_m)
    for begin in range(0, rows, _BLOCK):
        end = min(begin + _BLOCK, rows)
        if not is_any_near(lon[begin:end], lat[begin:end], west, south, east, north):
            continue
        for row in range(begin, end):
            if (lon[row] < west) | (lon[row] > east) | (lat[row] < south) | (lat[row] > north):
                continue
            limit_m = limit_of(metres, state, radius_m)
            if limit_m < _SHRUNK * boxed_m:
                boxed_m = limit_m
                west, south, east, north = near_box(x, y, boxed_m)
            _offer_row(
                active, row, -1, words, values, hashes, arrival_from_ms, arrival_to_ms, x, y,
                limit_m, source, metres, keys, refs, state,
            )  # fmt: skip


@kernel
def _row_of(offsets: Any, low: Any, high: Any, place: Any) -> Any:
    """Returns the row in [low, high) that a place of `terms` belongs to."""
    while high - low > 1:
        middle = (low + high) >> 1
        if offsets[middle] <= place:
            low = middle
        else:
            high = middle
    return low


@kernel
def _along_tags(
    active: Any, rows: Any, conjunction: Any, words: Any, values: Any, hashes: Any,
    arrival_from_ms: Any, arrival_to_ms: Any, x: Any, y: Any, radius_m: Any, source: Any,
    metres: Any, keys: Any, refs: Any, state: Any,
) -> None:  # fmt: skip
    """Examines rows with the first term of a conjunction that satisfy no earlier conjunction."""
    lon, lat = f8_at(active[AT_LON], rows), f8_at(active[AT_LAT], rows)
    offsets = i8_at(active[AT_TERM_OFFSETS], rows + 1)
    total = offsets[rows]
    terms, tags = u8_at(active[AT_TERMS], total), u2_at(active[AT_TAGS], total)
    term = hashes[words[words[4] + 2 * conjunction]]
    tag = np.uint16(term & np.uint64(0xFFFF))
    boxed_m = limit_of(metres, state, radius_m)
    west, south, east, north = near_box(x, y, boxed_m)
    row = np.int64(0)
    for begin in range(0, total, _BLOCK):
        end = min(begin + _BLOCK, total)
        if not _is_any_alike(tags[begin:end], tag):
            continue
        for place in range(begin, end):
            if tags[place] != tag or terms[place] != term:
                continue
            row = _row_of(offsets, row, rows, place)
            if (lon[row] < west) | (lon[row] > east) | (lat[row] < south) | (lat[row] > north):
                continue
            limit_m = limit_of(metres, state, radius_m)
            if limit_m < _SHRUNK * boxed_m:
                boxed_m = limit_m
                west, south, east, north = near_box(x, y, boxed_m)
            _offer_row(
                active, row, conjunction, words, values, hashes, arrival_from_ms,
                arrival_to_ms, x, y, limit_m, source, metres, keys, refs, state,
            )  # fmt: skip


@kernel
def _are_many_near(active: Any, rows: Any, x: Any, y: Any, limit_m: Any) -> Any:
    """Returns whether a good share of the rows may be near enough, estimated by the last rows."""
    lon, lat = f8_at(active[AT_LON], rows), f8_at(active[AT_LAT], rows)
    west, south, east, north = near_box(x, y, limit_m)
    first = max(0, rows - _SAMPLE)
    near = np.int64(0)
    for row in range(first, rows):
        near += np.int64(
            (lon[row] >= west) & (lat[row] >= south) & (lon[row] <= east) & (lat[row] <= north)
        )
    return near > _NEAR_SHARE * (rows - first)


@kernel(
    types.void(
        _TABLE, types.int64, _I8, _F8, _U8, types.int64, types.int64, types.int64,
        types.float64, types.float64, types.float64, _F8_OUT, _U8_OUT, _I8_OUT, _I8_OUT,
    )
)  # fmt: skip
def nearest_active(
    table: Any,
    first: Any,
    words: Any,
    values: Any,
    hashes: Any,
    arrival_from_ms: Any,
    arrival_to_ms: Any,
    seq_before: Any,
    x: Any,
    y: Any,
    radius_m: Any,
    metres: Any,
    keys: Any,
    refs: Any,
    state: Any,
) -> None:
    """Offers the rows of active slices to the k best; see `nearest_sealed`.

    Args:
        first: row of the table from which on all slices are active; these are searched.
    """
    for source in range(first, table.shape[0]):
        active = table[source]
        rows = min(active[N_ROWS], seq_before - active[FIRST_SEQ])
        if rows <= 0:
            continue
        limit_m = limit_of(metres, state, radius_m)
        if 0 < words[3] <= _CONJUNCTIONS_MAX and _are_many_near(active, rows, x, y, limit_m):
            for conjunction in range(words[3]):
                _along_tags(
                    active, rows, conjunction, words, values, hashes, arrival_from_ms,
                    arrival_to_ms, x, y, radius_m, source, metres, keys, refs, state,
                )  # fmt: skip
        else:
            _along_rows(
                active, rows, words, values, hashes, arrival_from_ms, arrival_to_ms, x, y,
                radius_m, source, metres, keys, refs, state,
            )  # fmt: skip
