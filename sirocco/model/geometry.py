"""Regions on the sphere and great-circle distances.

Coordinates are WGS 84 degrees, longitudes in [-180, 180], latitudes in [-90, 90]; distances are
in metres on a sphere. All regions are closed: the border belongs to them. The meridians 180 and
-180 are one and the same: a point on either is in a region if the point on the other is. This
holds for polygons too, which do not cross that meridian but may touch it.

`contains` is exact for rectangles and polygons: rounding never decides about a border.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sirocco.kernels.base.geometry import EARTH_RADIUS_M, distances_m
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS, Limits
from sirocco.model.members import read_mapping, read_number, read_sequence, refuse_unknown, required

_SHAPES = frozenset({"rect", "circle", "polygon"})
_POINT = frozenset({"lon", "lat"})
_RECTANGLE = frozenset({"west", "south", "east", "north"})
_CIRCLE = frozenset({"lon", "lat", "radius_m"})

Floats: TypeAlias = NDArray[np.float64]
Box = tuple[float, float, float, float]
Bools: TypeAlias = NDArray[np.bool_]

# Distances are rounded to 1 mm, so a point up to 0.5 mm outside belongs to a circle; the rest
# covers the rounding errors of the distance itself (below 0.01 mm).
_CIRCLE_MARGIN_M = 0.0006

# Relative rounding of box edges outwards, far above the error of the few operations involved
# (1e-15), far below a millimetre on the ground.
_OUTWARDS = 1e-12

# Shewchuk, Adaptive Precision Floating-Point Arithmetic (1997), section 3: bound of the
# rounding error of the 2 x 2 orientation determinant, relative to the sum of its products.
_ORIENTATION_ERROR = (3 + 16 * 2**-53) * 2**-53
# Below this the products may have lost bits to underflow, and the bound does not hold.
_UNDERFLOW = 1e-290

# Point-edge pairs per block, so that temporaries stay in the processor's cache.
_PAIRS_PER_BLOCK = 1 << 16


def distance_m(lon1: ArrayLike, lat1: ArrayLike, lon2: ArrayLike, lat2: ArrayLike) -> Floats:
    """Returns great-circle distances, the same that kernels compute; arguments broadcast.

    Args:
        lon1, lat1: f8[...], degrees.
        lon2, lat2: f8[...], degrees.

    Returns:
        f8[...], metres, not rounded.
    """
    columns = np.broadcast_arrays(
        *(np.asarray(each, np.float64) for each in (lon1, lat1, lon2, lat2))
    )
    flat = [np.ascontiguousarray(column).reshape(-1) for column in columns]
    out = np.empty(len(flat[0]), np.float64)
    distances_m(flat[0], flat[1], flat[2], flat[3], out)
    return out.reshape(columns[0].shape)


def round_mm(distances_m: ArrayLike) -> Floats:
    """Returns distances in metres rounded to 1 mm, half to even; done before any comparison."""
    return np.asarray(np.rint(np.asarray(distances_m, np.float64) * 1000) / 1000)


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A rectangle in longitude and latitude; `west > east` crosses the antimeridian."""

    west: float
    south: float
    east: float
    north: float

    def contains(self, lon: Floats, lat: Floats) -> Bools:
        """Returns bool[n]: which points (f8[n] degrees each) lie in the rectangle."""
        if self.west <= self.east:
            inside = (lon >= self.west) & (lon <= self.east)
            if self.west == -180 or self.east == 180:
                inside |= np.abs(lon) == 180
        else:
            inside = (lon >= self.west) | (lon <= self.east)
        return np.asarray(inside & (lat >= self.south) & (lat <= self.north))

    def boxes(self) -> Floats:
        """Returns f8[k, 4], k = 1 or 2: covering boxes (west, south, east, north), west <= east."""
        return np.array(self.box_rows(), np.float64)

    def box_rows(self) -> list[Box]:
        """Returns the same as tuples, which is faster for one rectangle."""
        return _box_rows(self.west, self.south, self.east, self.north)

    def canonical(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return {
            "rect": {
                "west": self.west,
                "south": self.south,
                "east": self.east,
                "north": self.north,
            }
        }


@dataclass(frozen=True, slots=True)
class Circle:
    """All points whose distance from the centre, rounded to 1 mm, is at most `radius_m`."""

    lon: float
    lat: float
    radius_m: float

    def contains(self, lon: Floats, lat: Floats) -> Bools:
        """Returns bool[n]: which points (f8[n] degrees each) lie in the circle."""
        distances_m = round_mm(distance_m(self.lon, self.lat, lon, lat))
        return np.asarray(distances_m <= self.radius_m)

    def boxes(self) -> Floats:
        """Returns f8[k, 4], k = 1 or 2: the great-circle bounding box, rounded outwards.

        If the circle reaches a pole, the box covers all longitudes. Otherwise its meridians touch
        the circle at asin(sin(radius) / cos(latitude)) from the centre.
        """
        radius_deg = math.degrees((self.radius_m + _CIRCLE_MARGIN_M) / EARTH_RADIUS_M)
        radius_deg *= 1 + _OUTWARDS
        south = max(self.lat - radius_deg - _OUTWARDS, -90.0)
        north = min(self.lat + radius_deg + _OUTWARDS, 90.0)
        # Both differences are exact, which keeps tiny circles beside a pole right.
        polar_distance_deg = min(90 - self.lat, 90 + self.lat)
        if radius_deg >= polar_distance_deg * (1 - 1e-9):
            return _boxes(-180.0, south, 180.0, north)
        ratio = math.sin(math.radians(radius_deg)) / math.sin(math.radians(polar_distance_deg))
        half_width = math.degrees(math.asin(min(ratio, 1.0))) * (1 + 1e-9) + 1e-9
        west, east = self.lon - half_width, self.lon + half_width
        # Below 90 degrees on either side, so at most one of the two ends wraps.
        west = west + 360 - 1e-9 if west < -180 else west
        east = east - 360 + 1e-9 if east > 180 else east
        return _boxes(west, south, east, north)

    def canonical(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return {"circle": {"lon": self.lon, "lat": self.lat, "radius_m": self.radius_m}}


@dataclass(frozen=True, slots=True)
class Polygon:
    """Rings of straight edges in longitude and latitude, filled by the even-odd rule.

    Attributes:
        rings: Vertices (lon, lat) of each ring; the last is joined to the first, which is not
            repeated.
    """

    rings: tuple[tuple[tuple[float, float], ...], ...]
    _edges: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        rings = tuple(r[:-1] if len(r) > 1 and r[0] == r[-1] else tuple(r) for r in self.rings)
        object.__setattr__(self, "rings", rings)
        edges = np.array(
            [(*a, *b) for ring in rings for a, b in zip(ring, ring[1:] + ring[:1], strict=True)],
            dtype=np.float64,
        )
        edges.flags.writeable = False
        object.__setattr__(self, "_edges", edges)

    @property
    def edges(self) -> Floats:
        """f8[m, 4], read-only: rows (lon, lat, lon, lat) from a vertex to the next."""
        return self._edges

    def contains(self, lon: Floats, lat: Floats) -> Bools:
        """Returns bool[n]: which points (f8[n] degrees each) lie in the polygon or its border."""
        lon, lat = np.asarray(lon, np.float64), np.asarray(lat, np.float64)
        inside = np.zeros(lon.shape, np.bool_)
        ((west, south, east, north),) = self._extent()
        near = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)
        rows = np.flatnonzero(near)
        inside[rows] = _even_odd(self._edges, lon[rows], lat[rows])
        for meridian in (-180.0, 180.0):
            if west <= meridian <= east:
                rows = np.flatnonzero(lon == -meridian)
                inside[rows] |= _even_odd(self._edges, np.full(len(rows), meridian), lat[rows])
        return inside

    def _extent(self) -> Floats:
        (west, south), (east, north) = self._edges[:, :2].min(0), self._edges[:, :2].max(0)
        return np.array([[west, south, east, north]])

    def boxes(self) -> Floats:
        """Returns f8[k, 4], k = 1 or 2: covering boxes."""
        return _boxes(*self._extent()[0])

    def canonical(self) -> dict[str, Any]:
        """Returns the JSON form."""
        return {"polygon": [[list(vertex) for vertex in ring] for ring in self.rings]}


Region: TypeAlias = Rectangle | Circle | Polygon


def parse_region(
    value: object, field: str = "region", *, limits: Limits = DEFAULT_LIMITS
) -> Region:
    """Reads `{"rect": ...}`, `{"circle": ...}` or `{"polygon": ...}`.

    Raises:
        InvalidArgument: Malformed or out of range; the field is, for example,
            `region.circle.radius_m`.
    """
    members = read_mapping(value, field)
    refuse_unknown(members, _SHAPES, f"{field}.")
    if len(members) != 1:
        raise InvalidArgument("must hold one of rect, circle, polygon", field=field)
    ((shape, content),) = members.items()
    path = f"{field}.{shape}"
    if shape == "rect":
        return _parse_rectangle(content, path)
    if shape == "circle":
        return _parse_circle(content, path)
    return _parse_polygon(content, path, limits)


def parse_point(value: object, field: str) -> tuple[float, float]:
    """Reads `{"lon": ..., "lat": ...}`; returns (lon, lat)."""
    members = read_mapping(value, field)
    refuse_unknown(members, _POINT, f"{field}.")
    return _longitude(members, "lon", field), _latitude(members, "lat", field)


def _longitude(members: Mapping[str, Any], name: str, path: str) -> float:
    return _angle(members, name, path, 180.0)


def _latitude(members: Mapping[str, Any], name: str, path: str) -> float:
    return _angle(members, name, path, 90.0)


def _angle(members: Mapping[str, Any], name: str, path: str, greatest: float) -> float:
    value = members.get(name)
    if type(value) is float and -greatest <= value <= greatest:
        # Nearly all values take this path, without building a path for an error; -0.0 becomes 0.0.
        return value + 0.0
    field = f"{path}.{name}"
    return read_number(required(members, name, field), field, least=-greatest, greatest=greatest)


def _parse_rectangle(value: object, path: str) -> Rectangle:
    members = read_mapping(value, path)
    refuse_unknown(members, _RECTANGLE, f"{path}.")
    rectangle = Rectangle(
        west=_longitude(members, "west", path),
        south=_latitude(members, "south", path),
        east=_longitude(members, "east", path),
        north=_latitude(members, "north", path),
    )
    if rectangle.south > rectangle.north:
        raise InvalidArgument("lies north of `north`", field=f"{path}.south")
    return rectangle


def plain_rectangle(west: float, south: float, east: float, north: float) -> Rectangle | None:
    """Returns the rectangle of four floats, as from JSON; None if one is out of range."""
    if not (-180 <= west <= 180 and -180 <= east <= 180 and -90 <= south <= north <= 90):
        return None
    # -0.0 becomes 0.0.
    return Rectangle(west + 0.0, south + 0.0, east + 0.0, north + 0.0)


def _parse_circle(value: object, path: str) -> Circle:
    members = read_mapping(value, path)
    refuse_unknown(members, _CIRCLE, f"{path}.")
    return Circle(
        lon=_longitude(members, "lon", path),
        lat=_latitude(members, "lat", path),
        radius_m=parse_radius_m(members, path),
    )


def parse_radius_m(members: Any, path: str = "") -> float:
    """Reads the member `radius_m`, metres, at least 0.

    It is rounded to 1 mm, like the distances compared with it: a point on the border belongs to the
    circle, even if its distance is rounded up.
    """
    field = f"{path}.radius_m" if path else "radius_m"
    radius_m = read_number(required(members, "radius_m", field), field, least=0)
    # Beyond the antipode the radius has no further effect, and may be too large for mm.
    return float(round_mm(radius_m)) if radius_m < 2 * math.pi * EARTH_RADIUS_M else radius_m


def _parse_polygon(value: object, path: str, limits: Limits) -> Polygon:
    rings = read_sequence(value, path)
    if not rings:
        raise InvalidArgument("has no ring", field=path)
    vertices_left = limits.vertices
    parsed = []
    for r, ring in enumerate(rings):
        vertices = read_sequence(ring, f"{path}[{r}]")
        vertices_left -= len(vertices)
        if vertices_left < 0:
            raise InvalidArgument(f"has more than {limits.vertices} vertices", field=path)
        points = []
        for v, vertex in enumerate(vertices):
            at = f"{path}[{r}][{v}]"
            if len(read_sequence(vertex, at)) != 2:
                raise InvalidArgument("must be [lon, lat]", field=at)
            lon = read_number(vertex[0], f"{at}[0]", least=-180, greatest=180)
            points.append((lon, read_number(vertex[1], f"{at}[1]", least=-90, greatest=90)))
        if len(set(points)) < 3:
            raise InvalidArgument("needs three different vertices", field=f"{path}[{r}]")
        parsed.append(tuple(points))
    return Polygon(tuple(parsed))


def _box_rows(west: float, south: float, east: float, north: float) -> list[Box]:
    """Returns the boxes of a closed interval of longitudes, its twin meridian included."""
    if west > east:
        return [(west, south, 180.0, north), (-180.0, south, east, north)]
    if west == -180 and east < 180:
        return [(west, south, east, north), (180.0, south, 180.0, north)]
    if east == 180 and west > -180:
        return [(west, south, east, north), (-180.0, south, -180.0, north)]
    return [(west, south, east, north)]


def _boxes(west: float, south: float, east: float, north: float) -> Floats:
    """Returns the same as f8[k, 4]."""
    return np.array(_box_rows(west, south, east, north), np.float64)


def _even_odd(edges: Floats, lon: Floats, lat: Floats) -> Bools:
    """Returns bool[n]: inside by the even-odd rule, or on an edge; exact."""
    inside = np.zeros(len(lon), np.bool_)
    step = max(1, _PAIRS_PER_BLOCK // max(1, len(edges)))
    for start in range(0, len(lon), step):
        block = slice(start, start + step)
        inside[block] = _even_odd_block(edges, lon[block, None], lat[block, None])
    return inside


def _even_odd_block(edges: Floats, x: Floats, y: Floats) -> Bools:
    x1, y1, x2, y2 = edges.T
    # A ray to the east crosses the edge: half-open in y, so that a vertex counts once.
    straddles = (y1 <= y) != (y2 <= y)
    touches_y = (np.minimum(y1, y2) <= y) & (y <= np.maximum(y1, y2))
    touches_x = (np.minimum(x1, x2) <= x) & (x <= np.maximum(x1, x2))
    crossed = straddles & (x < np.minimum(x1, x2))
    point, edge = np.nonzero(touches_y & touches_x)
    sign = _orientation(edges[edge], x[point, 0], y[point, 0])
    on_border = np.zeros(len(x), np.bool_)
    on_border[point[sign == 0]] = True
    # An upward edge is crossed by points to its left, a downward edge by points to its right.
    upward = y1[edge] < y2[edge]
    crossed[point, edge] = straddles[point, edge] & np.where(upward, sign > 0, sign < 0)
    return np.asarray((np.count_nonzero(crossed, axis=1) % 2 == 1) | on_border)


def _orientation(edges: Floats, x: Floats, y: Floats) -> NDArray[np.int8]:
    """Returns i1[n]: 1 where the point is left of its edge, -1 right, 0 on its line; exact."""
    x1, y1, x2, y2 = edges.T
    left, right = (x1 - x) * (y2 - y), (y1 - y) * (x2 - x)
    determinant = left - right
    sign = np.sign(determinant).astype(np.int8)
    magnitude = np.abs(left) + np.abs(right)
    doubtful = np.abs(determinant) <= _ORIENTATION_ERROR * magnitude + _UNDERFLOW
    for i in np.flatnonzero(doubtful):
        ax, ay, bx, by, px, py = map(Fraction, (*edges[i].tolist(), float(x[i]), float(y[i])))
        exact = (ax - px) * (by - py) - (ay - py) * (bx - px)
        sign[i] = (exact > 0) - (exact < 0)
    return np.asarray(sign)
