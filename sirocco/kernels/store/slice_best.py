"""Keeps the k best rows so far, in a heap whose top is the worst.

The order is that of (distance rounded to 1 mm, id, session, number): `metres` f8[k], `keys`
u8[3 · k] (id, session, number), `refs` i8[k] (source << 32 | row), `state` i8[1], their number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import kernel

__all__ = ["limit_of", "offer"]


@kernel(inline=True)
def _is_less(metres: Any, keys: Any, a: Any, b: Any) -> Any:
    """Returns whether entry a of the heap comes before entry b."""
    if metres[a] != metres[b]:
        return metres[a] < metres[b]
    for i in range(2):
        if keys[3 * a + i] != keys[3 * b + i]:
            return keys[3 * a + i] < keys[3 * b + i]
    return keys[3 * a + 2] < keys[3 * b + 2]


@kernel(inline=True)
def _swap(metres: Any, keys: Any, refs: Any, a: Any, b: Any) -> None:
    metres[a], metres[b] = metres[b], metres[a]
    refs[a], refs[b] = refs[b], refs[a]
    for i in range(3):
        keys[3 * a + i], keys[3 * b + i] = keys[3 * b + i], keys[3 * a + i]


@kernel
def offer(
    metres: Any, keys: Any, refs: Any, state: Any, distance: Any, object_id: Any, session: Any,
    number: Any, ref: Any,
) -> None:  # fmt: skip
    """Adds a row to the k best if it belongs to them."""
    count = state[0]
    if count < metres.shape[0]:
        at = count
        state[0] = count + 1
    else:
        if distance > metres[0] or (
            distance == metres[0]
            and (
                object_id > keys[0]
                or (
                    object_id == keys[0]
                    and (session > keys[1] or (session == keys[1] and number >= keys[2]))
                )
            )
        ):
            return
        at = np.int64(0)
    metres[at] = distance
    keys[3 * at] = object_id
    keys[3 * at + 1] = session
    keys[3 * at + 2] = number
    refs[at] = ref
    if count < metres.shape[0]:
        while at > 0 and _is_less(metres, keys, (at - 1) >> 1, at):
            _swap(metres, keys, refs, (at - 1) >> 1, at)
            at = (at - 1) >> 1
        return
    while 2 * at + 1 < count:
        child = 2 * at + 1
        if child + 1 < count and _is_less(metres, keys, child, child + 1):
            child += 1
        if not _is_less(metres, keys, at, child):
            return
        _swap(metres, keys, refs, at, child)
        at = child


@kernel(inline=True)
def limit_of(metres: Any, state: Any, radius_m: Any) -> Any:
    """Returns the greatest distance, rounded, that a further row may have."""
    if state[0] == metres.shape[0]:
        return min(metres[0], radius_m)
    return radius_m
