"""One scene of each paper while more and more queries stand.

The costs of an evaluator are measured anew for each number: an object takes longer among more
queries. What is offered is 70 % of what the balanced cluster bears with as many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace

from benchmarks.adaptivity import costs
from benchmarks.adaptivity.change_times import Settling
from benchmarks.adaptivity.measure import (
    EXPERIMENTS,
    FULL_LOAD,
    LOAD,
    PART_LOAD,
    SATURATION,
    TICKS_S,
    row_of,
)
from benchmarks.adaptivity.play import Setting, Way, borne_at_best, play
from benchmarks.adaptivity.scenes import Scene
from benchmarks.adaptivity.sizes import Size
from benchmarks.schemes.figures import Figures

# Of each paper the scene in which most moves.
SCENES = {
    "tornado": "scale 0.5",
    "swarm": "uniform",
    "sstd": "objects, 50.0%",
    "ps2stream": "a day",
}

Say = Callable[[str], None]


def measure(
    numbers: Sequence[int], size: Size, settling: Settling, seed: int, figures: Figures, say: Say
) -> Iterator[None]:
    """Runs the scenes with each number of standing queries, balanced and not; yields after each."""
    for name, wanted in SCENES.items():
        for queries in numbers:
            experiment, sized = EXPERIMENTS[name], replace(size, queries=queries)
            (scene,) = (one for one in experiment.scenes(sized, seed) if one.name == wanted)
            found = costs.measure([(pool, scene.queries) for pool in scene.pools[:2]], seed)
            named = {"experiment": name, "queries": queries}
            figures.add("standing_costs", **named, **asdict(found))
            ways = {way.name: way for way in experiment.ways(sized, seed)}
            setting = Setting(found, settling, seed)
            _play(scene, ways[experiment.reference], ways["static"], setting, named, figures, say)
            yield


def _play(
    scene: Scene,
    balanced: Way,
    static: Way,
    setting: Setting,
    named: dict[str, object],
    figures: Figures,
    say: Say,
) -> None:
    """Runs a scene at saturation, to find what it bears, then at 70 % of that."""
    rate = SATURATION * borne_at_best(scene, balanced, setting)
    for load in (FULL_LOAD, PART_LOAD):
        # What a static map bears is in the tables above.
        for way in (balanced,) if load == FULL_LOAD else (balanced, static):
            say(f"{named['experiment']}: {named['queries']:,} queries, {way.name}, {load}")
            course, log = play(scene, way, setting, rate, TICKS_S[load])
            row = row_of(scene, course, log)
            row["stood"] = int(scene.standing(sum(scene.judged_s) / 2).sum())
            label = "static" if way is static else "balanced"
            figures.add(
                "standing", **named, scene=scene.name, way=label, load=load, rate=rate, **row
            )
            if load == FULL_LOAD and way is balanced:
                borne = min(row["done_settled"], row["done_before"] or row["done_settled"])
        rate = LOAD * borne
