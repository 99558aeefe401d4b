"""Finds the candidates that may be among the k best when only a part of every score is known.

Known are how often a candidate holds each keyword, its length, and the spatial and temporal part
of its score. The textual part (BM25) grows with each frequency and falls with the length, whatever
the statistics of all slots are. So a candidate is out when k others hold every keyword at least as
often, are at most as long, and are ahead of it: in the known part by more than the rounding of
scores to 1e-9 can hide, or with equal place and time by the smaller event key. This is a strict
partial order: a candidate that is out is also beaten by k candidates that are not out.

Candidates are stored in a *room* (keys, refs, floats, often), see `ranked_state`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.base.hash_placement import mix
from sirocco.kernels.jit.compiled import kernel

__all__ = ["FLOATS", "KEYS", "MARGIN", "REFS", "keep_contenders"]

# Values of a candidate in each column of the room.
KEYS, REFS, FLOATS = 3, 4, 2

# Known parts that differ by less may give equal scores: twice the step to which scores are rounded.
MARGIN = 2e-9

# Up to a millisecond is well spent on comparing all candidates with the members of every group (of
# equal frequencies): the lists become several times shorter. Beyond that each group is compared
# only with itself.
_COMPARED_MAX = 1 << 18


@kernel
def _is_before(a: Any, b: Any, known: Any, ties: Any, keys: Any) -> Any:
    """Orders by known part descending, then place and time, then event key."""
    if known[a] != known[b]:
        return known[a] > known[b]
    for i in range(2):
        if ties[a, i] != ties[b, i]:
            return ties[a, i] < ties[b, i]
    for i in range(KEYS):
        if keys[KEYS * a + i] != keys[KEYS * b + i]:
            return keys[KEYS * a + i] < keys[KEYS * b + i]
    return False


@kernel
def _sorted(count: Any, known: Any, ties: Any, keys: Any) -> Any:
    """Returns i8[count], rows in the order of `_is_before` (merge sort from runs of one)."""
    order = np.arange(count)
    other = np.empty(count, np.int64)
    width = np.int64(1)
    while width < count:
        begin = np.int64(0)
        while begin < count:
            middle = min(begin + width, count)
            end = min(begin + 2 * width, count)
            left = begin
            right = middle
            for place in range(begin, end):
                takes_left = right == end or (
                    left < middle and not _is_before(order[right], order[left], known, ties, keys)
                )
                if takes_left:
                    other[place] = order[left]
                    left += 1
                else:
                    other[place] = order[right]
                    right += 1
            begin = end
        order, other = other, order
        width *= 2
    return order


@kernel
def _group(often: Any, m: Any, count: Any, groups: Any, first: Any, second: Any) -> Any:
    """Numbers rows of equal frequencies; returns the first row of each group.

    Args:
        first, second: u8, a secret (see `hash_placement`).
    """
    size = np.int64(64)
    while size < 2 * count:
        size *= 2
    table = np.zeros(size, np.int64)
    firsts = np.empty(count, np.int64)
    found = np.int64(0)
    for row in range(count):
        word = np.uint64(0)
        for j in range(m):
            word = mix(word ^ np.uint64(often[m * row + j]), first, second)
        at = np.int64(word & np.uint64(size - 1))
        while True:
            number = table[at] - 1
            if number < 0:
                table[at] = found + 1
                firsts[found] = row
                groups[row] = found
                found += 1
                break
            same = True
            for j in range(m):
                same &= often[m * row + j] == often[m * firsts[number] + j]
            if same:
                groups[row] = number
                break
            at = (at + 1) & (size - 1)
    return firsts[:found]


@kernel(inline=True)
def _count_upto(tree: Any, place: Any) -> Any:
    """Returns how many were added at places up to `place` (Fenwick tree, places from 1)."""
    total = np.int64(0)
    while place > 0:
        total += tree[place]
        place -= place & -place
    return total


@kernel(inline=True)
def _add(tree: Any, place: Any, change: Any) -> None:
    while place < tree.shape[0]:
        tree[place] += change
        place += place & -place


@kernel
def _ranks_of(refs: Any, count: Any, ranks: Any) -> Any:
    """Writes the rank of each length among all, from 1; returns the greatest."""
    longest = np.int64(0)
    for row in range(count):
        longest = max(longest, refs[REFS * row + 2])
    place = np.zeros(longest + 1, np.int64)
    for row in range(count):
        place[refs[REFS * row + 2]] = 1
    total = np.int64(0)
    for length in range(longest + 1):
        total += place[length]
        place[length] = total
    for row in range(count):
        ranks[row] = place[refs[REFS * row + 2]]
    return total


@kernel
def _mark_group(
    group: Any, order: Any, begin: Any, end: Any, groups: Any, covers: Any, known: Any, ties: Any,
    ranks: Any, k: Any, ahead: Any, level: Any, keep: Any,
) -> None:  # fmt: skip
    """Marks the members of a group among order[begin:end] that fewer than k others beat.

    Members of the groups marked in `covers` hold every keyword at least as often. `ahead` counts
    by length the candidates ahead in the known part, `level` those of the same place and time with
    a smaller key; both are zeros before and after.
    """
    settled = begin
    tie = begin
    for i in range(begin, end):
        row = order[i]
        if (
            known[order[tie]] != known[row]
            or ties[order[tie], 0] != ties[row, 0]
            or ties[order[tie], 1] != ties[row, 1]
        ):
            for t in range(tie, i):
                if covers[groups[order[t]]]:
                    _add(level, ranks[order[t]], -1)
            tie = i
        while settled < i and known[order[settled]] >= known[row] + MARGIN:
            if covers[groups[order[settled]]]:
                _add(ahead, ranks[order[settled]], 1)
            settled += 1
        if groups[row] == group:
            beaten = _count_upto(ahead, ranks[row]) + _count_upto(level, ranks[row])
            keep[row] = beaten < k
        if covers[groups[row]]:
            _add(level, ranks[row], 1)
    for t in range(tie, end):
        if covers[groups[order[t]]]:
            _add(level, ranks[order[t]], -1)
    for t in range(begin, settled):
        if covers[groups[order[t]]]:
            _add(ahead, ranks[order[t]], -1)


@kernel
def _mark_contenders(
    room: Any, m: Any, count: Any, k: Any, figures: Any, first: Any, second: Any, keep: Any
) -> None:
    """Marks the candidates that are not out; see `keep_contenders`."""
    keys, refs, floats, often = room
    known = np.empty(count, np.float64)
    ties = np.zeros((count, 2), np.float64)
    for row in range(count):
        known[row] = floats[FLOATS * row + 1]
        # A weight of zero makes all places, or times, equal.
        if figures[3] > 0.0:
            ties[row, 0] = floats[FLOATS * row]
        if figures[4] > 0.0:
            ties[row, 1] = -np.float64(refs[REFS * row + 1])
    order = _sorted(count, known, ties, keys)
    groups = np.empty(count, np.int64)
    firsts = _group(often, m, count, groups, first, second)
    ranks = np.empty(count, np.int64)
    longest = _ranks_of(refs, count, ranks)
    ahead = np.zeros(longest + 1, np.int64)
    level = np.zeros(longest + 1, np.int64)
    total = firsts.shape[0]
    covers = np.zeros(total, np.bool_)
    if total * count <= _COMPARED_MAX:
        for group in range(total):
            for other in range(total):
                holds = True
                for j in range(m):
                    holds &= often[m * firsts[other] + j] >= often[m * firsts[group] + j]
                covers[other] = holds
            _mark_group(
                group, order, 0, count, groups, covers, known, ties, ranks, k, ahead, level, keep
            )
        return
    begins = np.zeros(total + 1, np.int64)
    for row in range(count):
        begins[groups[row] + 1] += 1
    for group in range(total):
        begins[group + 1] += begins[group]
    ends = begins.copy()
    own = np.empty(count, np.int64)
    for i in range(count):
        row = order[i]
        own[ends[groups[row]]] = row
        ends[groups[row]] += 1
    for group in range(total):
        covers[group] = True
        _mark_group(
            group, own, begins[group], begins[group + 1], groups, covers, known, ties, ranks, k,
            ahead, level, keep,
        )  # fmt: skip
        covers[group] = False


@kernel
def keep_contenders(
    room: Any, m: Any, count: Any, k: Any, figures: Any, first: Any, second: Any
) -> Any:
    """Moves the candidates that are not out, or have to stay, to the front, in their order.

    Args:
        room: see `ranked_state`.
        m: keywords.
        count: candidates.
        k: the number of objects to find.
        figures: see `ranked_state`; the weights of space and time are used.
        first, second: u8, a secret (see `hash_placement`).

    Returns:
        Their number.
    """
    if count <= k:
        return np.int64(count)
    keys, refs, floats, often = room
    keep = np.empty(count, np.bool_)
    _mark_contenders(room, m, count, k, figures, first, second, keep)
    kept = np.int64(0)
    for row in range(count):
        if keep[row] or refs[REFS * row + 3] != 0:
            for i in range(KEYS):
                keys[KEYS * kept + i] = keys[KEYS * row + i]
            for i in range(REFS):
                refs[REFS * kept + i] = refs[REFS * row + i]
            for i in range(FLOATS):
                floats[FLOATS * kept + i] = floats[FLOATS * row + i]
            for j in range(m):
                often[m * kept + j] = often[m * row + j]
            kept += 1
    return kept
