"""Checks numbers given beside queries: times, counts, time limits, credit."""

from __future__ import annotations

import math

from sirocco_client.errors import InvalidArgument
from sirocco_client.members import shown

# Largest |time|: 100 million days around 1970, as for objects.
TIME_MS_MAX = 8_640_000_000_000_000

# A year: longer waits are a mistake, and gRPC's range ends not far beyond.
TIMEOUT_S_MAX = 31_557_600.0

# Largest credit that a server gives; more makes no difference.
CREDIT_MAX = 1 << 40


def read_whole(value: object, field: str, least: int, most: int) -> int:
    """Returns a whole number.

    Raises:
        InvalidArgument: It is not a whole number, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{shown(value)} is no whole number", field=field)
    if not least <= value <= most:
        raise InvalidArgument(f"{shown(value)} is not in [{least}, {most}]", field=field)
    return value


def read_time_ms(value: object, field: str) -> int | None:
    """Returns a moment, epoch ms, None if none is given; raises as `read_whole`."""
    return None if value is None else read_whole(value, field, -TIME_MS_MAX, TIME_MS_MAX)


def read_seconds(value: object, field: str) -> float:
    """Returns a time limit, seconds.

    Raises:
        InvalidArgument: It is not a number, negative, not finite, or longer than a year.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{shown(value)} is no number of seconds", field=field)
    if not (value <= TIMEOUT_S_MAX and value >= 0) or math.isnan(value):
        raise InvalidArgument(f"{shown(value)} is not in [0, {TIMEOUT_S_MAX:.0f}]", field=field)
    return float(value)
