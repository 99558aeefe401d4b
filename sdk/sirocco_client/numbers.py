"""The one reader of numbers that stand beside queries: times, counts, limits of time, credit."""

from __future__ import annotations

import math

from sirocco_client.errors import InvalidArgument
from sirocco_client.members import shown

# |time|: 100 million days around 1970, as for objects.
TIME_MS_MAX = 8_640_000_000_000_000

# A year: longer waits are a mistake, and gRPC cannot count much further.
TIMEOUT_S_MAX = 31_557_600.0

# What a server lets a subscriber have; more makes no difference.
CREDIT_MAX = 1 << 40


def read_whole(value: object, field: str, least: int, most: int) -> int:
    """Returns a whole number.

    Raises:
        InvalidArgument: It is none, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{shown(value)} is no whole number", field=field)
    if not least <= value <= most:
        raise InvalidArgument(f"{shown(value)} is not in [{least}, {most}]", field=field)
    return value


def read_time_ms(value: object, field: str) -> int | None:
    """Returns a moment, epoch ms, None where there is none; raises as `read_whole`."""
    return None if value is None else read_whole(value, field, -TIME_MS_MAX, TIME_MS_MAX)


def read_seconds(value: object, field: str) -> float:
    """Returns a limit of time.

    Raises:
        InvalidArgument: It is no number, negative, not finite, or longer than a year.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{shown(value)} is no number of seconds", field=field)
    if not (value <= TIMEOUT_S_MAX and value >= 0) or math.isnan(value):
        raise InvalidArgument(f"{shown(value)} is not in [0, {TIMEOUT_S_MAX:.0f}]", field=field)
    return float(value)
