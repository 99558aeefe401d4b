"""The simplest continuous kNN: every object against every query, with sorted lists."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np

from sirocco.index.base.query_rows import FLAG_RESIDUAL, NEVER_MS, QueryRows
from tests.oracle.geometry import distances_m
from tests.support.range_oracle import (
    ObjectColumns,
    PlainObject,
    PlainQuery,
    columns,
    random_coordinate,
    random_query,
    text_holds,
)

Entry = tuple[int, int, int, int]


def distance_mm(lon_a: float, lat_a: float, lon_b: float, lat_b: float) -> int:
    """Returns the great-circle distance by the angle between vectors, exact near antipodes too."""
    (distance_m,) = distances_m(lon_a, lat_a, np.array([lon_b]), np.array([lat_b]))
    return round(float(distance_m) * 1000.0)


@dataclass(frozen=True)
class KnnObject:
    """An object; `tint` stands for attributes: some queries take only objects of their own tint."""

    plain: PlainObject
    id: int
    session: int
    number: int
    tint: int = 0


@dataclass(kw_only=True)
class KnnQuery:
    lon: float
    lat: float
    k: int
    text: PlainQuery = field(default_factory=PlainQuery)
    tint: int | None = None
    born: int = 0
    dead: int = NEVER_MS
    entries: list[Entry] = field(default_factory=list)
    bound_mm: int = NEVER_MS

    def offer(self, item: KnnObject, distance: int) -> bool:
        """Returns whether an object at this distance, mm, enters the list."""
        plain = item.plain
        if not self.born <= plain.position < self.dead:
            return False
        if plain.arrival_ms >= self.text.expires_ms or self.tint not in (None, item.tint):
            return False
        if not text_holds(self.text, plain.term_set):
            return False
        return self.put((distance, item.id, item.session, item.number))

    def put(self, entry: Entry) -> bool:
        if (
            entry[0] > self.bound_mm
            or entry in self.entries
            or (len(self.entries) == self.k and entry > self.entries[-1])
        ):
            return False
        self.entries = sorted([*self.entries, entry])[: self.k]
        return entry in self.entries


def insert(index, queries: list[KnnQuery], position: int) -> list[int]:
    for query in queries:
        query.born = position
    points = np.array([[q.lon, q.lat] for q in queries], np.float64).reshape(-1, 2)
    k = np.array([q.k for q in queries], np.int32)
    return index.insert(rows_of(queries), points, k, position).tolist()


def rows_of(queries: list[KnnQuery]) -> QueryRows:
    rows = columns([q.text for q in queries])
    flags = [FLAG_RESIDUAL * (q.tint is not None) for q in queries]
    return replace(rows, flags=np.array(flags, np.uint8))


def match(index, objects: list[KnnObject], live: dict[int, KnnQuery]) -> list[tuple]:
    """Returns (object row, query row, mm) of all hits, sorted."""
    plain = ObjectColumns.of([item.plain for item in objects])
    found = index.match(
        *plain.arguments(),
        np.array([item.id for item in objects], np.uint64),
        np.array([item.session for item in objects], np.uint64),
        np.array([item.number for item in objects], np.uint64),
        lambda object_row, query_row: objects[object_row].tint == live[query_row].tint,
    )
    assert (np.diff(found.object_rows) >= 0).all()
    mm = np.rint(found.distances_m * 1000).astype(np.int64)
    assert (mm / 1000.0 == found.distances_m).all()
    return sorted(
        zip(found.object_rows.tolist(), found.query_rows.tolist(), mm.tolist(), strict=True)
    )


def expected(objects: list[KnnObject], live: dict[int, KnnQuery]) -> list[tuple]:
    lon, lat = (np.array([getattr(one.plain, name) for one in objects]) for name in ("lon", "lat"))
    hits = []
    for row, query in live.items():
        distances = np.rint(distances_m(query.lon, query.lat, lon, lat) * 1000.0).astype(np.int64)
        for number, (item, distance) in enumerate(zip(objects, distances.tolist(), strict=True)):
            if query.offer(item, distance):
                hits.append((number, row, distance))
    return sorted(hits)


def entries_of(index, row: int) -> list[Entry]:
    near = index.near(row)
    mm = np.rint(near.distances_m * 1000).astype(np.int64).tolist()
    return list(
        zip(mm, near.ids.tolist(), near.sessions.tolist(), near.numbers.tolist(), strict=True)
    )


def random_point(rng: random.Random, places: list[tuple[float, float]]) -> tuple[float, float]:
    """Returns a pole, a point on the antimeridian or a grid line, or one near earlier ones."""
    kind = rng.randrange(8)
    if kind == 0:
        return random_coordinate(rng, 180.0), rng.choice([-90.0, 90.0])
    if kind == 1:
        return rng.choice([-180.0, 180.0, 179.9999999]), random_coordinate(rng, 90.0)
    if kind == 2 and places:
        return rng.choice(places)
    if kind in (3, 4) and places:
        lon, lat = rng.choice(places)
        step = 10.0 ** rng.randrange(-8, 1)
        lon += rng.uniform(-step, step)
        lon += 360.0 if lon < -180.0 else -360.0 if lon > 180.0 else 0.0
        return lon, min(max(lat + rng.uniform(-step, step), -90.0), 90.0)
    return random_coordinate(rng, 180.0), random_coordinate(rng, 90.0)


def random_knn(rng: random.Random, vocabulary: int, places: list[tuple[float, float]]) -> KnnQuery:
    text = PlainQuery() if rng.random() < 0.4 else random_query(rng, vocabulary)
    # Objects arrive at multiples of 100: some exactly when a lifetime ends.
    expires_ms = NEVER_MS if rng.random() < 0.7 else 100 * rng.randrange(1, 1_000)
    plain = PlainQuery(text.conjunctions, expires_ms=expires_ms)
    lon, lat = random_point(rng, places)
    places.append((lon, lat))
    tint = rng.randrange(3) if rng.random() < 0.3 else None
    return KnnQuery(lon=lon, lat=lat, k=rng.choice([1, 1, 2, 3, 5, 10, 100]), text=plain, tint=tint)


class Stream:
    """Objects whose ids repeat, so that some have equal distances and equal ids."""

    def __init__(self, rng: random.Random, vocabulary: int, places: list[tuple[float, float]]):
        self._rng = rng
        self._vocabulary = vocabulary
        self._places = places
        self._number = 0

    def next(self, position: int) -> KnnObject:
        rng = self._rng
        self._number += 1
        lon, lat = random_point(rng, self._places)
        terms = rng.sample(range(10, 15 + self._vocabulary), rng.choice([0, 1, 3, 6, 10]))
        return KnnObject(
            PlainObject(lon, lat, tuple(terms), position * 100, position),
            rng.choice([rng.randrange(4), rng.getrandbits(64), 1 << 63]),
            rng.randrange(3),
            self._number,
            rng.randrange(3),
        )
