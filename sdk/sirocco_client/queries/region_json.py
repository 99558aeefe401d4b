"""Regions in the public JSON form.

A server knows rectangles, circles and polygons. All other forms are compiled to these here, so that
a query means the same to every server, of this version or an older one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sirocco_client.base.members import read_mapping, read_number, refuse_unknown, required
from sirocco_client.errors import InvalidArgument
from sirocco_client.queries.geo.buffer import read_buffer
from sirocco_client.queries.geo.cells import read_geohash, read_h3, read_tile
from sirocco_client.queries.geo.polygon_formats import read_geojson, read_wkt
from sirocco_client.queries.regions import Circle, Polygon, Rectangle, Region


def region_from_json(value: object) -> Region:
    """Returns the region of the public JSON form.

    `geojson`, `wkt`, `h3` and `buffer` need the extra `geo` of this package.

    Raises:
        InvalidArgument: It is not a region; `field` is the path of the wrong member.
        FailedPrecondition: A library of the extra is not installed.
    """
    members = read_mapping(value, "region")
    if len(members) != 1:
        raise InvalidArgument(f"must hold one of {', '.join(_READERS)}", field="region")
    ((shape, content),) = members.items()
    reader = _READERS.get(shape)
    if reader is None:
        raise InvalidArgument(
            f"unknown member; known are {', '.join(sorted(_READERS))}",
            field=f"region.{shape!s:.80}",
        )
    return reader(content, f"region.{shape}")


def with_plain_region(members: Any) -> Any:
    """Returns a query's JSON with its region as the server knows it: a rect, circle or polygon.

    A region of another form, or of several, is refused here, where all forms are known. Whatever is
    malformed otherwise is returned as it is: its reader reports it.

    Raises:
        InvalidArgument, FailedPrecondition: As `region_from_json`.
    """
    region = members.get("region") if isinstance(members, Mapping) else None
    if not isinstance(region, Mapping) or (len(region) == 1 and region.keys() <= _PLAIN):
        return members
    return {**members, "region": _plain(region_from_json(region))}


def _plain(region: Region) -> dict[str, Any]:
    if isinstance(region, Polygon):
        return {"polygon": [[list(vertex) for vertex in ring] for ring in region.rings]}
    shape, names = ("rect", _RECT) if isinstance(region, Rectangle) else ("circle", _CIRCLE)
    return {shape: {name: getattr(region, name) for name in names}}


_RECT = ("west", "south", "east", "north")
_CIRCLE = ("lon", "lat", "radius_m")


def _read_polygon(value: object, _: str) -> Polygon:
    return Polygon(
        tuple(
            tuple(_vertex(vertex, f"region.polygon[{i}][{j}]") for j, vertex in enumerate(ring))
            for i, ring in enumerate(_rings(value))
        )
    )


def _rings(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise InvalidArgument("must be an array of rings", field="region.polygon")
    for i, ring in enumerate(value):
        if not isinstance(ring, list | tuple):
            raise InvalidArgument("must be an array of points", field=f"region.polygon[{i}]")
    return list(value)


def _vertex(value: object, field: str) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise InvalidArgument("must be [lon, lat]", field=field)
    return read_number(value[0], field), read_number(value[1], field)


def _numbers(value: object, field: str, names: tuple[str, ...]) -> list[float]:
    members = read_mapping(value, field)
    refuse_unknown(members, frozenset(names), f"{field}.")
    return [
        read_number(required(members, name, f"{field}.{name}"), f"{field}.{name}") for name in names
    ]


_READERS: dict[str, Callable[[object, str], Region]] = {
    "rect": lambda value, field: Rectangle(*_numbers(value, field, _RECT)),
    "circle": lambda value, field: Circle(*_numbers(value, field, _CIRCLE)),
    "polygon": _read_polygon,
    "geojson": lambda value, field: Polygon(read_geojson(value, field)),
    "wkt": lambda value, field: Polygon(read_wkt(value, field)),
    "h3": lambda value, field: Polygon(read_h3(value, field)),
    "geohash": read_geohash,
    "tile": read_tile,
    "buffer": lambda value, field: Polygon(read_buffer(value, field)),
}

# Forms that servers know, and those that they do not.
_PLAIN = frozenset(("rect", "circle", "polygon"))
COMPILED = frozenset(_READERS) - _PLAIN
