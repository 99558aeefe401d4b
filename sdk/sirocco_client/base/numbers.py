"""Checks numbers given beside queries: times, counts, time limits, credit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from sirocco_client.base.members import shown
from sirocco_client.errors import InvalidArgument

# Epoch ms, or a datetime with a zone.
Moment: TypeAlias = int | datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

# Largest |time|: 100 million days around 1970, as for objects.
TIME_MS_MAX = 8_640_000_000_000_000

# A year: longer waits are a mistake, and gRPC's range ends not far beyond.
TIMEOUT_S_MAX = 31_557_600.0

# A shorter time limit is over before a call begins.
TIMEOUT_S_MIN = 0.001

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
    if isinstance(value, datetime):
        value = datetime_ms(value, field)
    return None if value is None else read_whole(value, field, -TIME_MS_MAX, TIME_MS_MAX)


def datetime_ms(value: datetime, field: str) -> int:
    """Returns epoch ms; fractions of a millisecond are cut off.

    Raises:
        InvalidArgument: It has no zone: then it could be any of 26 hours.
    """
    if value.tzinfo is None:
        raise InvalidArgument("has no zone, such as datetime.UTC", field=field)
    return (value - _EPOCH) // _MILLISECOND


def read_real(value: object, field: str, least: float, most: float) -> float:
    """Returns a number.

    Raises:
        InvalidArgument: It is not a number, not finite, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(f"{shown(value)} is no number", field=field)
    # Not the other way round: nothing compares with "not a number".
    if not least <= value <= most:
        raise InvalidArgument(f"{shown(value)} is not in [{least:.10g}, {most:.10g}]", field=field)
    return float(value)


def read_seconds(value: object, field: str) -> float:
    """Returns the time limit of a call, seconds; raises as `read_real`."""
    return read_real(value, field, TIMEOUT_S_MIN, TIMEOUT_S_MAX)


def read_wait_s(value: object, field: str) -> float | None:
    """Returns how long to wait, seconds; 0 is not at all, None is without a limit.

    Raises:
        InvalidArgument: It is not such a number.
    """
    return None if value is None else read_real(value, field, 0.0, TIMEOUT_S_MAX)
