"""The plots of the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

# Before pyplot is imported: a machine may have no display.
mpl.use("Agg")

import matplotlib.pyplot as plt

from benchmarks.schemes.figures import SLOTS, Figures, Row
from benchmarks.schemes.measure import BEST_SPACE, BEST_TEXT, HYBRID

DPI = 110
TRIO = (
    (HYBRID, "o-", "tab:green"),
    (BEST_TEXT, "s--", "tab:orange"),
    (BEST_SPACE, "^:", "tab:blue"),
)


@dataclass(frozen=True, slots=True)
class Plot:
    """One plot.

    Attributes:
        path: Of its file.
        title: Its content, in a line.
    """

    path: Path
    title: str


def draw_all(figures: Figures, directory: Path) -> list[Plot]:
    """Draws the plots for which there are figures."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    for name, title, kind, draw in _PLOTS:
        if not figures.all(kind):
            continue
        figure = draw(figures)
        path = directory / f"{name}.png"
        figure.savefig(path, dpi=DPI, bbox_inches="tight")
        plt.close(figure)
        drawn.append(Plot(path, title))
    return drawn


def _matrix(figures: Figures, value: Callable[[Row], float]) -> tuple[list[str], list[str], Any]:
    rows = figures.all("loads", case="", slots=SLOTS)
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))
    cells = np.full((len(schemes), len(workloads)), np.nan)
    for row in rows:
        cells[schemes.index(row["scheme"]), workloads.index(row["workload"])] = value(row)
    return schemes, workloads, cells


def _heat(
    schemes: list[str], workloads: list[str], cells: Any, colours: Any, form: str, colour_map: str
) -> Any:
    figure, axes = plt.subplots(figsize=(1.0 + 0.95 * len(workloads), 0.8 + 0.36 * len(schemes)))
    shown = axes.imshow(colours, cmap=colour_map, aspect="auto", vmin=0, vmax=1)
    axes.set_xticks(range(len(workloads)), workloads, rotation=30, ha="right")
    axes.set_yticks(range(len(schemes)), schemes)
    for y in range(len(schemes)):
        for x in range(len(workloads)):
            if np.isnan(cells[y, x]):
                continue
            text = form.format(cells[y, x]) if np.isfinite(cells[y, x]) else "∞"
            red, green, blue, _ = shown.cmap(shown.norm(colours[y, x]))
            dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
            axes.text(x, y, text, ha="center", va="center", fontsize=8,
                      color="white" if dark else "black")  # fmt: skip
    return figure


def _capacity(figures: Figures) -> Any:
    schemes, workloads, cells = _matrix(figures, lambda row: row["load_capacity"])
    share = cells / np.nanmax(cells, 0)
    return _heat(schemes, workloads, share, share, "{:.2f}", "viridis")


def _balance(figures: Figures) -> Any:
    schemes, workloads, cells = _matrix(
        figures, lambda row: np.inf if row["load_imbalance"] is None else row["load_imbalance"]
    )
    colours = 1 - np.clip(np.log2(cells) / 5, 0, 1)
    return _heat(schemes, workloads, cells, colours, "{:.1f}", "RdYlGn")


def _copies(figures: Figures) -> Any:
    figure, panels = plt.subplots(1, 3, figsize=(13, 3.8), sharey=True)
    for axes, workload in zip(panels, ("q1", "q2", "q3"), strict=True):
        rows = figures.all("loads", workload=workload, case="", slots=SLOTS)[::-1]
        place = np.arange(len(rows))
        axes.barh(place + 0.2, [row["object_copies"] for row in rows], 0.4, label="of an object")
        axes.barh(place - 0.2, [row["query_copies"] for row in rows], 0.4, label="of a query")
        axes.set_yticks(place, [row["scheme"] for row in rows])
        axes.set_xlim(0, SLOTS)
        axes.set_xlabel("copies")
        axes.set_title(workload)
        axes.grid(alpha=0.3, axis="x")
    panels[0].legend(fontsize=8)
    return figure


def _hybrid(figures: Figures) -> Any:
    figure, panels = plt.subplots(1, 3, figsize=(13, 3.6))
    for axes, workload in zip(panels, ("q1", "q2", "q3"), strict=True):
        for scheme, style, colour in TRIO:
            rows = figures.all("loads", workload=workload, scheme=scheme, case="")
            rows.sort(key=lambda row: row["slots"])
            axes.plot([row["slots"] for row in rows], [row["load_capacity"] / 1e6 for row in rows],
                      style, color=colour, label=scheme)  # fmt: skip
        axes.set_title(workload)
        axes.set_xticks(sorted({row["slots"] for row in rows}))
        axes.set_xlabel("slots")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("capacity, million objects/s")
    panels[0].legend(fontsize=8)
    return figure


def _grids(figures: Figures) -> Any:
    figure, panels = plt.subplots(1, 2, figsize=(11, 4))
    rows = figures.all("grids")
    grids = sorted({row["grid"] for row in rows})
    for number, grid in enumerate(grids):
        own = sorted((row for row in rows if row["grid"] == grid), key=lambda row: row["side"])
        sides = [100 * row["side"] for row in own]
        colour = plt.get_cmap("viridis")(number / len(grids))
        panels[0].plot(sides, [row["ns_per_region"] for row in own], "o-", color=colour,
                       label=f"neighbour search, {grid}²")  # fmt: skip
        panels[0].plot(sides, [row["scan_ns_per_region"] for row in own], "x:", color=colour,
                       label=f"scan of cells, {grid}²")  # fmt: skip
        panels[1].plot([row["leaves_hit"] for row in own], [row["ns_per_region"] for row in own],
                       "o-", color=colour, label=f"{grid}²")  # fmt: skip
    for axes in panels:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylabel("ns a region")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=6)
    panels[0].set_xlabel("side of a region, % of the world")
    panels[1].set_xlabel("leaves hit")
    return figure


def _style(number: int) -> dict[str, Any]:
    """Returns colour and mark of the n-th scheme; some coincide, so marks are hollow."""
    return {
        "color": plt.get_cmap("tab20")(number % 20),
        "marker": "os^vDxP*<>h"[number % 11],
        "markersize": 4 + number % 4 * 2,
        "fillstyle": "none",
    }


def _objects(figures: Figures) -> Any:
    names = [name for name in ("tornado", "q2", "sstd") if figures.all("objects", workload=name)]
    figure, panels = plt.subplots(1, len(names), figsize=(4.6 * len(names), 4), squeeze=False)
    for axes, workload in zip(panels[0], names, strict=True):
        for number, scheme in enumerate(figures.names("objects", "scheme")):
            rows = figures.all("objects", workload=workload, scheme=scheme)
            axes.plot([row["asked"] for row in rows], [row["objects_per_s"] / 1e6 for row in rows],
                      **_style(number), label=scheme)  # fmt: skip
        for bar in (1, 3):
            axes.axhline(bar, color="red", linestyle=":", linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("leaves asked for")
        axes.set_title(workload)
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel("million objects/s of a core")
    panels[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _searches(figures: Figures) -> Any:
    names = list(figures.names("searches", "workload"))
    figure, panels = plt.subplots(1, len(names), figsize=(4.2 * len(names), 4), squeeze=False)
    for axes, workload in zip(panels[0], names, strict=True):
        for number, scheme in enumerate(figures.names("searches", "scheme")):
            rows = figures.all("searches", workload=workload, scheme=scheme, keywords=1)
            rows.sort(key=lambda row: row["area"])
            axes.plot([100 * row["area"] for row in rows], [row["objects"] for row in rows],
                      **_style(number), label=scheme)  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("region, % of the area")
        axes.set_title(workload)
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel("objects visited by a query")
    panels[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _replays(figures: Figures) -> Any:
    rows = [row for row in figures.all("replays") if not row["error"]]
    workloads = list(dict.fromkeys(row["workload"] for row in rows))
    figure, panels = plt.subplots(
        1, max(1, len(workloads)), figsize=(5 * max(1, len(workloads)), 3.4), squeeze=False
    )
    for axes, workload in zip(panels[0], workloads, strict=False):
        own = [row for row in rows if row["workload"] == workload]
        left = np.zeros(len(own))
        for service in dict.fromkeys(name for row in own for name in row["cpu_us"]):
            used = np.array([row["cpu_us"].get(service, 0) for row in own])
            axes.barh([row["scheme"] for row in own], used, left=left, label=service)
            left += used
        for number, row in enumerate(own):
            axes.text(left[number], number, f" {row['objects_per_s'] / 1e3:.0f} k/s", va="center",
                      fontsize=7)  # fmt: skip
        axes.set_xlim(right=1.2 * left.max())
        axes.set_title(workload)
        axes.set_xlabel("CPU µs an object")
    panels[0][0].legend(fontsize=7)
    figure.tight_layout()
    return figure


_PLOTS: tuple[tuple[str, str, str, Callable[[Figures], Any]], ...] = (
    ("capacity", "Capacity by workload, as a share of the best scheme's", "loads", _capacity),
    ("balance", "Lmax/Lmin of the slots; green is even", "loads", _balance),
    ("copies", "Replication on PS2Stream's queries, of 8 slots", "loads", _copies),
    ("hybrid", "PS2Stream's three over the number of slots", "loads", _hybrid),
    ("regions", "Routing of regions on A-Grids of growing granularity, the same number of leaves",
     "grids", _grids),
    ("objects", "Routing of objects; dotted: the bars of 1 and 3 million", "objects", _objects),
    ("searches", "Objects that a snapshot query visits", "searches", _searches),
    ("pipeline", "The real pipeline: CPU time of each service by object", "replays", _replays),
)  # fmt: skip
