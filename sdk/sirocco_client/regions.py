"""Regions as typed values, with their message and JSON forms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from sirocco_api.v1 import query_pb2 as pb

from sirocco_client.errors import InvalidArgument
from sirocco_client.members import read_mapping, read_number, refuse_unknown, required


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Closed; degrees. If `west` is greater than `east`, it crosses the antimeridian."""

    west: float
    south: float
    east: float
    north: float


@dataclass(frozen=True, slots=True)
class Circle:
    """Everything within a great-circle distance of a point."""

    lon: float
    lat: float
    radius_m: float


@dataclass(frozen=True, slots=True)
class Polygon:
    """Rings of (lon, lat), even-odd: the outer one and its holes, closed or not."""

    rings: tuple[tuple[tuple[float, float], ...], ...]


Region: TypeAlias = Rectangle | Circle | Polygon


def write_region(message: pb.Region, region: Region) -> None:
    """Fills the message of a region.

    Raises:
        InvalidArgument: It is not a region; `field` names the wrong member.
    """
    if isinstance(region, Rectangle):
        rect = message.rect
        rect.west = read_number(region.west, "region.rect.west")
        rect.south = read_number(region.south, "region.rect.south")
        rect.east = read_number(region.east, "region.rect.east")
        rect.north = read_number(region.north, "region.rect.north")
    elif isinstance(region, Circle):
        for name in ("lon", "lat", "radius_m"):
            value = read_number(getattr(region, name), f"region.circle.{name}")
            setattr(message.circle, name, value)
    elif isinstance(region, Polygon):
        message.polygon.SetInParent()
        for i, ring in enumerate(region.rings):
            coordinates = message.polygon.rings.add().coordinates
            for j, vertex in enumerate(ring):
                field = f"region.polygon[{i}][{j}]"
                if not isinstance(vertex, Sequence) or len(vertex) != 2:
                    raise InvalidArgument("must be a pair of lon and lat", field=field)
                coordinates.extend(read_number(part, field) for part in vertex)
    else:
        raise InvalidArgument(f"{type(region).__name__} is no region", field="region")


def read_region(message: pb.Region) -> Region | None:
    """Returns the region of a message, None if it has none."""
    shape = message.WhichOneof("shape")
    if shape == "rect":
        rect = message.rect
        return Rectangle(rect.west, rect.south, rect.east, rect.north)
    if shape == "circle":
        return Circle(message.circle.lon, message.circle.lat, message.circle.radius_m)
    if shape == "polygon":
        return Polygon(
            tuple(
                tuple(zip(ring.coordinates[::2], ring.coordinates[1::2], strict=True))
                for ring in message.polygon.rings
            )
        )
    return None


def region_from_json(value: object) -> Region:
    """Returns the region of the public JSON form.

    Raises:
        InvalidArgument: It is not a region; `field` is the path of the wrong member.
    """
    members = read_mapping(value, "region")
    if len(members) != 1:
        raise InvalidArgument("must hold one of rect, circle, polygon", field="region")
    (shape,) = members
    if shape == "rect":
        return Rectangle(*_numbers(members[shape], "region.rect", "west south east north"))
    if shape == "circle":
        return Circle(*_numbers(members[shape], "region.circle", "lon lat radius_m"))
    if shape == "polygon":
        return Polygon(
            tuple(
                tuple(_vertex(vertex, f"region.polygon[{i}][{j}]") for j, vertex in enumerate(ring))
                for i, ring in enumerate(_rings(members[shape]))
            )
        )
    raise InvalidArgument(
        "unknown member; known are circle, polygon, rect", field=f"region.{shape!s:.80}"
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


def _numbers(value: object, field: str, names: str) -> list[float]:
    members = read_mapping(value, field)
    refuse_unknown(members, frozenset(names.split()), f"{field}.")
    return [
        read_number(required(members, name, f"{field}.{name}"), f"{field}.{name}")
        for name in names.split()
    ]
