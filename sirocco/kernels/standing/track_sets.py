"""Keeps a set of rows for each tracked value: the queries that its newest object was inside.

A set is a block of entries (row, generation, last), three i4 words each: `last` is the number of
the value's newest object that satisfied the row's query, −1 if it is unknown. The word of a set
holds the number of its entries, the block's size class and its first entry (count | class << 26 |
first << 32). Entries and sets are counted as bytes up to a limit: a client chooses how many values
there are. A row gets no more than is free, and a tenant's rows together no more than `TENANT_SHARE`
times that: so tenants that come later find room. All decisions about room are the same in whatever
order entries and rows are held, since the slot's next owner holds them in another one. So the rows
of a tenant that one object concerns find room together, or none of them does.

A row is reused by another query after its own has ended. The generation identifies old entries, so
that an ended query leaves all sets at once; its entries are removed when they are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.blocks import free_block, take_block
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.pyramid import NO_BLOCK, ROW_WORDS, STATE_FREE, STATE_MASK

__all__ = [
    "COUNT_MASK",
    "EMPTY_SET",
    "ENTERS",
    "ENTRIES",
    "ENTRY_BYTES",
    "ENTRY_WORDS",
    "EXITS",
    "HELD",
    "INSIDE",
    "NO_TENANT",
    "PROGRESS_WORDS",
    "REFUSED",
    "SET_BYTES",
    "STALE",
    "TENANT_COLUMNS",
    "TICK",
    "USED",
    "follow",
    "put_members",
    "sweep_sets",
    "take_members",
]

ENTERS = 1
INSIDE = 2
EXITS = 3

COUNT_MASK = 0x3FFFFFF
EMPTY_SET = NO_BLOCK << 26

# Words of `progress`.
TICK = 0  # stamps assigned so far, two for each object
ENTRIES = 1  # in all sets
HELD = 2  # bytes counted for all sets: ENTRY_BYTES an entry, the charge of each set
REFUSED = 3  # pairs of an object and a row so far that found no room
STALE = 4  # entries so far whose object was not replaced by a larger one, for want of room
PROGRESS_WORDS = 5

# Columns of `tenants`.
USED = 0  # what the tenant's rows would take alone
ASKED = 1  # for the present object, of all its rows
CHANGE = 2  # of USED, by the present object
STAMP = 3  # the step for which ASKED and CHANGE are
TOUCHED = 4  # a list, independent of the row: the tenants that the step concerns
TENANT_COLUMNS = 5
NO_TENANT = -1
TENANT_SHARE = 3

ENTRY_WORDS = 3
# What an entry takes, in a block of which half may be unused; and a set, in its columns and the
# table of handles. Its charge is this and the weight of the heaviest object of its entries.
ENTRY_BYTES = 24
SET_BYTES = 64
_FOR_EVER = 0x7FFFFFFFFFFFFFFF

_I8 = types.Array(types.int64, 1, "C")
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_I8_TABLE = types.Array(types.int64, 2, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_U1 = types.Array(types.uint8, 1, "C")
_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)


@kernel
def _append(
    set_words: Any, own: Any, blocks: Any, entries: Any, row: Any, generation: Any, last: Any
) -> Any:
    """Adds a row to a set; False if `entries` has no room for a block twice as long."""
    word = set_words[own]
    count = word & COUNT_MASK
    size_class = (word >> 26) & 63
    first = word >> 32
    if size_class == NO_BLOCK:
        size_class = np.int64(0)
        first = np.int64(take_block(blocks, entries, ENTRY_WORDS, 0))
        if first < 0:
            return False
    elif count == 1 << size_class:
        larger = np.int64(take_block(blocks, entries, ENTRY_WORDS, size_class + 1))
        if larger < 0:
            return False
        for i in range(count * ENTRY_WORDS):
            entries[larger * ENTRY_WORDS + i] = entries[first * ENTRY_WORDS + i]
        free_block(blocks, entries, ENTRY_WORDS, size_class, first)
        first = larger
        size_class += 1
    at = (first + count) * ENTRY_WORDS
    entries[at] = row
    entries[at + 1] = generation
    entries[at + 2] = last
    set_words[own] = (first << 32) | (size_class << 26) | (count + 1)
    return True


@kernel
def _shorten(set_words: Any, own: Any, blocks: Any, entries: Any, kept: Any) -> None:
    """Shortens a set to its first `kept` entries; frees its block when empty."""
    word = set_words[own]
    if kept > 0:
        set_words[own] = (word & ~COUNT_MASK) | kept
    elif (word >> 26) & 63 != NO_BLOCK:
        free_block(blocks, entries, ENTRY_WORDS, (word >> 26) & 63, word >> 32)
        set_words[own] = EMPTY_SET


@kernel
def _weight(weights: Any, number: Any) -> Any:
    """Returns the bytes of an object, 0 if it is unknown."""
    return np.int64(weights[number]) if number >= 0 else np.int64(0)


@kernel
def _charge(charges: Any, progress: Any, own: Any, charge: Any) -> None:
    """Sets the charge of a set."""
    progress[HELD] += charge - charges[own]
    charges[own] = charge


@kernel
def _note(tenants: Any, touched: Any, tenant: Any, step: Any, asked: Any, change: Any) -> Any:
    """Adds to what a step asks and changes for a tenant; returns how many tenants it concerns."""
    if tenant < 0:
        return touched
    if tenants[tenant, STAMP] != step:
        tenants[tenant, STAMP] = step
        tenants[tenant, ASKED] = 0
        tenants[tenant, CHANGE] = 0
        tenants[touched, TOUCHED] = tenant
        touched += 1
    tenants[tenant, ASKED] += asked
    tenants[tenant, CHANGE] += change
    return touched


@kernel
def _apply(tenants: Any, touched: Any) -> None:
    """Adds the changes of a step."""
    for i in range(touched):
        tenant = tenants[i, TOUCHED]
        tenants[tenant, USED] += tenants[tenant, CHANGE]


@kernel
def _exceeds(tenants: Any, tenant: Any, free: Any) -> Any:
    """Whether a tenant's rows would take too much with what the step asks for them."""
    if tenant < 0:
        return False
    return tenants[tenant, USED] + tenants[tenant, ASKED] > TENANT_SHARE * free


@kernel
def _charge_anew(
    set_words: Any, entries: Any, weights: Any, charges: Any, progress: Any, own: Any
) -> None:
    """Sets the charge of a set from its entries."""
    word = set_words[own]
    count = word & COUNT_MASK
    first = (word >> 32) * ENTRY_WORDS
    heaviest = np.int64(0)
    for i in range(count):
        heaviest = max(heaviest, _weight(weights, entries[first + i * ENTRY_WORDS + 2]))
    _charge(charges, progress, own, SET_BYTES + heaviest if count > 0 else np.int64(0))


@kernel(
    types.int64(
        _I4_IN, _I4_IN, _U8_IN, _I8_IN, _I8_IN, _I8_IN, _I4_IN, _I8, _I8, _I4, _I8, _U8_IN, _I4_IN,
        _I8, _I4, _U1_IN, _I8_IN, _I8, _I8, _I4_IN, _I8_TABLE, types.int64, _I8, _I4, _I4, _U1,
    )
)  # fmt: skip
def follow(
    sets: Any,
    numbers: Any,
    keys: Any,
    arrival_ms: Any,
    positions: Any,
    pair_offsets: Any,
    pair_rows: Any,
    set_words: Any,
    blocks: Any,
    entries: Any,
    row_words: Any,
    row_keys: Any,
    generations: Any,
    stamps: Any,
    members: Any,
    events: Any,
    weights: Any,
    charges: Any,
    row_bytes: Any,
    row_tenants: Any,
    tenants: Any,
    limit: Any,
    progress: Any,
    out_objects: Any,
    out_rows: Any,
    out_events: Any,
) -> Any:
    """Updates sets object by object, and returns the events.

    Args:
        sets: i4[n], the set of each object's value; −1 if there is none and no pair either.
        numbers: i4[n], the number of each object in entries.
        keys: u8[n], the tracked key of each object.
        arrival_ms, positions: i8[n].
        pair_offsets: i8[n + 1] into pair_rows: i4[p], the rows that each object satisfies, all of
            them alive for it and of its key.
        set_words: i8[sets]; blocks: i8[34] and entries: i4, with room; changed.
        row_words: i8[8 · rows], see `pyramid`.
        row_keys: u8[rows]; generations: i4[rows].
        stamps: i8[rows], scratch, kept from call to call.
        members: i4[rows], sets in which each row is; changed.
        events: u1[rows], bit e is set if the query asks for event e.
        weights: i8[objects], bytes of each object, by its number.
        charges: i8[sets], bytes counted for each set; changed.
        row_bytes: i8[rows], what each row's entries would take alone; changed.
        row_tenants: i4[rows], a row of `tenants` for each, or NO_TENANT.
        tenants: i8[tenants, 5], see USED to TOUCHED; changed.
        limit: greatest sum of HELD. A value that finds no room does not enter: it is inside like
            those that stay, and may enter later.
        progress: i8[5], see TICK to STALE; changed.
        out_objects, out_rows: i4[m], out_events: u1[m], overwritten; long enough for twice the
            pairs and all entries of the sets. Of one object: exits, then enters, then insides; at
            most one event for an object and a row.

    Returns:
        How many were written; −1 if the entries or the output have no room.
    """
    count_out = np.int64(0)
    for this in range(sets.shape[0]):
        own = np.int64(sets[this])
        if own < 0:
            continue
        progress[TICK] += 2
        tick = progress[TICK]
        for pair in range(pair_offsets[this], pair_offsets[this + 1]):
            stamps[pair_rows[pair]] = tick
        weight = _weight(weights, numbers[this])
        free = limit - progress[HELD]
        is_tight = SET_BYTES + weight - charges[own] > free
        word = set_words[own]
        first = (word >> 32) * ENTRY_WORDS
        touched = np.int64(0)
        for i in range(word & COUNT_MASK):
            row = np.int64(entries[first + i * ENTRY_WORDS])
            generation = entries[first + i * ENTRY_WORDS + 1]
            if generation == generations[row] and stamps[row] == tick:
                growth = weight - _weight(weights, entries[first + i * ENTRY_WORDS + 2])
                asked = max(growth, np.int64(0))
                touched = _note(tenants, touched, row_tenants[row], tick, asked, 0)
        kept = np.int64(0)
        heaviest = np.int64(0)
        for i in range(word & COUNT_MASK):
            row = np.int64(entries[first + i * ENTRY_WORDS])
            generation = entries[first + i * ENTRY_WORDS + 1]
            last = entries[first + i * ENTRY_WORDS + 2]
            base = row * ROW_WORDS
            if generation != generations[row]:
                progress[ENTRIES] -= 1
                progress[HELD] -= ENTRY_BYTES
                continue
            if stamps[row] == tick:
                stamps[row] = tick + 1
                growth = weight - _weight(weights, last)
                if growth > 0 and (
                    is_tight
                    or row_bytes[row] + growth > free
                    or _exceeds(tenants, row_tenants[row], free)
                ):
                    progress[STALE] += 1
                else:
                    row_bytes[row] += growth
                    touched = _note(tenants, touched, row_tenants[row], tick, 0, growth)
                    last = numbers[this]
            elif (
                row_keys[row] == keys[this]
                and positions[this] >= row_words[base]
                and positions[this] < row_words[base + 1]
                and arrival_ms[this] < row_words[base + 2]
            ):
                progress[ENTRIES] -= 1
                progress[HELD] -= ENTRY_BYTES
                members[row] -= 1
                given_back = ENTRY_BYTES + SET_BYTES + _weight(weights, last)
                row_bytes[row] -= given_back
                touched = _note(tenants, touched, row_tenants[row], tick, 0, -given_back)
                if (events[row] >> EXITS) & 1 != 0:
                    if count_out == out_rows.shape[0]:
                        return np.int64(-1)
                    out_objects[count_out] = this
                    out_rows[count_out] = row
                    out_events[count_out] = EXITS
                    count_out += 1
                continue
            entries[first + kept * ENTRY_WORDS] = row
            entries[first + kept * ENTRY_WORDS + 1] = generation
            entries[first + kept * ENTRY_WORDS + 2] = last
            heaviest = max(heaviest, _weight(weights, last))
            kept += 1
        _shorten(set_words, own, blocks, entries, kept)
        _charge(charges, progress, own, SET_BYTES + heaviest if kept > 0 else np.int64(0))
        _apply(tenants, touched)

        entered = np.int64(0)
        row_needed = ENTRY_BYTES + SET_BYTES + weight
        touched = np.int64(0)
        for pair in range(pair_offsets[this], pair_offsets[this + 1]):
            row = np.int64(pair_rows[pair])
            if stamps[row] == tick:
                entered += 1
                touched = _note(tenants, touched, row_tenants[row], tick + 1, row_needed, 0)
        free = limit - progress[HELD]
        needed = entered * ENTRY_BYTES + max(np.int64(0), SET_BYTES + weight - charges[own])
        is_entered = False
        for pair in range(pair_offsets[this], pair_offsets[this + 1]):
            row = np.int64(pair_rows[pair])
            if stamps[row] == tick:
                if (
                    needed > free
                    or row_bytes[row] + row_needed > free
                    or _exceeds(tenants, row_tenants[row], free)
                ):
                    progress[REFUSED] += 1
                    stamps[row] = tick + 1
                    continue
                if not _append(
                    set_words, own, blocks, entries, row, generations[row], numbers[this]
                ):
                    return np.int64(-1)
                progress[ENTRIES] += 1
                progress[HELD] += ENTRY_BYTES
                members[row] += 1
                row_bytes[row] += row_needed
                touched = _note(tenants, touched, row_tenants[row], tick + 1, 0, row_needed)
                is_entered = True
                if (events[row] >> ENTERS) & 1 != 0:
                    if count_out == out_rows.shape[0]:
                        return np.int64(-1)
                    out_objects[count_out] = this
                    out_rows[count_out] = row
                    out_events[count_out] = ENTERS
                    count_out += 1
                else:
                    stamps[row] = tick + 1  # reported as inside, if the query asks for it
        if is_entered:
            _charge(charges, progress, own, max(charges[own], SET_BYTES + weight))
        _apply(tenants, touched)
        for pair in range(pair_offsets[this], pair_offsets[this + 1]):
            row = np.int64(pair_rows[pair])
            if stamps[row] == tick + 1 and (events[row] >> INSIDE) & 1 != 0:
                if count_out == out_rows.shape[0]:
                    return np.int64(-1)
                out_objects[count_out] = this
                out_rows[count_out] = row
                out_events[count_out] = INSIDE
                count_out += 1
    return count_out


@kernel(
    types.int64(
        _I4_IN, _I4_IN, _I4_IN, _I8, _I8, _I4, _I4_IN, _I4, _I8_IN, _I8, _I8, _I4_IN, _I8_TABLE,
        _I8,
    )
)  # fmt: skip
def put_members(
    sets: Any,
    rows: Any,
    numbers: Any,
    set_words: Any,
    blocks: Any,
    entries: Any,
    generations: Any,
    members: Any,
    weights: Any,
    charges: Any,
    row_bytes: Any,
    row_tenants: Any,
    tenants: Any,
    progress: Any,
) -> Any:
    """Adds rows (i4[m]) with numbers (i4[m]) to sets (i4[m]) that do not hold them.

    The rest as in `follow`, without its limit.

    Returns:
        0; −1 if the entries have no room.
    """
    for i in range(rows.shape[0]):
        row = np.int64(rows[i])
        if not _append(
            set_words, np.int64(sets[i]), blocks, entries, row, generations[row], numbers[i]
        ):
            return -1
        members[row] += 1
        progress[ENTRIES] += 1
        progress[HELD] += ENTRY_BYTES
        charge = SET_BYTES + _weight(weights, numbers[i])
        row_bytes[row] += ENTRY_BYTES + charge
        if row_tenants[row] >= 0:
            tenants[row_tenants[row], USED] += ENTRY_BYTES + charge
        _charge(charges, progress, np.int64(sets[i]), max(charges[sets[i]], charge))
    return 0


@kernel(types.int64(_I4_IN, _I8, _I8, _I4, _I8_IN, _U1_IN, _I4_IN, _I8_IN, _I8, _I8))
def sweep_sets(
    sets: Any,
    set_words: Any,
    blocks: Any,
    entries: Any,
    row_words: Any,
    row_state: Any,
    generations: Any,
    weights: Any,
    charges: Any,
    progress: Any,
) -> Any:
    """Removes the entries of freed rows from sets (i4[s]).

    Args:
        row_state: u1[rows], see `pyramid`: free rows are in no set.
        set_words … progress: as in `follow`.

    Returns:
        The number of remaining entries whose rows have ended and are not free yet.
    """
    ended = np.int64(0)
    for i in range(sets.shape[0]):
        own = np.int64(sets[i])
        word = set_words[own]
        first = (word >> 32) * ENTRY_WORDS
        count = word & COUNT_MASK
        kept = np.int64(0)
        for j in range(count):
            row = np.int64(entries[first + j * ENTRY_WORDS])
            generation = entries[first + j * ENTRY_WORDS + 1]
            if generation == generations[row] and row_state[row] & STATE_MASK != STATE_FREE:
                entries[first + kept * ENTRY_WORDS] = row
                entries[first + kept * ENTRY_WORDS + 1] = generation
                entries[first + kept * ENTRY_WORDS + 2] = entries[first + j * ENTRY_WORDS + 2]
                kept += 1
                ended += np.int64(row_words[row * ROW_WORDS + 1] != _FOR_EVER)
        if kept < count:
            progress[ENTRIES] -= count - kept
            progress[HELD] -= (count - kept) * ENTRY_BYTES
            _shorten(set_words, own, blocks, entries, kept)
            _charge_anew(set_words, entries, weights, charges, progress, own)
    return ended


@kernel(
    types.int64(
        _U1_IN, _I8, _I8, _I4, _I4_IN, _I4, _I8_IN, _I8, _I8, _I4_IN, _I8_TABLE, _I8, _I4, _I4,
        _I4,
    )
)  # fmt: skip
def take_members(
    is_taken: Any,
    set_words: Any,
    blocks: Any,
    entries: Any,
    generations: Any,
    members: Any,
    weights: Any,
    charges: Any,
    row_bytes: Any,
    row_tenants: Any,
    tenants: Any,
    progress: Any,
    out_sets: Any,
    out_rows: Any,
    out_numbers: Any,
) -> Any:
    """Removes the entries of some rows from all sets.

    Args:
        is_taken: u1[rows], 1 for the rows to remove.
        set_words: i8[s], of all sets; the others up to `progress` as in `follow`.
        out_sets, out_rows, out_numbers: i4[m], overwritten; as long as `members` of these rows.

    Returns:
        How many were written.
    """
    count_out = np.int64(0)
    for own in range(set_words.shape[0]):
        # There are many sets of other rows: they are read until all entries are found, and not
        # written.
        if count_out == out_sets.shape[0]:
            break
        word = set_words[own]
        first = (word >> 32) * ENTRY_WORDS
        count = word & COUNT_MASK
        kept = np.int64(0)
        for j in range(count):
            at = first + j * ENTRY_WORDS
            row = np.int64(entries[at])
            if (
                is_taken[row] != 0
                and entries[at + 1] == generations[row]
                and count_out < out_sets.shape[0]
            ):
                out_sets[count_out] = own
                out_rows[count_out] = row
                out_numbers[count_out] = entries[at + 2]
                members[row] -= 1
                last = entries[at + 2]
                given_back = ENTRY_BYTES + SET_BYTES + _weight(weights, last)
                row_bytes[row] -= given_back
                if row_tenants[row] >= 0:
                    tenants[row_tenants[row], USED] -= given_back
                count_out += 1
                continue
            if kept < j:
                entries[first + kept * ENTRY_WORDS] = entries[at]
                entries[first + kept * ENTRY_WORDS + 1] = entries[at + 1]
                entries[first + kept * ENTRY_WORDS + 2] = entries[at + 2]
            kept += 1
        if kept < count:
            progress[ENTRIES] -= count - kept
            progress[HELD] -= (count - kept) * ENTRY_BYTES
            _shorten(set_words, own, blocks, entries, kept)
            _charge_anew(set_words, entries, weights, charges, progress, np.int64(own))
    return count_out
