"""Regions as GeoJSON, WKT, cells and buffers: what they compile to, and what is refused."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import h3
import numpy as np
import pytest
from sirocco_client import (
    FailedPrecondition,
    InvalidArgument,
    Polygon,
    Rectangle,
    SiroccoError,
    query_from_json,
    region_from_json,
)
from sirocco_client.queries.geo import buffer, cells
from sirocco_client.queries.geo.sphere import destination
from sirocco_client.queries.region_json import with_plain_region

from sirocco.cli.files.query_file import QueryLine, read_queries
from sirocco.model.geometry import distance_m, parse_region
from tests.support.cpu_time import cpu_ratio


def contains(region: dict[str, Any], points: Any) -> list[bool]:
    """Whether the engine finds points (lon, lat) in what a region is compiled to."""
    plain = with_plain_region({"region": region})["region"]
    lon, lat = np.array(points, np.float64).reshape(-1, 2).T.copy()
    return parse_region(plain).contains(lon, lat).tolist()


def polygon(*rings: Any) -> dict[str, Any]:
    return {"geojson": {"type": "Polygon", "coordinates": [list(ring) for ring in rings]}}


def turned(points: Any, by: float) -> list[list[float]]:
    """Points moved round the earth; in sixteenths of a degree nothing is rounded."""
    return [[(lon + by + 180) % 360 - 180, lat] for lon, lat in points]


def star(random: Random, radius: float, vertices: int) -> list[list[float]]:
    """A ring round (0, 0), with vertices at sixteenths of a degree."""
    angles = sorted(random.sample(range(360), vertices))
    ring = []
    for angle in angles:
        r, a = radius * random.uniform(0.6, 1), math.radians(angle)
        ring.append([round(16 * r * math.cos(a)) / 16, round(16 * r * math.sin(a)) / 16])
    return ring


@pytest.mark.parametrize("seed", range(20))
def test_a_polygon_across_the_antimeridian_holds_what_it_holds_elsewhere(seed: int) -> None:
    random = Random(seed)
    outer, hole = star(random, 80, 14), star(random, 20, 9)
    by = random.randrange(100 * 16, 260 * 16) / 16
    points = [[random.randrange(-90 * 16, 90 * 16) / 16, random.randrange(-1280, 1280) / 16]
              for _ in range(400)]  # fmt: skip
    points += outer + hole
    expected = contains({"polygon": [outer, hole]}, points)
    for rings in ([outer, hole], [outer[::-1], hole]):
        moved = polygon(*(turned(ring, by) for ring in rings))
        assert contains(moved, turned(points, by)) == expected
    assert set(expected) == {True, False}, "points inside and outside were compared"


def test_a_polygon_elsewhere_keeps_its_vertices() -> None:
    ring = [[0.1, 0.2], [1.3, 0.1], [1.1, 1.7]]
    assert region_from_json(polygon([*ring, ring[0]])) == Polygon(
        (tuple((lon, lat) for lon, lat in ring),)
    )


def test_vertices_across_the_antimeridian_keep_their_bits() -> None:
    # Moved by 360 and back, -60.3 would be another number.
    ring = [[150.1, -10.3], [-60.3, -10.3], [-60.3, 10.3], [150.1, 10.3]]
    edge = [[-60.3, 0.7], [150.1, -3.3], [-60.3, 10.3], [180, 10.3], [-180, -10.3]]
    assert contains(polygon(ring), edge) == [True] * 5
    beyond = [[np.nextafter(-60.3, 0), 0], [np.nextafter(150.1, 0), 0], [0, 0]]
    assert contains(polygon(ring), beyond) == [False] * 3


@pytest.mark.parametrize("north", [1, -1])
def test_a_ring_round_a_pole_holds_the_nearer_one(north: int) -> None:
    cap = [[0, 60 * north], [90, 60 * north], [180, 60 * north], [-90, 60 * north]]
    inner = [[lon, 80 * north] for lon, _ in cap]
    points = [[lon, lat * north] for lon in range(-180, 180, 15) for lat in (0, 59, 60, 75, 80, 90)]
    for ring in (cap, cap[::-1]):
        inside = [abs(lat) >= 60 for _, lat in points]
        assert contains(polygon(ring), points) == inside
        for hole in (inner, inner[::-1]):
            around = [60 <= abs(lat) <= 80 for _, lat in points]
            assert contains(polygon(ring, hole), points) == around


@pytest.mark.parametrize(
    "ring",
    [
        [[-180, -60], [180, -60], [180, 60], [-180, 60]],
        [[-180, -60], [180, -60], [180, 60], [0, 60], [-180, 60]],
        [[-180, -60], [0, -60], [180, -60], [180, 60], [0, 60], [-180, 60]],
    ],
)
def test_a_box_round_the_whole_earth_is_one(ring: Any) -> None:
    points = [[lon, lat] for lon in range(-180, 181, 45) for lat in (-61, -60, 0, 60, 61)]
    assert contains(polygon(ring), points) == [abs(lat) <= 60 for _, lat in points]


def test_crossings_that_are_written_out_are_crossings() -> None:
    ring = [[170, 0], [180, 0], [-180, 0], [-170, 0], [-170, 9], [-180, 9], [180, 9], [170, 9]]
    assert contains(polygon(ring), [[175, 5], [-175, 5], [180, 5], [0, 5]]) == [True] * 3 + [False]


def test_polygons_features_and_wkt_are_the_same() -> None:
    coordinates = [[[[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]], [[1, 1], [1, 2], [2, 2], [1, 1]]],
                   [[[10, 0], [12, 0], [12, 2, 77.5], [10, 0]]]]  # fmt: skip
    whole = {"type": "MultiPolygon", "coordinates": coordinates}
    feature = {"type": "Feature", "properties": None, "geometry": whole, "bbox": [0, 0, 12, 4]}
    wkt = "MultiPolygon(((0 0, 4 0,4. 4,0 4e0,0 0),(1 1,1 2,2 2,1 1)),((10 0,12 0,12 2,+10 -0)))"
    found = {str(region_from_json(each)) for each in (
        {"geojson": whole}, {"geojson": feature}, {"wkt": wkt}, {"wkt": f" SRID=4326;{wkt}\n"}
    )}  # fmt: skip
    assert len(found) == 1
    points = [[3, 3], [1.2, 1.8], [1.5, 1.4], [11, 0.5], [8, 1]]
    assert contains({"wkt": wkt}, points) == [True, False, True, True, False]
    assert region_from_json({"wkt": "POLYGON Z((0 0 1,1 0 1,1 1 1,0 0 1))"}) == Polygon(
        (((0, 0), (1, 0), (1, 1)),)
    )


SQUARE = [[0, 0], [1, 0], [1, 1], [0, 0]]
MANY = [[i / 100, math.sin(i)] for i in range(10_001)]

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (polygon([[0, 0], [1, 1], [1, 0], [0, 1]]), "geojson.coordinates",
     "is not valid: self-intersection at [0.5, 0.5]"),
    (polygon([[179, 0], [-177, 2], [-177, 0], [179, 2]]), "geojson.coordinates",
     "self-intersection at [-179, 1]"),
    (polygon(SQUARE, [[5, 5], [6, 5], [6, 6]]), "geojson.coordinates",
     "hole lies outside shell at [5, 5]"),
    (polygon([[0, 60], [120, 60], [-120, 60]], [[0, 50], [9, 50], [9, 55]]), "geojson.coordinates",
     "a hole lies outside its outer ring or in another"),
    (polygon([[0, 0], [1, 1], [2, 2]]), "geojson.coordinates", "is not valid"),
    (polygon([[0, 0], [1, 1], [0, 0]]), "geojson.coordinates[0]", "three different"),
    (polygon([[0, 0], [120, 0], [-120, 0], [0, 1], [120, 1], [-120, 1]]), "geojson.coordinates",
     "goes round the earth more than once"),
    (polygon([[0, 0], [120, 1], [-120, 2], [0, 3], [120, 4], [140, 4],
              [140, 24], [120, 24], [0, 23], [-120, 22], [120, 21], [0, 20]]),
     "geojson.coordinates", "overlaps itself round the earth"),
    (polygon(), "geojson.coordinates", "is empty"),
    ({"h3": ["85283473fffffff" + "f" * 9]}, "h3[0]", "is no cell of H3"),
    ({"h3": ["0x85283473fffffff"]}, "h3[0]", "is no cell of H3"),
    (polygon(SQUARE, []), "geojson.coordinates[1]", "three different"),
    (polygon([[0, 0], [181, 0], [1, 1]]), "geojson.coordinates[0][1][0]", "outside [-180, 180]"),
    (polygon([[0, 0], [1, 0], [1, math.nan]]), "geojson.coordinates[0][2][1]", "nan"),
    (polygon([[0, 0], [1, 0], [1, True]]), "geojson.coordinates[0][2][1]", "no number"),
    (polygon([[0, 0], [1, 0], [1]]), "geojson.coordinates[0][2]", "[lon, lat]"),
    (polygon([[0, 0], [1, 0], "ab"]), "geojson.coordinates[0][2]", "[lon, lat]"),
    (polygon(MANY), "geojson.coordinates[0]", "more than 10,000 vertices"),
    (polygon(MANY[:6_000], MANY[:6_000]), "geojson.coordinates[1]", "more than 10,000"),
    ({"geojson": {"type": "Polygon"}}, "geojson.coordinates", "is missing"),
    ({"geojson": {"type": "Polygon", "coordinates": "x"}}, "geojson.coordinates", "array"),
    ({"geojson": {"type": "Point", "coordinates": [1, 2]}}, "geojson.type", "'Point' is none of"),
    ({"geojson": {"type": ["Polygon"]}}, "geojson.type", "an array is none of"),
    ({"geojson": {"type": "Feature", "geometry": None}}, "geojson.geometry", "no object"),
    ({"geojson": {"type": "Feature", "geometry": {"type": "Feature"}}}, "geojson.geometry.type",
     "none of"),
    ({"geojson": {"type": "MultiPolygon", "coordinates": [[SQUARE], [SQUARE]]}},
     "geojson.coordinates", "is not valid"),
    ({"geojson": []}, "geojson", "no object"),
    ({"wkt": "LINESTRING(0 0, 1 1)"}, "wkt", "is no POLYGON or MULTIPOLYGON"),
    ({"wkt": "POLYGON EMPTY"}, "wkt", "is empty"),
    ({"wkt": "POLYGON((0 0,1 0,1 1,0 0)"}, "wkt", "brackets and commas"),
    ({"wkt": "POLYGON((0 0,1 x,1 1,0 0))"}, "wkt", "'1 x' is no position"),
    ({"wkt": "POLYGON((0 0,1 nan,1 1,0 0))"}, "wkt", "'1 nan' is no position"),
    ({"wkt": "POLYGON((0 0,1 1_0,1 1,0 0))"}, "wkt", "'1 1_0' is no position"),
    ({"wkt": "POLYGON((0 0,1 1e400,1 1,0 0))"}, "wkt", "'1 1e400' is no position"),
    ({"wkt": "POLYGON((0 0,1 99,1 1,0 0))"}, "wkt[0][1][1]", "outside [-90, 90]"),
    ({"wkt": "POLYGON((0 0,2 2,2 0,0 2,0 0))"}, "wkt", "self-intersection at [1, 1]"),
    ({"wkt": 5}, "wkt", "no string"),
    ({"wkt": "POLYGON(" + " " * (1 << 20)}, "wkt", "more than 1,048,576 characters"),
    ({"h3": []}, "h3", "is empty"),
    ({"h3": ["891fb466257ffff", "zz"]}, "h3[1]", "no cell of H3"),
    ({"h3": "891fb466257ffff"}, "h3", "array of strings"),
    ({"h3": ["891fb466257ffff"] * 50_001}, "h3", "more than 50,000 cells"),
    ({"geohash": ""}, "geohash", "no geohash"),
    ({"geohash": "u09a"}, "geohash", "no geohash"),
    ({"geohash": "u" * 13}, "geohash", "no geohash"),
    ({"geohash": 9}, "geohash", "no string"),
    ({"tile": "12/2074"}, "tile", "no tile such as"),
    ({"tile": "1/2/0"}, "tile", "0 to 1"),
    ({"tile": "31/0/0"}, "tile", "greater than 30"),
    ({"tile": "1/-1/0"}, "tile", "no tile"),
    ({"buffer": {"line": [[0, 0], [1, 1]]}}, "buffer.radius_m", "is missing"),
    ({"buffer": {"radius_m": 5}}, "buffer.line", "is missing"),
    ({"buffer": {"line": [[0, 0]], "radius_m": 5}}, "buffer.line", "two positions"),
    ({"buffer": {"line": [[0, 0], [1, 91]], "radius_m": 5}}, "buffer.line[1][1]", "outside"),
    ({"buffer": {"line": [[0, 0], [1, 1]], "radius_m": 0}}, "buffer.radius_m", "outside"),
    ({"buffer": {"line": [[0, 0], [1, 1]], "radius_m": 1e308}}, "buffer.radius_m", "outside"),
    ({"buffer": {"line": [[0, 0], [1, 1]], "radius_m": math.nan}}, "buffer.radius_m", "outside"),
    ({"buffer": {"line": [[0, 0], [1, 1]], "radius_m": "5"}}, "buffer.radius_m", "no number"),
    ({"buffer": {"line": [[0, 0], [1, 1]], "radius_m": 5, "cap": 1}}, "buffer.cap", "unknown"),
    ({"buffer": {"line": MANY, "radius_m": 5}}, "buffer.line", "more than 1,000 positions"),
    ({"buffer": {"line": [[0, 60], [170, 60]], "radius_m": 0.001}}, "buffer", "4,000 pieces"),
    ({"geohash": "u09", "tile": "0/0/0"}, "", "must hold one of rect, circle, polygon, geojson"),
    ({"hexagon": 1}, "hexagon", "known are buffer, circle, geohash, geojson, h3"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("region", "field", "message"), REFUSED, ids=[f"{i}-{f}" for i, (_, f, _) in enumerate(REFUSED)]
)
def test_a_wrong_region_is_refused_with_its_field(
    region: dict[str, Any], field: str, message: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        region_from_json(region)
    assert caught.value.field == (f"region.{field}" if field else "region")
    assert message in caught.value.message
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("region", [{"hexagon": 1}, {}, {"geohash": "u09", "rect": {}}])
def test_files_and_searches_name_all_forms_too(region: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        with_plain_region({"kind": "range", "region": region})
    assert all(form in caught.value.message for form in ("rect", "geohash", "wkt"))


def deep(levels: int) -> Any:
    nested: Any = [0, 0]
    for _ in range(levels):
        nested = [nested]
    return nested


def grid(lines: int) -> list[list[float]]:
    """A line that runs back and forth, and then across all of that."""
    begins = [(i // 2 / lines * 0.02, (i + 1) // 2 % 2 * 0.02) for i in range(2 * lines)]
    return [[x, y] for y, x in begins] + [[x, y] for x, y in begins]


HOSTILE: dict[str, Callable[[], dict[str, Any]]] = {
    "brackets": lambda: {"wkt": "POLYGON" + "(" * 500_000 + ")" * 500_000},
    "digits": lambda: {"wkt": f"POLYGON(({'1' * 1_000_000}))"},
    "numbers": lambda: {"wkt": f"POLYGON(({'1 ' * 500_000}))"},
    "commas": lambda: {"wkt": f"POLYGON({',' * 1_000_000})"},
    "blanks": lambda: {"wkt": "POLYGON" + " " * 1_000_000},
    "nesting": lambda: {"geojson": {"type": "Polygon", "coordinates": deep(100_000)}},
    "teeth": lambda: polygon(
        [[179 if i % 2 else -179, i / 63 - 80] for i in range(9_998)] + [[178, 80], [178, -80]]
    ),
    "rounds": lambda: polygon([[(i * 100 + 180) % 360 - 180, i / 125] for i in range(10_000)]),
    "knots": lambda: polygon([[Random(i).uniform(0, 90), i % 77] for i in range(10_000)]),
    "line": lambda: {
        "buffer": {"line": [[i / 7, i % 2 * 80] for i in range(1_000)], "radius_m": 1}
    },
    "grid": lambda: {"buffer": {"line": grid(160), "radius_m": 0.5}},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_region_is_refused_soon(name: str) -> None:
    region = HOSTILE[name]()
    angles = [2 * math.pi * i / 9_998 for i in range(9_998)]
    large = polygon([[40 * math.cos(angle), 40 * math.sin(angle)] for angle in angles])

    def refused() -> None:
        with pytest.raises(InvalidArgument):
            region_from_json(region)

    # The slowest takes forty times as long as a good one; before its bounds "teeth" took a
    # thousand times, and "blanks" hours.
    assert cpu_ratio(refused, lambda: region_from_json(large), repeats=2) < 200


def test_cells_of_geohashes_and_tiles() -> None:
    assert region_from_json({"geohash": "u09tvw0"}) == Rectangle(
        2.35107421875, 48.856201171875, 2.352447509765625, 48.857574462890625
    )
    assert region_from_json({"geohash": "S"}) == Rectangle(0, 0, 45, 45)
    whole = region_from_json({"tile": "0/0/0"})
    assert isinstance(whole, Rectangle)
    assert (whole.west, whole.east) == (-180, 180)
    assert whole.north == -whole.south == pytest.approx(85.0511287798)
    tile = region_from_json({"tile": "12/2074/1409"})
    assert isinstance(tile, Rectangle)
    assert (tile.west, tile.east) == (2.28515625, 2.373046875)
    assert tile.south == pytest.approx(48.806863, abs=1e-6)
    below = region_from_json({"tile": "12/2074/1410"})
    assert isinstance(below, Rectangle)
    assert below.north == tile.south


def cells_of(name: str) -> set[str]:
    middle = h3.latlng_to_cell(48.85, 2.35, 9)
    everywhere = set(h3.get_res0_cells())
    return {
        "one": {middle},
        "disk": set(h3.grid_disk(middle, 12)),
        "ring": set(h3.grid_ring(middle, 5)),
        "north pole": {h3.latlng_to_cell(90, 0, 0)},
        "south pole": set(h3.grid_disk(h3.latlng_to_cell(-90, 0, 2), 3)),
        "antimeridian": set(h3.grid_disk(h3.latlng_to_cell(0, 180, 3), 4)),
        "pentagons": set(h3.get_pentagons(1)),
        "all": everywhere,
        "all but the north pole": everywhere - {h3.latlng_to_cell(90, 0, 0)},
        "all but one": everywhere - {h3.latlng_to_cell(10, 30, 0)},
        "two resolutions": {
            *h3.grid_disk(h3.latlng_to_cell(48.85, 2.35, 7), 4),
            h3.latlng_to_cell(48.85, 2.35, 5),
        },
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        *("one", "disk", "ring", "north pole", "south pole", "antimeridian", "pentagons", "all"),
        *("all but the north pole", "all but one", "two resolutions"),
    ],
)
def test_h3_cells_hold_the_points_that_h3_gives_them(name: str) -> None:
    random, cells = Random(7), cells_of(name)
    resolutions = {h3.get_resolution(cell) for cell in cells}
    spread = 20 / 7 ** (min(resolutions) / 2)
    points = []
    for _ in range(1_500):
        lat, lon = h3.cell_to_latlng(random.choice(sorted(cells)))
        lon += random.gauss(0, spread) / max(0.01, math.cos(math.radians(lat)))
        points.append([math.remainder(lon, 360), max(-90, min(90, lat + random.gauss(0, spread)))])
        points.append([random.uniform(-180, 180), math.degrees(math.asin(random.uniform(-1, 1)))])
    expected = [any(h3.latlng_to_cell(y, x, r) in cells for r in resolutions) for x, y in points]
    found = contains({"h3": sorted(cells)}, points)
    # Of long edges a part of two thousandths is left out or added.
    assert sum(a != b for a, b in zip(found, expected, strict=True)) <= 3


def test_a_cell_counts_once_however_it_is_written() -> None:
    one = region_from_json({"h3": ["891fb466257ffff"]})
    assert region_from_json({"h3": ["891FB466257FFFF", "0891fb466257ffff"]}) == one


LINES: list[tuple[list[list[float]], float]] = [
    ([[2.3, 48.8], [2.4, 48.9]], 500),
    ([[2.3, 48.8], [2.4, 48.9], [2.5, 48.7], [2.3, 48.8]], 3_000),
    ([[2.3, 48.8], [2.3, 48.8]], 5_000),
    ([[2.3, 48.8], [2.3, 48.8000001]], 0.5),
    ([[170, 10], [-170, -10]], 50_000),
    ([[0, 89], [90, 89]], 50_000),
    ([[0, 89.5], [120, 89.5]], 100_000),
    ([[0, -90], [120, -89.99]], 20_000),
    ([[0, 80], [179, 80]], 1_000_000),
    ([[0, 60], [90, 20]], 3_000_000),
    ([[-170, 70], [10, 75], [170, 50]], 5_000_000),
    ([[0, 0], [20, 40]], 300),
]


def random_line(seed: int) -> tuple[list[list[float]], float]:
    random = Random(seed)
    radius_m = 10 ** random.uniform(1, 6.6)
    line = [[random.uniform(-180, 180), random.uniform(-90, 90)]]
    step = min(40.0, radius_m / 111_000 * 10 ** random.uniform(-1, 2.5))
    for _ in range(random.randrange(1, 5)):
        lon, lat = line[-1]
        lon = math.remainder(lon + random.uniform(-step, step), 360)
        line.append([lon, max(-90.0, min(90.0, lat + random.uniform(-step, step)))])
    return line, radius_m


def from_line_m(line: list[list[float]], lon: float, lat: float) -> float:
    """Distance of a point from a line that is straight in degrees, by narrowing samples."""
    found = math.inf
    for (lon1, lat1), (lon2, lat2) in pairwise(line):
        step = math.remainder(lon2 - lon1, 360)
        begin, end = 0.0, 1.0
        for _ in range(9):
            parts = np.linspace(begin, end, 257)
            away = distance_m(lon, lat, lon1 + step * parts, lat1 + (lat2 - lat1) * parts)
            best = int(np.argmin(away))
            found = min(found, float(away[best]))
            begin, end = parts[max(best - 2, 0)], parts[min(best + 2, 256)]
    return found


def border_of(rings: Any) -> list[tuple[float, float]]:
    """Points of all edges, but of those along the antimeridian and the poles, which are cuts."""
    points = []
    for ring in rings:
        for (lon1, lat1), (lon2, lat2) in zip(ring, (*ring[1:], ring[0]), strict=True):
            if abs(lat1) == abs(lat2) == 90 or (abs(lon1) == 180 and lon1 == lon2):
                continue
            points += [
                (lon1 + part * (lon2 - lon1), lat1 + part * (lat2 - lat1))
                for part in (0, 0.25, 0.5, 0.75)
            ]
    return points


@pytest.mark.parametrize(("line", "radius_m"), [*LINES, *map(random_line, range(20))])
def test_a_buffer_is_as_wide_as_its_radius(line: list[list[float]], radius_m: float) -> None:
    random = Random(3)
    region = {"buffer": {"line": line, "radius_m": radius_m}}
    found = region_from_json(region)
    assert isinstance(found, Polygon)
    border = border_of(found.rings)
    for lon, lat in random.sample(border, min(len(border), 300)):
        # Of the corners beside a cut, some lie on it.
        if abs(lon) != 180 and abs(lat) != 90:
            assert from_line_m(line, lon, lat) == pytest.approx(radius_m, rel=0.005), (lon, lat)
    points = []
    for _ in range(60):
        place = random.randrange(len(line) - 1)
        (lon1, lat1), (lon2, lat2) = line[place], line[place + 1]
        part = random.choice([0, 1, random.random()])
        lon = lon1 + part * math.remainder(lon2 - lon1, 360)
        start = (lon, lat1 + part * (lat2 - lat1))
        away_rad = radius_m * random.uniform(0, 2) / 6_371_008.8
        points.append(destination(start, random.uniform(0, 2 * math.pi), away_rad))
    for point, is_inside in zip(points, contains(region, points), strict=True):
        away_m = from_line_m(line, *point)
        assert away_m < radius_m * 1.005 if is_inside else away_m > radius_m * 0.995, point


def test_a_buffer_is_closed_where_pieces_of_an_edge_meet() -> None:
    line, radius_m = ((0.0, 10.0), (20.0, 60.0)), 30_000.0
    radius_rad = radius_m / 6_371_008.8
    points = [
        destination(arc.begin, arc.bearings[0] + side * math.pi / 2, 0.994 * radius_rad)
        for arc in buffer._pieces(line, radius_rad, "buffer")
        for side in (-1, 1)
    ]
    assert len(points) > 50
    assert all(contains({"buffer": {"line": line, "radius_m": radius_m}}, points))


def test_a_buffer_may_cross_itself_and_is_the_same_each_time() -> None:
    region = {"buffer": {"line": grid(12), "radius_m": 20}}
    centres = [[(i + 0.5) / 12 * 0.02, (j + 0.5) / 12 * 0.02] for i in range(11) for j in range(11)]
    crossings = [[i / 12 * 0.02, j / 12 * 0.02] for i in range(12) for j in range(12)]
    assert not any(contains(region, centres))
    assert all(contains(region, crossings))
    assert region_from_json(region) == region_from_json(region)


def test_a_buffer_has_no_more_vertices_than_it_needs() -> None:
    plain = buffer.read_buffer({"line": [[2.3, 48.8], [2.4, 48.9]], "radius_m": 500}, "b")
    assert sum(map(len, plain)) < 60
    long = buffer.read_buffer({"line": [[0, 0], [20, 40]], "radius_m": 500}, "b")
    assert sum(map(len, long)) < 100


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: Any) -> None:
    def missing(name: str) -> Any:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", missing)
    regions: list[dict[str, Any]] = [
        polygon(SQUARE),
        {"wkt": "POLYGON((0 0,1 0,1 1,0 0))"},
        {"h3": ["891fb466257ffff"]},
        {"buffer": {"line": [[0, 0], [1, 1]], "radius_m": 5}},
    ]
    for region in regions:
        with pytest.raises(FailedPrecondition, match=r"pip install 'sirocco-client\[geo\]'") as got:
            region_from_json(region)
        assert got.value.field is not None
        assert got.value.field.startswith(f"region.{next(iter(region))}")
    for region in ({"geohash": "u09"}, {"tile": "0/0/0"}):
        assert isinstance(region_from_json(region), Rectangle)


QUERY = {"id": "q", "kind": "range", "mode": "continuous"}


def test_queries_take_every_form() -> None:
    query = query_from_json(QUERY | {"region": {"geohash": "s"}}, "me")
    assert query == query_from_json(
        QUERY | {"region": {"rect": {"west": 0, "south": 0, "east": 45, "north": 45}}}, "me"
    )
    with pytest.raises(SiroccoError, match=r"region\.wkt"):
        query_from_json(QUERY | {"region": {"wkt": "POINT(1 1)"}}, "me")


def test_files_of_queries_take_every_form(tmp_path: Path) -> None:
    file = tmp_path / "queries.jsonl"
    file.write_text(
        '{"id": "a", "kind": "range", "mode": "continuous", "region": {"geohash": "s"}}\n'
        '{"id": "b", "kind": "range", "mode": "continuous", "region": {"wkt": "POLYGON((0 0))"}}\n'
        '{"id": "c", "kind": "terms", "mode": "snapshot", "k": 3, "region": {"tile": "1/1/0"}}\n'
        '{"id": "d", "kind": "range", "mode": "continuous", "region": {"rect": 5, "wkt": 6}}\n'
        '{"id": "e", "kind": "range", "mode": "continuous", "region": "s"}\n'
    )
    found = list(read_queries(file, "queries"))
    good = [each for each in found if isinstance(each, QueryLine)]
    assert [line.members["id"] for line in good] == ["a", "c"]
    assert good[0].members["region"] == {
        "rect": {"west": 0.0, "south": 0.0, "east": 45.0, "north": 45.0}
    }
    bad = [f"{each.line}: {each.error}" for each in found if not isinstance(each, QueryLine)]
    assert [line.partition(": ")[0] for line in bad] == ["2", "4", "5"]
    assert bad[0] == "2: region.wkt[0]: needs three different vertices"


@pytest.mark.parametrize("seed", range(12))
def test_cells_all_over_the_earth_are_what_their_centres_say(seed: int) -> None:
    every = sorted(cell for base in h3.get_res0_cells() for cell in h3.cell_to_children(base, 1))
    chosen = set(Random(seed).sample(every, 30 * (seed + 1)))
    centres = [h3.cell_to_latlng(cell)[::-1] for cell in every]
    found = contains({"h3": sorted(chosen)}, centres)
    assert [cell in chosen for cell in every] == found


def test_work_is_bounded_before_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise AssertionError("too late")

    monkeypatch.setattr(cells, "_outlined", fail)
    scattered = [h3.latlng_to_cell(lat / 2, lon, 5) for lat in range(-80, 80) for lon in range(40)]
    with pytest.raises(InvalidArgument, match=r"region\.h3: has more than 10,000 vertices"):
        region_from_json({"h3": scattered})
    monkeypatch.setattr(buffer, "_outline", fail)
    line = [[(77 * i) % 360 - 180, (-1) ** i * 89] for i in range(300)]
    with pytest.raises(InvalidArgument, match="takes more than 4,000 pieces"):
        region_from_json({"buffer": {"line": line, "radius_m": 1_000}})


def test_holes_round_a_pole_are_cut_out_together() -> None:
    cap = [[-180, 10], [-60, 10], [60, 10], [180, 10]]

    def holes(count: int) -> dict[str, Any]:
        west = [i * 0.25 - 170 for i in range(count)]
        return polygon(cap, *([[w, 60], [w + 0.125, 60], [w, 60.125]] for w in west))

    assert contains(holes(2), [[-169.97, 60.05], [-169.8, 60.05], [0, 80]]) == [False, True, True]
    # Ten times as many; one by one they would cost a hundred times as much.
    ratio = cpu_ratio(
        lambda: region_from_json(holes(1_000)), lambda: region_from_json(holes(100)), 3
    )
    assert ratio < 35
