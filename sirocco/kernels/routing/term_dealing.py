"""Assigns terms to children one by one, each to the child where it adds least (S3-TM's SALB)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel


def _in(dtype: Any, dimensions: int = 1) -> Any:
    return types.Array(dtype, dimensions, "C", readonly=True)


def _signature(result: Any, *arguments: Any) -> Any:
    return result(*arguments)


@kernel(
    _signature(
        types.void,
        *(_in(types.int64), _in(types.int64), _in(types.int32), _in(types.float64)),
        *(types.int64, types.float64, types.float64, types.float64),
        *(types.int32[::1], types.float64[::1], types.float64[::1]),
    )
)
def deal_terms(  # type: ignore[no-untyped-def]
    order,
    offsets,
    holders,
    queries,
    objects,
    check,
    handling,
    update,
    child_out,
    seekers_out,
    queries_out,
):
    """Gives each term to the child where it adds least to the sum of squared loads.

    The load of a child is check * seekers * queries + handling * seekers + update * queries. An
    object that already reaches a child by another of its terms adds nothing there, so terms that
    occur together get one child; the square keeps the children even.

    Args:
        order: i8[m], the terms in the order in which they are assigned.
        offsets: i8[m + 1], into `holders`.
        holders: i4, the objects that hold each term.
        queries: f8[m], queries with this key.
        objects: Number of objects; `holders` holds numbers below it.
        check, handling, update: Costs of an object and a query, an object, a query.
        child_out: i4[m], overwritten.
        seekers_out: f8[children], zero before; distinct objects that hold a term of the child.
        queries_out: f8[children], zero before.
    """
    children = seekers_out.shape[0]
    # The children that each object reaches so far, linked by `following`.
    head = np.full(objects, -1, np.int32)
    following = np.empty(holders.shape[0], np.int32)
    sought = np.empty(holders.shape[0], np.int32)
    links = np.int32(0)
    shared = np.zeros(children)
    for position in range(order.shape[0]):
        term = order[position]
        first = offsets[term]
        last = offsets[term + 1]
        shared[:] = 0.0
        for i in range(first, last):
            link = head[holders[i]]
            while link >= 0:
                shared[sought[link]] += 1.0
                link = following[link]
        best = 0
        best_growth = np.inf
        for child in range(children):
            seekers = seekers_out[child]
            own = queries_out[child]
            fresh = (last - first) - shared[child]
            load = (check * seekers + update) * own + handling * seekers
            added = check * ((seekers + fresh) * (own + queries[term]) - seekers * own)
            added += handling * fresh + update * queries[term]
            growth = added * (2.0 * load + added)
            if growth < best_growth:
                best_growth = growth
                best = child
        child_out[term] = best
        seekers_out[best] += (last - first) - shared[best]
        queries_out[best] += queries[term]
        for i in range(first, last):
            link = head[holders[i]]
            while link >= 0 and sought[link] != best:
                link = following[link]
            if link < 0:
                sought[links] = best
                following[links] = head[holders[i]]
                head[holders[i]] = links
                links += 1
