"""PS2Stream's local migrations (PS2Stream VI-D, Figures 12 to 16).

The paper replays 60 days of tweets, four hours in every ten seconds, so that the load drifts
through the days. Here the load drifts, too: the share of some bands of longitude rises and falls,
one after the other, once in a "day" of some minutes. (At the paper's pace, a day a minute, our
defaults would make one change a day.) Four methods to select cells for migration are compared.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.adaptivity.play import Way
from benchmarks.adaptivity.scenes import Crowd, Scene, scene
from benchmarks.adaptivity.selection_times import Timed
from benchmarks.adaptivity.sizes import Size, built
from benchmarks.schemes import streams
from benchmarks.schemes.queries import subscriptions
from sirocco.schemes.balance.ps2stream.balancer import Ps2Stream, Ps2StreamSettings
from sirocco.schemes.balance.ps2stream.migration import (
    Select,
    at_random,
    by_size,
    dynamic_programming,
    greedy,
)

BANDS = 6
# How much a band's share swings about its mean.
SWING = 0.8
DAYS = 1.0

SELECTS: dict[str, Select] = {
    "GR": greedy,
    "SI": by_size,
    "RA": at_random,
    "DP": dynamic_programming,
}


def scenes(size: Size, seed: int) -> Iterator[Scene]:
    """Yields a day."""
    posts = streams.states_posts(seed, BANDS * size.objects)
    borders = np.quantile(posts.lon, np.linspace(0, 1, BANDS + 1)[1:-1])
    band = np.searchsorted(borders, posts.lon)
    pools = [posts.take(np.flatnonzero(band == one)) for one in range(BANDS)]
    begin_s, day_s = size.quiet_s, size.hot_s + size.calm_s
    means = np.array([len(pool) for pool in pools]) / len(posts)

    def shares(at_s: float) -> NDArray[np.float64]:
        turn = DAYS * at_s / day_s - np.arange(BANDS) / BANDS
        each = means * (1 + SWING * np.cos(2 * np.pi * turn))
        return np.asarray(each / each.sum())

    crowd = Crowd(subscriptions(seed + 2, posts, size.queries, "q1"))
    end_s = begin_s + day_s
    yield scene(
        "a day", pools, [crowd], shares, end_s + size.after_s, (begin_s, end_s), [], size.quiet_s
    )


def ways(size: Size, seed: int) -> Iterator[Way]:
    """Yields the kdt-tree with each method of cell selection, and without balancing."""
    posts = streams.states_posts(seed, BANDS * size.objects)
    some = posts.take(np.arange(0, len(posts), BANDS))
    made = built("kdt-tree", some, subscriptions(seed + 1, some, size.queries, "q1"))
    yield Way("static", made)
    for name, select in SELECTS.items():
        clock = Timed(select)
        yield Way(name, made, Ps2Stream(Ps2StreamSettings(select=clock)), clock=clock)
