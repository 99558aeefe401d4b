"""The workloads: the samples from which maps are built, and the objects and queries routed then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.schemes import streams
from benchmarks.schemes.queries import Queries, after_objects, sstd_mix, subscriptions
from benchmarks.schemes.streams import Stream
from sirocco.schemes.workload.sample import QueryKind

# SSTD 7.1: regions of 0.01 % of the area and one keyword. Tornado 6: sides of 0.1 % and three
# keywords. SWARM 6: sides of 0.16 % and no text. All are the papers' defaults.
SSTD_AREA = 1e-4
SSTD_KEYWORDS = 1
TORNADO_SIDE = 1e-3
TORNADO_KEYWORDS = 3
SWARM_SIDE = 1.6e-3

# SWARM 6.2.
HOTSPOT_SHARE = 0.4
HOTSPOT_SIDE = 0.15


@dataclass(frozen=True, slots=True)
class Size:
    """The size of the workloads.

    Attributes:
        sample: Objects from which maps are built.
        sample_queries: Queries from which maps are built.
        objects: Held-out objects.
        queries: Held-out queries.
        stored: Held-out objects that snapshot queries look for.
    """

    sample: int
    sample_queries: int
    objects: int
    queries: int
    stored: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Workload:
    """One workload.

    Attributes:
        name: Short name.
        about: Its description, in a line.
        sample: Objects from which a map is built.
        sample_queries: Queries from which it is built.
        objects: Other objects of the same kind.
        queries: Other standing range queries of the same kind.
        stored: Further objects, for searches; the held-out ones if there are no others.
    """

    name: str
    about: str
    sample: Stream
    sample_queries: Queries
    objects: Stream
    queries: Queries
    stored: Stream


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """A stream divided into three parts."""

    sample: Stream
    objects: Stream
    stored: Stream

    def at(self, draw: Callable[[int], NDArray[np.float64]]) -> _Cut:
        """Returns the same texts at drawn places."""

        def move(stream: Stream) -> Stream:
            places = draw(len(stream))
            return stream.moved(places[:, 0].copy(), places[:, 1].copy())

        return _Cut(move(self.sample), move(self.objects), move(self.stored))

    def workload(
        self, name: str, about: str, size: Size, make: Callable[[int, Stream, int], Queries]
    ) -> Workload:
        """Draws the queries, those of the map and the held-out ones by different seeds."""
        known = make(1, self.sample, size.sample_queries)
        # Of a mixture of kinds the standing range queries are matched.
        times = len(np.unique(known.kinds))
        asked = make(2, self.objects, times * size.queries).of_kind(QueryKind.RANGE_CONTINUOUS)
        return Workload(
            name=name,
            about=about,
            sample=self.sample,
            sample_queries=known,
            objects=self.objects,
            queries=asked,
            stored=self.stored,
        )


def workloads(size: Size, seed: int, data: Path) -> Iterator[Workload]:
    """Yields all workloads; a workload of missing real data is left out.

    Args:
        size: Of each.
        seed: For all random draws.
        data: Directory of real data, `*.jsonl.gz`.
    """
    states = _cut(streams.states_posts(seed, size.sample + size.objects), size)
    for group, about in (
        ("q1", "PS2Stream Q1: keywords as frequent as words are, regions of 1-50 km"),
        ("q2", "PS2Stream Q2: a keyword outside the top 1 %, regions of 1-100 km"),
        ("q3", "PS2Stream Q3: Q1 or Q2 in each of 100 regions"),
    ):

        def make(salt: int, stream: Stream, count: int, group: str = group) -> Queries:
            return subscriptions(salt, stream, count, group)

        yield states.workload(group, about, size, make)
    yield states.workload("tornado", "Tornado: sides of 0.1 %, three keywords", size, tornado)
    yield states.workload("swarm", "SWARM: sides of 0.16 %, no text", size, swarm)
    yield hotspot(states, size, seed, normal=True)
    world = _cut(streams.world_posts(seed, size.sample + size.objects + size.stored), size)
    yield world.workload("sstd", "SSTD: world posts, 0.01 % of the area, a keyword", size, sstd)
    for name, draw in (
        ("uniform", streams.uniform_places(seed)),
        ("gaussian", streams.gaussian_places(seed)),
        ("clustered", streams.clustered_places(seed)),
    ):
        about = f"SSTD's queries, {name} places"
        # All Gaussian places are within a few regions: each query meets a part of all objects.
        few = replace(size, queries=size.queries // 8) if name == "gaussian" else size
        yield world.at(draw).workload(f"sstd-{name}", about, few, sstd)
    for path in sorted(data.glob("*.jsonl.gz")):
        yield real(path, size)


def sstd(seed: int, stream: Stream, count: int) -> Queries:
    """SSTD's defaults."""
    return sstd_mix(seed, stream, count, SSTD_AREA, SSTD_KEYWORDS)


def tornado(seed: int, stream: Stream, count: int) -> Queries:
    """Tornado's defaults."""
    return after_objects(seed, stream, count, TORNADO_SIDE, TORNADO_KEYWORDS)


def swarm(seed: int, stream: Stream, count: int) -> Queries:
    """SWARM's defaults."""
    return after_objects(seed, stream, count, SWARM_SIDE, 0)


def hotspot(states: _Cut, size: Size, seed: int, *, normal: bool) -> Workload:
    """SWARM 6.2: the map is built before a hotspot that takes 40 % of objects and queries."""
    about = "SWARM: the map is older than a hotspot of 40 %"
    calm = states.workload("hotspot", about, size, swarm)

    def heated(stream: Stream, salt: int) -> Stream:
        found = stream.moved(stream.lon.copy(), stream.lat.copy())
        streams.hotspot(seed + salt, found, HOTSPOT_SHARE, HOTSPOT_SIDE, normal=normal)
        return found

    objects = heated(states.objects, 0)
    queries = swarm(2, objects, size.queries)
    # The objects of the hotspot that a scheme which goes on learning has seen by then.
    return replace(calm, objects=objects, queries=queries, stored=heated(states.sample, 1))


def real(path: Path, size: Size) -> Workload:
    """Returns the workload of a file, half of it for the map; regions of 0.01 % of its extent."""
    found = streams.file_posts(path)
    rows = np.arange(len(found))
    sample, rest = found.take(rows[::2]), found.take(rows[1::2])
    extent = np.ptp(found.lon) / 360, np.ptp(found.lat) / 180
    side = float(np.sqrt(SSTD_AREA * extent[0] * extent[1]))

    def make(seed: int, stream: Stream, count: int) -> Queries:
        return after_objects(seed, stream, count, side, 2)

    cut = _Cut(sample, rest, rest)
    name = path.name.removesuffix(".jsonl.gz").partition("_")[0]
    return cut.workload(name, f"real: {path.name}, two keywords", size, make)


def _cut(stream: Stream, size: Size) -> _Cut:
    rows = np.arange(len(stream))
    end = size.sample + size.objects
    objects = stream.take(rows[size.sample : end])
    stored = stream.take(rows[end:]) if len(stream) > end else objects
    return _Cut(stream.take(rows[: size.sample]), objects, stored)
