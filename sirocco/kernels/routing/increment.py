"""Chooses a text node's child: the one whose workload one more object increases least."""

from __future__ import annotations

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel


@kernel(inline=True)
def mix64(value):  # type: ignore[no-untyped-def]
    """Returns the finaliser of splitmix64 (Steele, Lea, Flood 2014) over a u64."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


# With a signature, because the coordinator's cost model calls it, too.
@kernel(
    types.float64(types.int64, types.float64, types.Array(types.float64, 1, "C", readonly=True)),
    inline=True,
)
def covered(kind, held_share, lengths):  # type: ignore[no-untyped-def]
    """Returns the probability that a query's keywords are covered (SSTD 4.1.1, eq. 1).

    Args:
        kind: 0 or 1 for queries that need all of their keywords, 2 for those that need any.
        held_share: H, the probability that one query keyword is held.
        lengths: f8[l], the probability that a query has 0, 1, … keywords.
    """
    share = min(max(held_share, 0.0), 1.0)
    base = 1.0 - share if kind == 2 else share
    total = 0.0
    for length in range(lengths.shape[0] - 1, -1, -1):
        total = total * base + lengths[length]
    # A query without keywords matches every object, of either kind.
    return 1.0 - total + lengths[0] if kind == 2 else total


@kernel(inline=True)
def least_increment(gain, weights, lengths, held_share, covers, objects, key, salt):  # type: ignore[no-untyped-def]
    """Returns the child whose workload grows least by one object (SSTD 4.1.2).

    Terms of equation 2 that do not depend on the text grow alike in all children and are left
    out. The growth n' F(H') - n F(H) is summed as F(H') + n (F(H') - F(H)), so that children that
    gain no keyword tie exactly for any n. Ties are broken by the hash of the object.

    Args:
        gain: f8[children, 3], the increase of each child's H, per textual kind.
        weights: f8[3], probability of each kind of query at this node.
        lengths: f8[3, l], see `covered`.
        held_share: f8[children, 3], H of each child.
        covers: f8[children, 3], `covered` of each H, computed in advance.
        objects: f8[children], objects of each child.
        key: u64, event key of the object.
        salt: i8, number of the text node; without it nested nodes would break ties alike, and
            one grandchild would receive all objects.
    """
    best = 0.0
    ties = 0
    chosen = 0
    draw = np.uint64(0)
    for child in range(objects.shape[0]):
        growth = 0.0
        for kind in range(weights.shape[0]):
            if weights[kind] > 0.0:
                after = covers[child, kind]
                if gain[child, kind] > 0.0:
                    share = held_share[child, kind] + gain[child, kind]
                    after = covered(kind, share, lengths[kind])
                    after += objects[child] * (after - covers[child, kind])
                growth += weights[kind] * after
        if child == 0 or growth < best:
            best = growth
            ties = 1
            chosen = child
        elif growth == best:
            # Keeps one of the equal children with equal probability.
            if draw == np.uint64(0):
                draw = key ^ mix64(np.uint64(salt + 1))
            draw = mix64(draw)
            ties += 1
            if draw % np.uint64(ties) == np.uint64(0):
                chosen = child
    return chosen
