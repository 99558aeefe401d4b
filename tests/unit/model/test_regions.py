"""Regions, compared with slow independent formulas: rational arithmetic and 3-d vectors."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from sirocco.kernels.base.geometry import EARTH_RADIUS_M
from sirocco.model.errors import InvalidArgument
from sirocco.model.geometry import (
    Circle,
    Polygon,
    Rectangle,
    Region,
    distance_m,
    parse_region,
    round_mm,
)

# Few distinct values make borders, vertices and shared edges likely.
COARSE_LON = st.one_of(st.integers(-18, 18).map(lambda n: 10.0 * n), st.floats(-180, 180))
COARSE_LAT = st.one_of(st.integers(-9, 9).map(lambda n: 10.0 * n), st.floats(-90, 90))
POINTS = st.lists(st.tuples(COARSE_LON, COARSE_LAT), min_size=1, max_size=12)


def contains(region: Region, points: list[tuple[float, float]]) -> list[bool]:
    lon, lat = np.array(points, np.float64).T
    return region.contains(np.ascontiguousarray(lon), np.ascontiguousarray(lat)).tolist()


def in_boxes(boxes: NDArray[np.float64], lon: float, lat: float) -> bool:
    assert boxes.dtype == np.float64
    assert boxes.shape in ((1, 4), (2, 4))
    assert (boxes[:, 0] <= boxes[:, 2]).all()
    assert (boxes[:, 1] <= boxes[:, 3]).all()
    assert (np.abs(boxes[:, [0, 2]]) <= 180).all()
    assert (np.abs(boxes[:, [1, 3]]) <= 90).all()
    return any(w <= lon <= e and s <= lat <= n for w, s, e, n in boxes.tolist())


def rectangle_oracle(r: Rectangle, lon: float, lat: float) -> bool:
    """Moves east from `west`: the point is inside if it is met before `east`."""
    width = Fraction(r.east) - Fraction(r.west)
    if width < 0:
        width += 360
    steps = (Fraction(lon) - Fraction(r.west)) % 360
    return (steps <= width or width >= 360) and r.south <= lat <= r.north


@given(COARSE_LON, COARSE_LAT, COARSE_LON, COARSE_LAT, POINTS)
@example(-180.0, 0.0, 10.0, 10.0, [(180.0, 5.0)])
@example(10.0, 0.0, 180.0, 10.0, [(-180.0, 5.0)])
@example(180.0, 0.0, -180.0, 10.0, [(-180.0, 5.0), (180.0, 0.0), (0.0, 5.0)])
@example(180.0, 0.0, 180.0, 10.0, [(-180.0, 5.0)])
def test_rectangle(
    west: float, lat1: float, east: float, lat2: float, points: list[tuple[float, float]]
) -> None:
    rectangle = Rectangle(west, min(lat1, lat2), east, max(lat1, lat2))
    expected = [rectangle_oracle(rectangle, *point) for point in points]
    assert contains(rectangle, points) == expected
    boxes = rectangle.boxes()
    assert [in_boxes(boxes, *point) for point in points] == expected


def polygon_oracle(
    rings: list[list[tuple[float, float]]], lon: float, lat: float, *, twins: bool = True
) -> bool:
    """Even-odd by exact intersection with the ray to the east; the border by exact collinearity."""
    x, y = Fraction(lon), Fraction(lat)
    crossings = 0
    for ring in rings:
        for (ax, ay), (bx, by) in zip(ring, ring[1:] + ring[:1], strict=True):
            x1, y1, x2, y2 = map(Fraction, (ax, ay, bx, by))
            if (
                (x2 - x1) * (y - y1) == (y2 - y1) * (x - x1)
                and min(x1, x2) <= x <= max(x1, x2)
                and min(y1, y2) <= y <= max(y1, y2)
            ):
                return True
            if (y1 <= y) != (y2 <= y) and x1 + (y - y1) * (x2 - x1) / (y2 - y1) > x:
                crossings += 1
    if crossings % 2:
        return True
    return twins and abs(lon) == 180 and polygon_oracle(rings, -lon, lat, twins=False)


RINGS = st.lists(
    st.lists(st.tuples(COARSE_LON, COARSE_LAT), min_size=3, max_size=7, unique=True),
    min_size=1,
    max_size=3,
)


@given(RINGS, POINTS)
def test_polygon(rings: list[list[tuple[float, float]]], points: list[tuple[float, float]]) -> None:
    # Errors at borders occur at vertices and the middles of edges.
    points = points + rings[0]
    points += [
        ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in zip(rings[0], rings[0][1:], strict=False)
    ]
    polygon = Polygon(tuple(map(tuple, rings)))
    closed = Polygon(tuple((*ring, ring[0]) for ring in rings))
    assert polygon == closed
    expected = [polygon_oracle(rings, *point) for point in points]
    assert contains(polygon, points) == expected
    boxes = polygon.boxes()
    assert all(in_boxes(boxes, *p) for p, inside in zip(points, expected, strict=True) if inside)


def test_polygon_border_is_exact_next_to_an_edge() -> None:
    """The last bit decides, where products of coordinates round to the same."""
    polygon = Polygon((((0.0, 0.0), (30.0, 10.0), (0.0, 10.0)),))
    for k in range(1, 300):
        lat = k / 32
        lon = 3 * lat  # exact
        east, west = math.nextafter(lon, 99), math.nextafter(lon, -99)
        assert contains(polygon, [(lon, lat), (east, lat), (west, lat)]) == [True, False, True]


def test_polygon_hole_border_belongs_to_it() -> None:
    outer = ((0.0, 0.0), (10.0, 0.0), (10.0, 10.0), (0.0, 10.0))
    hole = ((2.0, 2.0), (8.0, 2.0), (8.0, 8.0), (2.0, 8.0))
    polygon = Polygon((outer, hole))
    points = [(5.0, 5.0), (2.0, 5.0), (2.0, 2.0), (1.0, 1.0), (10.0, 10.0), (11.0, 5.0)]
    assert contains(polygon, points) == [False, True, True, True, True, False]


def test_polygon_meets_the_antimeridian_from_both_sides() -> None:
    polygon = Polygon((((170.0, 0.0), (180.0, -5.0), (180.0, 5.0)),))
    assert contains(polygon, [(180.0, 0.0), (-180.0, 0.0), (-180.0, 6.0)]) == [True, True, False]
    assert in_boxes(polygon.boxes(), -180.0, 0.0)


def test_polygon_with_many_points_and_edges_works_in_blocks() -> None:
    angles = np.linspace(0, 2 * np.pi, 5_000, endpoint=False)
    ring = tuple(zip((10 * np.cos(angles)).tolist(), (10 * np.sin(angles)).tolist(), strict=True))
    radii = np.linspace(0, 20, 2_001)
    inside = Polygon((ring,)).contains(radii * 0.6, radii * 0.8)
    assert inside[radii < 9.9999].all()
    assert not inside[radii > 10].any()


def vector_distance_m(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """Returns the angle between unit vectors, by cross and dot product."""

    def unit(lon: float, lat: float) -> NDArray[np.longdouble]:
        a, b = np.radians(np.longdouble(lon)), np.radians(np.longdouble(lat))
        return np.array([np.cos(b) * np.cos(a), np.cos(b) * np.sin(a), np.sin(b)])

    u, v = unit(lon1, lat1), unit(lon2, lat2)
    angle = np.arctan2(np.linalg.norm(np.cross(u, v).astype(np.float64)), float(u @ v))
    return EARTH_RADIUS_M * float(angle)


@given(COARSE_LON, COARSE_LAT, COARSE_LON, COARSE_LAT)
@example(0.0, 0.0, 180.0, 0.0)
@example(0.0, 90.0, 77.0, -90.0)
@example(10.0, 20.0, -170.0, -19.9999999)
@example(0.0, 0.0, 1e-9, 1e-9)
def test_distance(lon1: float, lat1: float, lon2: float, lat2: float) -> None:
    found = float(distance_m(lon1, lat1, lon2, lat2))
    assert found == pytest.approx(vector_distance_m(lon1, lat1, lon2, lat2), rel=1e-12, abs=1e-6)
    assert found == pytest.approx(float(distance_m(lon2, lat2, lon1, lat1)), abs=1e-9)


def test_distance_of_known_places() -> None:
    quarter_m = EARTH_RADIUS_M * math.pi / 2
    assert float(distance_m(0, 0, 90, 0)) == pytest.approx(quarter_m, abs=1e-6)
    assert float(distance_m(12, 90, -60, 0)) == pytest.approx(quarter_m, abs=1e-6)
    # Near the antipode the plain formula is off by centimetres.
    getcontext().prec = 40
    gap_m = float(Decimal(EARTH_RADIUS_M) * Decimal(math.radians(1e-6)))
    assert 2 * quarter_m - float(distance_m(0, 0, 180, 1e-6)) == pytest.approx(gap_m, abs=1e-7)


def test_distances_are_rounded_to_a_millimetre() -> None:
    assert round_mm([1.0004, 1.0006, 0.0005, 0.0015]).tolist() == [1.0, 1.001, 0.0, 0.002]


@given(COARSE_LON, COARSE_LAT, POINTS)
@example(2.35, 48.85, [(2.36, 48.85)])
def test_the_border_of_a_circle_belongs_to_it(
    lon: float, lat: float, points: list[tuple[float, float]]
) -> None:
    for point in points:
        exact_m = float(distance_m(lon, lat, *point))
        for radius_m in (exact_m, float(round_mm(exact_m)), round(exact_m, 6)):
            region = parse_region({"circle": {"lon": lon, "lat": lat, "radius_m": radius_m}})
            assert contains(region, [point]) == [True]


def test_a_radius_may_be_larger_than_the_world() -> None:
    region = parse_region({"circle": {"lon": 0, "lat": 0, "radius_m": 1e308}})
    assert contains(region, [(180.0, 0.0), (7.0, -90.0)]) == [True, True]
    assert region.canonical()["circle"]["radius_m"] == 1e308


@given(
    COARSE_LON,
    COARSE_LAT,
    st.one_of(st.floats(0, 2.1e7), st.floats(0, 10), st.floats(0, 1e5)),
    POINTS,
    st.lists(st.floats(0, 360), min_size=6, max_size=6),
)
@example(0.0, 90.0, 1000.0, [(0.0, 89.999)], [0.0] * 6)
@example(179.999, 0.0, 1000.0, [(-179.999, 0.0)], [0.0] * 6)
@example(0.0, 89.99999999, 0.0, [(0.0, 90.0)], [0.0] * 6)
@example(-180.0, 10.0, 0.0, [(180.0, 10.0)], [0.0] * 6)
def test_circle(
    lon: float,
    lat: float,
    radius_m: float,
    points: list[tuple[float, float]],
    bearings: list[float],
) -> None:
    circle = Circle(lon, lat, radius_m)
    # Points on the circle itself, and just inside and outside.
    factors = [0.999999, 1.0, 1.0, 1.0, 1.000001, 0.5]
    for bearing, factor in zip(bearings, factors, strict=True):
        points = [*points, destination(lon, lat, bearing, radius_m * factor)]
    distances_m = [float(round_mm(distance_m(lon, lat, *point))) for point in points]
    found = contains(circle, points)
    assert found == [d <= radius_m for d in distances_m]
    for point, inside, d in zip(points, found, distances_m, strict=True):
        independent_m = vector_distance_m(lon, lat, *point)
        assert abs(d - independent_m) < 0.0006
        assert not inside or in_boxes(circle.boxes(), *point), point


def destination(lon: float, lat: float, bearing: float, length_m: float) -> tuple[float, float]:
    """Returns the point at a distance from a point, in a direction."""
    d, b, phi = length_m / EARTH_RADIUS_M, math.radians(bearing), math.radians(lat)
    sine = math.sin(phi) * math.cos(d) + math.cos(phi) * math.sin(d) * math.cos(b)
    lat2 = math.degrees(math.asin(max(-1.0, min(1.0, sine))))
    east = math.sin(b) * math.sin(d) * math.cos(phi)
    lon2 = lon + math.degrees(math.atan2(east, math.cos(d) - math.sin(phi) * sine))
    return (lon2 + 180) % 360 - 180, lat2


@given(COARSE_LON, st.floats(-80, 80), st.floats(1, 1e6))
def test_circle_boxes_are_tight(lon: float, lat: float, radius_m: float) -> None:
    boxes = Circle(lon, lat, radius_m).boxes()
    height = float((boxes[:, 3] - boxes[:, 1])[0])
    assert height <= 2 * math.degrees((radius_m + 0.001) / EARTH_RADIUS_M) + 1e-9
    width = float((boxes[:, 2] - boxes[:, 0]).sum())
    if width < 359:
        ratio = math.sin(radius_m / EARTH_RADIUS_M) / math.cos(math.radians(lat))
        assert width <= 2 * math.degrees(math.asin(min(1, ratio))) * 1.001 + 1e-6


SQUARE = [[0, 0], [1, 0], [1, 1], [0, 0]]


@pytest.mark.parametrize(
    ("region", "field"),
    [
        (None, "region"),
        ({}, "region"),
        ({"rect": {}, "circle": {}}, "region"),
        ({"square": {}}, "region.square"),
        ({"rect": {"west": 0, "south": 0, "east": 1}}, "region.rect.north"),
        ({"rect": {"west": -181, "south": 0, "east": 1, "north": 1}}, "region.rect.west"),
        ({"rect": {"west": 0, "south": 2, "east": 1, "north": 1}}, "region.rect.south"),
        ({"rect": {"west": True, "south": 0, "east": 1, "north": 1}}, "region.rect.west"),
        ({"rect": {"west": "0", "south": 0, "east": 1, "north": 1}}, "region.rect.west"),
        (
            {"rect": {"west": 0, "south": 0, "east": 1, "north": 1, "up": 1}},
            "region.rect.up",
        ),
        ({"circle": {"lon": 0, "lat": 0}}, "region.circle.radius_m"),
        ({"circle": {"lon": 0, "lat": 0, "radius_m": -1}}, "region.circle.radius_m"),
        ({"circle": {"lon": 0, "lat": 0, "radius_m": math.inf}}, "region.circle.radius_m"),
        ({"circle": {"lon": 0, "lat": 0, "radius_m": 10**400}}, "region.circle.radius_m"),
        ({"circle": {"lon": 0, "lat": math.nan, "radius_m": 1}}, "region.circle.lat"),
        ({"polygon": []}, "region.polygon"),
        ({"polygon": [[[0, 0], [1, 1], [0, 0]]]}, "region.polygon[0]"),
        ({"polygon": [SQUARE, [[0, 0], [1], [1, 1]]]}, "region.polygon[1][1]"),
        ({"polygon": [[[0, 0], [1, 91], [1, 1]]]}, "region.polygon[0][1][1]"),
        ({"polygon": [[[0, 0]] * 10_001]}, "region.polygon"),
        ({"polygon": {"rings": []}}, "region.polygon"),
    ],
)
def test_errors_name_the_member(region: object, field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_region(region)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "region",
    [
        {"rect": {"west": 170, "south": -1.5, "east": -170, "north": 1}},
        {"circle": {"lon": 2.35, "lat": 48.85, "radius_m": 5000}},
        {"polygon": [[[2.2, 48.8], [2.5, 48.8], [2.4, 49.0], [2.2, 48.8]], SQUARE]},
    ],
)
def test_canonical_form_is_read_back(region: dict[str, object]) -> None:
    parsed = parse_region(region)
    assert parse_region(parsed.canonical()) == parsed
