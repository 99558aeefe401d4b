"""Rings that cross the antimeridian, cut into rings that do not (RFC 7946, section 3.1.9).

Two neighbouring vertices more than 180 degrees of longitude apart are joined across the
antimeridian. A ring is first unrolled: its longitudes go on beyond 180, so that all its edges are
as short as they were meant. The unrolled polygon is a plain one, whose validity GEOS checks; it is
then cut at 180, 540, ... and the pieces are moved back.

A ring that goes once round the earth encloses a pole, the nearer one: the side on which it has less
latitude to spare. The direction in which it is written does not count, as old files have either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from sirocco_client.base.libraries import load
from sirocco_client.errors import InvalidArgument
from sirocco_client.queries.geo.positions import (
    VERTICES_MAX,
    Position,
    Ring,
    check_count,
    same_meridian,
)

# Turns that a ring may span. Each is a cut through the whole polygon, and ten thousand vertices
# could ask for thousands of them; coasts and zones of nations need two.
_TURNS_MAX = 4

# Of sums of areas, relative; far above the rounding of ten thousand terms.
_AREA_ERROR = 1e-9

# GEOS gives the reason, and its place in brackets.
_REASON = re.compile(r"(.*?)\[(\S+) (\S+)\]")


@dataclass(frozen=True, slots=True)
class Unrolled:
    """A ring whose neighbouring longitudes are not more than 180 degrees apart.

    Attributes:
        vertices: (lon, lat), not closed; longitudes beyond 180 where it crosses the antimeridian.
        originals: The longitude that was given, by the vertex here: adding and subtracting 360
            would change its last bits, and a point on the border would be missed.
        turns: How often it goes round the earth, eastwards.
    """

    vertices: list[Position]
    originals: dict[Position, float]
    turns: int


def unroll(ring: Ring) -> Unrolled:
    """Returns the unrolled ring; `ring` may be closed or not."""
    open_ring = ring[:-1] if len(ring) > 1 and ring[0] == ring[-1] else ring
    vertices: list[Position] = []
    turn = 0
    for i, (lon, lat) in enumerate(open_ring):
        if i:
            turn += _turn(open_ring, i)
        vertices.append((lon + 360.0 * turn, lat))
    turn += _turn(open_ring, 0)
    originals = {at: lon for at, (lon, _) in zip(vertices, open_ring, strict=True)}
    return Unrolled(vertices, originals, turn)


def _turn(ring: Ring, at: int) -> int:
    """Returns the change of the turn at the edge that ends in vertex `at`."""
    (lon1, lat1), (lon2, lat2) = ring[at - 1], ring[at]
    step = lon2 - lon1
    if abs(step) <= 180:
        return 0
    # The side of a box round the whole earth, between two sides on the antimeridian. As a join
    # across it, it would have no length.
    is_parallel = abs(step) == 360 and lat1 == lat2
    if is_parallel and ring[at - 2][0] == lon1 and ring[(at + 1) % len(ring)][0] == lon2:
        return 0
    return -1 if step > 0 else 1


def planar(exterior: Ring, holes: Sequence[Ring], field: str, *, pole: int = 0) -> Any:
    """Returns a polygon as a geometry of shapely, within [-180, 180].

    Args:
        exterior: Its outer ring, closed or not.
        holes: Its holes.
        field: Path of the member, for errors.
        pole: 1 (north) or -1 (south): which pole a ring round the earth encloses; 0: the nearer.

    Raises:
        InvalidArgument: It is no valid polygon; the message says why and where.
        FailedPrecondition: shapely is not installed.
    """
    shapely = load("shapely", field)
    outer, inner = unroll(exterior), [unroll(hole) for hole in holes]
    for ring in (outer, *inner):
        low, high = _extent(ring)
        if high - low > 360 * _TURNS_MAX:
            raise InvalidArgument("goes round the earth too often", field=field)
    if outer.turns == 0 and all(hole.turns == 0 for hole in inner):
        low, high = _extent(outer)
        moved = [_beside(hole, low, high) for hole in inner]
        polygon = shapely.Polygon(outer.vertices, [hole.vertices for hole in moved])
        refuse_invalid(polygon, field)
        if low >= -180 and high <= 180:
            return polygon
        return _cut(polygon, [outer, *moved], field)
    area = _side(outer, field, pole)
    if not inner:
        return area
    # All at once: one by one each would cost the whole area, thousands of them half a minute.
    cut_outs = [_side(hole, field, pole) for hole in inner]
    together = shapely.union_all(cut_outs)
    total = sum(one.area for one in cut_outs)
    if not area.covers(together) or together.area < total * (1 - _AREA_ERROR):
        raise InvalidArgument("a hole lies outside its outer ring or in another", field=field)
    return area.difference(together)


def rings_of(geometry: Any, field: str) -> tuple[Ring, ...]:
    """Returns the rings of a polygon or of several that do not overlap, to be filled even-odd.

    Raises:
        InvalidArgument: They have too many vertices.
    """
    rings: list[Ring] = []
    for polygon in polygons_of(geometry):
        for ring in (polygon.exterior, *polygon.interiors):
            vertices = ((lon + 0.0, lat + 0.0) for lon, lat in ring.coords[:-1])
            rings.append(tuple(vertices))
    check_count(sum(map(len, rings)), VERTICES_MAX, field)
    return tuple(rings)


def polygons_of(geometry: Any) -> list[Any]:
    """Returns the polygons within a geometry; points and lines, which have no area, are left."""
    parts = getattr(geometry, "geoms", None)
    if parts is None:
        return [geometry] if geometry.geom_type == "Polygon" and not geometry.is_empty else []
    return [polygon for part in parts for polygon in polygons_of(part)]


def refuse_invalid(geometry: Any, field: str) -> None:
    """Refuses a geometry that is not valid, with the reason and the place."""
    shapely = load("shapely", field)
    reason = shapely.is_valid_reason(geometry)
    if reason == "Valid Geometry":
        if geometry.area == 0:
            raise InvalidArgument("is not valid: it has no area", field=field)
        return
    found = _REASON.fullmatch(reason)
    if found is not None:
        lon, lat = same_meridian(float(found[2])), float(found[3])
        reason = f"{found[1]} at [{lon:.10g}, {lat:.10g}]"
    raise InvalidArgument(f"is not valid: {reason[0].lower()}{reason[1:]}", field=field)


def _side(ring: Unrolled, field: str, pole: int) -> Any:
    """Returns the area of a ring alone; of one round the earth, up to the pole it encloses."""
    shapely = load("shapely", field)
    closed = ring
    if abs(ring.turns) > 1:
        raise InvalidArgument("goes round the earth more than once", field=field)
    if ring.turns:
        (lon, lat), end = ring.vertices[0], ring.vertices[0][0] + 360.0 * ring.turns
        # `or`: exactly between the poles, what is on the left, as RFC 7946 has it.
        nearer = pole or _sign(_mean_latitude(ring)) or ring.turns
        vertices = [*ring.vertices, (end, lat), (end, 90.0 * nearer), (lon, 90.0 * nearer)]
        originals = ring.originals | {(end, lat): ring.originals[lon, lat]}
        closed = Unrolled(vertices, originals, 0)
    polygon = shapely.Polygon(closed.vertices)
    refuse_invalid(polygon, field)
    return _cut(polygon, [closed], field)


def _mean_latitude(ring: Unrolled) -> float:
    end = (ring.vertices[0][0] + 360.0 * ring.turns, ring.vertices[0][1])
    edges = pairwise([*ring.vertices, end])
    return sum((a[1] + b[1]) * (b[0] - a[0]) for a, b in edges) * ring.turns


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _extent(ring: Unrolled) -> tuple[float, float]:
    lons = [lon for lon, _ in ring.vertices]
    return min(lons), max(lons)


def _beside(hole: Unrolled, low: float, high: float) -> Unrolled:
    """Returns a hole on the turn of the outer ring, which spans [low, high]."""
    least, greatest = _extent(hole)
    for turn in (0, 1, -1, 2, -2):
        shift = 360.0 * turn
        if low <= least + shift and greatest + shift <= high:
            break
    else:
        # It lies outside; the check of validity says so.
        return hole
    if not turn:
        return hole
    vertices = [(lon + shift, lat) for lon, lat in hole.vertices]
    originals = {
        at: hole.originals[before] for at, before in zip(vertices, hole.vertices, strict=True)
    }
    return Unrolled(vertices, originals, 0)


def _cut(polygon: Any, rings: Sequence[Unrolled], field: str) -> Any:
    """Returns an unrolled polygon within [-180, 180], in as many pieces as it needs."""
    shapely = load("shapely", field)
    originals: dict[Position, float] = {}
    for ring in rings:
        originals |= ring.originals
    low, _, high, _ = polygon.bounds
    turns = range(round_turn(low), round_turn(high) + 1)
    if len(turns) > 1:
        # Vertices where edges cross: their longitudes are then exact, not computed by the cut.
        polygon = shapely.Polygon(
            list(_with_crossings(polygon.exterior.coords)),
            [list(_with_crossings(hole.coords)) for hole in polygon.interiors],
        )
    pieces: list[Any] = []
    for turn in turns:
        middle = 360.0 * turn
        strip = shapely.box(middle - 180, -90, middle + 180, 90)
        parts = polygons_of(polygon.intersection(strip) if len(turns) > 1 else polygon)
        pieces += [_moved(part, middle, originals) for part in parts]
    if len(pieces) == 1:
        return pieces[0]
    # A cap round a pole is unrolled from some meridian, and closed there again.
    together = shapely.union_all(pieces)
    total = sum(piece.area for piece in pieces)
    if together.area < total * (1 - _AREA_ERROR):
        raise InvalidArgument("is not valid: it overlaps itself round the earth", field=field)
    return together


def round_turn(lon: float) -> int:
    """Returns the turn that a longitude belongs to: 0 within [-180, 180)."""
    return int((lon + 180) // 360)


def _with_crossings(coordinates: Sequence[Position]) -> Iterator[Position]:
    """Yields the vertices of a closed ring, and those where its edges cross a cut."""
    for (lon1, lat1), (lon2, lat2) in pairwise(coordinates):
        yield lon1, lat1
        low, high = min(lon1, lon2), max(lon1, lon2)
        cuts = [360.0 * turn + 180 for turn in range(round_turn(low), round_turn(high) + 1)]
        inside = [cut for cut in cuts if low < cut < high]
        for cut in inside if lon1 < lon2 else reversed(inside):
            part = (Fraction(cut) - Fraction(lon1)) / (Fraction(lon2) - Fraction(lon1))
            yield cut, float(Fraction(lat1) + part * (Fraction(lat2) - Fraction(lat1)))
    yield coordinates[-1]


def _moved(piece: Any, middle: float, originals: dict[Position, float]) -> Any:
    """Returns a piece moved by whole turns, with the longitudes that were given."""

    def move(ring: Any) -> list[Position]:
        return [(_given(at, middle, originals), at[1]) for at in ring.coords]

    return type(piece)(move(piece.exterior), [move(hole) for hole in piece.interiors])


def _given(at: Position, middle: float, originals: dict[Position, float]) -> float:
    lon = at[0] - middle
    # On the antimeridian the side counts, and both are exact.
    return lon if abs(lon) == 180 else originals.get(at, lon)
