"""Polygons as GeoJSON (RFC 7946) and as WKT, compiled to rings with the even-odd rule."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from sirocco_client.base.libraries import load
from sirocco_client.base.members import read_mapping, read_string, required, shown
from sirocco_client.errors import InvalidArgument
from sirocco_client.queries.geo.antimeridian import planar, polygons_of, refuse_invalid, rings_of
from sirocco_client.queries.geo.positions import (
    VERTICES_MAX,
    Ring,
    check_count,
    read_array,
    read_positions,
)

_GEOMETRIES = ("Polygon", "MultiPolygon")

# Ten thousand vertices of 40 digits each, more than three times over.
_WKT_CHARACTERS_MAX = 1 << 20

_HEAD = re.compile(
    r"(?:SRID=4326;)?(MULTIPOLYGON|POLYGON)(?:\s?(?:ZM|Z|M)(?=[\s(]))?", re.IGNORECASE
)
_TOKEN = re.compile(r"[(),]|[^(),]+")
_BRACKETS = {"(": "[", ")": "]", ",": ","}
# Longer ones say nothing more, and `float` takes long for them.
_NUMBER = re.compile(
    r"[+-]?(?:[0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,3})?", re.ASCII
)


def read_geojson(value: object, field: str) -> tuple[Ring, ...]:
    """Returns the rings of a Polygon, a MultiPolygon, or a Feature of one of them.

    Raises:
        InvalidArgument: It is something else, malformed, too large or not valid; `field` is the
            path of the wrong member.
        FailedPrecondition: shapely is not installed.
    """
    members = read_mapping(value, field)
    kind = required(members, "type", f"{field}.type")
    if kind == "Feature":
        field = f"{field}.geometry"
        members = read_mapping(required(read_mapping(value, field), "geometry", field), field)
        kind = required(members, "type", f"{field}.type")
    if kind not in _GEOMETRIES:
        raise InvalidArgument(
            f"{shown(kind)} is none of Polygon, MultiPolygon, Feature", field=f"{field}.type"
        )
    path = f"{field}.coordinates"
    coordinates = read_array(required(members, "coordinates", path), path)
    return _compiled(coordinates, path, is_single=kind == "Polygon")


def read_wkt(value: object, field: str) -> tuple[Ring, ...]:
    """Returns the rings of a POLYGON or MULTIPOLYGON; raises as `read_geojson`."""
    text = read_string(value, field)
    if len(text) > _WKT_CHARACTERS_MAX:
        raise InvalidArgument(f"has more than {_WKT_CHARACTERS_MAX:,} characters", field=field)
    text = text.strip()
    head = _HEAD.match(text)
    body = "" if head is None else text[head.end() :].strip()
    if head is None or not (body.startswith("(") or body.upper() == "EMPTY"):
        raise InvalidArgument(f"{shown(text)} is no POLYGON or MULTIPOLYGON", field=field)
    if not body.startswith("("):
        raise InvalidArgument("is empty", field=field)
    # As JSON: its reader checks brackets and commas.
    try:
        coordinates = json.loads("".join(_as_json(body, field)))
    except (ValueError, RecursionError):
        raise InvalidArgument("its brackets and commas do not fit together", field=field) from None
    return _compiled(coordinates, field, is_single=head[1].upper() == "POLYGON")


def _as_json(text: str, field: str) -> Iterator[str]:
    """Yields the brackets, commas and positions of WKT as JSON."""
    left = VERTICES_MAX
    for token in _TOKEN.findall(text):
        if token in _BRACKETS:
            yield _BRACKETS[token]
        elif token.strip():
            left -= 1
            check_count(0, left, field)
            numbers = token.split(maxsplit=4)
            if not 2 <= len(numbers) <= 4 or not all(map(_NUMBER.fullmatch, numbers)):
                raise InvalidArgument(f"{shown(token.strip())} is no position", field=field)
            values = list(map(float, numbers))
            if not all(map(math.isfinite, values)):
                raise InvalidArgument(f"{shown(token.strip())} is no position", field=field)
            # JSON has no `.5`, `5.` or `+5`.
            yield f"[{','.join(map(repr, values))}]"


def _compiled(coordinates: Sequence[Any], field: str, *, is_single: bool) -> tuple[Ring, ...]:
    """Returns the rings of the coordinates of a Polygon (single) or a MultiPolygon."""
    if not coordinates:
        raise InvalidArgument("is empty", field=field)
    left = VERTICES_MAX
    polygons: list[list[Ring]] = []
    for i, written in enumerate([coordinates] if is_single else coordinates):
        path = field if is_single else f"{field}[{i}]"
        rings: list[Ring] = []
        for r, ring in enumerate(read_array(written, path)):
            positions = read_positions(ring, f"{path}[{r}]", left)
            left -= len(positions)
            if len(set(positions)) < 3:
                raise InvalidArgument("needs three different vertices", field=f"{path}[{r}]")
            rings.append(positions)
        if not rings:
            raise InvalidArgument("has no ring", field=path)
        polygons.append(rings)
    parts = [
        planar(rings[0], rings[1:], field if is_single else f"{field}[{i}]")
        for i, rings in enumerate(polygons)
    ]
    if len(parts) == 1:
        return rings_of(parts[0], field)
    together = load("shapely", field).MultiPolygon(
        [one for part in parts for one in polygons_of(part)]
    )
    refuse_invalid(together, field)
    return rings_of(together, field)
