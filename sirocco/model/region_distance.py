"""Distance from a region to a point outside it; `contains` decides which points are."""

from __future__ import annotations

import math

import numpy as np

from sirocco.model.geometry import Circle, Floats, Polygon, Rectangle, Region, distance_m, round_mm

# Each round checks 33 places of the remaining part of an edge and keeps two thirty-seconds of it:
# the longest possible edge, half-way around the earth, is down to millimetres after eight rounds.
_PLACES = 33
_ROUNDS = 8


def metres_outside(region: Region, lon: float, lat: float) -> float:
    """Returns the distance from a point to the border of a region that does not contain it.

    Args:
        region: Of any shape.
        lon, lat: Degrees, outside the region.

    Returns:
        Metres, rounded to 1 mm.
    """
    match region:
        case Circle():
            distance = float(round_mm(distance_m(region.lon, region.lat, lon, lat)))
            return float(round_mm(distance - region.radius_m))
        case Rectangle():
            return float(round_mm(_to_rectangle(region, lon, lat)))
        case Polygon():
            return float(round_mm(_to_edges(region.edges, lon, lat)))


def _to_rectangle(one: Rectangle, lon: float, lat: float) -> float:
    """The sides are meridians, which are great circles, and parallels, which are not."""
    nearest_lat = min(max(lat, one.south), one.north)
    point = np.array([lon]), np.array([lat])
    if Rectangle(one.west, -90.0, one.east, 90.0).contains(*point)[0]:
        # All places of a parallel differ equally in latitude, and no way is shorter than that.
        return float(distance_m(lon, lat, lon, nearest_lat))
    found = []
    for side in (one.west, one.east):
        lats = [one.south, one.north]
        turn = math.radians(lon - side)
        if math.cos(turn) > 0:
            # The perpendicular from the point meets the side's great circle here.
            phi = math.radians(lat)
            foot = math.degrees(math.atan2(math.sin(phi), math.cos(phi) * math.cos(turn)))
            lats.append(min(max(foot, one.south), one.north))
        found += [float(distance_m(lon, lat, side, each)) for each in lats]
    return min(found)


def _to_edges(edges: Floats, lon: float, lat: float) -> float:
    """Edges are straight in longitude and latitude: the nearest place is searched on each."""
    begins, along = edges[:, :2], edges[:, 2:] - edges[:, :2]
    low, high = np.zeros(len(edges)), np.ones(len(edges))
    nearest = math.inf
    for _ in range(_ROUNDS):
        parts = np.linspace(low, high, _PLACES, axis=1)
        lons = begins[:, :1] + parts * along[:, :1]
        lats = begins[:, 1:] + parts * along[:, 1:]
        distances = distance_m(lon, lat, lons, lats)
        best = distances.argmin(axis=1)
        nearest = min(nearest, float(distances.min()))
        rows = np.arange(len(edges))
        low = parts[rows, np.maximum(best - 1, 0)]
        high = parts[rows, np.minimum(best + 1, _PLACES - 1)]
    return nearest
