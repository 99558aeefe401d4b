"""SSTD's robustness to load imbalance (SSTD 7.6, Figures 14 and 15).

One region of a calm cluster gets many more objects, or many more queries. The paper preloads 30
million objects and 40 thousand queries and adds 10, 30 or 50 million objects to the region: shares
of 25, 50 and 62.5 % of all arrivals. The text does not give the queries that Figure 15 adds; here
they are half, one and a half, and two and a half times the standing ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.adaptivity.methods import methods
from benchmarks.adaptivity.play import HURRIED, Way
from benchmarks.adaptivity.scenes import (
    FOREVER,
    MINUTE_S,
    Crowd,
    Scene,
    redirected,
    scene,
    step,
)
from benchmarks.adaptivity.sizes import Size, built
from benchmarks.schemes import streams
from benchmarks.schemes.queries import Queries, after_objects
from benchmarks.schemes.streams import Stream
from benchmarks.schemes.workloads import SSTD_AREA, SSTD_KEYWORDS
from sirocco.schemes.balance.balancers import balancer_of
from sirocco.schemes.map.map import WORLD

OBJECT_SHARES = (0.25, 0.5, 0.625)
QUERY_TIMES = (0.5, 1.5, 2.5)
# Side of the region relative to the side of the world.
REGION_SIDE = 0.1


def asked(seed: int, stream: Stream, count: int) -> Queries:
    """Returns standing range queries with SSTD's defaults."""
    return after_objects(seed, stream, count, float(np.sqrt(SSTD_AREA)), SSTD_KEYWORDS)


def region(calm: Stream, seed: int) -> Stream:
    """Returns as many objects within a region around a random one of them."""
    rng = np.random.default_rng(seed)
    row = int(rng.integers(len(calm)))
    sides = np.array([WORLD[2] - WORLD[0], WORLD[3] - WORLD[1]]) * REGION_SIDE
    low = np.array([calm.lon[row], calm.lat[row]]) - sides / 2
    low = np.clip(low, WORLD[:2], np.array(WORLD[2:]) - sides)
    places = low + rng.random((len(calm), 2)) * sides
    return calm.moved(places[:, 0].copy(), places[:, 1].copy())


def scenes(size: Size, seed: int) -> Iterator[Scene]:
    """Yields three scenes by objects and three by queries."""
    calm = streams.world_posts(seed, size.objects)
    within = region(calm, seed + 3)
    always = Crowd(asked(seed + 2, calm, size.queries))
    begin_s, end_s = size.calm_s, size.calm_s + size.hot_s
    times = (end_s + size.after_s, (begin_s, end_s), [(begin_s, end_s)], size.quiet_s)
    for share in OBJECT_SHARES:
        shares = redirected(step(begin_s, FOREVER, share))
        yield scene(f"objects, {share:.1%}", [calm, within], [always], shares, *times)
    for more in QUERY_TIMES:
        # A tenth of the objects, so that the new queries match something in any case.
        shares = redirected(step(-FOREVER, FOREVER, 0.1))
        crowd = Crowd(asked(seed + 4, within, int(more * size.queries)), begin_s, FOREVER, MINUTE_S)
        yield scene(f"queries, +{more:.0%}", [calm, within], [always, crowd], shares, *times)


def ways(size: Size, seed: int) -> Iterator[Way]:
    """Yields the QT-tree with all methods, with none, and with each alone (the paper's plans)."""
    calm = streams.world_posts(seed, size.objects)
    made = built("qt-tree", calm, asked(seed + 1, calm, size.queries))
    yield Way("balanced", made, balancer_of("qt-tree"))
    yield Way("static", made)
    yield Way("balanced, rounds of 2 s", made, balancer_of("qt-tree"), HURRIED)
    for name, balancer in methods():
        yield Way(name, made, balancer)
