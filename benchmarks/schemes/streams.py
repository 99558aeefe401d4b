"""The objects for the comparison of schemes: posts of one country or the world, and real ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.loadgen.lines import read_objects
from sirocco.loadgen.posts import WorldPosts
from sirocco.model.objects import ObjectColumns, concat
from sirocco.model.text import analyse_batch
from sirocco.schemes.map.map import WORLD
from sirocco.schemes.workload.columns import take_rows
from sirocco.schemes.workload.sample import Sample, SampleQueries

# West, south, east, north of the contiguous United States, whose tweets Tornado, SWARM and
# PS2Stream used. It is scaled to the whole world, as the papers' frame is the extent of their data.
STATES = (-125.0, 24.5, -66.5, 49.5)

# SSTD 7.2: places around the middle of both axes with a deviation of 1 (degree).
GAUSSIAN_SPREAD_DEG = 1.0

CLUSTERS = 200
CLUSTERS_UNIFORM_SHARE = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Objects with their analysed terms.

    Attributes:
        columns: As published.
        term_offsets: i8[n + 1], into `terms`.
        terms: u8, distinct hashes of each object.
        keys: u8[n], event keys.
    """

    columns: ObjectColumns
    term_offsets: NDArray[np.int64]
    terms: NDArray[np.uint64]
    keys: NDArray[np.uint64]

    @classmethod
    def of(cls, columns: ObjectColumns) -> Stream:
        """Analyses the texts."""
        found = analyse_batch(columns.text, columns.text_offsets)
        # Ids count up from one; event keys are hashes.
        keys = columns.ids * np.uint64(0x9E3779B97F4A7C15)
        return cls(columns, found.offsets, found.terms, keys)

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def lon(self) -> NDArray[np.float64]:
        """f8[n], degrees."""
        return self.columns.lon

    @property
    def lat(self) -> NDArray[np.float64]:
        """f8[n], degrees."""
        return self.columns.lat

    def take(self, rows: NDArray[np.int64]) -> Stream:
        """Returns some objects in the given order."""
        offsets, terms = take_rows(self.term_offsets, self.terms, rows)
        return Stream(self.columns.take(rows), offsets, terms, self.keys[rows])

    def repeated(self, times: int) -> Stream:
        """Returns the objects several times over, each with an id of its own."""
        rows = np.tile(np.arange(len(self)), times)
        found = self.take(rows)
        ids = np.arange(1, len(rows) + 1, dtype=np.uint64)
        # A name would replace the id.
        nameless: dict[str, Any] = {
            "names": np.empty(0, np.uint8),
            "name_offsets": np.zeros(len(rows) + 1, np.int64),
        }
        return replace(found, columns=replace(found.columns, ids=ids, **nameless))

    def moved(self, lon: NDArray[np.float64], lat: NDArray[np.float64]) -> Stream:
        """Returns the same objects at other places."""
        return replace(self, columns=replace(self.columns, lon=lon, lat=lat))

    def sample(self, queries: SampleQueries) -> Sample:
        """Returns the objects as a scheme's sample."""
        return Sample(self.lon, self.lat, self.term_offsets, self.terms, self.keys, queries)


def world_posts(seed: int, count: int) -> Stream:
    """Returns posts where people live, in their languages."""
    return Stream.of(concat(list(WorldPosts(seed).batches(count))))


def states_posts(seed: int, count: int) -> Stream:
    """Returns posts of the contiguous United States, whose extent is scaled to the world."""
    posts = WorldPosts(seed)
    cities = posts.cities
    west, south, east, north = STATES
    inside = (cities.lon > west) & (cities.lon < east) & (cities.lat > south) & (cities.lat < north)
    there = inside & np.array([country == "US" for country in cities.countries])
    posts.cities = replace(cities, population=np.where(there, cities.population, 0.0))
    found = concat(list(posts.batches(count)))
    lon = (found.lon.clip(west, east) - west) * (360 / (east - west)) - 180
    lat = (found.lat.clip(south, north) - south) * (180 / (north - south)) - 90
    return Stream.of(replace(found, lon=lon, lat=lat))


def file_posts(path: Path) -> Stream:
    """Returns the good lines of a file of objects."""
    found = concat([batch.objects for batch in read_objects(path, path.name)])
    return Stream.of(found)


def uniform_places(seed: int) -> Callable[[int], NDArray[np.float64]]:
    """Returns a function that draws f8[n, 2] anywhere."""
    rng = np.random.default_rng(seed)
    return lambda count: rng.uniform(WORLD[:2], WORLD[2:], (count, 2))


def gaussian_places(seed: int) -> Callable[[int], NDArray[np.float64]]:
    """Returns a function that draws f8[n, 2] around the middle of the world (SSTD 7.2)."""
    rng = np.random.default_rng(seed)
    return lambda count: rng.normal(0, GAUSSIAN_SPREAD_DEG, (count, 2))


def clustered_places(seed: int) -> Callable[[int], NDArray[np.float64]]:
    """Returns a function that draws f8[n, 2] in clusters of Zipf weights, some anywhere."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, CLUSTERS + 1)
    centres = rng.uniform(WORLD[:2], WORLD[2:], (CLUSTERS, 2))
    spreads = np.exp(rng.uniform(np.log(0.002), np.log(0.05), CLUSTERS)) * 180

    def draw(count: int) -> NDArray[np.float64]:
        cluster = rng.choice(CLUSTERS, count, p=weights / weights.sum())
        places = centres[cluster] + rng.standard_normal((count, 2)) * spreads[cluster][:, None]
        anywhere = rng.random(count) < CLUSTERS_UNIFORM_SHARE
        places[anywhere] = rng.uniform(WORLD[:2], WORLD[2:], (int(anywhere.sum()), 2))
        return np.asarray(np.clip(places, WORLD[:2], WORLD[2:]))

    return draw


def hotspot(
    seed: int, stream: Stream, share: float, side_share: float, *, normal: bool
) -> NDArray[np.bool_]:
    """Moves a share of the objects, in place, into a square (SWARM 6.2).

    Args:
        seed: For all random draws.
        stream: Its places are overwritten; they must not be shared.
        share: Of the objects that are moved there.
        side_share: Side of the square relative to the side of the space; it is in the lower left
            corner.
        normal: Whether they are around its middle with a deviation of 20 % of the side (the paper's
            variance of 20 % of the side), otherwise anywhere in it.

    Returns:
        bool[n], which were moved.
    """
    rng = np.random.default_rng(seed)
    moved = rng.random(len(stream)) < share
    count = int(moved.sum())
    unit = rng.normal(0.5, 0.2, (count, 2)).clip(0, 1) if normal else rng.random((count, 2))
    stream.lon[moved] = WORLD[0] + unit[:, 0] * side_share * 360
    stream.lat[moved] = WORLD[1] + unit[:, 1] * side_share * 180
    return moved
