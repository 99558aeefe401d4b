"""Areas of the kdt-tree: boxes with their objects and queries, and their halving."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sirocco.schemes.builders.qt_tree import SIDE_DEGREES_MIN
from sirocco.schemes.map.map import WORLD, Box
from sirocco.schemes.workload.columns import take_rows
from sirocco.schemes.workload.keyword_terms import TermSet, term_set
from sirocco.schemes.workload.keyword_workload import KeywordWorkload


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Area:
    """A box of the world.

    Attributes:
        box: As for a leaf.
        objects: i4[n], rows of the workload's objects in it.
        queries: i4[q], rows of its queries that reach it.
        keyed: How many of these have a key.
        seekers: How many of the objects contain the key of one of them.
        strays: i8[n], how many words of each object lead to a leaf of a text split although they
            are not keys of the area's queries.
        load: Load of the area as one leaf.
    """

    box: Box
    objects: NDArray[np.int32]
    queries: NDArray[np.int32]
    keyed: int
    seekers: int
    strays: NDArray[np.int64]
    load: float

    def sent_share(self, children: int) -> float:
        """Returns the share of a text split's objects sent to a leaf without a key of its queries.

        Besides its home, each stray word sends an object to one of the leaves, by the hash.
        """
        words = np.bincount(self.strays)
        missed = words @ stray_misses(children, np.arange(len(words)))
        return 1 - float(missed) / max(len(self.objects), 1)


class Areas:
    """Creates the areas of one workload.

    Args:
        workload: The workload.
        is_filtered: Whether routers hold back objects that no query of a leaf needs.
    """

    def __init__(self, workload: KeywordWorkload, *, is_filtered: bool = False) -> None:
        self.workload = workload
        self._is_filtered = is_filtered
        self._words = np.diff(workload.sample.term_offsets)
        self._lon, self._lat = workload.sample.lon, workload.sample.lat
        self._boxes = workload.sample.queries.boxes

    def world(self) -> Area:
        """Returns the area of the whole world."""
        objects = np.arange(len(self._lon), dtype=np.int32)
        return self.area(WORLD, objects, np.arange(len(self._boxes), dtype=np.int32))

    def terms(self, area: Area) -> TermSet:
        """Returns the keys of the area's queries, with its objects."""
        return term_set(self.workload, area.objects, area.queries)

    def halves(self, area: Area) -> tuple[Area, Area] | None:
        """Splits an area like a kd-tree, in the direction of lesser load.

        For equal loads the longer side is split, so that a world without objects has even tiles.
        None if all objects are in one place, or the area is too narrow.
        """
        west, south, east, north = area.box
        axes = (0, 1) if east - west >= north - south else (1, 0)
        pairs = [pair for axis in axes if (pair := self.cut(area, axis)) is not None]
        return min(pairs, key=lambda pair: pair[0].load + pair[1].load, default=None)

    def cut(self, area: Area, axis: int) -> tuple[Area, Area] | None:
        """Splits an area at the median of its objects; axis 0 splits longitudes, 1 latitudes."""
        values = (self._lon, self._lat)[axis][area.objects]
        at = _median(values, area.box[axis], area.box[axis + 2])
        if at is None:
            return None
        first, second = list(area.box), list(area.box)
        first[axis + 2] = second[axis] = at
        return (
            self._within(area, (first[0], first[1], first[2], first[3]), values < at),
            self._within(area, (second[0], second[1], second[2], second[3]), values >= at),
        )

    def _within(self, area: Area, box: Box, is_inside: NDArray[np.bool_]) -> Area:
        reaches = reaching(self._boxes[area.queries], box)
        return self.area(box, area.objects[is_inside], area.queries[reaches])

    def area(self, box: Box, objects: NDArray[np.int32], queries: NDArray[np.int32]) -> Area:
        """Returns the area of a box, from the rows of its objects and queries."""
        workload = self.workload
        keys = workload.key_of_query[queries]
        keys = keys[keys >= 0]
        seekers, strays = 0, self._words[objects].astype(np.int64)
        if len(keys) > 0 and len(objects) > 0:
            is_query_key = np.zeros(len(workload.keys), np.bool_)
            is_query_key[keys] = True
            rows = objects.astype(np.int64)
            offsets, held = take_rows(workload.object_offsets, workload.object_keys, rows)
            before = np.concatenate([[0], np.cumsum(is_query_key[held])])
            sought = before[offsets[1:]] - before[offsets[:-1]]
            seekers = int((sought > 0).sum())
            strays = np.asarray(strays - sought, np.int64)
        if self._is_filtered:
            strays = np.zeros(len(objects), np.int64)
        count, keyed, unkeyed = float(len(objects)), float(len(keys)), len(queries) - len(keys)
        load = workload.costs.load(count, count, float(seekers), keyed, float(unkeyed))
        return Area(
            box=box,
            objects=objects,
            queries=queries,
            keyed=len(keys),
            seekers=seekers,
            strays=strays,
            load=load,
        )


def stray_misses(children: int, strays: NDArray[np.int64]) -> NDArray[np.float64]:
    """Returns the probability that neither home nor stray words lead to one of the children."""
    return np.asarray((1 - 1 / children) ** (strays + 1.0), np.float64)


def reaching(boxes: NDArray[np.float64], box: Box) -> NDArray[np.bool_]:
    """Returns which closed boxes meet a tile, bool[q].

    Tiles are half open in the east and north, as in the router, except at the border of the world.
    A box with west > east crosses the antimeridian.
    """
    west, south, east, north = box
    before_east = (boxes[:, 0] < east) | (east == WORLD[2])
    before_north = (boxes[:, 1] < north) | (north == WORLD[3])
    after_west = boxes[:, 2] >= west
    crosses = boxes[:, 0] > boxes[:, 2]
    overlaps = np.where(crosses, before_east | after_west, before_east & after_west)
    meets: NDArray[np.bool_] = overlaps & before_north & (boxes[:, 3] >= south)
    return meets


def _median(values: NDArray[np.float64], low: float, high: float) -> float | None:
    """Returns the position on a side with about equally many values in both halves."""
    if high - low < 2 * SIDE_DEGREES_MIN:
        return None
    if len(values) == 0:
        return (low + high) / 2
    median = float(np.partition(values, len(values) // 2)[len(values) // 2])
    below, above = values[values < median], values[values > median]
    # Between two places, so that neither is on the border.
    if len(below) > 0:
        at = (float(below.max()) + median) / 2
    elif len(above) > 0:
        at = (median + float(above.min())) / 2
    else:
        return None
    at = min(max(at, low + SIDE_DEGREES_MIN), high - SIDE_DEGREES_MIN)
    return at if bool((values < at).any() and (values >= at).any()) else None
