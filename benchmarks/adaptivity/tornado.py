"""Tornado's adaptivity under a scale factor (Tornado 6.4, Figure 13).

All coordinates of objects and queries are multiplied by a factor, so that they belong to only a
part of the evaluators. The paper does not say when; here those of objects are at once, and each
query is updated within a minute. In Tornado an evaluator is a leaf, here it has several.
"""

from __future__ import annotations

from collections.abc import Iterator

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
from benchmarks.schemes.tornado_adaptive import SCALES, scaled_boxes, scaled_places
from benchmarks.schemes.workloads import tornado as asked
from sirocco.schemes.balance.balancers import balancer_of


def scenes(size: Size, seed: int) -> Iterator[Scene]:
    """Yields one scene for each factor of the paper."""
    before = streams.states_posts(seed, size.objects)
    queries = asked(seed + 2, before, size.queries)
    begin_s, end_s = size.calm_s, size.calm_s + size.hot_s
    for factor in SCALES[1:]:
        behind = scaled_places(before, factor)
        yield scene(
            f"scale {factor}",
            [before, behind],
            [
                # Each ends when its next version begins: as many stand all the time.
                Crowd(queries, end_s=begin_s, within_s=MINUTE_S),
                Crowd(scaled_boxes(queries, factor), begin_s, FOREVER, MINUTE_S),
            ],
            redirected(step(begin_s, FOREVER, 1.0)),
            end_s + size.after_s,
            (begin_s, end_s),
            [(begin_s, end_s)],
            size.quiet_s,
        )


def ways(size: Size, seed: int) -> Iterator[Way]:
    """Yields the A-Grid of the workload before, with and without Tornado's balancer."""
    before = streams.states_posts(seed, size.objects)
    made = built("a-grid", before, asked(seed + 1, before, size.queries))
    yield Way("balanced", made, balancer_of("a-grid"))
    yield Way("static", made)
    yield Way("balanced, rounds of 2 s", made, balancer_of("a-grid"), HURRIED)
