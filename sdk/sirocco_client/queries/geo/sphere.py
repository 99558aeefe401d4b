"""Points on the sphere as (lon, lat) in degrees, and the arcs between them."""

from __future__ import annotations

import math

from sirocco_client.queries.geo.positions import Position, same_meridian

# As the server measures distances (the public contract).
EARTH_RADIUS_M = 6_371_008.8


def distance_rad(one: Position, other: Position) -> float:
    """Returns the great-circle distance of two points, as an angle (haversine)."""
    lat1, lat2 = math.radians(one[1]), math.radians(other[1])
    across = math.sin(math.radians(other[0] - one[0]) / 2)
    along = math.sin((lat2 - lat1) / 2)
    return 2 * math.asin(
        min(1.0, math.hypot(along, across * math.sqrt(math.cos(lat1) * math.cos(lat2))))
    )


def middle(one: Position, other: Position) -> Position:
    """Returns the point half way on the great circle."""
    (x1, y1, z1), (x2, y2, z2) = _vector(one), _vector(other)
    x, y, z = x1 + x2, y1 + y2, z1 + z2
    return math.degrees(math.atan2(y, x)), math.degrees(math.atan2(z, math.hypot(x, y)))


def flat_middle(one: Position, other: Position) -> Position:
    """Returns the point half way in degrees, the short way round."""
    return one[0] + same_meridian(other[0] - one[0]) / 2, (one[1] + other[1]) / 2


def _vector(point: Position) -> tuple[float, float, float]:
    lon, lat = math.radians(point[0]), math.radians(point[1])
    return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)


def destination(point: Position, bearing: float, distance: float) -> Position:
    """Returns the point at a distance in a direction; both angles in radians, from the north."""
    lon, lat = math.radians(point[0]), math.radians(point[1])
    sine = math.sin(lat) * math.cos(distance) + math.cos(lat) * math.sin(distance) * math.cos(
        bearing
    )
    east = math.sin(bearing) * math.sin(distance) * math.cos(lat)
    north = math.cos(distance) - math.sin(lat) * sine
    to = math.asin(max(-1.0, min(1.0, sine)))
    return same_meridian(math.degrees(lon + math.atan2(east, north))), math.degrees(to)


class Arc:
    """The shorter great circle between two points.

    Attributes:
        begin, end: Its ends.
        length_rad: Its length, as an angle.
        bearings: Where it leads to at its begin and at its end, radians from the north.
    """

    def __init__(self, begin: Position, end: Position) -> None:
        self.begin, self.end = begin, end
        self.length_rad = distance_rad(begin, end)
        ahead = _bearing(begin, end)
        behind = _bearing(end, begin) + math.pi if self.length_rad else ahead
        self.bearings = (ahead, behind)

    def at(self, part: float) -> tuple[Position, float]:
        """Returns the point at a part of the length, 0 to 1, and the direction there."""
        if part <= 0:
            return self.begin, self.bearings[0]
        if part >= 1:
            return self.end, self.bearings[1]
        point = destination(self.begin, self.bearings[0], part * self.length_rad)
        return point, _bearing(point, self.end)

    def distance_rad(self, point: Position) -> float:
        """Returns the distance of a point from the nearest point of the arc, as an angle."""
        away = distance_rad(self.begin, point)
        if not self.length_rad or not away:
            return away
        turn = _bearing(self.begin, point) - self.bearings[0]
        if math.cos(turn) <= 0:
            return away
        across = math.asin(max(-1.0, min(1.0, math.sin(away) * math.sin(turn))))
        along = math.atan2(math.cos(turn) * math.sin(away), math.cos(away))
        return abs(across) if along <= self.length_rad else distance_rad(self.end, point)


def _bearing(point: Position, other: Position) -> float:
    lat1, lat2 = math.radians(point[1]), math.radians(other[1])
    turn = math.radians(other[0] - point[0])
    # Not as a difference of two products: for near points that would have no digits left.
    half = math.sin(turn / 2)
    north = math.sin(lat2 - lat1) + 2 * math.sin(lat1) * math.cos(lat2) * half * half
    return math.atan2(math.sin(turn) * math.cos(lat2), north)
