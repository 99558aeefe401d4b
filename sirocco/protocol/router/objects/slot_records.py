"""Splits routed objects into records of slots: sizes, rows that stay together, omitted columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.ragged import take_ragged
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.model.objects import ObjectColumns
from sirocco.model.text import TermColumns
from sirocco.protocol.contract.messages import Routed
from sirocco.protocol.contract.positions import Intervals
from sirocco.protocol.contract.term_rows import slice_terms
from sirocco.protocol.router.limits import LIMITS, RouterLimits
from sirocco.schemes.map.routing import ObjectRoutes

# A term with its count, and whether it leads to the slot.
TERM_BYTES = 11

# A further value of a copy, beside its first, and the framing of the member's name.
FURTHER_BYTES = 20


def with_places(
    routed: Routed,
    routes: ObjectRoutes,
    terms: TermColumns,
    rows: NDArray[np.int64],
    slots: NDArray[np.int32],
    order: NDArray[np.intp],
) -> Routed:
    """Marks which rows have their home in their slot, and which terms led there.

    Args:
        routed: the rows.
        routes: of the objects that they were taken from.
        terms: of these objects.
        rows: i8[m], the object of each row.
        slots: i4[m], its slot.
        order: i8[m], its route; indexes after the routes are copies.
    """
    assert routes.homes is not None
    assert routes.term_slots is not None
    homes = np.append(routes.homes, np.zeros(len(order) - len(routes.homes), np.bool_))[order]
    offsets, places = take_ragged(terms.offsets, rows)
    term_slots, counts = routes.term_slots[places], np.diff(offsets)
    # Terms that lead nowhere are those of a node whose queries are in all its slots.
    via = np.where(term_slots < 0, np.repeat(homes, counts), term_slots == np.repeat(slots, counts))
    return replace(routed, homes=homes, via=via)


def record_bounds(
    routed: Routed, begin: int, end: int, limits: RouterLimits = LIMITS
) -> list[tuple[int, int]]:
    """Splits rows [begin, end) into pieces that each fit a record, by rows and by bytes."""
    rows_max, bytes_max = limits.slot_rows_max, limits.slot_bytes_max
    if routed.tracks is None and end - begin <= rows_max:
        total = _cumulative_bytes(routed, end) - _cumulative_bytes(routed, begin)
        if total <= bytes_max:
            return [(begin, end)] if begin < end else []
    sizes, first = _bytes_before(routed, begin, end), begin
    ends = sizes[1:]
    bounds: list[tuple[int, int]] = []
    while begin < end:
        size = int(sizes[begin - first])
        fits = int(np.searchsorted(ends[begin - first :], size + bytes_max, side="right"))
        last = min(end, begin + min(max(fits, 1), rows_max))
        # An object and its copy have one position, which one record must cover.
        border = last
        while begin < border < end and _is_copy(routed, border):
            border -= 1
        if border > begin:
            last = border
        while last < end and _is_copy(routed, last):
            last += 1
        bounds.append((begin, last))
        begin = last
    return bounds


def bytes_of(objects: ObjectColumns, term_offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns i8[n], the bytes of each object in a record, without its numeric columns."""
    sizes = np.diff(objects.text_offsets) + np.diff(objects.attribute_offsets)
    sizes += np.diff(objects.name_offsets) + TERM_BYTES * np.diff(term_offsets)
    return sizes.astype(np.int64)


def _tracks_of(routed: Routed, first: int, last: int) -> Routed:
    """Selects the values of copies among rows [first, last), and renumbers their members."""
    assert routed.tracks is not None
    assert routed.track_values is not None
    tracks = routed.tracks[first:last]
    further = None if routed.further is None else routed.further.of(first, last)
    named = tracks if further is None else np.concatenate([tracks, further.tracks])
    used = sorted_distinct(named[named > 0])
    number_of = np.zeros(1 + len(routed.track_keys), np.uint32)
    number_of[used] = np.arange(1, len(used) + 1, dtype=np.uint32)
    if further is not None:
        further = replace(further, tracks=number_of[further.tracks])
    return replace(
        routed,
        track_keys=tuple([routed.track_keys[number - 1] for number in used.tolist()]),
        tracks=number_of[tracks],
        track_values=routed.track_values[first:last],
        further=further,
    )


def _cumulative_bytes(routed: Routed, rows: int | slice) -> Any:
    """Bytes of all objects before rows, but for the values of their copies: of one row or some."""
    objects = routed.objects
    sizes = objects.text_offsets[rows] + objects.attribute_offsets[rows]
    return sizes + objects.name_offsets[rows] + TERM_BYTES * routed.terms.offsets[rows]


def _bytes_before(routed: Routed, begin: int, end: int) -> NDArray[np.int64]:
    """Returns i8[end - begin + 1], the bytes of all rows before each of [begin, end]."""
    sizes: NDArray[np.int64] = _cumulative_bytes(routed, slice(begin, end + 1))
    further = None if routed.further is None else routed.further.of(begin, end)
    if further is not None:
        # With the names of the members, counted again for each value that names them.
        lengths = np.array([0, *(len(key.encode()) for key in routed.track_keys)], np.int64)
        counts = np.zeros(end - begin, np.int64)
        np.add.at(counts, further.rows, FURTHER_BYTES + lengths[further.tracks])
        sizes[1:] += np.cumsum(counts)
    return sizes


def _is_copy(routed: Routed, row: int) -> bool:
    return routed.tracks is not None and (
        routed.positions[row] == routed.positions[row - 1]
        and routed.interval_rows[row] == routed.interval_rows[row - 1]
    )


def piece_of(
    routed: Routed, first: int, last: int, intervals: Intervals, rows: NDArray[np.uint32]
) -> Routed:
    """Returns rows [first, last) of one slot as a record of their own.

    Args:
        routed: rows whose `interval_rows` are intake partitions.
        first, last: bounds, see `record_bounds`.
        intervals: of the partitions of these rows.
        rows: u4[last - first], row of `intervals` of each.
    """
    record = Routed(
        map_version=routed.map_version,
        intervals=intervals,
        objects=routed.objects.slice(first, last),
        events=routed.events.slice(first, last),
        positions=routed.positions[first:last],
        interval_rows=rows,
        terms=slice_terms(routed.terms, first, last),
    )
    if routed.tracks is not None and routed.tracks[first:last].any():
        found = _tracks_of(routed, first, last)
        record = replace(
            record,
            track_keys=found.track_keys,
            tracks=found.tracks,
            track_values=found.track_values,
            further=found.further,
        )
    if routed.homes is not None and routed.via is not None:
        begin, end = routed.terms.offsets[first], routed.terms.offsets[last]
        homes, via = routed.homes[first:last], routed.via[begin:end]
        if not (homes.all() and via.all()):
            record = replace(record, homes=homes, via=via)
    return record
