"""Searches in the active slice: its rows stand as they came, so all of them are looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.compiled import kernel
from sirocco.kernels.geometry import distance_m
from sirocco.kernels.slice_best import limit_of, offer
from sirocco.kernels.slice_reach import near_box
from sirocco.kernels.slice_region import is_any_near, point_inside
from sirocco.kernels.slice_text import first_holding_hashes

__all__ = ["nearest_active", "search_active"]

# The box around the point is made anew when the limit has shrunk to this share.
_SHRUNK = 0.9

_F8 = types.Array(types.float64, 1, "C", readonly=True)
_I8 = types.Array(types.int64, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_OUT = types.Array(types.uint32, 1, "C")
_F8_OUT = types.Array(types.float64, 1, "C")
_U8_OUT = types.Array(types.uint64, 1, "C")
_I8_OUT = types.Array(types.int64, 1, "C")


@kernel(
    types.int64(
        _F8, _F8, _I8, _I8, _U8, types.int64,
        _I8, _F8, _U8, types.int64, types.int64, types.int64, _OUT,
    )
)  # fmt: skip
def search_active(
    lon: Any,
    lat: Any,
    arrivals_ms: Any,
    term_offsets: Any,
    terms: Any,
    rows: Any,
    words: Any,
    values: Any,
    hashes: Any,
    arrival_from_ms: Any,
    arrival_upto_ms: Any,
    found_max: Any,
    out: Any,
) -> Any:
    """Finds rows of the active slice.

    Args:
        lon, lat: f8, arrivals_ms: i8, term_offsets: i8, terms: u8, wire hashes: its columns.
        rows: how many of them to look at.
        words, values, hashes, arrival_from_ms, arrival_upto_ms, found_max: see `search_sealed`.
        out: u4[m], overwritten, ascending; m ≥ min(rows, found_max).

    Returns:
        How many rows were written.
    """
    conjunctions = words[3]
    heads = words[4]
    west, south, east, north = -180.0, -90.0, 180.0, 90.0
    if words[1] == 1:
        west, south, east, north = values[0], values[1], values[2], values[3]
    found = np.int64(0)
    for begin in range(0, rows, 64):
        # Nearly all blocks of a small region are done with this.
        end = min(begin + 64, rows)
        if not is_any_near(lon[begin:end], lat[begin:end], west, south, east, north):
            continue
        for row in range(begin, end):
            if found == found_max:
                return found
            if (
                not point_inside(words, values, lon[row], lat[row])
                or arrivals_ms[row] < arrival_from_ms
                or arrivals_ms[row] > arrival_upto_ms
            ):
                continue
            if (
                conjunctions > 0
                and first_holding_hashes(
                    words, heads, conjunctions, hashes, terms, term_offsets[row],
                    term_offsets[row + 1],
                ) < 0
            ):  # fmt: skip
                continue
            out[found] = row
            found += 1
    return found


@kernel(
    types.void(
        _F8, _F8, _I8, _I8, _U8, _U8, _U8, _U8, types.int64,
        _I8, _F8, _U8, types.int64, types.int64, types.float64, types.float64, types.float64,
        types.int64, _F8_OUT, _U8_OUT, _I8_OUT, _I8_OUT,
    )
)  # fmt: skip
def nearest_active(
    lon: Any,
    lat: Any,
    arrivals_ms: Any,
    term_offsets: Any,
    terms: Any,
    ids: Any,
    sessions: Any,
    numbers: Any,
    rows: Any,
    words: Any,
    values: Any,
    hashes: Any,
    arrival_from_ms: Any,
    arrival_upto_ms: Any,
    x: Any,
    y: Any,
    radius_m: Any,
    source: Any,
    metres: Any,
    keys: Any,
    refs: Any,
    state: Any,
) -> None:
    """Brings rows of the active slice among the k best; see `nearest_sealed`, `search_active`."""
    conjunctions = words[3]
    boxed_m = limit_of(metres, state, radius_m)
    west, south, east, north = near_box(x, y, boxed_m)
    for begin in range(0, rows, 64):
        end = min(begin + 64, rows)
        if not is_any_near(lon[begin:end], lat[begin:end], west, south, east, north):
            continue
        for row in range(begin, end):
            if (lon[row] < west) | (lon[row] > east) | (lat[row] < south) | (lat[row] > north):
                continue
            if (
                arrivals_ms[row] < arrival_from_ms
                or arrivals_ms[row] > arrival_upto_ms
                or not point_inside(words, values, lon[row], lat[row])
            ):
                continue
            if (
                conjunctions > 0
                and first_holding_hashes(
                    words, words[4], conjunctions, hashes, terms, term_offsets[row],
                    term_offsets[row + 1],
                ) < 0
            ):  # fmt: skip
                continue
            limit_m = limit_of(metres, state, radius_m)
            if limit_m < _SHRUNK * boxed_m:
                boxed_m = limit_m
                west, south, east, north = near_box(x, y, boxed_m)
            distance = distance_m(x, y, lon[row], lat[row])
            if distance <= limit_m:
                offer(
                    metres, keys, refs, state, distance, ids[row], sessions[row], numbers[row],
                    (source << 32) | np.int64(row),
                )  # fmt: skip
