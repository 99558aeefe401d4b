"""Cells of the grids that people share: geohashes, map tiles, and H3."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from sirocco_client.base.libraries import load
from sirocco_client.base.members import read_string, read_strings, shown
from sirocco_client.errors import InvalidArgument
from sirocco_client.queries.geo.antimeridian import planar, polygons_of, rings_of, unroll
from sirocco_client.queries.geo.positions import VERTICES_MAX, Position, Ring, check_count
from sirocco_client.queries.geo.sphere import distance_rad, flat_middle, middle
from sirocco_client.queries.regions import Rectangle

_BASE32 = "0123456789bcdefghjkmnpqrstuvwxyz"

# 12 characters are 4 cm by 2 cm.
_GEOHASH_CHARACTERS_MAX = 12

# `h3` raises for a number beyond 64 bits, and reads `0x` and blanks.
_CELL = re.compile(r"[0-9a-fA-F]{1,16}", re.ASCII)

_TILE = re.compile(r"([0-9]{1,2})/([0-9]{1,10})/([0-9]{1,10})", re.ASCII)
# A tile of this zoom is 4 cm wide.
_ZOOM_MAX = 30

# Merging them takes a tenth of a second. The cells of one town at 10 m, or of a country at 5 km.
CELLS_MAX = 50_000

# Vertices of the outlines of all resolutions. Those of a coarser one may cover some of a finer one.
_OUTLINES_MAX = 2 * VERTICES_MAX

# Cells that are outlined one by one: all of the two coarsest resolutions.
_SINGLE_MAX = 1_000

# Edges of cells are great circles, those of polygons straight in degrees: long edges are cut until
# the two are this close, as a part of the edge's length.
_BEND_MAX = 0.0005
_CUTS_MAX = 8


def read_geohash(value: object, field: str) -> Rectangle:
    """Returns the cell of a geohash.

    Raises:
        InvalidArgument: It is no geohash.
    """
    text = read_string(value, field).lower()
    if not 1 <= len(text) <= _GEOHASH_CHARACTERS_MAX or not set(text) <= set(_BASE32):
        raise InvalidArgument(
            f"{shown(value)} is no geohash of 1 to {_GEOHASH_CHARACTERS_MAX} characters",
            field=field,
        )
    number = 0
    for character in text:
        number = number << 5 | _BASE32.index(character)
    bits = 5 * len(text)
    # Longitude has the first bit, the third, ...; all results are exact in 64-bit floats.
    columns, rows = (bits + 1) // 2, bits // 2
    column = row = 0
    for place in range(bits):
        bit = number >> (bits - 1 - place) & 1
        if place % 2 == 0:
            column = column << 1 | bit
        else:
            row = row << 1 | bit
    width, height = 360 / (1 << columns), 180 / (1 << rows)
    west, south = column * width - 180, row * height - 90
    return Rectangle(west, south, west + width, south + height)


def read_tile(value: object, field: str) -> Rectangle:
    """Returns a tile of Web Mercator, `zoom/x/y` with y from the north, as maps on the web have it.

    Raises:
        InvalidArgument: It is no tile.
    """
    found = _TILE.fullmatch(read_string(value, field))
    if found is None:
        raise InvalidArgument(f"{shown(value)} is no tile such as 12/2074/1409", field=field)
    zoom, x, y = map(int, found.groups())
    if zoom > _ZOOM_MAX:
        raise InvalidArgument(f"zoom {zoom} is greater than {_ZOOM_MAX}", field=field)
    count = 1 << zoom
    if x >= count or y >= count:
        raise InvalidArgument(f"zoom {zoom} has columns and rows 0 to {count - 1}", field=field)
    west, east = x * 360 / count - 180, (x + 1) * 360 / count - 180
    return Rectangle(west, _mercator_latitude(y + 1, count), east, _mercator_latitude(y, count))


def _mercator_latitude(row: int, rows: int) -> float:
    return math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * row / rows))))


def read_h3(value: object, field: str) -> tuple[Ring, ...]:
    """Returns the rings round a set of H3 cells, of one resolution or of several.

    Raises:
        InvalidArgument: One is no cell, or they have too many vertices.
        FailedPrecondition: h3 or shapely is not installed.
    """
    names = read_strings(value, field)
    if not names:
        raise InvalidArgument("is empty", field=field)
    if len(names) > CELLS_MAX:
        raise InvalidArgument(f"has more than {CELLS_MAX:,} cells", field=field)
    h3, shapely = load("h3", field), load("shapely", field)
    by_resolution: dict[int, set[str]] = {}
    for i, name in enumerate(names):
        if not (_CELL.fullmatch(name) and h3.is_valid_cell(name)):
            raise InvalidArgument(f"{shown(name)} is no cell of H3", field=f"{field}[{i}]")
        by_resolution.setdefault(h3.get_resolution(name), set()).add(h3.int_to_str(int(name, 16)))
    outlines = {
        resolution: _outlines(h3.cells_to_h3shape(cells, tight=False))
        for resolution, cells in by_resolution.items()
    }
    # Before more is done with them: cells that lie apart would take a quarter of a minute.
    rings = (ring for found in outlines.values() for outline in found for ring in outline)
    check_count(sum(map(len, rings)), _OUTLINES_MAX, field)
    parts: list[Any] = []
    for resolution, cells in by_resolution.items():
        try:
            parts += _polygons(outlines[resolution], field)
        except InvalidArgument:
            # The outline of cells all over the earth may cross itself once it is cut.
            if len(cells) > _SINGLE_MAX:
                raise
            for cell in cells:
                parts += _polygons(_outlines(h3.cells_to_h3shape([cell], tight=False)), field)
    # Cells of several resolutions may overlap: a parent does not cover its children exactly.
    return rings_of(shapely.union_all(parts), field)


def _polygons(outlines: list[list[Ring]], field: str) -> list[Any]:
    return [polygon for outline in outlines for polygon in polygons_of(_outlined(outline, field))]


def _outlines(shape: Any) -> list[list[Ring]]:
    """Returns the polygons of a shape of H3: outer ring and holes as (lon, lat)."""
    return [
        [tuple((lon, lat) for lat, lon in ring) for ring in (polygon.outer, *polygon.holes)]
        for polygon in shape
    ]


def _outlined(rings: list[Ring], field: str) -> Any:
    """Returns a polygon of H3 as a geometry: what is on the left of all its rings.

    Which of them is called the outer one says nothing: around all cells but one it is the smaller.
    """
    shapely = load("shapely", field)
    lefts, holes = [], []
    for ring in map(_bent, rings):
        unrolled = unroll(ring)
        if unrolled.turns:
            lefts.append(planar(ring, (), field, pole=unrolled.turns))
        elif shapely.is_ccw(shapely.LinearRing(unrolled.vertices)):
            lefts.append(planar(ring, (), field))
        else:
            holes.append(planar(ring, (), field))
    area = shapely.intersection_all(lefts or [shapely.box(-180, -90, 180, 90)])
    return area.difference(shapely.union_all(holes)) if holes else area


def _bent(ring: Ring) -> Ring:
    """Returns a ring of great circles as one of edges that are straight in degrees."""
    found: list[Position] = []
    for place, vertex in enumerate(ring):
        following = ring[(place + 1) % len(ring)]
        found += _edge(vertex, following, _BEND_MAX * distance_rad(vertex, following), _CUTS_MAX)
    return tuple(found)


def _edge(begin: Position, end: Position, bend_max_rad: float, cuts: int) -> Iterator[Position]:
    """Yields the vertices of an edge without its end."""
    half = middle(begin, end)
    if not cuts or distance_rad(half, flat_middle(begin, end)) <= bend_max_rad:
        yield begin
        return
    yield from _edge(begin, half, bend_max_rad, cuts - 1)
    yield from _edge(half, end, bend_max_rad, cuts - 1)
