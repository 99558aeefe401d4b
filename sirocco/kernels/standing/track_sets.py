"""Keeps a set of rows for each tracked value: the queries that its newest object was inside.

A set is a block of entries (row, generation, last), three i4 words each: `last` is the number of
the value's newest object that satisfied the row's query, −1 if it is unknown. The word of a set
holds the number of its entries, the block's size class and its first entry (count | class << 26 |
first << 32). Entries and sets are counted as bytes up to a limit: a client chooses how many values
there are. A row gets no more than is free, and a tenant's rows together no more than `TENANT_SHARE`
times that: so tenants that come later find room. All decisions about room are the same in whatever
order entries and rows are held, since the slot's next owner holds them in another one. So the rows
of a tenant that one object concerns find room together, or none of them does.

A row that waits (`dwell`, `leave_after`) has a stay for each entry: a row of the table `stays`,
with what was reported of the value there and when the next thing is due. `last` of such an entry is
−2 − stay, and the stay has the number of the object. Its bytes are counted with the entry's.

A row is reused by another query after its own has ended. The generation identifies old entries, so
that an ended query leaves all sets at once; its entries are removed when they are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.blocks import free_block, take_block
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.pyramid import (
    BORN,
    DEAD,
    EXPIRES,
    NO_BLOCK,
    ROW_WORDS,
    STATE_FREE,
    STATE_MASK,
)

__all__ = [
    "COUNT_MASK",
    "DUE",
    "DWELLS",
    "EMPTY_SET",
    "ENTERS",
    "ENTRIES",
    "ENTRY_BYTES",
    "ENTRY_WORDS",
    "EXITS",
    "HELD",
    "INSIDE",
    "LAST",
    "LEAVES",
    "NEVER_DUE",
    "NO_TENANT",
    "OWN_SET",
    "PHASE",
    "PROGRESS_WORDS",
    "REFUSED",
    "REPORTED",
    "ROW",
    "SET_BYTES",
    "STALE",
    "STAYS_END",
    "STAYS_FREE",
    "STAYS_USED",
    "STAY_BYTES",
    "STAY_COLUMNS",
    "STAY_WORDS",
    "TENANT_COLUMNS",
    "TICK",
    "USED",
    "drop_stays",
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

# Words of an entry.
ENTRY_ROW, ENTRY_GENERATION, ENTRY_LAST = range(3)
ENTRY_WORDS = 3
# What an entry takes, in a block of which half may be unused; and a set, in its columns and the
# table of handles. Its charge is this and the weight of the heaviest object of its entries.
ENTRY_BYTES = 24
SET_BYTES = 64
# What a stay takes, in a table of which half may be unused.
STAY_BYTES = 80
_FOR_EVER = 0x7FFFFFFFFFFFFFFF

# Columns of `stays`.
DUE = 0  # when the value has entered or left; NEVER_DUE if neither is awaited, and of free rows
LAST = 1  # the value's newest object that satisfied the row's query, −1 if it is unknown
PHASE = 2  # DWELLS: nothing was reported so far; REPORTED; LEAVES: reported, and outside since
OWN_SET = 3  # the set of its entry; of a free row the next free one, −1 for none
ROW = 4
STAY_COLUMNS = 5
REPORTED, DWELLS, LEAVES = range(3)
NEVER_DUE = _FOR_EVER

# Words of `stay_state`: rows that were ever used, the first free one of these or −1, and those in
# use.
STAYS_END, STAYS_FREE, STAYS_USED = range(3)
STAY_WORDS = 3

_I8 = types.Array(types.int64, 1, "C")
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_I8_TABLE = types.Array(types.int64, 2, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_U1 = types.Array(types.uint8, 1, "C")
_U1_IN = types.Array(types.uint8, 1, "C", readonly=True)


@kernel(inline=True)
def _move_entry(entries: Any, source: Any, target: Any) -> None:
    for i in range(ENTRY_WORDS):
        entries[target + i] = entries[source + i]


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
    entries[at + ENTRY_ROW] = row
    entries[at + ENTRY_GENERATION] = generation
    entries[at + ENTRY_LAST] = last
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
def _take_stay(
    stays: Any, stay_state: Any, own: Any, row: Any, last: Any, phase: Any, due: Any
) -> Any:
    """Takes a free stay; −1 if the table has no room."""
    stay = stay_state[STAYS_FREE]
    if stay >= 0:
        stay_state[STAYS_FREE] = stays[stay, OWN_SET]
    else:
        stay = stay_state[STAYS_END]
        if stay == stays.shape[0]:
            return np.int64(-1)
        stay_state[STAYS_END] += 1
    stay_state[STAYS_USED] += 1
    stays[stay, DUE] = due
    stays[stay, LAST] = last
    stays[stay, PHASE] = phase
    stays[stay, OWN_SET] = own
    stays[stay, ROW] = row
    return np.int64(stay)


@kernel
def _free_stay(stays: Any, stay_state: Any, stay: Any) -> None:
    stays[stay, DUE] = NEVER_DUE
    stays[stay, OWN_SET] = stay_state[STAYS_FREE]
    stay_state[STAYS_FREE] = stay
    stay_state[STAYS_USED] -= 1


@kernel
def _stay_of(last: Any) -> Any:
    """Returns the stay of an entry by its third word; −1 if it has none."""
    return np.int64(-2 - last) if last <= -2 else np.int64(-1)


@kernel
def _object_of(stays: Any, last: Any) -> Any:
    """Returns the number of an entry's object by its third word, −1 if it is unknown."""
    return np.int64(stays[-2 - last, LAST]) if last <= -2 else np.int64(last)


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
    set_words: Any, entries: Any, stays: Any, weights: Any, charges: Any, progress: Any, own: Any
) -> None:
    """Sets the charge of a set from its entries."""
    word = set_words[own]
    count = word & COUNT_MASK
    first = (word >> 32) * ENTRY_WORDS
    heaviest = np.int64(0)
    for i in range(count):
        last = _object_of(stays, entries[first + i * ENTRY_WORDS + ENTRY_LAST])
        heaviest = max(heaviest, _weight(weights, last))
    _charge(charges, progress, own, SET_BYTES + heaviest if count > 0 else np.int64(0))


@kernel
def _due_event(phase: Any, events: Any) -> Any:
    """Returns the event to report when the wait of a phase is over; 0 for none."""
    if phase == LEAVES:
        return np.int64(EXITS) if (events >> EXITS) & 1 != 0 else np.int64(0)
    if (events >> ENTERS) & 1 != 0:
        return np.int64(ENTERS)
    return np.int64(INSIDE) if (events >> INSIDE) & 1 != 0 else np.int64(0)


@kernel(
    types.int64(
        _I4_IN, _I4_IN, _U8_IN, _I8_IN, _I8_IN, _I8_IN, _I4_IN, _I8, _I8, _I4, _I8_TABLE, _I8, _I8,
        _U8_IN, _I4_IN, _I8, _I4, _U1_IN, _U1_IN, _I8_IN, _I8_IN, _I8_IN, _I8, _I8, _I4_IN,
        _I8_TABLE, types.int64, _I8, _I4, _I4, _U1, _I4,
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
    stays: Any,
    stay_state: Any,
    row_words: Any,
    row_keys: Any,
    generations: Any,
    stamps: Any,
    members: Any,
    events: Any,
    has_stays: Any,
    dwells_ms: Any,
    leaves_ms: Any,
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
    out_numbers: Any,
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
        stays: i8[s, 5], see DUE to ROW; stay_state: i8[3]; with room for a stay a pair; changed.
        row_words: i8[8 · rows], see `pyramid`.
        row_keys: u8[rows]; generations: i4[rows].
        stamps: i8[rows], scratch, kept from call to call.
        members: i4[rows], sets in which each row is; changed.
        events: u1[rows], bit e is set if the query asks for event e.
        has_stays: u1[rows], 1 if each entry of the row has a stay.
        dwells_ms, leaves_ms: i8[rows], how long a value must be inside before it has entered, and
            outside before it has left; 0: at once. Both are 0 without stays.
        weights: i8[objects], bytes of each object, by its number.
        charges: i8[sets], bytes counted for each set; changed.
        row_bytes: i8[rows], what each row's entries would take alone; changed.
        row_tenants: i4[rows], a row of `tenants` for each, or NO_TENANT.
        tenants: i8[tenants, 5], see USED to TOUCHED; changed.
        limit: greatest sum of HELD. A value that finds no room does not enter: it is inside like
            those that stay, and may enter later.
        progress: i8[5], see TICK to STALE; changed.
        out_objects, out_rows: i4[m], out_events: u1[m], overwritten; long enough for three times
            the pairs and twice all entries of the sets. Of one object: exits and what was due
            before it, then enters, then insides; at most one event of the object for a row.
        out_numbers: i4[m], overwritten: −1 for events of the object itself; of those that were due
            before it, the number of the object that is reported.

    Returns:
        How many were written; −1 if the entries, the stays or the output have no room.
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
            row = np.int64(entries[first + i * ENTRY_WORDS + ENTRY_ROW])
            generation = entries[first + i * ENTRY_WORDS + ENTRY_GENERATION]
            if generation == generations[row] and stamps[row] == tick:
                last = _object_of(stays, entries[first + i * ENTRY_WORDS + ENTRY_LAST])
                asked = max(weight - _weight(weights, last), np.int64(0))
                touched = _note(tenants, touched, row_tenants[row], tick, asked, 0)
        kept = np.int64(0)
        heaviest = np.int64(0)
        for i in range(word & COUNT_MASK):
            row = np.int64(entries[first + i * ENTRY_WORDS + ENTRY_ROW])
            generation = entries[first + i * ENTRY_WORDS + ENTRY_GENERATION]
            third = entries[first + i * ENTRY_WORDS + ENTRY_LAST]
            if generation != generations[row]:
                progress[ENTRIES] -= 1
                progress[HELD] -= ENTRY_BYTES
                continue
            stay = _stay_of(third)
            last = _object_of(stays, third)
            base = row * ROW_WORDS
            is_satisfied = stamps[row] == tick
            is_outside = (
                not is_satisfied
                and row_keys[row] == keys[this]
                and positions[this] >= row_words[base + BORN]
                and positions[this] < row_words[base + DEAD]
                and arrival_ms[this] < row_words[base + EXPIRES]
            )
            phase = np.int64(REPORTED)
            has_left = False
            if stay >= 0:
                phase = stays[stay, PHASE]
                if stays[stay, DUE] < arrival_ms[this] and (is_satisfied or is_outside):
                    # Due before this object, although the slot's time has not passed it.
                    has_left = phase == LEAVES
                    event = _due_event(phase, events[row])
                    if event != 0 and last >= 0:
                        if count_out == out_rows.shape[0]:
                            return np.int64(-1)
                        out_objects[count_out] = this
                        out_rows[count_out] = row
                        out_events[count_out] = event
                        out_numbers[count_out] = last
                        count_out += 1
                    phase = np.int64(REPORTED)
                    stays[stay, PHASE] = REPORTED
                    stays[stay, DUE] = NEVER_DUE
            if is_satisfied and not has_left:
                # A value that dwells is not reported, and one that was leaving has not left.
                stamps[row] = tick + 1 if phase != DWELLS else np.int64(0)
                if phase == LEAVES:
                    stays[stay, PHASE] = REPORTED
                    stays[stay, DUE] = NEVER_DUE
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
                    last = np.int64(numbers[this])
                    if stay >= 0:
                        stays[stay, LAST] = last
                    else:
                        third = numbers[this]
            elif is_outside and not has_left and leaves_ms[row] > 0 and phase != DWELLS:
                if phase == REPORTED:
                    stays[stay, PHASE] = LEAVES
                    stays[stay, DUE] = arrival_ms[this] + leaves_ms[row]
            elif is_outside or has_left:
                progress[ENTRIES] -= 1
                progress[HELD] -= ENTRY_BYTES
                members[row] -= 1
                given_back = ENTRY_BYTES + SET_BYTES + _weight(weights, last)
                if stay >= 0:
                    progress[HELD] -= STAY_BYTES
                    given_back += STAY_BYTES
                    _free_stay(stays, stay_state, stay)
                row_bytes[row] -= given_back
                touched = _note(tenants, touched, row_tenants[row], tick, 0, -given_back)
                if not has_left and phase != DWELLS and (events[row] >> EXITS) & 1 != 0:
                    if count_out == out_rows.shape[0]:
                        return np.int64(-1)
                    out_objects[count_out] = this
                    out_rows[count_out] = row
                    out_events[count_out] = EXITS
                    out_numbers[count_out] = -1
                    count_out += 1
                continue
            entries[first + kept * ENTRY_WORDS + ENTRY_ROW] = row
            entries[first + kept * ENTRY_WORDS + ENTRY_GENERATION] = generation
            entries[first + kept * ENTRY_WORDS + ENTRY_LAST] = third
            heaviest = max(heaviest, _weight(weights, last))
            kept += 1
        _shorten(set_words, own, blocks, entries, kept)
        _charge(charges, progress, own, SET_BYTES + heaviest if kept > 0 else np.int64(0))
        _apply(tenants, touched)

        entries_needed = np.int64(0)
        row_needed = ENTRY_BYTES + SET_BYTES + weight
        touched = np.int64(0)
        for pair in range(pair_offsets[this], pair_offsets[this + 1]):
            row = np.int64(pair_rows[pair])
            if stamps[row] == tick:
                for_stay = STAY_BYTES * np.int64(has_stays[row])
                entries_needed += ENTRY_BYTES + for_stay
                touched = _note(
                    tenants, touched, row_tenants[row], tick + 1, row_needed + for_stay, 0
                )
        free = limit - progress[HELD]
        needed = entries_needed + max(np.int64(0), SET_BYTES + weight - charges[own])
        is_entered = False
        for pair in range(pair_offsets[this], pair_offsets[this + 1]):
            row = np.int64(pair_rows[pair])
            if stamps[row] == tick:
                for_stay = STAY_BYTES * np.int64(has_stays[row])
                # Reported as inside, if the query asks for it; one that dwells is not reported.
                is_quiet = dwells_ms[row] > 0
                if (
                    needed > free
                    or row_bytes[row] + row_needed + for_stay > free
                    or _exceeds(tenants, row_tenants[row], free)
                ):
                    progress[REFUSED] += 1
                    stamps[row] = np.int64(0) if is_quiet else tick + 1
                    continue
                third = np.int64(numbers[this])
                if has_stays[row] != 0:
                    phase = np.int64(DWELLS if is_quiet else REPORTED)
                    due = arrival_ms[this] + dwells_ms[row] if is_quiet else np.int64(NEVER_DUE)
                    stay = _take_stay(stays, stay_state, own, row, third, phase, due)
                    if stay < 0:
                        return np.int64(-1)
                    third = -2 - stay
                if not _append(set_words, own, blocks, entries, row, generations[row], third):
                    return np.int64(-1)
                progress[ENTRIES] += 1
                progress[HELD] += ENTRY_BYTES + for_stay
                members[row] += 1
                row_bytes[row] += row_needed + for_stay
                touched = _note(
                    tenants, touched, row_tenants[row], tick + 1, 0, row_needed + for_stay
                )
                is_entered = True
                if is_quiet:
                    stamps[row] = 0
                elif (events[row] >> ENTERS) & 1 != 0:
                    if count_out == out_rows.shape[0]:
                        return np.int64(-1)
                    out_objects[count_out] = this
                    out_rows[count_out] = row
                    out_events[count_out] = ENTERS
                    out_numbers[count_out] = -1
                    count_out += 1
                else:
                    stamps[row] = tick + 1
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
                out_numbers[count_out] = -1
                count_out += 1
    return count_out


@kernel(
    types.int64(
        _I4_IN, _I4_IN, _I4_IN, _I8_IN, _I8_IN, _I8, _I8, _I4, _I8_TABLE, _I8, _I4_IN, _I4, _U1_IN,
        _I8_IN, _I8, _I8, _I4_IN, _I8_TABLE, _I8,
    )
)  # fmt: skip
def put_members(
    sets: Any,
    rows: Any,
    numbers: Any,
    phases: Any,
    dues: Any,
    set_words: Any,
    blocks: Any,
    entries: Any,
    stays: Any,
    stay_state: Any,
    generations: Any,
    members: Any,
    has_stays: Any,
    weights: Any,
    charges: Any,
    row_bytes: Any,
    row_tenants: Any,
    tenants: Any,
    progress: Any,
) -> Any:
    """Adds rows (i4[m]) with numbers (i4[m]) to sets (i4[m]) that do not hold them.

    Where rows have stays, these are in `phases` and due at `dues` (i8[m]). The rest as in `follow`,
    without its limit.

    Returns:
        0; −1 if the entries or the stays have no room.
    """
    for i in range(rows.shape[0]):
        row = np.int64(rows[i])
        own = np.int64(sets[i])
        third = np.int64(numbers[i])
        entry_bytes = np.int64(ENTRY_BYTES)
        if has_stays[row] != 0:
            stay = _take_stay(stays, stay_state, own, row, third, phases[i], dues[i])
            if stay < 0:
                return -1
            third = -2 - stay
            entry_bytes += STAY_BYTES
        if not _append(set_words, own, blocks, entries, row, generations[row], third):
            return -1
        members[row] += 1
        progress[ENTRIES] += 1
        progress[HELD] += entry_bytes
        charge = SET_BYTES + _weight(weights, numbers[i])
        row_bytes[row] += entry_bytes + charge
        if row_tenants[row] >= 0:
            tenants[row_tenants[row], USED] += entry_bytes + charge
        _charge(charges, progress, np.int64(sets[i]), max(charges[sets[i]], charge))
    return 0


@kernel(types.int64(_I4_IN, _I8, _I8, _I4, _I8_TABLE, _I8_IN, _U1_IN, _I4_IN, _I8_IN, _I8, _I8))
def sweep_sets(
    sets: Any,
    set_words: Any,
    blocks: Any,
    entries: Any,
    stays: Any,
    row_words: Any,
    row_state: Any,
    generations: Any,
    weights: Any,
    charges: Any,
    progress: Any,
) -> Any:
    """Removes the entries of freed rows from sets (i4[s]); these have no stays any more.

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
            row = np.int64(entries[first + j * ENTRY_WORDS + ENTRY_ROW])
            generation = entries[first + j * ENTRY_WORDS + ENTRY_GENERATION]
            if generation == generations[row] and row_state[row] & STATE_MASK != STATE_FREE:
                _move_entry(entries, first + j * ENTRY_WORDS, first + kept * ENTRY_WORDS)
                kept += 1
                ended += np.int64(row_words[row * ROW_WORDS + DEAD] != _FOR_EVER)
        if kept < count:
            progress[ENTRIES] -= count - kept
            progress[HELD] -= (count - kept) * ENTRY_BYTES
            _shorten(set_words, own, blocks, entries, kept)
            _charge_anew(set_words, entries, stays, weights, charges, progress, own)
    return ended


@kernel(
    types.int64(
        _U1_IN, _I8, _I8, _I4, _I8_TABLE, _I8, _I4_IN, _I4, _I8_IN, _I8, _I8, _I4_IN, _I8_TABLE,
        _I8, _I4, _I4, _I4, _I8, _I8,
    )
)  # fmt: skip
def take_members(
    is_taken: Any,
    set_words: Any,
    blocks: Any,
    entries: Any,
    stays: Any,
    stay_state: Any,
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
    out_phases: Any,
    out_dues: Any,
) -> Any:
    """Removes the entries of some rows from all sets.

    Args:
        is_taken: u1[rows], 1 for the rows to remove.
        set_words: i8[s], of all sets; the others up to `progress` as in `follow`.
        out_sets, out_rows, out_numbers: i4[m], overwritten; as long as `members` of these rows.
        out_phases, out_dues: i8[m], likewise; REPORTED and NEVER_DUE where there is no stay.

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
            row = np.int64(entries[at + ENTRY_ROW])
            if (
                is_taken[row] != 0
                and entries[at + ENTRY_GENERATION] == generations[row]
                and count_out < out_sets.shape[0]
            ):
                out_sets[count_out] = own
                out_rows[count_out] = row
                stay = _stay_of(entries[at + ENTRY_LAST])
                last = _object_of(stays, entries[at + ENTRY_LAST])
                out_numbers[count_out] = last
                out_phases[count_out] = REPORTED
                out_dues[count_out] = NEVER_DUE
                members[row] -= 1
                given_back = ENTRY_BYTES + SET_BYTES + _weight(weights, last)
                if stay >= 0:
                    out_phases[count_out] = stays[stay, PHASE]
                    out_dues[count_out] = stays[stay, DUE]
                    progress[HELD] -= STAY_BYTES
                    given_back += STAY_BYTES
                    _free_stay(stays, stay_state, stay)
                row_bytes[row] -= given_back
                if row_tenants[row] >= 0:
                    tenants[row_tenants[row], USED] -= given_back
                count_out += 1
                continue
            if kept < j:
                _move_entry(entries, at, first + kept * ENTRY_WORDS)
            kept += 1
        if kept < count:
            progress[ENTRIES] -= count - kept
            progress[HELD] -= (count - kept) * ENTRY_BYTES
            _shorten(set_words, own, blocks, entries, kept)
            _charge_anew(set_words, entries, stays, weights, charges, progress, np.int64(own))
    return count_out


@kernel(
    types.int64(
        _I8_IN, _I8, _I8, _I4, _I8_TABLE, _I8, _I4, _I8_IN, _I8, _I8, _I4_IN, _I8_TABLE, _I8,
    )
)  # fmt: skip
def drop_stays(
    dropped: Any,
    set_words: Any,
    blocks: Any,
    entries: Any,
    stays: Any,
    stay_state: Any,
    members: Any,
    weights: Any,
    charges: Any,
    row_bytes: Any,
    row_tenants: Any,
    tenants: Any,
    progress: Any,
) -> Any:
    """Removes stays (i8[k], in use, each once) and their entries; the rest as in `follow`.

    Returns:
        How many were removed.
    """
    count = np.int64(0)
    for i in range(dropped.shape[0]):
        stay = dropped[i]
        own, row = stays[stay, OWN_SET], stays[stay, ROW]
        word = set_words[own]
        first = (word >> 32) * ENTRY_WORDS
        entries_count = word & COUNT_MASK
        end = first + (entries_count - 1) * ENTRY_WORDS
        for j in range(entries_count):
            at = first + j * ENTRY_WORDS
            if entries[at + ENTRY_LAST] != -2 - stay:
                continue
            # The last entry takes its place.
            _move_entry(entries, end, at)
            given_back = ENTRY_BYTES + STAY_BYTES + SET_BYTES + _weight(weights, stays[stay, LAST])
            progress[ENTRIES] -= 1
            progress[HELD] -= ENTRY_BYTES + STAY_BYTES
            members[row] -= 1
            row_bytes[row] -= given_back
            if row_tenants[row] >= 0:
                tenants[row_tenants[row], USED] -= given_back
            _free_stay(stays, stay_state, stay)
            _shorten(set_words, own, blocks, entries, entries_count - 1)
            _charge_anew(set_words, entries, stays, weights, charges, progress, own)
            count += 1
            break
    return count
