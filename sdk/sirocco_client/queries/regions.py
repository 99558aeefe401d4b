"""Regions as typed values, with their message form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sirocco_api.v1 import query_pb2 as pb

from sirocco_client.base.members import read_number
from sirocco_client.errors import InvalidArgument


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
