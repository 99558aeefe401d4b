"""SWARM's reaction to hot spots (SWARM 6.2, Figures 12 to 16).

40 % of the objects are redirected to a square of 15 % of the side of the space, or 20 % each to
two; queries of a hot spot are registered in its first minute. The paper's runs last half an hour
with rounds of 15 s; ours are shorter, with rounds of 10 s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.adaptivity.play import HURRIED, Way
from benchmarks.adaptivity.scenes import (
    MINUTE_S,
    Crowd,
    Scene,
    bell,
    redirected,
    scene,
    step,
)
from benchmarks.adaptivity.sizes import Size, built
from benchmarks.schemes import streams
from benchmarks.schemes.streams import Stream
from benchmarks.schemes.workloads import HOTSPOT_SHARE, HOTSPOT_SIDE
from benchmarks.schemes.workloads import swarm as asked
from sirocco.schemes.balance.balancers import balancer_of
from sirocco.schemes.balance.swarm.balancer import Swarm, SwarmSettings
from sirocco.schemes.balance.swarm.cost import EQUATION_5
from sirocco.schemes.balance.swarm.ladder import figure_9

# If half of a share goes to each of two hot spots.
HALF = HOTSPOT_SHARE / 2


def posts(size: Size, seed: int) -> Stream:
    """Returns the calm stream."""
    return streams.states_posts(seed, size.objects)


def hot(calm: Stream, seed: int, *, normal: bool = False, mirrored: bool = False) -> Stream:
    """Returns objects of a hot spot in the lower left corner, or in the upper right one."""
    found = calm.moved(calm.lon.copy(), calm.lat.copy())
    streams.hotspot(seed, found, 1.0, HOTSPOT_SIDE, normal=normal)
    return found.moved(-found.lon, -found.lat) if mirrored else found


def scenes(size: Size, seed: int) -> Iterator[Scene]:
    """Yields the paper's five scenes."""
    calm = posts(size, seed)
    always = Crowd(asked(seed + 2, calm, size.queries))
    begin_s, end_s = size.calm_s, size.calm_s + size.hot_s
    middle_s, apart_s = (begin_s + end_s) / 2, size.hot_s / 4
    times: dict[str, Any] = {"judged_s": (begin_s, end_s), "quiet_s": size.quiet_s}
    lasts_s = end_s + size.after_s

    def crowd(pool: Stream, count: int, first_s: float, last_s: float, salt: int) -> Crowd:
        return Crowd(asked(seed + salt, pool, count), first_s, last_s, MINUTE_S)

    even, peaked = hot(calm, seed + 3), hot(calm, seed + 3, normal=True)
    far = hot(calm, seed + 4, mirrored=True)
    for name, pool, shape in (
        ("uniform", even, bell),
        ("normal", peaked, bell),
        ("step", even, step),
    ):
        shares = redirected(shape(begin_s, end_s, HOTSPOT_SHARE))
        crowds = [always, crowd(pool, size.queries, begin_s, end_s, 5)]
        yield scene(name, [calm, pool], crowds, shares, lasts_s, shades=[(begin_s, end_s)], **times)
    for name, first, second in (
        ("overlapping", (begin_s, end_s - apart_s), (begin_s + apart_s, end_s)),
        ("consecutive", (begin_s, middle_s), (middle_s, end_s)),
    ):
        shares = redirected(bell(*first, HALF), bell(*second, HALF))
        crowds = [
            always,
            crowd(even, size.queries // 2, *first, 5),
            crowd(far, size.queries // 2, *second, 6),
        ]
        pools = [calm, even, far]
        yield scene(name, pools, crowds, shares, lasts_s, shades=[first, second], **times)


def ways(size: Size, seed: int) -> Iterator[Way]:
    """Yields SWARM's map with and without balancing, and a static map made from history."""
    calm = posts(size, seed)
    known = asked(seed + 1, calm, size.queries)
    equal = built("swarm", calm, known)
    yield Way("balanced", equal, balancer_of("swarm"))
    yield Way("static", equal)
    yield Way("balanced, rounds of 2 s", equal, balancer_of("swarm"), HURRIED)
    papers = SwarmSettings(measure=EQUATION_5, step=figure_9)
    yield Way("balanced by N Q R", equal, Swarm(papers))
    history = built("a-grid", calm, known)
    yield Way("a-grid, static", history)
    yield Way("a-grid, balanced", history, balancer_of("a-grid"))
