"""Reads a slice for a ranked query: finds objects within the radius, and possible best ones.

All objects within the radius count for the statistics; a run of rows wholly inside is added as a
sum. Candidates come from the posting lists of the keywords, in stretches of as many rows as a node
of the tree's second level has. Of most rows only one word is read, their summary, which with the
distance of the stretch bounds their score (Pastri 3.4 has such bounds for cells). `ranked_state`
describes the state of a search.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.geometry import distance_m
from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.store.ranked_near import box_distance_m, circle_of, is_near
from sirocco.kernels.store.ranked_prune import FLOATS, KEYS, REFS
from sirocco.kernels.store.ranked_state import (
    BETA,
    BITS,
    BY_ID,
    CANDIDATES,
    KEYWORDS,
    LAT,
    LON,
    OBJECTS,
    PRUNES,
    RADIUS,
    TOKENS,
    accept,
    bits_of,
    figures_of,
    is_covered,
    last_step,
    plain_of,
    room_of,
    row_threshold,
    signatures_of,
    steps_of,
    threshold_of,
    timed_part,
)
from sirocco.kernels.store.slice_range import collect_runs
from sirocco.kernels.store.slice_region import is_any_near, rows_near
from sirocco.kernels.store.slice_seal import BLOCK_ROWS, COUNT_LONG, FANOUT, TERM_BITS, TERM_MASK
from sirocco.kernels.store.slice_table import (
    ARRIVAL_FIRST,
    ARRIVAL_LAST,
    AT_LENGTHS,
    AT_LONG_COUNTS,
    AT_LONG_PLACES,
    FIRST_SEQ,
    N_LONG,
    N_ROWS,
    event_columns,
    f8_at,
    i4_at,
    i8_at,
    is_outside,
    is_within,
    search_columns,
    u1_at,
    u4_at,
)
from sirocco.kernels.store.slice_text import find_term

__all__ = [
    "SCRATCH_WORDS",
    "find_keywords",
    "rank_active",
    "rank_sealed",
    "sift_candidates",
    "summarise_rows",
]

_STRETCH_ROWS = BLOCK_ROWS * FANOUT
# Greater than the rounding error of a bound.
_EPSILON = 1e-12
_BLOCK = 64

_F8 = types.Array(types.float64, 1, "C", readonly=True)
_F4 = types.Array(types.float32, 1, "C", readonly=True)
_I8 = types.Array(types.int64, 1, "C", readonly=True)
_I8_2D = types.Array(types.int64, 2, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C", readonly=True)
_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_U4 = types.Array(types.uint32, 1, "C", readonly=True)
_U2 = types.Array(types.uint16, 1, "C", readonly=True)
_SEARCH = types.Array(types.int64, 1, "C")

# Bits of a row's summary: 8 for its length, 8 for its arrival, 16 for the terms that it repeats.
_CLASSES = 256
_CLASS_MASK = _CLASSES - 1
_CLASS_SHIFT = 8
_REPEAT_SHIFT = 16
_TERM_SHIFT = np.uint64(60)


# Longs that `rank_sealed` needs in addition to three for each keyword.
SCRATCH_WORDS = (_STRETCH_ROWS + 1) + 4 * _CLASSES + 2 * _STRETCH_ROWS // 8


@kernel(inline=True)
def _repeat_bit(term: Any) -> Any:
    """Returns the bit, of sixteen, for a repeated term of this hash."""
    return np.uint32(1) << np.uint32(term >> _TERM_SHIFT)


@kernel(inline=True)
def _class_ms(first_ms: Any, last_ms: Any) -> Any:
    """Returns the length (ms) of a class of arrivals, for a slice with these bounds."""
    return (last_ms - first_ms) // _CLASSES + 1


@kernel(types.void(_I8, _I4, _U4, _U4, _U8, types.int64, types.int64, types.uint32[::1]))
def summarise_rows(
    arrivals_ms: Any, lengths: Any, term_offsets: Any, terms: Any, vocabulary: Any, first_ms: Any,
    last_ms: Any, summaries: Any,
) -> None:  # fmt: skip
    """Writes the summary of each row of a slice, one word that bounds its score.

    Args:
        arrivals_ms … vocabulary: columns of the slice.
        first_ms, last_ms: bounds of its arrivals.
        summaries: u4[n], overwritten: length (up to 255), class of arrival << 8, bits of the
            terms that the row holds more than once << 16.
    """
    class_ms = _class_ms(first_ms, last_ms)
    for row in range(lengths.shape[0]):
        first = np.int64(term_offsets[row])
        last = np.int64(term_offsets[row + 1])
        bits = np.uint32(0)
        if np.int64(lengths[row]) != last - first:
            for k in range(first, last):
                if terms[k] >> np.uint32(TERM_BITS) != np.uint32(1):
                    bits |= _repeat_bit(vocabulary[terms[k] & np.uint32(TERM_MASK)])
        arrival = np.uint32((arrivals_ms[row] - first_ms) // class_ms)
        length = np.uint32(min(np.int64(lengths[row]), np.int64(_CLASS_MASK)))
        summaries[row] = (
            length | (arrival << np.uint32(_CLASS_SHIFT)) | (bits << np.uint32(_REPEAT_SHIFT))
        )


@kernel(types.int64(_I8_2D, _U8, types.int64[:, ::1]))
def find_keywords(table: Any, hashes: Any, numbers: Any) -> Any:
    """Finds keywords in the vocabularies of slices.

    Args:
        table: i8[s, TABLE_WORDS], see `slice_table`.
        hashes: u8[m], wire hashes.
        numbers: i8[s, m], overwritten with their numbers, −1 where a slice lacks one.

    Returns:
        The total number of their postings.
    """
    total = np.int64(0)
    for i in range(table.shape[0]):
        columns = search_columns(table[i])
        vocabulary, posting_offsets = columns[6], columns[7]
        for j in range(hashes.shape[0]):
            number = find_term(vocabulary, hashes[j])
            numbers[i, j] = number
            if number >= 0:
                total += np.int64(posting_offsets[number + 1]) - np.int64(posting_offsets[number])
    return total


@kernel
def _count_keywords(
    row: Any, numbers: Any, term_offsets: Any, terms: Any, long_places: Any, long_counts: Any,
    often: Any, first: Any,
) -> None:  # fmt: skip
    """Writes how often a row holds each keyword to `often`, from `first` on."""
    for j in range(numbers.shape[0]):
        often[first + j] = 0
    for k in range(np.int64(term_offsets[row]), np.int64(term_offsets[row + 1])):
        number = np.int64(terms[k] & np.uint32(TERM_MASK))
        for j in range(numbers.shape[0]):
            if numbers[j] == number:
                count = np.int64(terms[k] >> np.uint32(TERM_BITS))
                if count == COUNT_LONG:
                    count = np.int64(long_counts[np.searchsorted(long_places, k)])
                often[first + j] = count


@kernel(inline=True)
def _lower_bound(values: Any, begin: Any, end: Any, value: Any) -> Any:
    """Returns the first place in values[begin:end], ascending, that is not below a value."""
    step = np.int64(1)
    low = np.int64(begin)
    high = low
    while high < end and np.int64(values[high]) < value:
        low = high + 1
        high += step
        step *= 2
    high = min(high, np.int64(end))
    while low < high:
        middle = (low + high) >> 1
        if np.int64(values[middle]) < value:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def _mark_rows(
    begin: Any, end: Any, covers: Any, circle: Any, lon: Any, lat: Any, lengths: Any,
    arrivals_ms: Any, seqs: Any, life: Any, first: Any, marks: Any, search: Any,
) -> None:  # fmt: skip
    """Marks which of rows [begin, end) count, and adds them to the statistics.

    Marks are written from `first` on.
    """
    for row in range(begin, end):
        counts = covers or is_near(circle, lon[row], lat[row])
        if life[0] != 0:
            counts = (
                counts
                and (arrivals_ms[row] >= life[1])
                and (arrivals_ms[row] <= life[2])
                and (np.int64(seqs[row]) < life[3])
            )
        marks[first + row - begin] = counts
        if counts:
            search[OBJECTS] += 1
            search[TOKENS] += lengths[row]


@kernel(inline=True)
def _collect_postings(
    base: Any, end: Any, postings: Any, places: Any, stops: Any, bits: Any, masks: Any,
    touched: Any, marks: Any, is_marked: Any, holders: Any, summaries: Any,
) -> Any:  # fmt: skip
    """Writes which rows of [base, end) hold keywords; returns how many.

    Args:
        base, end: the stretch.
        postings: of the slice.
        places: i8[m], where each keyword's list continues; moved past the stretch.
        stops: i8[m], where each keyword's list ends.
        bits: u1[m], bit of each keyword.
        masks: u1[STRETCH_ROWS], zeros, overwritten with the bits of the keywords of each row.
        touched: i8[STRETCH_ROWS + 1], overwritten with the rows, less `base`.
        marks, is_marked: which rows count, if not all do.
        holders: i8[m], added to.
        summaries: of the rows, prefetched.
    """
    count = np.int64(0)
    for j in range(places.shape[0]):
        at = places[j]
        stop = stops[j]
        bit = bits[j]
        held = np.int64(0)
        while at < stop and np.int64(postings[at]) < end:
            row = np.int64(postings[at]) - base
            prefetch(summaries, base + row)
            touched[count] = row
            count += masks[row] == 0
            masks[row] |= bit
            if is_marked:
                held += marks[row]
            at += 1
        holders[j] += held if is_marked else at - places[j]
        places[j] = at
    return count


@kernel
def _consider(
    row: Any, mask: Any, repeated: Any, least_m: Any, numbers: Any, source: Any, number: Any,
    search: Any,
) -> None:  # fmt: skip
    """Examines a row that holds keywords and counts.

    Args:
        row: the row.
        mask: bits of its keywords.
        repeated: whether it may hold one more than once.
        least_m: a lower bound of its distance.
        numbers: i8[m], the keywords in the vocabulary.
        source: i8[TABLE_WORDS], the slice, and its number.
        search: see `ranked_state`.
    """
    lon, lat, arrivals_ms, _, term_offsets, terms, _, _, _, _, _ = search_columns(source)
    ids, session_rows, own_numbers, sessions, number_bases = event_columns(source)
    keys, refs, floats, often = room_of(search)
    figures = figures_of(search)
    is_by_id = figures[BY_ID] != 0.0
    m = search[KEYWORDS]
    at = search[CANDIDATES]
    length = np.int64(i4_at(source[AT_LENGTHS], source[N_ROWS])[row])
    refs[REFS * at + 2] = length
    group = plain_of(search)[mask]
    is_plain = group >= 0 and not repeated
    if is_plain:
        signatures = signatures_of(search)
        for j in range(m):
            often[m * at + j] = signatures[m * group + j]
    else:
        long_places = i8_at(source[AT_LONG_PLACES], source[N_LONG])
        long_counts = i4_at(source[AT_LONG_COUNTS], source[N_LONG])
        _count_keywords(row, numbers, term_offsets, terms, long_places, long_counts, often, m * at)
    must_stay = True
    least = -np.inf
    if search[PRUNES] != 0:
        if is_plain:
            least = threshold_of(search, is_by_id, group, last_step(steps_of(search), length))
            must_stay = not is_covered(search, group, length)
        else:
            least, covered = row_threshold(search, at)
            must_stay = not covered
    timed = timed_part(figures, arrivals_ms[row])
    if not must_stay:
        if is_by_id:
            if -np.float64(ids[row]) < least:
                return
        elif figures[BETA] * (1.0 - least_m / figures[RADIUS]) + timed + _EPSILON < least:
            return
    metres = distance_m(figures[LON], figures[LAT], lon[row], lat[row])
    known = figures[BETA] * (1.0 - metres / figures[RADIUS]) + timed
    if not must_stay and not is_by_id and known < least:
        return
    place = session_rows[row]
    keys[KEYS * at] = ids[row]
    keys[KEYS * at + 1] = sessions[place]
    keys[KEYS * at + 2] = number_bases[place] + np.uint64(own_numbers[row])
    refs[REFS * at] = (number << 32) | row
    refs[REFS * at + 1] = arrivals_ms[row]
    floats[FLOATS * at] = metres
    floats[FLOATS * at + 1] = known
    accept(search, must_stay)


@kernel(inline=True)
def _rank_stretch(
    base: Any, count: Any, touched: Any, masks: Any, marks: Any, is_marked: Any, bounds: Any,
    boxes: Any, levels: Any, circle: Any, numbers: Any, source: Any, number: Any, search: Any,
) -> None:  # fmt: skip
    """Examines the rows of a stretch that hold keywords; clears their masks."""
    summaries, newest_ms, timed, held_bits, step_of = bounds
    figures, plain = figures_of(search), plain_of(search)
    is_by_id = figures[BY_ID] != 0.0
    node = levels[1] + base // _STRETCH_ROWS if levels.shape[0] > 2 else np.int64(0)
    least_m = box_distance_m(circle, boxes, node)
    near = np.inf
    if not is_by_id:
        near = figures[BETA] * (1.0 - least_m / figures[RADIUS]) + _EPSILON
    for i in range(count):
        at = touched[i]
        mask = masks[at]
        masks[at] = 0
        row = base + at
        if is_marked and marks[at] == 0:
            continue
        summary = np.int64(summaries[row])
        repeated = (summary >> _REPEAT_SHIFT) & held_bits[mask] != 0
        if search[PRUNES] != 0 and not repeated:
            arrival = (summary >> _CLASS_SHIFT) & _CLASS_MASK
            if timed[arrival] < 0.0:
                timed[arrival] = timed_part(figures, newest_ms[arrival])
            length = summary & _CLASS_MASK
            least = threshold_of(search, is_by_id, plain[mask], step_of[length])
            if near + timed[arrival] < least and is_covered(search, plain[mask], length):
                continue
        _consider(row, mask, repeated, least_m, numbers, source, number, search)


@kernel
def _rank_slice(
    source: Any, extras: Any, number: Any, numbers: Any, words: Any, values: Any, quads: Any,
    circle: Any, life: Any, scratch: Any, holders: Any, search: Any, place: Any,
) -> Any:  # fmt: skip
    """Reads a slice from a row on; see `rank_sealed`. Returns where to continue, -1 at its end."""
    (
        lon, lat, arrivals_ms, seqs, _, _, _, posting_offsets, postings, boxes, levels,
    ) = search_columns(source)  # fmt: skip
    n = source[N_ROWS]
    runs, run_count, _ = collect_runs(words, values, quads, boxes, levels, n, np.int64(1 << 62))
    if run_count == 0:
        return np.int64(-1)
    m = search[KEYWORDS]
    places, stops, masks, marks, touched, newest_ms, timed, held_bits, step_of = scratch
    for j in range(m):
        places[j] = 0
        stops[j] = 0
        if numbers[j] >= 0:
            places[j] = np.int64(posting_offsets[numbers[j]])
            stops[j] = np.int64(posting_offsets[numbers[j] + 1])
    first_ms = source[ARRIVAL_FIRST]
    class_ms = _class_ms(first_ms, source[ARRIVAL_LAST])
    for i in range(_CLASSES):
        newest_ms[i] = first_ms + class_ms * (i + 1) - 1
        timed[i] = -1.0
    lengths = i4_at(source[AT_LENGTHS], n)
    block_lengths = i8_at(extras[0], (n + BLOCK_ROWS - 1) // BLOCK_ROWS + 1)
    summaries = u4_at(extras[1], n)
    bounds = (summaries, newest_ms, timed, held_bits, step_of)
    bits = bits_of(search)
    for run in range(run_count):
        begin = runs[3 * run]
        end = runs[3 * run + 1]
        if end <= place[1]:
            continue
        is_begun = begin < place[1]
        begin = max(begin, place[1])
        covers = runs[3 * run + 2] != 0
        is_marked = not covers or life[0] != 0
        if not is_marked and not is_begun:
            # Runs begin and end at the borders of blocks.
            search[OBJECTS] += end - begin
            first = begin // BLOCK_ROWS
            last = (end + BLOCK_ROWS - 1) // BLOCK_ROWS
            search[TOKENS] += block_lengths[last] - block_lengths[first]
        for j in range(m):
            places[j] = _lower_bound(postings, places[j], stops[j], begin)
        while begin < end:
            base = begin // _STRETCH_ROWS * _STRETCH_ROWS
            stretch_end = min(end, base + _STRETCH_ROWS)
            if is_marked:
                _mark_rows(
                    begin, stretch_end, covers, circle, lon, lat, lengths, arrivals_ms, seqs, life,
                    begin - base, marks, search,
                )  # fmt: skip
            count = _collect_postings(
                base, stretch_end, postings, places, stops, bits, masks, touched, marks, is_marked,
                holders, summaries,
            )  # fmt: skip
            if count > 0:
                _rank_stretch(
                    base, count, touched, masks, marks, is_marked, bounds, boxes, levels, circle,
                    numbers, source, number, search,
                )  # fmt: skip
            begin = stretch_end
            place[2] -= count * m * m
            if is_marked:
                place[2] -= _STRETCH_ROWS
            if place[2] < 0:
                return begin
    return np.int64(-1)


@kernel(
    types.void(
        _I8_2D, _I8_2D, _I8_2D, _I8, _F8, _F4, _U8, types.int64, types.int64, types.int64,
        types.int64[::1], types.int64[::1], _SEARCH, types.int64[::1],
    )
)  # fmt: skip
def rank_sealed(
    table: Any,
    extras: Any,
    numbers: Any,
    words: Any,
    values: Any,
    quads: Any,
    hashes: Any,
    arrival_from_ms: Any,
    arrival_to_ms: Any,
    seq_before: Any,
    scratch: Any,
    holders: Any,
    search: Any,
    place: Any,
) -> None:
    """Reads sealed slices, from the last to the first: the newest tend to score highest.

    It stops when it has done some work: a search may take minutes, and its thread has others to
    answer. What an object takes grows with the square of the keywords.

    Args:
        table: i8[s, TABLE_WORDS], see `slice_table`.
        extras: i8[s, 2], for each slice the addresses of its `block_lengths` and of the summaries
            of its rows, see `summarise_rows`; 0 where the slice is outside the bounds.
        numbers: i8[s, m], see `find_keywords`.
        words, values, quads: the circle as a condition, see `slice_region`.
        hashes: u8[m], distinct keywords.
        arrival_from_ms, arrival_to_ms: bounds of arrivals, both inclusive.
        seq_before: bound of numbers within the slot, exclusive.
        scratch: i8[SCRATCH_WORDS + 3 m], zeros, overwritten.
        holders: i8[m], added to: objects within the radius that hold each keyword.
        search: see `ranked_state`. It has room for one more than all candidates.
        place: i8[3], updated. The slice and the row where to begin, or to continue, -1 and 0 at the
            end; the work that is left, in objects with keywords times the square of the number of
            keywords, and objects whose place and time are compared.
    """
    m = hashes.shape[0]
    search = i8_at(search.ctypes.data, search.shape[0])
    figures, bits, steps = figures_of(search), bits_of(search), steps_of(search)
    at = scratch.ctypes.data
    own_numbers = i8_at(at, m)
    places = i8_at(at + 8 * m, m)
    stops = i8_at(at + 16 * m, m)
    at += 24 * m
    touched = i8_at(at, _STRETCH_ROWS + 1)
    at += 8 * (_STRETCH_ROWS + 1)
    held_bits = i8_at(at, _CLASSES)
    step_of = i8_at(at + 8 * _CLASSES, _CLASSES)
    newest_ms = i8_at(at + 16 * _CLASSES, _CLASSES)
    timed = f8_at(at + 24 * _CLASSES, _CLASSES)
    at += 32 * _CLASSES
    masks = u1_at(at, _STRETCH_ROWS)
    marks = u1_at(at + _STRETCH_ROWS, _STRETCH_ROWS)
    for mask in range(1 << BITS):
        for j in range(m):
            if mask & np.int64(bits[j]) != 0:
                held_bits[mask] |= np.int64(_repeat_bit(hashes[j]))
    for length in range(_CLASSES):
        step_of[length] = last_step(steps, length)
    own_scratch = (
        places, stops, masks, marks, touched, newest_ms, timed, held_bits, step_of,
    )  # fmt: skip
    circle = circle_of(figures[LON], figures[LAT], figures[RADIUS])
    life = np.empty(4, np.int64)
    while place[0] >= 0:
        i = place[0]
        place[0] -= 1
        source = i8_at(table.ctypes.data + 8 * i * table.shape[1], table.shape[1])
        if is_outside(source, arrival_from_ms, arrival_to_ms, seq_before):
            continue
        life[0] = not is_within(source, arrival_from_ms, arrival_to_ms, seq_before)
        life[1] = arrival_from_ms
        life[2] = arrival_to_ms
        life[3] = seq_before - source[FIRST_SEQ]
        for j in range(m):
            own_numbers[j] = numbers[i, j]
        row = _rank_slice(
            source, extras[i], np.int64(i), own_numbers, words, values, quads, circle, life,
            own_scratch, holders, search, place,
        )  # fmt: skip
        place[1] = max(row, 0)
        if row >= 0:
            place[0] = i
            return


@kernel
def _sift(search: Any) -> None:
    """Adds the row stored after the candidates to them, unless it is out."""
    keys, _, floats, _ = room_of(search)
    at = search[CANDIDATES]
    must_stay = True
    if search[PRUNES] != 0:
        least, covered = row_threshold(search, at)
        value = floats[FLOATS * at + 1]
        if figures_of(search)[BY_ID] != 0.0:
            value = -np.float64(keys[KEYS * at])
        if covered and value < least:
            return
        must_stay = not covered
    accept(search, must_stay)


@kernel(
    types.void(
        _F8, _F8, _I8, _I4, _I8, _U8, _U2, _U8, _U8, _U8, types.int64, _I8, _F8, _U8, types.int64,
        types.int64, types.int64, types.int64[::1], _SEARCH,
    )
)  # fmt: skip
def rank_active(
    lon: Any,
    lat: Any,
    arrivals_ms: Any,
    lengths: Any,
    term_offsets: Any,
    terms: Any,
    counts: Any,
    ids: Any,
    sessions: Any,
    numbers: Any,
    rows: Any,
    words: Any,
    values: Any,
    hashes: Any,
    arrival_from_ms: Any,
    arrival_to_ms: Any,
    source: Any,
    holders: Any,
    search: Any,
) -> None:
    """Reads the first `rows` rows of the active slice, number `source`; see `rank_sealed`."""
    m = hashes.shape[0]
    search = i8_at(search.ctypes.data, search.shape[0])
    keys, refs, floats, often = room_of(search)
    figures = figures_of(search)
    west, south, east, north = -180.0, -90.0, 180.0, 90.0
    if words[1] == 1:
        west, south, east, north = values[0], values[1], values[2], values[3]
    circle = circle_of(figures[LON], figures[LAT], figures[RADIUS])
    near = np.empty(_BLOCK, np.int64)
    for begin in range(0, rows, _BLOCK):
        end = min(begin + _BLOCK, rows)
        # The box excludes most blocks and rows, at a fraction of the distance's cost.
        if not is_any_near(lon[begin:end], lat[begin:end], west, south, east, north):
            continue
        for i in range(rows_near(lon[begin:end], lat[begin:end], west, south, east, north, near)):
            row = begin + near[i]
            if (
                (arrivals_ms[row] < arrival_from_ms) | (arrivals_ms[row] > arrival_to_ms)
            ) or not is_near(circle, lon[row], lat[row]):
                continue
            search[OBJECTS] += 1
            search[TOKENS] += lengths[row]
            at = search[CANDIDATES]
            held = False
            for j in range(m):
                often[m * at + j] = 0
            for k in range(term_offsets[row], term_offsets[row + 1]):
                for j in range(m):
                    if terms[k] == hashes[j]:
                        often[m * at + j] = counts[k]
                        holders[j] += 1
                        held = True
            if not held:
                continue
            metres = distance_m(figures[LON], figures[LAT], lon[row], lat[row])
            keys[KEYS * at] = ids[row]
            keys[KEYS * at + 1] = sessions[row]
            keys[KEYS * at + 2] = numbers[row]
            refs[REFS * at] = (source << 32) | row
            refs[REFS * at + 1] = arrivals_ms[row]
            refs[REFS * at + 2] = lengths[row]
            floats[FLOATS * at] = metres
            floats[FLOATS * at + 1] = figures[BETA] * (1.0 - metres / figures[RADIUS])
            floats[FLOATS * at + 1] += timed_part(figures, arrivals_ms[row])
            _sift(search)


@kernel(types.void(types.boolean, _SEARCH))
def sift_candidates(are_new: Any, search: Any) -> None:
    """Examines all candidates again, and moves the remaining ones to the front.

    Args:
        are_new: whether they were collected without comparing them; otherwise those that are out
            by now, and need not stay, are removed.
        search: see `ranked_state`.
    """
    search = i8_at(search.ctypes.data, search.shape[0])
    keys, refs, floats, often = room_of(search)
    is_by_id = figures_of(search)[BY_ID] != 0.0
    m = search[KEYWORDS]
    count = search[CANDIDATES]
    if are_new:
        search[CANDIDATES] = 0
    left = np.int64(0)
    for row in range(count):
        at = search[CANDIDATES] if are_new else left
        for i in range(KEYS):
            keys[KEYS * at + i] = keys[KEYS * row + i]
        for i in range(REFS):
            refs[REFS * at + i] = refs[REFS * row + i]
        for i in range(FLOATS):
            floats[FLOATS * at + i] = floats[FLOATS * row + i]
        for j in range(m):
            often[m * at + j] = often[m * row + j]
        if are_new:
            _sift(search)
            continue
        value = -np.float64(keys[KEYS * at]) if is_by_id else floats[FLOATS * at + 1]
        # All of them have been judged before, so no new group is created.
        least, _ = row_threshold(search, at)
        left += refs[REFS * at + 3] != 0 or value >= least
    if not are_new:
        search[CANDIDATES] = left
