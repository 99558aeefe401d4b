"""The plots: throughput and delays over time, balanced and static."""

from __future__ import annotations

from collections.abc import Callable, Sized
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

# Before pyplot is imported: a machine may have no display.
mpl.use("Agg")

import matplotlib.pyplot as plt

from benchmarks.adaptivity.measure import FULL_LOAD, PART_LOAD, POINT_S
from benchmarks.adaptivity.verdicts import scenes
from benchmarks.schemes.figures import Figures, Row
from benchmarks.schemes.plots import DPI, Plot

# Longer delays are drawn here; objects that still waited at the end have none.
DELAY_MAX_S = 300.0

# Likewise for the busiest evaluator over the least busy one.
SPREAD_MAX = 30.0

STYLES: dict[str, dict[str, Any]] = {
    "balanced": {"color": "tab:blue"},
    "static": {"color": "tab:gray"},
    "balanced, rounds of 2 s": {"color": "tab:cyan", "linewidth": 1.0},
    "balanced by N Q R": {"color": "tab:green", "linewidth": 1.0},
    "a-grid, static": {"color": "tab:brown", "linestyle": ":"},
    "a-grid, balanced": {"color": "tab:orange", "linewidth": 1.0},
    "GR": {"color": "tab:blue"},
    "DP": {"color": "tab:green", "linewidth": 1.0, "linestyle": "--"},
    "SI": {"color": "tab:orange", "linewidth": 1.0},
    "RA": {"color": "tab:red", "linewidth": 1.0},
}

Draw = Callable[[Any, Row, dict[str, Any]], None]


def draw_all(figures: Figures, directory: Path) -> list[Plot]:
    """Draws the plots for which there are figures."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, title in TITLES.items():
        if not figures.all("courses", experiment=name):
            continue
        figure = _figure(figures, name)
        path = directory / f"{name}.png"
        figure.savefig(path, dpi=DPI, bbox_inches="tight")
        plt.close(figure)
        drawn.append(Plot(path, title))
    return drawn


def _figure(figures: Figures, name: str) -> Any:
    """Draws a row of panels for each scene: throughput at saturation, delays at 70 %, evenness."""
    names = scenes(figures, name)
    panels = PANELS[name]
    figure, axes = plt.subplots(
        len(names), len(panels), figsize=(4.6 * len(panels), 0.6 + 2.1 * len(names)),
        sharex=True, squeeze=False,
    )  # fmt: skip
    for row, scene in zip(axes, names, strict=True):
        for panel, (load, label, draw) in zip(row, panels, strict=True):
            courses = figures.all("courses", experiment=name, scene=scene, load=load)
            for course in courses:
                if course["way"] in STYLES:
                    draw(panel, course, STYLES[course["way"]])
            _frame(panel, courses[0])
            if draw is _done:
                # Only now: an earlier limit would exclude later lines.
                panel.set_ylim(bottom=0)
            panel.set_ylabel(f"{scene}\n{label}" if panel is row[0] else label, fontsize=8)
    for panel in axes[-1]:
        panel.set_xlabel("seconds (dots: the balanced cluster changes)", fontsize=8)
    for panel, (load, _, _) in zip(axes[0], panels, strict=True):
        panel.set_title(
            "more offered than any bears" if load == FULL_LOAD else "70 % of what balanced bears",
            fontsize=9,
        )
    handles: dict[str, Any] = {}
    for panel in axes.flat:
        lines, labels = panel.get_legend_handles_labels()
        handles |= dict(zip(labels, lines, strict=True))
    figure.legend(handles.values(), handles.keys(), loc="lower center", fontsize=8,
                  ncols=len(handles), frameon=False)  # fmt: skip
    figure.tight_layout(rect=(0, 0.3 / figure.get_figheight(), 1, 1))
    return figure


def _frame(panel: Any, course: Row) -> None:
    for begin, end in course["shades"]:
        panel.axvspan(begin, end, color="tab:red", alpha=0.08, linewidth=0)
    panel.grid(alpha=0.3)
    panel.tick_params(labelsize=8)
    begin, end = course["judged_s"]
    panel.set_xlim(begin - 60, end + 60)


def _times(values: Sized) -> Any:
    return (np.arange(len(values)) + 0.5) * POINT_S


def _done(panel: Any, course: Row, style: dict[str, Any]) -> None:
    done = np.array(course["done"]) / 1e6
    panel.plot(_times(done), done, label=course["way"], **style)
    _dots(panel, course, style)


def _delays(panel: Any, course: Row, style: dict[str, Any]) -> None:
    found = [DELAY_MAX_S if each is None else each for each in course["p99_s"]]
    panel.plot(_times(found), np.minimum(found, DELAY_MAX_S), label=course["way"], **style)
    panel.set_yscale("log")
    panel.set_ylim(0.01, 1.3 * DELAY_MAX_S)
    for late_s in (0.1, 1.0):
        panel.axhline(late_s, color="black", linewidth=0.5, linestyle="--")
    _dots(panel, course, style)


def _spread(panel: Any, course: Row, style: dict[str, Any]) -> None:
    found = np.minimum(course["spread"], SPREAD_MAX)
    panel.plot(_times(found), found, label=course["way"], **style)
    panel.set_yscale("log")
    panel.set_ylim(1, 1.1 * SPREAD_MAX)
    panel.axhline(6, color="black", linewidth=0.5, linestyle="--")
    _dots(panel, course, style)


def _imbalance(panel: Any, course: Row, style: dict[str, Any]) -> None:
    panel.plot(_times(course["imbalance"]), course["imbalance"], label=course["way"], **style)
    panel.set_ylim(1, 8)


def _dots(panel: Any, course: Row, style: dict[str, Any]) -> None:
    """Marks changes of the first balanced way at the lower edge."""
    if course["way"] in {"balanced", "GR"}:
        times = course["changes_s"]
        panel.plot(times, [0.03] * len(times), ".", color=style["color"], markersize=4,
                   transform=panel.get_xaxis_transform())  # fmt: skip


_THROUGHPUT = (FULL_LOAD, "million objects/s", _done)
_LATENCY = (PART_LOAD, "99th percentile, s", _delays)
PANELS: dict[str, tuple[tuple[str, str, Draw], ...]] = {
    "swarm": (_THROUGHPUT, _LATENCY, (PART_LOAD, "CPU, busiest / mean", _imbalance)),
    "tornado": (_THROUGHPUT, _LATENCY, (PART_LOAD, "CPU, busiest / mean", _imbalance)),
    "sstd": (_THROUGHPUT, _LATENCY, (PART_LOAD, "CPU, Lmax/Lmin", _spread)),
    "ps2stream": (_THROUGHPUT, _LATENCY, (PART_LOAD, "CPU, Lmax/Lmin", _spread)),
}
TITLES = {
    "swarm": "SWARM's five hot spots (shaded)",
    "tornado": "Tornado: everything comes to a part of the space",
    "sstd": "SSTD: many objects, or queries, in one region; dashed: the paper's threshold of 6",
    "ps2stream": "PS2Stream: the load drifts over a day; four ways to choose what migrates",
}
