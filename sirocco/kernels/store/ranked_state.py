"""Holds the candidates of a ranked query while slices are read, and keeps them few.

Of the score α·text + β·space + γ·time only the last two are known here. BM25 of an object e is at
least ρ times that of c, whatever the statistics of all slots are. ρ is the least, over the
keywords, of 1, of the ratio of e's frequency to c's, and of that ratio times the length of c over
that of e. So e is ahead of c when its known part is greater by α·(1 − ρ), and c is out when k
others are ahead of it.

For each combination of frequencies that occurs, a *group*, and some lengths, the *steps*, a heap
keeps the k greatest known parts less that penalty. Its least value is a threshold for candidates
of the group that are at least as long. All texts are divided by the greatest BM25, so a candidate
that might have the greatest stays: one is dropped only if another that stays holds every keyword
as often in at most as many tokens. Ties, which thresholds cannot decide, are compared at the end,
or whenever there are too many candidates (`ranked_prune`).

A search is one array, i8[SEARCH_WORDS] (`search`): numbers, then the addresses of

    figures: f8[10], lon, lat, radius_m, weights of space and time, half-life (ms), now (epoch ms),
        1 where both weights are 0: then all known parts are equal, and ids decide; α;
        half-lives that count at most of an object ahead of the clock.
    steps: i8[s], ascending lengths.
    heaps: f8[(g + 1) · s · k], for each group and step k values, the least first; −∞ where there
        are fewer. The last group is for candidates that hold no keyword that another holds; only
        its first step is used.
    leasts: f8[(g + 1) · s], the least of each heap.
    signatures: u4[g · m], frequencies of each group: 0, 1, 2, 4 or MANY. A candidate belongs to
        the group next above its own frequencies: an object ahead of that is ahead of the candidate.
        The first m groups hold one keyword once.
    codes: u8[g], sums of the signatures, by which groups are found.
    shortest: i8[g], least length of a candidate with at least the group's frequencies.
    plain: i8[256], the group of keywords held once each, by their bits; −1 where there is none.
    bits: u1[m], bit of each keyword.
    the room, which holds the candidates: keys u8[3 · c], id, session, number; refs i8[4 · c],
        slice << 32 | row, arrival, length, 1 if it has to stay; floats f8[2 · c], distance, known
        part; often u2[m · c], frequencies. A row under examination is stored after them.

Functions create arrays at the addresses that they need: to pass a dozen arrays for each row, and
to count references to them, would take longer than all other work.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.store.ranked_prune import FLOATS, KEYS, MARGIN, REFS, keep_contenders
from sirocco.kernels.store.slice_table import f8_at, i8_at, u1_at, u2_at, u4_at, u8_at

__all__ = [
    "ADDRESSES",
    "BETA",
    "BITS",
    "BY_ID",
    "CANDIDATES",
    "GROUPS",
    "GROUPS_MAX",
    "KEYWORDS",
    "K_COUNT",
    "LAT",
    "LIMIT",
    "LON",
    "MANY",
    "OBJECTS",
    "PRUNES",
    "RADIUS",
    "ROOM",
    "SEARCH_WORDS",
    "SECRET",
    "STEPS",
    "TOKENS",
    "accept",
    "bits_of",
    "contenders_of",
    "figures_of",
    "is_covered",
    "last_step",
    "leasts_of",
    "name_groups",
    "plain_of",
    "room_of",
    "row_threshold",
    "shortest_of",
    "signatures_of",
    "steps_of",
    "threshold_of",
    "timed_part",
]

LON, LAT, RADIUS, BETA, GAMMA, HALF_LIFE, NOW, BY_ID, ALPHA, AHEAD = range(10)
_FIGURES = 10

# Numbers of a search: candidates, number of candidates at which they are compared, groups, objects
# within the radius, sum of their lengths, m, k, 1 where candidates that are out are removed, steps,
# greatest number of groups, greatest number of candidates, both words of a secret (see
# `hash_placement`). Then the addresses, as above.
CANDIDATES, LIMIT, GROUPS, OBJECTS, TOKENS, KEYWORDS, K_COUNT, PRUNES = range(8)
STEPS, GROUPS_MAX, ROOM, SECRET, SECOND_SECRET, ADDRESSES, SEARCH_WORDS = 8, 9, 10, 11, 12, 13, 26
_AT_FIGURES, _AT_STEPS, _AT_HEAPS, _AT_LEASTS, _AT_SIGNATURES, _AT_CODES = range(ADDRESSES, 19)
_AT_SHORTEST, _AT_PLAIN, _AT_BITS = range(19, 22)
_AT_KEYS, _AT_REFS, _AT_FLOATS, _AT_OFTEN = range(22, SEARCH_WORDS)

# Bits for the keywords of a row; if there are more keywords, all beyond the first share the last.
BITS = 8
_SHARED = 1 << (BITS - 1)

# Above any frequency.
MANY = 1 << 16

_MIX = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@kernel(inline=True)
def figures_of(search: Any) -> Any:
    """Returns the figures of a search."""
    return f8_at(search[_AT_FIGURES], _FIGURES)


@kernel(inline=True)
def steps_of(search: Any) -> Any:
    """Returns the steps of a search."""
    return i8_at(search[_AT_STEPS], search[STEPS])


@kernel(inline=True)
def _heaps_of(search: Any) -> Any:
    size = (search[GROUPS_MAX] + 1) * search[STEPS] * search[K_COUNT]
    return f8_at(search[_AT_HEAPS], size)


@kernel(inline=True)
def leasts_of(search: Any) -> Any:
    """Returns the least of each heap of a search."""
    return f8_at(search[_AT_LEASTS], (search[GROUPS_MAX] + 1) * search[STEPS])


@kernel(inline=True)
def signatures_of(search: Any) -> Any:
    """Returns the signatures of the groups of a search."""
    return u4_at(search[_AT_SIGNATURES], search[GROUPS_MAX] * search[KEYWORDS])


@kernel(inline=True)
def _codes_of(search: Any) -> Any:
    return u8_at(search[_AT_CODES], search[GROUPS_MAX])


@kernel(inline=True)
def shortest_of(search: Any) -> Any:
    """Returns the least lengths of the groups of a search."""
    return i8_at(search[_AT_SHORTEST], search[GROUPS_MAX])


@kernel(inline=True)
def plain_of(search: Any) -> Any:
    """Returns the groups of keywords held once, by their bits."""
    return i8_at(search[_AT_PLAIN], 1 << BITS)


@kernel(inline=True)
def bits_of(search: Any) -> Any:
    """Returns the bits of the keywords."""
    return u1_at(search[_AT_BITS], search[KEYWORDS])


@kernel(inline=True)
def room_of(search: Any) -> Any:
    """Returns (keys, refs, floats, often) of a search."""
    room = search[ROOM]
    return (
        u8_at(search[_AT_KEYS], KEYS * room),
        i8_at(search[_AT_REFS], REFS * room),
        f8_at(search[_AT_FLOATS], FLOATS * room),
        u2_at(search[_AT_OFTEN], search[KEYWORDS] * room),
    )


@kernel(inline=True)
def timed_part(figures: Any, arrival_ms: Any) -> Any:
    """Returns the part of an object's score that its age gives."""
    age_ms = figures[NOW] - np.float64(arrival_ms)
    return figures[GAMMA] * np.exp2(min(-age_ms / figures[HALF_LIFE], figures[AHEAD]))


@kernel(inline=True)
def last_step(steps: Any, length: Any) -> Any:
    """Returns the last step that is not above a length, −1 for none."""
    place = np.int64(-1)
    for i in range(steps.shape[0]):
        place += steps[i] <= length
    return place


@kernel(inline=True)
def threshold_of(search: Any, is_by_id: Any, group: Any, step: Any) -> Any:
    """Returns the value below which a candidate of a group is out, −∞ where none is known."""
    leasts = leasts_of(search)
    least = -np.inf
    if group >= 0 and step >= 0:
        least = leasts[group * search[STEPS] + step]
    if is_by_id:
        return least
    return max(least, leasts[search[GROUPS_MAX] * search[STEPS]]) - MARGIN


@kernel(inline=True)
def is_covered(search: Any, group: Any, length: Any) -> Any:
    """Returns whether a candidate that stays has a text no worse than that of a group."""
    return group >= 0 and shortest_of(search)[group] <= length


@kernel
def _push(search: Any, heap: Any, value: Any) -> None:
    """Replaces the least value of a heap."""
    heaps = _heaps_of(search)
    k = search[K_COUNT]
    base = heap * k
    at = np.int64(0)
    while True:
        child = 2 * at + 1
        if child >= k:
            break
        if child + 1 < k and heaps[base + child + 1] < heaps[base + child]:
            child += 1
        if heaps[base + child] >= value:
            break
        heaps[base + at] = heaps[base + child]
        at = child
    heaps[base + at] = value
    leasts_of(search)[heap] = heaps[base]


@kernel
def _add_to_group(search: Any, group: Any, row: Any) -> None:
    """Adds a candidate to the heaps of a group."""
    keys, refs, floats, often = room_of(search)
    figures, steps = figures_of(search), steps_of(search)
    signatures, leasts = signatures_of(search), leasts_of(search)
    m = search[KEYWORDS]
    share = 1.0
    for j in range(m):
        held = np.int64(often[m * row + j])
        wanted = np.int64(signatures[m * group + j])
        if held < wanted:
            share = min(share, np.float64(held) / np.float64(wanted))
    length = refs[REFS * row + 2]
    if share >= 1.0:
        shortest = shortest_of(search)
        shortest[group] = min(shortest[group], length)
    first = group * steps.shape[0]
    if figures[BY_ID] != 0.0:
        value = -np.float64(keys[KEYS * row])
        for step in range(steps.shape[0]):
            if share >= 1.0 and steps[step] >= length and value > leasts[first + step]:
                _push(search, first + step, value)
        return
    alpha = figures[ALPHA]
    known = floats[FLOATS * row + 1]
    # Thresholds rise with the steps.
    if share == 0.0 or known - alpha * (1.0 - share) <= leasts[first]:
        return
    for step in range(steps.shape[0]):
        ratio = share
        if steps[step] < length:
            ratio *= np.float64(steps[step]) / np.float64(length)
        value = known - alpha * (1.0 - ratio)
        if value > leasts[first + step]:
            _push(search, first + step, value)


@kernel(inline=True)
def _rounded(count: Any) -> Any:
    """Returns a frequency rounded up to 0, 1, 2, 4 or MANY."""
    if count <= 2:
        return count
    return np.int64(4) if count <= 4 else np.int64(MANY)


@kernel(inline=True)
def _code_of(often: Any, m: Any, row: Any) -> Any:
    """Returns a u8, a hash of a row's frequencies, rounded up."""
    code = np.uint64(0)
    for j in range(m):
        code = (code ^ np.uint64(_rounded(np.int64(often[m * row + j])))) * _MIX
        code ^= code >> _HALF
    return code


@kernel("void(u4[::1], i8, u8[::1])")
def name_groups(signatures: Any, groups: Any, codes: Any) -> None:
    """Writes the codes (u8[…]) of the first groups, given their signatures (u4[g · m])."""
    m = signatures.shape[0] // codes.shape[0]
    for group in range(groups):
        codes[group] = _code_of(signatures, m, group)


@kernel
def _find_group(search: Any, code: Any, row: Any) -> Any:
    """Returns the group of a row, −1 if there is none."""
    codes, signatures, often = _codes_of(search), signatures_of(search), room_of(search)[3]
    m = search[KEYWORDS]
    for group in range(search[GROUPS]):
        if codes[group] == code:
            same = True
            for j in range(m):
                held = _rounded(np.int64(often[m * row + j]))
                same &= held == np.int64(signatures[m * group + j])
            if same:
                return np.int64(group)
    return np.int64(-1)


@kernel
def _group_of(search: Any, row: Any) -> Any:
    """Returns the group of a row, creating it if it is missing; −1 if there is no room."""
    often, bits = room_of(search)[3], bits_of(search)
    m = search[KEYWORDS]
    code = _code_of(often, m, row)
    found = _find_group(search, code, row)
    if found >= 0 or search[GROUPS] == search[GROUPS_MAX]:
        return found
    group = search[GROUPS]
    signatures = signatures_of(search)
    mask = np.int64(0)
    is_plain = True
    _codes_of(search)[group] = code
    for j in range(m):
        held = _rounded(np.int64(often[m * row + j]))
        signatures[m * group + j] = held
        if held > 0:
            mask |= np.int64(bits[j])
            is_plain &= held == 1
    if is_plain and (m <= BITS or mask & _SHARED == 0):
        plain_of(search)[mask] = group
    search[GROUPS] += 1
    for other in range(search[CANDIDATES]):
        _add_to_group(search, group, other)
    return group


@kernel
def _strict_threshold(search: Any, row: Any, least: Any, step: Any) -> Any:
    """As `row_threshold`, for a row without a group: uses groups of higher frequencies."""
    _, refs, _, often = room_of(search)
    figures, signatures = figures_of(search), signatures_of(search)
    m = search[KEYWORDS]
    length = refs[REFS * row + 2]
    covered = False
    for other in range(search[GROUPS]):
        is_below: Any = True
        for j in range(m):
            is_below &= np.int64(often[m * row + j]) <= np.int64(signatures[m * other + j])
        if is_below:
            least = max(least, threshold_of(search, figures[BY_ID] != 0.0, other, step))
            covered = covered or is_covered(search, other, length)
    for other in range(search[CANDIDATES]):
        if covered:
            break
        holds: Any = refs[REFS * other + 2] <= length
        for j in range(m):
            holds &= often[m * other + j] >= often[m * row + j]
        covered = holds
    return least, covered


@kernel
def row_threshold(search: Any, row: Any) -> Any:
    """Looks up the threshold for texts like that of a row.

    Returns:
        (the value below which the row is out, whether it may be dropped at all).
    """
    length = room_of(search)[1][REFS * row + 2]
    group = _group_of(search, row)
    step = last_step(steps_of(search), length)
    least = threshold_of(search, figures_of(search)[BY_ID] != 0.0, group, step)
    if group < 0:
        return _strict_threshold(search, row, least, step)
    return least, is_covered(search, group, length)


@kernel
def _contenders(search: Any) -> Any:
    """Moves the candidates that are not out to the front; returns how many."""
    return keep_contenders(
        room_of(search), search[KEYWORDS], search[CANDIDATES], search[K_COUNT], figures_of(search),
        np.uint64(search[SECRET]), np.uint64(search[SECOND_SECRET]),
    )  # fmt: skip


@kernel
def accept(search: Any, must_stay: Any) -> None:
    """Adds the row stored after the candidates to them.

    Args:
        search: see above.
        must_stay: whether it has to stay, because no other covers it.
    """
    room = room_of(search)
    refs, floats = room[1], room[2]
    row = search[CANDIDATES]
    refs[REFS * row + 3] = must_stay
    search[CANDIDATES] += 1
    if search[PRUNES] == 0:
        return
    for group in range(search[GROUPS]):
        _add_to_group(search, group, row)
    figures = figures_of(search)
    none = search[GROUPS_MAX] * search[STEPS]
    value = floats[FLOATS * row + 1] - figures[ALPHA]
    if value > leasts_of(search)[none]:
        _push(search, none, value)
    if search[CANDIDATES] >= search[LIMIT]:
        count = _contenders(search)
        search[CANDIDATES] = count
        # A further comparison soon would remove hardly any of the rest.
        search[LIMIT] = max(search[LIMIT], 2 * count)


@kernel("i8(i8[::1])")
def contenders_of(search: Any) -> Any:
    """Compares all candidates, and moves those that are not out to the front; returns how many."""
    return _contenders(i8_at(search.ctypes.data, search.shape[0]))
