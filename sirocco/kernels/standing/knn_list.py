"""Keeps the k nearest objects of a standing query so far, in lists of bounded length.

An entry is 4 words of u8: distance in whole millimetres, object id, session, number. Entries are
compared word by word: equal distances are ordered by the id, and equal ids by the event key, so the
order of lists is the same everywhere. A list is a binary heap whose entry 0 is the last in order,
the one that a nearer object replaces. Matching only compares with the last entry; only a reader
that needs the order sorts. An entry costs log k moves, even if k is 10,000.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "ENTRY_WORDS",
    "comes_before_last",
    "millimetres",
    "put_entries",
    "put_entry",
    "round_mm",
]

ENTRY_WORDS = 4
# Words of an entry after its distance.
_OBJECT, _SESSION, _NUMBER = 1, 2, 3

_U8 = types.Array(types.uint64, 1, "C")
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)


@kernel(inline=True)
def millimetres(metres: Any) -> Any:
    """Returns a distance in whole millimetres, i8; ties to the even one, as `np.rint`."""
    return np.int64(np.rint(metres * 1000.0))


@kernel(inline=True)
def round_mm(metres: Any) -> Any:
    """Returns a distance rounded to 1 mm, f8 metres.

    The same number as from `geometry.distance_m`: millimetres / 1000. To round a rounded distance
    changes nothing, since the resolution of f8 is 100,000 times finer than a millimetre on the
    Earth.
    """
    return np.rint(metres * 1000.0) / 1000.0


@kernel(inline=True)
def _comes_after(
    words: Any, at: Any, distance: Any, object_id: Any, session: Any, number: Any
) -> Any:
    """Returns whether the entry at a word comes after the given one (all u8)."""
    if words[at] != distance:
        return words[at] > distance
    if words[at + _OBJECT] != object_id:
        return words[at + _OBJECT] > object_id
    if words[at + _SESSION] != session:
        return words[at + _SESSION] > session
    return words[at + _NUMBER] > number


@kernel(inline=True)
def _entry_comes_after(words: Any, a: Any, b: Any) -> Any:
    """Returns whether the entry at word a comes after the one at word b."""
    return _comes_after(
        words, a, words[b], words[b + _OBJECT], words[b + _SESSION], words[b + _NUMBER]
    )


@kernel(inline=True)
def comes_before_last(
    words: Any, begin: Any, distance: Any, object_id: Any, session: Any, number: Any
) -> Any:
    """Returns whether an object comes before the last one of a non-empty list.

    Args:
        words: u8[…], lists.
        begin: first entry of the list.
        distance: u8, mm; object_id, session, number: u8.
    """
    return _comes_after(words, begin * ENTRY_WORDS, distance, object_id, session, number)


@kernel(inline=True)
def _set(words: Any, at: Any, distance: Any, object_id: Any, session: Any, number: Any) -> None:
    words[at] = distance
    words[at + _OBJECT] = object_id
    words[at + _SESSION] = session
    words[at + _NUMBER] = number


@kernel(inline=True)
def _move(words: Any, source: Any, target: Any) -> None:
    for i in range(ENTRY_WORDS):
        words[target + i] = words[source + i]


@kernel(inline=True)
def put_entry(
    words: Any,
    begin: Any,
    count: Any,
    k: Any,
    distance: Any,
    object_id: Any,
    session: Any,
    number: Any,
) -> Any:
    """Adds an object to a list; in a full one it replaces the last.

    Args:
        words: u8[…], lists, changed.
        begin: first entry of the list.
        count: entries in it.
        k: capacity; if the list is full, the object has to come before the last.
        distance: u8, mm; object_id, session, number: u8.

    Returns:
        The new number of entries.
    """
    base = begin * ENTRY_WORDS
    if count < k:
        place = count
        while place > 0:
            parent = (place - 1) >> 1
            if _comes_after(
                words, base + parent * ENTRY_WORDS, distance, object_id, session, number
            ):
                break
            _move(words, base + parent * ENTRY_WORDS, base + place * ENTRY_WORDS)
            place = parent
        _set(words, base + place * ENTRY_WORDS, distance, object_id, session, number)
        return count + 1
    place = 0
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        at = base + child * ENTRY_WORDS
        if child + 1 < count and _entry_comes_after(words, at + ENTRY_WORDS, at):
            child += 1
            at += ENTRY_WORDS
        if not _comes_after(words, at, distance, object_id, session, number):
            break
        _move(words, at, base + place * ENTRY_WORDS)
        place = child
    _set(words, base + place * ENTRY_WORDS, distance, object_id, session, number)
    return count


@kernel(types.int64(_U8, types.int64, types.int64, types.int64, _I8_IN, _U8_IN, _U8_IN, _U8_IN))
def put_entries(
    words: Any,
    begin: Any,
    count: Any,
    k: Any,
    distances: Any,
    ids: Any,
    sessions: Any,
    numbers: Any,
) -> Any:
    """Adds objects that come before a list's last entry; those already in it are not repeated.

    Args:
        words: u8[…], lists, changed; begin, count, k: the list, as in `put_entry`.
        distances: i8[n], mm; ids, sessions, numbers: u8[n], distinct among themselves.

    Returns:
        The new number of entries.
    """
    held = words[begin * ENTRY_WORDS : (begin + count) * ENTRY_WORDS].copy()
    for i in range(distances.shape[0]):
        distance = np.uint64(distances[i])
        is_held = False
        for at in range(0, held.shape[0], ENTRY_WORDS):
            is_held |= (
                (held[at] == distance)
                & (held[at + _OBJECT] == ids[i])
                & (held[at + _SESSION] == sessions[i])
                & (held[at + _NUMBER] == numbers[i])
            )
        if not is_held and (
            count < k or comes_before_last(words, begin, distance, ids[i], sessions[i], numbers[i])
        ):
            count = put_entry(words, begin, count, k, distance, ids[i], sessions[i], numbers[i])
    return count
