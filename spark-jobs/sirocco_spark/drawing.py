"""Plots of a workload, as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import matplotlib as mpl
import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from sirocco.schemes.map.map import PartitionMap
from sirocco_spark.comparison import Outcome, lorenz

mpl.use("Agg")

_WORLD = (-180.0, 180.0, -90.0, 90.0)
# Share of the objects within the drawn part of the map; a remote point would make a city a dot.
_SHOWN_SHARE = 0.98


def extent_of(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> tuple[float, ...]:
    """Returns (west, east, south, north) of nearly all objects, with a margin."""
    if len(lon) == 0:
        return _WORLD
    cut = (1 - _SHOWN_SHARE) / 2
    (west, east), (south, north) = (np.quantile(v, (cut, 1 - cut)) for v in (lon, lat))
    x, y = max(0.05 * (east - west), 0.01), max(0.05 * (north - south), 0.01)
    west, east = max(west - x, -180.0), min(east + x, 180.0)
    return float(west), float(east), float(max(south - y, -90.0)), float(min(north + y, 90.0))


def density(raster: NDArray[np.int64]) -> bytes:
    """Draws the objects of each cell over the world."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    axes = figure.subplots()
    shown = np.log10(np.maximum(raster, 1)).astype(np.float64)
    shown[raster == 0] = np.nan
    image = axes.imshow(shown, origin="lower", extent=_WORLD, aspect="auto", cmap="viridis")
    figure.colorbar(image, ax=axes, label="objects a cell, power of ten")
    axes.set(xlabel="longitude", ylabel="latitude", title="Objects")
    return _png(figure)


def skew(raster: NDArray[np.int64], term_counts: NDArray[np.int64]) -> bytes:
    """Draws the skew of objects in space, and of terms in texts."""
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    space, words = figure.subplots(1, 2)
    filled = raster[raster > 0]
    shares, gini = lorenz(filled)
    space.plot(np.linspace(0, 1, len(shares)), shares)
    space.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
    space.set(
        xlabel="share of the cells, fullest first",
        ylabel="share of the objects",
        title=f"Space: Gini {gini:.2f} over {len(filled)} cells",
    )
    ordered = np.sort(term_counts)[::-1]
    if len(ordered):
        words.loglog(np.arange(1, len(ordered) + 1), ordered)
    words.set(xlabel="rank of the term", ylabel="objects with it", title="Text")
    return _png(figure)


def leaves(partition_map: PartitionMap, extent: tuple[float, ...]) -> bytes:
    """Draws the leaves of a map; the colour is the slot."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    boxes = [
        Rectangle((leaf.box[0], leaf.box[1]), leaf.box[2] - leaf.box[0], leaf.box[3] - leaf.box[1])
        for leaf in partition_map.leaves
    ]
    tiles = PatchCollection(boxes, edgecolor="black", linewidth=0.4, cmap="tab20", alpha=0.6)
    tiles.set_array(partition_map.slot_of_leaf.astype(np.float64))
    axes.add_collection(tiles)
    west, east, south, north = extent
    axes.set(xlim=(west, east), ylim=(south, north), title=partition_map.scheme)
    cut = len(partition_map.text_nodes) + len(partition_map.keyword_nodes)
    axes.set_xlabel(f"{len(boxes)} leaves, {cut} places cut by words")
    return _png(figure)


def balance(outcomes: Sequence[Outcome]) -> bytes:
    """Draws the figures of all schemes side by side."""
    figure = Figure(figsize=(9, 0.9 + 0.4 * len(outcomes)), layout="constrained")
    load, copies = figure.subplots(1, 2, sharey=True)
    names = [one.scheme for one in outcomes]
    at = np.arange(len(names))
    load.barh(at - 0.2, [one.load_max_over_mean for one in outcomes], 0.4, label="expected load")
    load.barh(at + 0.2, [one.objects_max_over_mean for one in outcomes], 0.4, label="objects sent")
    load.axvline(1, color="grey", linewidth=0.8)
    load.set(yticks=at, yticklabels=names, title="Fullest slot over the mean")
    load.legend()
    load.invert_yaxis()
    copies.barh(at - 0.2, [one.object_copies for one in outcomes], 0.4, label="an object")
    copies.barh(at + 0.2, [one.query_copies or 0 for one in outcomes], 0.4, label="a query")
    copies.set(title="Slots that it is sent to")
    copies.legend()
    return _png(figure)


def _png(figure: Figure) -> bytes:
    out = BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return out.getvalue()
