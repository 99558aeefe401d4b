"""Compares claims about adapting with the figures."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from benchmarks.adaptivity.measure import FULL_LOAD, PART_LOAD
from benchmarks.schemes.figures import Figures, Row
from benchmarks.schemes.verdicts import (
    DIRECTION,
    REFUTED,
    REPRODUCED,
    SAME,
    Judge,
    Verdict,
    graded,
    held,
)

HOT = ("uniform", "normal", "step", "overlapping", "consecutive")
# Our aim (the issue): a share of all objects, even while changes are under way.
LATE_MAX = 0.01
# PS2Stream VI-D, GR.
PAPER_LATE = (0.2, 0.04)
# A paper's "similar": within a fifth.
SIMILAR = 0.2
COSTLY = ("SI", "RA")


def run(figures: Figures, experiment: str, scene: str, way: str, load: str) -> Row:
    """Returns the results of one run."""
    return figures.one("runs", experiment=experiment, scene=scene, way=way, load=load)


def scenes(figures: Figures, experiment: str) -> list[str]:
    """Returns the scenes of a paper; raises MissingFigureError if it was not run."""
    figures.one("runs", experiment=experiment)
    rows = figures.all("runs", experiment=experiment)
    return list(dict.fromkeys(row["scene"] for row in rows))


def _ratios(figures: Figures, experiment: str, way: str) -> dict[str, float]:
    """Returns for each scene a way's throughput over a static map's, at saturation."""
    found = {}
    for scene in scenes(figures, experiment):
        ours = run(figures, experiment, scene, way, FULL_LOAD)["done"]
        found[scene] = ours / run(figures, experiment, scene, "static", FULL_LOAD)["done"]
    return found


def _said(ratios: dict[str, float], form: str = "{:.2f}x") -> str:
    return ", ".join(f"{scene} {form.format(value)}" for scene, value in ratios.items())


def throughput(
    experiment: str,
    factor: float,
    chosen: Callable[[str], bool] = lambda scene: True,
    way: str = "balanced",
) -> Judge:
    """Returns the judge of throughput at saturation, with balancing over without."""

    def judge(figures: Figures) -> Verdict:
        ratios = _ratios(figures, experiment, way)
        some = {scene: value for scene, value in ratios.items() if chosen(scene)}
        states = [graded(value, factor) for value in some.values()]
        state = states[0] if len(set(states)) == 1 else DIRECTION
        return Verdict(state, "done with balancing by without: " + _said(some))

    return judge


def history(figures: Figures) -> Verdict:
    """Compares SWARM with a grid made from history."""
    found = {}
    for scene in ("uniform", "step"):
        ours = run(figures, "swarm", scene, "balanced", FULL_LOAD)["done"]
        found[scene] = ours / run(figures, "swarm", scene, "a-grid, static", FULL_LOAD)["done"]
    state = held(min(found.values()) > 1.1, max(found.values()) > 1.1)
    return Verdict(state, "done by SWARM's map, balanced, by a static A-Grid's: " + _said(found))


def worst(figures: Figures) -> Verdict:
    """Compares the grid made from history with the uniform one."""
    found = {}
    for scene in ("uniform", "step"):
        even = run(figures, "swarm", scene, "static", FULL_LOAD)["done"]
        found[scene] = run(figures, "swarm", scene, "a-grid, static", FULL_LOAD)["done"] / even
    state = held(max(found.values()) < 1, min(found.values()) < 1)
    return Verdict(state, "done by the static A-Grid by the static uniform grid: " + _said(found))


def harder(figures: Figures) -> Verdict:
    """Compares a peaked hot spot with an even one."""
    even, peaked = (
        run(figures, "swarm", scene, "balanced", FULL_LOAD) for scene in ("uniform", "normal")
    )
    ratio = peaked["done"] / even["done"]
    state = REPRODUCED if ratio < 0.9 else SAME if ratio < 1.1 else REFUTED
    spread = f"busiest by mean {even['imbalance']:.2f} and {peaked['imbalance']:.2f}"
    return Verdict(state, f"normal by uniform: {ratio:.2f}x; {spread}")


def recovers(figures: Figures) -> Verdict:
    """Compares the throughput before a step, after it, and at its end."""
    course = figures.one(
        "courses", experiment="swarm", scene="step", way="balanced", load=FULL_LOAD
    )
    done = np.array(course["done"])
    begin, end = (int(second) // 10 for second in course["judged_s"])
    before = float(done[begin - 5 : begin].mean())
    first, last = float(done[begin : begin + 3].mean()), float(done[end - 12 : end].mean())
    state = held(first < 0.9 * before and last > 1.1 * first, last > 1.1 * first)
    return Verdict(
        state,
        f"of what was done before: {first / before:.2f} in the first 30 s, {last / before:.2f} in "
        "the last two minutes of the hot spot",
    )


def similar(scene: str, other: str) -> Judge:
    """Returns the judge of two scenes that a paper found alike."""

    def judge(figures: Figures) -> Verdict:
        ours, theirs = (
            run(figures, "swarm", each, "balanced", FULL_LOAD)["done"] for each in (scene, other)
        )
        ratio = ours / theirs
        return Verdict(held(abs(ratio - 1) <= SIMILAR, ratio > 1), f"{ratio:.2f}x of {other}")

    return judge


def again(figures: Figures) -> Verdict:
    """Compares the second of two consecutive hot spots with the first."""
    course = figures.one(
        "courses", experiment="swarm", scene="consecutive", way="balanced", load=FULL_LOAD
    )
    done = np.array(course["done"])
    first, second = (
        float(done[int((begin + end) / 20) : int(end) // 10].mean())
        for begin, end in course["shades"]
    )
    ratio = second / first
    return Verdict(
        held(abs(ratio - 1) <= SIMILAR, ratio > 1),
        f"second halves of both: {ratio:.2f}x in the second hot spot",
    )


def latency(factor: float) -> Judge:
    """Returns the judge of how many times lower the 99th percentile is."""

    def judge(figures: Figures) -> Verdict:
        reported, states = [], []
        for scene in HOT:
            ours, theirs = (
                run(figures, "swarm", scene, way, PART_LOAD) for way in ("balanced", "static")
            )
            a, b = ours["p99_s"], theirs["p99_s"]
            reported.append(f"{scene} {_seconds(a)} and {_seconds(b)}")
            # Infinite: it still waited when the scene was over.
            ratio = float("inf") if b is None and a is not None else 0.0 if a is None else b / a
            states.append(graded(ratio, factor))
        state = states[0] if len(set(states)) == 1 else DIRECTION
        return Verdict(state, "99th percentile with and without balancing: " + ", ".join(reported))

    return judge


def _seconds(value: float | None) -> str:
    return "no end" if value is None else f"{1e3 * value:,.0f} ms"


def late(experiment: str, way: str, member: str = "late") -> Judge:
    """Returns the judge of our aim: few objects are late, none very late."""

    def judge(figures: Figures) -> Verdict:
        reported, worst = [], [0.0, 0.0]
        for scene in scenes(figures, experiment):
            found = run(figures, experiment, scene, way, PART_LOAD)[member]
            reported.append(f"{scene}: {found[0]:.2%} and {found[1]:.2%}")
            worst = [max(each) for each in zip(worst, found, strict=True)]
        is_met = worst[0] < LATE_MAX and worst[1] == 0.0
        is_papers = worst[0] <= PAPER_LATE[0] and worst[1] <= PAPER_LATE[1]
        return Verdict(held(is_met, is_papers), "; ".join(reported))

    return judge


def stable(figures: Figures) -> Verdict:
    """Judges the throughput at all factors, adaptive."""
    found = {
        scene: run(figures, "tornado", scene, "balanced", FULL_LOAD)["done_settled"]
        for scene in scenes(figures, "tornado")
    }
    shares = {scene: value / max(found.values()) for scene, value in found.items()}
    least = min(shares.values())
    return Verdict(
        held(least >= 1 - SIMILAR, least >= 0.5), "of the best: " + _said(shares, "{:.2f}")
    )


def falls(figures: Figures) -> Verdict:
    """Judges the throughput at all factors, static."""
    found = {
        scene: run(figures, "tornado", scene, "static", FULL_LOAD)["done_settled"]
        for scene in scenes(figures, "tornado")
    }
    values = list(found.values())
    is_falling = all(b <= a for a, b in pairwise(values))
    shares = {scene: value / values[0] for scene, value in found.items()}
    return Verdict(held(is_falling, values[-1] < 0.9 * values[0]), _said(shares, "{:.2f}"))


def cheap(figures: Figures) -> Verdict:
    """Compares the queries that each of SSTD's methods moves."""
    found = {
        way: _moved(run(figures, "sstd", "objects, 50.0%", way, FULL_LOAD))
        for way in ("PM alone", "FM alone", "FG alone", "balanced")
    }
    pm, fm, fg, whole = found.values()
    state = held(pm <= fm <= fg and whole <= fg, pm <= fg and whole <= fg)
    return Verdict(state, "queries moved: " + _said(found, "{:,.0f}"))


def _moved(row: Row) -> float:
    """Returns the number of queries that were loaded or copied elsewhere."""
    return float(row["loaded"] + row["copied"])


def as_good(figures: Figures) -> Verdict:
    """Compares the effects of SSTD's methods."""
    found = {
        way: run(figures, "sstd", "objects, 50.0%", way, FULL_LOAD)["done_settled"]
        for way in ("static", "PM alone", "FM alone", "FG alone", "balanced")
    }
    shares = {way: value / found["static"] for way, value in found.items()}
    good = found["balanced"] >= 0.9 * found["FG alone"]
    return Verdict(held(good), "done once settled, by static: " + _said(shares))


def below(figures: Figures) -> Verdict:
    """Compares the busiest evaluator with the least busy one, at the end."""
    found = {}
    for scene in scenes(figures, "sstd"):
        course = figures.one(
            "courses", experiment="sstd", scene=scene, way="balanced", load=PART_LOAD
        )
        found[scene] = float(np.median(course["spread"][-24:-6]))
    worst = max(found.values())
    return Verdict(held(worst <= 6, worst <= 12), "CPU time, at the end: " + _said(found, "{:.1f}"))


def less(figures: Figures) -> Verdict:
    """Compares the queries that each method of selection migrates."""
    found = {
        way: run(figures, "ps2stream", "a day", way, PART_LOAD) for way in ("GR", "DP", *COSTLY)
    }
    each = {way: _moved(row) / max(row["changes_all"], 1) for way, row in found.items()}
    saved = 1 - each["GR"] / min(each[way] for way in COSTLY)
    state = REPRODUCED if saved >= 0.25 else DIRECTION if saved > 0.05 else REFUTED
    return Verdict(state, "queries of a change: " + _said(each, "{:,.0f}"))


def choosing(figures: Figures) -> Verdict:
    """Compares the times of the methods of selection."""
    found = {
        way: 1e6 * run(figures, "ps2stream", "a day", way, PART_LOAD)["choose_s"]
        for way in ("GR", "DP", *COSTLY)
    }
    slower = found["DP"] / found["GR"]
    return Verdict(graded(slower, 5.0), "CPU time of choosing: " + _said(found, "{:,.0f} µs"))


def fewest(figures: Figures) -> Verdict:
    """Compares the delays caused by each method."""
    found = {
        way: run(figures, "ps2stream", "a day", way, PART_LOAD)["late"][0]
        for way in ("GR", "DP", *COSTLY)
    }
    best = all(found["GR"] <= found[way] for way in COSTLY)
    same = max(found.values()) - min(found.values()) < 0.001
    state = SAME if same else held(best)
    return Verdict(state, "delayed by more than 100 ms: " + _said(found, "{:.2%}"))
