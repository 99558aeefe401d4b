"""Runs all scenes of the papers in all ways, and keeps the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.adaptivity import costs, methods, ps2stream, sstd, swarm, tornado
from benchmarks.adaptivity.backlog import EDGES_S, quantile_s, share_above
from benchmarks.adaptivity.change_times import Settling
from benchmarks.adaptivity.cluster import TICK_S, Course
from benchmarks.adaptivity.play import Setting, Way, borne_at_best, in_measured_time, play
from benchmarks.adaptivity.scenes import Scene
from benchmarks.adaptivity.selection_times import Timed
from benchmarks.adaptivity.sizes import Size
from benchmarks.adaptivity.virtual_coordinator import Log
from benchmarks.schemes.figures import Figures
from sirocco.protocol.coordinator.balance_rounds import Decision

FULL_LOAD, PART_LOAD = "saturation", "70 %"
# Offered, relative to the rate with evenly shared work on all cores: more than any way bears.
SATURATION = 1.2
# Offered, relative to the rate that the balanced cluster bears.
LOAD = 0.7
# Above what any way bears, delays are meaningless.
TICKS_S = {FULL_LOAD: 0.1, PART_LOAD: TICK_S}
# Seconds that show the throughput before a scene's load changes.
BEFORE_S = 30
# Seconds of one point of a plot.
POINT_S = 10

LATE_S = (0.1, 1.0)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Experiment:
    """The experiments of one paper.

    Attributes:
        scenes, ways: Create them from the size and the seed.
        reference: Name of the way whose throughput defines 70 %.
        some: Prefix of a way's name → (load, prefix of a scene's name), the only ones for which it
            is run; all other ways are run for all.
    """

    scenes: Callable[[Size, int], Iterator[Scene]]
    ways: Callable[[Size, int], Iterator[Way]]
    reference: str
    some: Mapping[str, tuple[str, tuple[str, ...]]]

    def plays(self, way: str, load: str, scene: str) -> bool:
        """Returns whether a way is run: comparisons made once need not be run everywhere."""
        for begin, (only_load, names) in self.some.items():
            if way.startswith(begin):
                return load == only_load and scene.startswith(names)
        return True


EXPERIMENTS: dict[str, Experiment] = {
    "swarm": Experiment(
        swarm.scenes,
        swarm.ways,
        "balanced",
        {
            "balanced, rounds": (PART_LOAD, ("step",)),
            "balanced by": (FULL_LOAD, ("",)),
            "a-grid": (FULL_LOAD, ("uniform", "step")),
        },
    ),
    "tornado": Experiment(
        tornado.scenes,
        tornado.ways,
        "balanced",
        {"balanced, rounds": (PART_LOAD, ("scale 0.5",))},
    ),
    "sstd": Experiment(
        sstd.scenes,
        sstd.ways,
        "balanced",
        {
            "balanced, rounds": (PART_LOAD, ("objects, 50",)),
            **dict.fromkeys(methods.NAMES, (FULL_LOAD, ("objects, 50",))),
        },
    ),
    "ps2stream": Experiment(
        ps2stream.scenes,
        ps2stream.ways,
        "GR",
        {
            **dict.fromkeys(("SI", "RA", "DP"), (PART_LOAD, ("",))),
        },
    ),
}


def measure(
    name: str, size: Size, settling: Settling, seed: int, figures: Figures, say: Say
) -> None:
    """Runs the experiments of a paper."""
    experiment = EXPERIMENTS[name]
    ways = list(experiment.ways(size, seed))
    setting: Setting | None = None
    for scene in experiment.scenes(size, seed):
        if setting is None:
            found = costs.measure([(pool, scene.queries) for pool in scene.pools[:2]], seed)
            figures.add("costs", experiment=name, **asdict(found))
            setting = Setting(found, settling, seed)
        _play(name, experiment, scene, ways, setting, figures, say)


def _play(
    name: str,
    experiment: Experiment,
    scene: Scene,
    ways: list[Way],
    setting: Setting,
    figures: Figures,
    say: Say,
) -> None:
    """Runs a scene in all ways: with more than any way bears, then with 70 % of the reference's."""
    rate = SATURATION * borne_at_best(scene, ways[0], setting)
    ways = sorted(ways, key=lambda way: way.name != experiment.reference)
    borne = 0.0
    for load in (FULL_LOAD, PART_LOAD):
        offered = rate if load == FULL_LOAD else LOAD * borne
        for way in ways:
            if not experiment.plays(way.name, load, scene.name):
                continue
            say(f"{name}: {scene.name}, {way.name}, {load}")
            if way.clock is not None:
                way.clock.forget()
            course, log = play(scene, way, setting, offered, TICKS_S[load])
            row = row_of(scene, course, log)
            named = {"experiment": name, "scene": scene.name, "way": way.name, "load": load}
            figures.add("runs", **named, rate=offered, **row, **_chosen(way.clock))
            figures.add("courses", **named, **_points(course, scene, log))
            for decision in log.decisions:
                figures.add("decisions", **named, **_decided(decision))
            if load == FULL_LOAD and way.name == experiment.reference:
                # The offered rate has to be borne before the load changes, too.
                borne = min(row["done_settled"], row["done_before"] or row["done_settled"])


def row_of(scene: Scene, course: Course, log: Log) -> dict[str, Any]:
    """Returns the figures of a run."""
    begin, end = (int(second) for second in scene.judged_s)
    done, busy = in_measured_time(course.done, scene), in_measured_time(course.busy, scene)
    delays = in_measured_time(course.delays, scene).sum(0)
    changing = _changing(log.decisions, begin, end)
    during = course.delays[changing].sum(0)
    mean, least = busy.mean(1), busy.min(1)
    seconds = [one.seconds for one in log.decisions]
    return {
        "done": float(done.mean()),
        "done_before": _before(course, scene, begin),
        "done_settled": float(done[len(done) // 2 :].mean()),
        "products": float(in_measured_time(course.products, scene).mean()),
        "imbalance": float((busy.max(1) / np.maximum(mean, 1e-9)).mean()),
        "spread": float(np.median(busy.max(1) / np.maximum(least, 1e-3))),
        "p50_s": _finite(quantile_s(delays, 0.5)),
        "p99_s": _finite(quantile_s(delays, 0.99)),
        "greatest_s": _greatest(delays),
        "late": [share_above(delays, late_s) for late_s in LATE_S],
        "changing_s": len(changing),
        "late_changing": [share_above(during, late_s) for late_s in LATE_S],
        "changes": sum(begin <= one.at_ms / 1_000 < end for one in log.decisions),
        "changes_all": len(log.decisions),
        "first_s": next(iter(_ends_s(log.decisions, begin)), None),
        "change_s": float(np.mean(seconds)) if seconds else None,
        "change_s_max": max(seconds, default=None),
        "slots": course.moved_slots,
        "maps": sum(bool(one.map_version) for one in log.decisions),
        "copied": course.copied_queries,
        "sent_queries": course.sent_queries,
        "loaded": course.loaded_queries,
        "paused_s_max": max(course.paused_s, default=None),
        "warmed_s_max": max(course.warmed_s, default=None),
        "round_s_max": max(log.thinking_s, default=None),
        "settled_s": _settled_s(log, begin),
    }


def _before(course: Course, scene: Scene, begin: int) -> float | None:
    """Returns objects a second just before the measured time; None if that begins at once."""
    if begin - BEFORE_S < scene.quiet_s:
        return None
    return float(course.done[begin - BEFORE_S : begin].mean())


def _ends_s(decisions: list[Decision], begin: int) -> list[float]:
    """Returns when changes ended that began in the measured time, from its begin."""
    since = [one for one in decisions if one.at_ms >= 1_000 * begin]
    return [one.at_ms / 1_000 + one.seconds - begin for one in since]


def _changing(decisions: list[Decision], begin: int, end: int) -> NDArray[np.int64]:
    """Returns the measured seconds in which a change was under way."""
    during = [
        np.arange(int(one.at_ms / 1_000), int(one.at_ms / 1_000 + one.seconds) + 1)
        for one in decisions
    ]
    found = np.unique(np.concatenate([np.empty(0, np.int64), *during]))
    return found[(found >= begin) & (found < end)]


def _settled_s(log: Log, begin: int) -> float | None:
    """Returns the seconds until the balancer's imbalance is below the threshold for a minute."""
    since: float | None = None
    for at_s, imbalance, _ in log.rounds:
        if at_s < begin:
            continue
        if imbalance > 1.2:
            since = None
        elif since is None:
            since = at_s
        elif at_s - since >= 60:
            return since - begin
    return None


def _greatest(delays: NDArray[np.float64]) -> float | None:
    last = int(np.flatnonzero(delays > 0).max(initial=0))
    return float(EDGES_S[last]) if last < len(EDGES_S) else None


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _points(course: Course, scene: Scene, log: Log) -> dict[str, Any]:
    """Returns the course by points of `POINT_S`."""
    points = int(scene.seconds) // POINT_S

    def summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
        some = values[: points * POINT_S]
        return some.reshape(points, POINT_S, *values.shape[1:]).sum(1)

    busy, delays = summed(course.busy), summed(course.delays)
    p99 = [quantile_s(each, 0.99) for each in delays]
    return {
        "done": (summed(course.done) / POINT_S).round().tolist(),
        "p99_s": [_finite(each) for each in p99],
        "imbalance": (busy.max(1) / np.maximum(busy.mean(1), 1e-9)).round(3).tolist(),
        "spread": (busy.max(1) / np.maximum(busy.min(1), 1e-2)).round(3).tolist(),
        "changes_s": [one.at_ms / 1_000 for one in log.decisions],
        "judged_s": list(scene.judged_s),
        "shades": [list(each) for each in scene.shades],
        "rounds": [[round(at, 1), round(imbalance, 3)] for at, imbalance, _ in log.rounds],
        "states": _states(log, scene.judged_s[0]),
    }


def _states(log: Log, begin_s: float) -> dict[str, int]:
    found: dict[str, int] = {}
    for at_s, _, state in log.rounds:
        if at_s >= begin_s:
            found[state] = found.get(state, 0) + 1
    return found


def _decided(decision: Decision) -> dict[str, Any]:
    return {
        "at_s": decision.at_ms / 1_000,
        "reason": decision.reason,
        "slots": len(decision.moves),
        "has_map": bool(decision.map_version),
        "before": decision.maximum_before,
        "after": decision.maximum_after,
        "queries": decision.moved_queries,
        "seconds": decision.seconds,
        "outcome": decision.outcome,
    }


def _chosen(timed: Timed | None) -> dict[str, Any]:
    """Returns the times of cell selection, where measured."""
    if timed is None or not timed.seconds:
        return {}
    return {
        "choose_s": float(np.mean(timed.seconds)),
        "choose_s_max": max(timed.seconds),
        "choices": len(timed.seconds),
        "cells_max": max(timed.cells),
    }
