"""Positions, rings and numbers of regions from outside, checked before any work on them."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

from sirocco_client.base.members import read_number
from sirocco_client.errors import InvalidArgument

Position: TypeAlias = tuple[float, float]
Ring: TypeAlias = tuple[Position, ...]

# The server's limit for one polygon. Checked here before geometry is computed, and again for the
# result, so that the error names the member that the caller wrote.
VERTICES_MAX = 10_000


def read_array(value: object, field: str) -> list[Any] | tuple[Any, ...]:
    """Returns `value`, which must be an array."""
    if not isinstance(value, list | tuple):
        raise InvalidArgument("must be an array", field=field)
    return value


def read_within(value: object, field: str, least: float, greatest: float) -> float:
    """Returns `value`, which must be a number in [least, greatest]; -0.0 becomes 0.0."""
    number = read_number(value, field) + 0.0
    # Not the other way round: nothing compares with "not a number".
    if not least <= number <= greatest:
        raise InvalidArgument(f"{number!r} is outside [{least:g}, {greatest:g}]", field=field)
    return number


def read_position(value: object, field: str) -> Position:
    """Returns (lon, lat) of `[lon, lat]`; further numbers, such as a height, are left out."""
    if not isinstance(value, list | tuple) or not 2 <= len(value) <= 4:
        raise InvalidArgument("must be [lon, lat]", field=field)
    lon = read_within(value[0], f"{field}[0]", -180, 180)
    return lon, read_within(value[1], f"{field}[1]", -90, 90)


def read_positions(value: object, field: str, left: int) -> Ring:
    """Returns the positions of an array.

    Args:
        value: The array.
        field: Its path.
        left: How many positions it may have.

    Raises:
        InvalidArgument: It has more, or one of them is wrong.
    """
    positions = read_array(value, field)
    check_count(len(positions), left, field)
    return tuple(read_position(each, f"{field}[{i}]") for i, each in enumerate(positions))


def check_count(vertices: int, left: int, field: str) -> None:
    """Refuses more vertices than a region may have; `left` of them are not used yet."""
    if vertices > left:
        raise InvalidArgument(f"has more than {VERTICES_MAX:,} vertices", field=field)


def same_meridian(lon: float) -> float:
    """Returns a longitude of any turn within [-180, 180]."""
    return math.remainder(lon, 360.0)
