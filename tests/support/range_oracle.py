"""The simplest matcher: every object against every query, in Python floats and sets."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.query_rows import NEVER_MS, QueryRows

EARTH_RADIUS_M = 6_371_008.8
Vertex = tuple[float, float]
Ring = list[Vertex]


@dataclass(frozen=True)
class PlainQuery:
    conjunctions: list[tuple[list[int], list[int]]] = field(default_factory=lambda: [([], [])])
    boxes: list[tuple[float, float, float, float]] = field(
        default_factory=lambda: [(-180.0, -90.0, 180.0, 90.0)]
    )
    circle: tuple[float, float, float] | None = None
    rings: list[Ring] | None = None
    expires_ms: int = NEVER_MS

    # A test asks a query for each of many objects: what that needs is made once.
    @cached_property
    def term_sets(self) -> list[tuple[set[int], set[int]]]:
        """The terms that each conjunction wants, and those that it excludes."""
        return [(set(positive), set(negative)) for positive, negative in self.conjunctions]

    @cached_property
    def edges(self) -> list[tuple[Vertex, Vertex]]:
        """The edges of all rings."""
        return [
            edge
            for ring in self.rings or []
            for edge in zip(ring, ring[1:] + ring[:1], strict=True)
        ]


@dataclass(frozen=True)
class PlainObject:
    lon: float
    lat: float
    terms: tuple[int, ...]
    arrival_ms: int = 0
    position: int = 0

    @cached_property
    def term_set(self) -> set[int]:
        return set(self.terms)


def haversine_m(lon_a: float, lat_a: float, lon_b: float, lat_b: float) -> float:
    a, b = math.radians(lat_a), math.radians(lat_b)
    h = math.sin((b - a) / 2) ** 2
    h += math.cos(a) * math.cos(b) * math.sin(math.radians(lon_b - lon_a) / 2) ** 2
    return round(2 * EARTH_RADIUS_M * math.asin(min(1.0, math.sqrt(h))), 3)


def cross(a: Vertex, b: Vertex, x: float, y: float) -> Fraction:
    (ax, ay), (bx, by) = (map(Fraction, a), map(Fraction, b))
    return (bx - ax) * (Fraction(y) - ay) - (by - ay) * (Fraction(x) - ax)


def side_of(a: Vertex, b: Vertex, x: float, y: float) -> int:
    """Returns 1 left of an edge, -1 right of it, 0 on its line; exact."""
    left, right = (b[0] - a[0]) * (y - a[1]), (b[1] - a[1]) * (x - a[0])
    # The error of the six operations is below 1e-15 of the products each.
    if abs(left - right) > 1e-13 * (abs(left) + abs(right)):
        return 1 if left > right else -1
    turn = cross(a, b, x, y)
    return (turn > 0) - (turn < 0)


def in_rings(x: float, y: float, query: PlainQuery) -> bool:
    inside = False
    for a, b in query.edges:
        side = side_of(a, b, x, y)
        (ax, ay), (bx, by) = a, b
        if side == 0 and min(ax, bx) <= x <= max(ax, bx) and min(ay, by) <= y <= max(ay, by):
            return True
        if (ay > y) != (by > y) and (side > 0) == (by > ay):
            inside = not inside
    return inside


def is_past_rounding(x: float, y: float, query: PlainQuery) -> bool:
    """Returns whether a point is so near to an edge, but not on it, that f8 cannot decide."""
    return any(
        abs((b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0])) < 1e-9
        and cross(a, b, x, y) != 0
        for a, b in query.edges
    )


def region_holds(query: PlainQuery, lon: float, lat: float) -> bool:
    sides = [-180.0, 180.0] if abs(lon) == 180.0 else [lon]
    if query.circle is not None:
        return haversine_m(query.circle[0], query.circle[1], lon, lat) <= query.circle[2]
    if query.rings is not None:
        return any(in_rings(x, lat, query) for x in sides)
    return any(w <= x <= e and s <= lat <= n for x in sides for w, s, e, n in query.boxes)


def text_holds(query: PlainQuery, terms: set[int]) -> bool:
    return any(
        positive <= terms and negative.isdisjoint(terms) for positive, negative in query.term_sets
    )


def holds(query: PlainQuery, item: PlainObject) -> bool:
    return (
        item.arrival_ms < query.expires_ms
        and text_holds(query, item.term_set)
        and region_holds(query, item.lon, item.lat)
    )


def _offsets(counts: list[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def columns(queries: list[PlainQuery]) -> QueryRows:
    conjunctions = [c for q in queries for c in q.conjunctions]
    rings = [r for q in queries for r in (q.rings or [])]
    shape = [2 if q.rings is not None else 1 if q.circle is not None else 0 for q in queries]
    return QueryRows(
        conj_offsets=_offsets([len(q.conjunctions) for q in queries]),
        pos_offsets=_offsets([len(c[0]) for c in conjunctions]),
        pos_terms=np.array([t for c in conjunctions for t in c[0]], np.uint64),
        neg_offsets=_offsets([len(c[1]) for c in conjunctions]),
        neg_terms=np.array([t for c in conjunctions for t in c[1]], np.uint64),
        box_offsets=_offsets([len(q.boxes) for q in queries]),
        boxes=np.array([b for q in queries for b in q.boxes], np.float64).reshape(-1, 4),
        shape=np.array(shape, np.uint8),
        circles=np.array([q.circle or (0.0, 0.0, 0.0) for q in queries]).reshape(-1, 3),
        polygon_offsets=_offsets([len(q.rings or []) for q in queries]),
        ring_offsets=_offsets([len(r) for r in rings]),
        vertices=np.array([v for r in rings for v in r], np.float64).reshape(-1, 2),
        expires_ms=np.array([q.expires_ms for q in queries], np.int64),
        flags=np.zeros(len(queries), np.uint8),
    )


Columns = tuple[
    NDArray[np.float64],
    NDArray[np.float64],
    NDArray[np.int64],
    NDArray[np.uint64],
    NDArray[np.int64],
    NDArray[np.int64],
]
"""Longitudes, latitudes, terms by offsets, arrivals, positions: what indexes match."""


@dataclass(frozen=True)
class ObjectColumns:
    lon: np.ndarray
    lat: np.ndarray
    term_offsets: np.ndarray
    terms: np.ndarray
    arrival_ms: np.ndarray
    positions: np.ndarray

    @classmethod
    def of(cls, objects: list[PlainObject]) -> ObjectColumns:
        return cls(
            np.array([o.lon for o in objects], np.float64),
            np.array([o.lat for o in objects], np.float64),
            _offsets([len(o.terms) for o in objects]),
            np.array([t for o in objects for t in o.terms], np.uint64),
            np.array([o.arrival_ms for o in objects], np.int64),
            np.array([o.position for o in objects], np.int64),
        )

    def arguments(self) -> Columns:
        return (
            self.lon, self.lat, self.term_offsets, self.terms, self.arrival_ms, self.positions
        )  # fmt: skip


def pairs_of(index, objects: list[PlainObject]) -> Counter[tuple[int, int]]:
    found = index.match(*ObjectColumns.of(objects).arguments())
    assert (np.diff(found.object_rows) >= 0).all()
    return Counter(zip(found.object_rows.tolist(), found.query_rows.tolist(), strict=True))


# Grid lines, corners and their neighbours in f4 and f8: coordinates lie exactly on borders.
_EDGES = [-180.0, 180.0, 0.0, 45.0, -90.0, 11.25, 0.1, 179.99999]


def random_coordinate(rng: random.Random, limit: float) -> float:
    kind = rng.randrange(6)
    if kind == 0:
        value = rng.choice(_EDGES)
    elif kind == 1:
        value = float(np.float32(rng.uniform(-limit, limit)))
    elif kind == 2:
        value = float(np.nextafter(np.float32(rng.choice(_EDGES)), np.float32(0)))
    elif kind == 3:
        value = float(np.nextafter(rng.choice(_EDGES), 0))
    elif kind == 4:
        value = rng.randrange(-8, 9) * limit / 8
    else:
        value = rng.uniform(-limit, limit)
    return min(max(value, -limit), limit)


def random_box(rng: random.Random) -> tuple[float, float, float, float]:
    west, south = random_coordinate(rng, 180.0), random_coordinate(rng, 90.0)
    side = rng.choice([0.0, 1e-7, 0.01, 1.0, 30.0, 400.0])
    if rng.random() < 0.3:
        other = random_coordinate(rng, 180.0), random_coordinate(rng, 90.0)
        return min(west, other[0]), min(south, other[1]), max(west, other[0]), max(south, other[1])
    return west, south, min(west + side, 180.0), min(south + side, 90.0)


def circle_boxes(
    lon: float, lat: float, radius_m: float
) -> list[tuple[float, float, float, float]]:
    degrees = math.degrees(radius_m / EARTH_RADIUS_M) * 1.000001 + 1e-6
    south, north = max(lat - degrees, -90.0), min(lat + degrees, 90.0)
    if south <= -90.0 or north >= 90.0:
        return [(-180.0, south, 180.0, north)]
    sine = math.sin(math.radians(degrees)) / math.cos(math.radians(lat))
    wide = math.degrees(math.asin(min(1.0, sine))) * 1.000001 + 1e-6
    if sine >= 1.0:
        return [(-180.0, south, 180.0, north)]
    west, east = lon - wide, lon + wide
    if west < -180.0:
        return [(west + 360.0, south, 180.0, north), (-180.0, south, east, north)]
    if east > 180.0:
        return [(west, south, 180.0, north), (-180.0, south, east - 360.0, north)]
    return [(west, south, east, north)]


def random_query(rng: random.Random, vocabulary: int) -> PlainQuery:
    conjunctions = []
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        terms = rng.sample(range(10, 10 + vocabulary), rng.choice([1, 1, 2, 3, 4, 6]))
        negatives = rng.sample(range(10, 10 + vocabulary), rng.choice([0, 0, 0, 1, 2]))
        conjunctions.append((terms, [t for t in negatives if t not in terms]))
    if rng.random() < 0.1:
        conjunctions = [([], [])]
    expires = NEVER_MS if rng.random() < 0.7 else rng.randrange(1, 400_000)
    kind = rng.randrange(5)
    if kind == 0:
        lon, lat = random_coordinate(rng, 180.0), random_coordinate(rng, 90.0)
        radius = rng.choice([0.0, 10.0, 5_000.0, 1e6, 1.2e7])
        boxes = circle_boxes(lon, lat, radius)
        return PlainQuery(conjunctions, boxes, (lon, lat, radius), None, expires)
    if kind == 1:
        rings = []
        for _ in range(rng.choice([1, 1, 2])):
            ring = [
                (float(rng.randrange(-180, 181, 5)), float(rng.randrange(-90, 91, 5)))
                for _ in range(rng.randrange(3, 7))
            ]
            rings.append([*ring, ring[0]] if rng.random() < 0.5 else ring)
        xs = [x for ring in rings for x, _ in ring]
        ys = [y for ring in rings for _, y in ring]
        boxes = [(min(xs), min(ys), max(xs), max(ys))]
        return PlainQuery(conjunctions, boxes, None, rings, expires)
    if kind == 2:
        south, north = sorted(random_coordinate(rng, 90.0) for _ in range(2))
        boxes = [(rng.uniform(100, 180), south, 180.0, north), (-180.0, south, -90.0, north)]
        return PlainQuery(conjunctions, boxes, None, None, expires)
    if rng.random() < 0.1:
        return PlainQuery(conjunctions, expires_ms=expires)
    return PlainQuery(conjunctions, [random_box(rng)], None, None, expires)


def random_place(rng: random.Random, queries: list[PlainQuery]) -> tuple[float, float]:
    if queries and rng.random() < 0.5:
        # At, or one step from, a corner of some query's box.
        box = rng.choice(rng.choice(queries).boxes)
        lon, lat = rng.choice(box[::2]), rng.choice(box[1::2])
        step = rng.randrange(4)
        if step == 1:
            lon = float(np.nextafter(lon, 0))
        elif step == 2:
            lat = float(np.float32(lat))
        return lon, min(max(lat, -90.0), 90.0)
    if rng.random() < 0.2:
        return float(rng.randrange(-180, 181, 5)), float(rng.randrange(-90, 91, 5))
    return random_coordinate(rng, 180.0), random_coordinate(rng, 90.0)


def random_object(
    rng: random.Random, vocabulary: int, position: int, queries: list[PlainQuery]
) -> PlainObject:
    lon, lat = random_place(rng, queries)
    while any(is_past_rounding(lon, lat, query) for query in queries):
        lon, lat = random_place(rng, queries)
    terms = rng.sample(range(10, 10 + vocabulary + 5), rng.choice([0, 1, 3, 6, 10]))
    return PlainObject(lon, lat, tuple(terms), position * 100, position)
