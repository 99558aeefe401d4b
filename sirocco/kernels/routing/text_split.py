"""Partitions the objects of a node by their text (SSTD 4.1.2, Textual Partitioning)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.routing.increment import covered, least_increment


def _in(dtype: Any, dimensions: int = 1) -> Any:
    return types.Array(dtype, dimensions, "C", readonly=True)


def _signature(result: Any, *arguments: Any) -> Any:
    return result(*arguments)


@kernel(inline=True)
def _gains(first, last, terms, share, held, gain):  # type: ignore[no-untyped-def]
    """Writes to `gain` by how much the terms first to last increase the H of each child."""
    gain[:] = 0.0
    for j in range(first, last):
        term = terms[j]
        for child in range(gain.shape[0]):
            if (held[term] >> child) & 1 == 0:
                for kind in range(gain.shape[1]):
                    gain[child, kind] += share[term, kind]


@kernel(
    _signature(
        types.void,
        *(_in(types.int64), _in(types.int32), _in(types.uint64)),
        *(_in(types.float64, 2), _in(types.float64), _in(types.float64, 2), types.int64),
        *(types.uint8[::1], types.float64[:, ::1], types.float64[::1], types.uint8[::1]),
    )
)
def split_by_text(  # type: ignore[no-untyped-def]
    term_offsets,
    terms,
    event_keys,
    share,
    weights,
    lengths,
    salt,
    held_out,
    held_share_out,
    objects_out,
    child_out,
):
    """Assigns each object to the child of least workload increment.

    Two passes. The first is the paper's: one object after the other, each extends the keyword
    list of its child. The lists are then frozen, since routers must route a repeated object
    alike, and the second pass assigns every object as the routers will.

    Args:
        term_offsets: i8[n + 1], into `terms`.
        terms: i4, rows of `share`, the distinct query keywords of each object.
        event_keys: u8[n], break ties.
        share, weights, lengths: f8[m, 3], f8[3], f8[3, l], see `least_increment`.
        salt: Number of the text node.
        held_out: u1[m], zero before; bit c: child c holds the keyword.
        held_share_out: f8[children, 3], zero before; H of the frozen lists.
        objects_out: f8[children], zero before; objects of each child after the first pass.
        child_out: u1[n], the child of each object after the second pass.
    """
    children = objects_out.shape[0]
    kinds = weights.shape[0]
    gain = np.zeros((children, kinds))
    covers = np.zeros((children, kinds))
    for child in range(children):
        for kind in range(kinds):
            covers[child, kind] = covered(kind, 0.0, lengths[kind])
    for is_frozen in range(2):
        for i in range(event_keys.shape[0]):
            first = term_offsets[i]
            last = term_offsets[i + 1]
            _gains(first, last, terms, share, held_out, gain)
            child = least_increment(
                gain, weights, lengths, held_share_out, covers, objects_out, event_keys[i], salt
            )
            if is_frozen == 1:
                child_out[i] = child
                continue
            objects_out[child] += 1.0
            for j in range(first, last):
                held_out[terms[j]] |= np.uint8(1 << child)
            for kind in range(kinds):
                if gain[child, kind] > 0.0:
                    held_share_out[child, kind] += gain[child, kind]
                    covers[child, kind] = covered(kind, held_share_out[child, kind], lengths[kind])
