"""The surroundings of a line: all points within a radius of it, as a polygon.

A line is straight in degrees, as the edges of polygons are. It is cut into pieces that are great
circles well enough. Around each piece its points at the radius are computed on the sphere: half a
circle at either end, and a curve along either side. The polygon is the union of these capsules.

What is rounded, as parts of the radius, and together less than the 0.005 that is promised:
0.001 pieces against the straight line; 0.002 corners outwards and 0.003 edges inwards or outwards;
0.0005 vertices that are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from sirocco_client.base.libraries import load
from sirocco_client.base.members import read_mapping, refuse_unknown, required
from sirocco_client.errors import InvalidArgument
from sirocco_client.queries.geo.antimeridian import planar, rings_of
from sirocco_client.queries.geo.positions import (
    VERTICES_MAX,
    Position,
    Ring,
    read_positions,
    read_within,
)
from sirocco_client.queries.geo.sphere import EARTH_RADIUS_M, Arc, destination, flat_middle

_BEND_MAX = 0.001
_OUTWARDS = 0.002
_EDGE_MAX = 0.003
_STRAIGHTENED_MAX = 0.0005

# Vertices of half a circle at least: its edges are then within `_EDGE_MAX`, but for those near a
# pole and those of great circles, which are cut further.
_STEPS = 18
_CUTS_MAX = 14
# Of those within an edge of the line: the next piece covers what they leave out, if it is as long
# as the radius. Its direction then differs by less than 0.01.
_INNER_STEPS = 4

# A capsule of half this radius encloses one pole at most, and its curves do not meet themselves.
RADIUS_M_MAX = 5_000_000.0

# 1 mm, the unit of distances.
_RADIUS_M_MIN = 0.001

# Bounds of the work: a capsule takes a millisecond at most, and the result has the limit of all
# polygons.
LINE_VERTICES_MAX = 1_000
PIECES_MAX = 4_000

# Pieces in a row that are joined before all others: their capsules overlap.
_NEIGHBOURS = 16

# Vertices that crossings may add until all is joined and simplified. Four for each: a tangle of 150
# lines has so many.
_CROSSINGS_VERTICES_MAX = 4 * VERTICES_MAX

# Longer pieces would bend away from both sides of their middle.
_PIECE_RAD_MAX = math.radians(10)


def read_buffer(value: object, field: str) -> tuple[Ring, ...]:
    """Returns the rings round a line: `{"line": [[lon, lat], ...], "radius_m": ...}`.

    Raises:
        InvalidArgument: It is malformed, or takes too many vertices.
        FailedPrecondition: shapely is not installed.
    """
    members = read_mapping(value, field)
    refuse_unknown(members, frozenset({"line", "radius_m"}), f"{field}.")
    path = f"{field}.line"
    written = required(members, "line", path)
    if isinstance(written, list | tuple) and len(written) > LINE_VERTICES_MAX:
        raise InvalidArgument(f"has more than {LINE_VERTICES_MAX:,} positions", field=path)
    line = read_positions(written, path, LINE_VERTICES_MAX)
    if len(line) < 2:
        raise InvalidArgument("needs two positions", field=path)
    path = f"{field}.radius_m"
    given = required(members, "radius_m", path)
    radius_rad = read_within(given, path, _RADIUS_M_MIN, RADIUS_M_MAX) / EARTH_RADIUS_M
    shapely = load("shapely", field)
    vertices = frozenset(line)
    capsules: list[Any] = []
    # Counted first: each of them costs more than all of the counting.
    for arc in list(_pieces(line, radius_rad, field)):
        capsule = _outline(arc, radius_rad, vertices)
        capsules.append(planar(capsule, (), field, pole=1 if arc.begin[1] > 0 else -1))
    area = _union(capsules, repr((line, radius_rad)), field)
    # Where pieces meet, the corners of their circles stand out a little. In degrees of longitude
    # the tolerance is less on the ground.
    return rings_of(shapely.simplify(area, math.degrees(radius_rad * _STRAIGHTENED_MAX)), field)


def _union(capsules: list[Any], seed: str, field: str) -> Any:
    """Returns the union of capsules, which is stopped where their borders cross too often.

    Neighbours are joined first, then what these became in pairs, which are drawn: in the order of
    the line two halves without a crossing could cross each other a million times, which would take
    minutes. Of pairs that are drawn each round finds about half of the crossings that are left.

    Args:
        capsules: Of the pieces of a line, in its order.
        seed: The same for the same line: so is the result.
        field: Path of the member, for errors.

    Raises:
        InvalidArgument: They cross too often.
    """
    shapely = load("shapely", field)
    most = int(shapely.get_num_coordinates(capsules).sum()) + _CROSSINGS_VERTICES_MAX
    begins = range(0, len(capsules), _NEIGHBOURS)
    parts = [shapely.union_all(capsules[begin : begin + _NEIGHBOURS]) for begin in begins]
    Random(seed).shuffle(parts)
    while int(shapely.get_num_coordinates(parts).sum()) <= most:
        if len(parts) == 1:
            return parts[0]
        half = len(parts) // 2
        parts = [*shapely.union(parts[:half], parts[half : 2 * half]), *parts[2 * half :]]
    raise InvalidArgument("crosses itself too often", field=field)


def _pieces(line: Ring, radius_rad: float, field: str) -> Iterator[Arc]:
    """Yields a line as great circles.

    Raises:
        InvalidArgument: It takes too many.
    """
    left = PIECES_MAX
    begin = line[0]
    for end in line[1:]:
        for arc in _straight(begin, end, radius_rad * _BEND_MAX):
            left -= 1
            if left < 0:
                raise InvalidArgument(
                    f"takes more than {PIECES_MAX:,} pieces: a line so long needs a greater radius",
                    field=field,
                )
            yield arc
        begin = end


def _straight(begin: Position, end: Position, bend_max_rad: float) -> Iterator[Arc]:
    """Yields the great circles of an edge that is straight in degrees."""
    pending = [(begin, end)]
    while pending:
        begin, end = pending.pop()
        arc = Arc(begin, end)
        half = flat_middle(begin, end)
        if arc.length_rad <= _PIECE_RAD_MAX and arc.distance_rad(half) <= bend_max_rad:
            yield arc
        else:
            pending += [(half, end), (begin, half)]


def _outline(arc: Arc, radius_rad: float, vertices: frozenset[Position]) -> Ring:
    """Returns the border of all points within a radius of an arc.

    Args:
        arc: The arc.
        radius_rad: The radius.
        vertices: Those of the line: other ends of arcs lie within its edges.
    """
    outside = radius_rad * (1 + _OUTWARDS)
    ahead, behind = arc.bearings

    def around(point: Position, bearing: float) -> Callable[[float], Position]:
        return lambda part: destination(point, bearing + math.pi * part, outside)

    def beside(side: float, *, back: bool) -> Callable[[float], Position]:
        def at(part: float) -> Position:
            point, bearing = arc.at(1 - part if back else part)
            return destination(point, bearing + side * math.pi / 2, outside)

        return at

    is_long = arc.length_rad >= radius_rad
    steps_begin, steps_end = (
        _INNER_STEPS if is_long and point not in vertices else _STEPS
        for point in (arc.begin, arc.end)
    )
    curves = [
        # Clockwise, from the left of the begin round its back.
        (around(arc.begin, ahead + math.pi / 2), steps_begin),
        (beside(-1, back=False), 1),
        (around(arc.end, behind - math.pi / 2), steps_end),
        (beside(1, back=True), 1),
    ]
    found: list[Position] = []
    for curve, steps in curves:
        if arc.length_rad == 0 and steps == 1:
            continue
        points = [curve(step / steps) for step in range(steps + 1)]
        for step in range(steps):
            ends = (points[step], points[step + 1])
            parts = (step / steps, (step + 1) / steps)
            cuts = 0 if steps == _INNER_STEPS else _CUTS_MAX
            found += _edges(arc, radius_rad, curve, parts, ends, cuts)
    return tuple(found)


def _edges(
    arc: Arc,
    radius_rad: float,
    curve: Callable[[float], Position],
    parts: tuple[float, float],
    points: tuple[Position, Position],
    cuts: int,
) -> Iterator[Position]:
    """Yields the begins of edges along a part of a curve, as many as keep to the radius."""
    if not cuts or _keeps(arc, radius_rad, flat_middle(*points)):
        yield points[0]
        return
    part = (parts[0] + parts[1]) / 2
    half = curve(part)
    yield from _edges(arc, radius_rad, curve, (parts[0], part), (points[0], half), cuts - 1)
    yield from _edges(arc, radius_rad, curve, (part, parts[1]), (half, points[1]), cuts - 1)


def _keeps(arc: Arc, radius_rad: float, point: Position) -> bool:
    return abs(arc.distance_rad(point) - radius_rad) <= _EDGE_MAX * radius_rad
