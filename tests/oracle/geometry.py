"""Regions and distances, by separate formulas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

EARTH_RADIUS_M = 6_371_008.8

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def distance_m(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """Returns the great-circle distance by the haversine formula."""
    a, b = math.radians(lat1), math.radians(lat2)
    half = math.radians(lon2 - lon1) / 2
    haversine = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(half) ** 2
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, haversine)))


def distances_m(lon: float, lat: float, lons: Floats, lats: Floats) -> Floats:
    """Returns great-circle distances, not rounded.

    By the angle between vectors, atan2(|a x b|, a · b), which equals the haversine in all
    significant digits: its error is some nanometres, also near the point and its antipode.
    """
    a, b = math.radians(lat), np.radians(lats)
    across = lons - lon
    turn = np.radians(across - 360 * np.rint(across / 360))
    east = np.cos(b) * np.sin(turn)
    # sin(b - a) + the part due to the turn, without cancellation for near points.
    north = np.sin(b - a) + 2 * math.sin(a) * np.cos(b) * np.sin(turn / 2) ** 2
    along = math.sin(a) * np.sin(b) + math.cos(a) * np.cos(b) * np.cos(turn)
    return np.asarray(EARTH_RADIUS_M * np.arctan2(np.hypot(east, north), along))


class Region:
    """A region from its JSON form."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        ((self._shape, self._form),) = members.items()

    def contains(self, lon: float, lat: float) -> bool:
        """Returns whether a point belongs to the region; 180 and -180 are one meridian."""
        form = self._form
        if self._shape == "circle":
            return bool(
                round(distance_m(form["lon"], form["lat"], lon, lat), 3)
                <= round(form["radius_m"], 3)
            )
        if self._shape == "rect":
            colliding = abs(lon) == 180 and self._rectangle(-lon, lat)
            return bool(colliding or self._rectangle(lon, lat))
        latitudes = [vertex[1] for ring in form for vertex in ring]
        if not min(latitudes) <= lat <= max(latitudes):
            return False  # quick, while arrays of one row take long
        return bool(self.mask(np.array([lon], np.float64), np.array([lat], np.float64))[0])

    def mask(self, lon: Floats, lat: Floats) -> Bools:
        """Returns for each of n points whether it belongs to the region."""
        if self._shape == "circle":
            form = self._form
            distances = distances_m(form["lon"], form["lat"], lon, lat)
            return np.asarray(np.round(distances, 3) <= round(form["radius_m"], 3))
        inside = self._rectangle if self._shape == "rect" else self._polygon
        found: Bools = inside(lon, lat)
        edge = np.flatnonzero(np.abs(lon) == 180)
        found[edge] |= inside(-lon[edge], lat[edge])
        return found

    def _rectangle(self, lon: Any, lat: Any) -> Any:
        """Returns the same for one point, or for each of many."""
        form = self._form
        if form["west"] <= form["east"]:
            found = (form["west"] <= lon) & (lon <= form["east"])
        else:
            found = (lon >= form["west"]) | (lon <= form["east"])
        return found & (form["south"] <= lat) & (lat <= form["north"])

    def _polygon(self, lon: Floats, lat: Floats) -> Bools:
        crossings = np.zeros(len(lon), np.int64)
        border = np.zeros(len(lon), np.bool_)
        for ring in self._form:
            for (x1, y1), (x2, y2) in zip(ring, [*ring[1:], ring[0]], strict=True):
                beside = (lat >= min(y1, y2)) & (lat <= max(y1, y2)) & (lon <= max(x1, x2))
                rows = np.flatnonzero(beside)
                side = _side(x1, y1, x2, y2, lon[rows], lat[rows])
                border[rows] |= (side == 0) & (lon[rows] >= min(x1, x2))
                # Upwards the point is left of the edge, downwards right of it.
                passed = (y1 <= lat[rows]) != (y2 <= lat[rows])
                crossings[rows] += passed & (side == (1 if y2 > y1 else -1))
        return np.asarray(border | (crossings % 2 == 1))


def _side(x1: float, y1: float, x2: float, y2: float, x: Floats, y: Floats) -> NDArray[np.int64]:
    """Returns for each point: 1 left of the edge, -1 right, 0 on its line; exact."""
    left, right = (x2 - x1) * (y - y1), (y2 - y1) * (x - x1)
    side = np.sign(left - right).astype(np.int64)
    # The error of the six operations is below 1e-15 of the products each.
    for row in np.flatnonzero(np.abs(left - right) <= 1e-13 * (np.abs(left) + np.abs(right))):
        ax, ay, bx, by, px, py = map(Fraction, (x1, y1, x2, y2, float(x[row]), float(y[row])))
        turn = (bx - ax) * (py - ay) - (by - ay) * (px - ax)
        side[row] = (turn > 0) - (turn < 0)
    return side
