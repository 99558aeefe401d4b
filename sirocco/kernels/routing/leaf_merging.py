"""Merges leaves into slots and keeps them balanced (PS2Stream IV.B, node merging)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel


def _in(dtype: Any, dimensions: int = 1) -> Any:
    return types.Array(dtype, dimensions, "C", readonly=True)


def _signature(result: Any, *arguments: Any) -> Any:
    return result(*arguments)


@kernel(inline=True)
def _keeps_balance(loads, slot, added):  # type: ignore[no-untyped-def]
    """Returns whether an added load at a slot leaves Lmax / Lmin as it is or less.

    While a slot is empty the quotient is infinite. Then Lmax must not grow; otherwise all leaves
    would be merged into the slot that shares most.
    """
    before_max = loads[0]
    before_min = loads[0]
    after_min = np.inf
    for other in range(loads.shape[0]):
        before_max = max(before_max, loads[other])
        before_min = min(before_min, loads[other])
        after_min = min(after_min, loads[other] + (added if other == slot else 0.0))
    after_max = max(before_max, loads[slot] + added)
    if before_min <= 0.0:
        return after_min > 0.0 or after_max <= before_max
    return after_max * before_min <= before_max * after_min


@kernel(
    _signature(
        types.void,
        *(_in(types.int64), _in(types.float64), _in(types.int64), _in(types.int32)),
        *(_in(types.float64), types.int32[::1], types.float64[::1]),
    )
)
def merge_leaves(  # type: ignore[no-untyped-def]
    order, leaf_loads, offsets, items, weights, slot_out, load_out
):
    """Assigns each leaf to the slot whose load it increases least, or to the least loaded one.

    A leaf increases the load of a slot by its own load, less that of the queries and objects that
    the slot's other leaves share with it. The least increase is taken if it does not worsen
    Lmax / Lmin and leaves enough leaves for the empty slots; of equal increases, that of the least
    loaded slot.

    Args:
        order: i8[n], the leaves in the order in which they are merged.
        leaf_loads: f8[n].
        offsets: i8[n + 1], into `items`.
        items: i4, distinct numbers of the queries and objects of each leaf.
        weights: f8[items], cost of one at a slot. Their sum, an estimate, may exceed the load of
            the leaf; then the leaf adds nothing.
        slot_out: i4[n], overwritten.
        load_out: f8[slots], zero before; the loads of the slots.
    """
    slots = load_out.shape[0]
    # The slots that handle each item so far, linked by `following`.
    head = np.full(weights.shape[0], -1, np.int32)
    following = np.empty(items.shape[0], np.int32)
    handler = np.empty(items.shape[0], np.int32)
    links = np.int32(0)
    shared = np.zeros(slots)
    empty = slots
    for position in range(order.shape[0]):
        leaf = order[position]
        shared[:] = 0.0
        for i in range(offsets[leaf], offsets[leaf + 1]):
            link = head[items[i]]
            while link >= 0:
                shared[handler[link]] += weights[items[i]]
                link = following[link]
        least = 0
        best = 0
        for slot in range(slots):
            if load_out[slot] < load_out[least]:
                least = slot
            if shared[slot] > shared[best] or (
                shared[slot] == shared[best] and load_out[slot] < load_out[best]
            ):
                best = slot
        added = max(leaf_loads[leaf] - shared[best], 0.0)
        is_last_for_empty = order.shape[0] - position <= empty
        if is_last_for_empty or not _keeps_balance(load_out, best, added):
            best = least
        if load_out[best] == 0.0:
            empty -= 1
        slot_out[leaf] = best
        load_out[best] += max(leaf_loads[leaf] - shared[best], 0.0)
        for i in range(offsets[leaf], offsets[leaf + 1]):
            link = head[items[i]]
            while link >= 0 and handler[link] != best:
                link = following[link]
            if link < 0:
                handler[links] = best
                following[links] = head[items[i]]
                head[items[i]] = links
                links += 1


@kernel(
    _signature(
        types.void,
        *(_in(types.float64), _in(types.int64), _in(types.int32)),
        *(_in(types.float64), _in(types.int32), types.float64[::1]),
    )
)
def loads_of_slots(leaf_loads, offsets, items, weights, slot_of_leaf, load_out):  # type: ignore[no-untyped-def]
    """Adds up the loads of slots; an item shared by several leaves of one slot counts once.

    Args:
        leaf_loads, offsets, items, weights: See `merge_leaves`.
        slot_of_leaf: i4[n].
        load_out: f8[slots], zero before.
    """
    head = np.full(weights.shape[0], -1, np.int32)
    following = np.empty(items.shape[0], np.int32)
    handler = np.empty(items.shape[0], np.int32)
    links = np.int32(0)
    for leaf in range(leaf_loads.shape[0]):
        slot = slot_of_leaf[leaf]
        added = leaf_loads[leaf]
        for i in range(offsets[leaf], offsets[leaf + 1]):
            link = head[items[i]]
            while link >= 0 and handler[link] != slot:
                link = following[link]
            if link >= 0:
                added -= weights[items[i]]
            else:
                handler[links] = slot
                following[links] = head[items[i]]
                head[items[i]] = links
                links += 1
        load_out[slot] += max(added, 0.0)
