"""Durations as people write them: an integer followed by ms, s, m, h or d."""

from __future__ import annotations

import re

from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS, Limits
from sirocco.model.members import shown

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
# 18 digits exceed any limit, and protect int() from endless input.
_DURATION = re.compile(r"([0-9]{1,18})(ms|s|m|h|d)", re.ASCII)


def parse_duration_ms(value: object, field: str, *, limits: Limits = DEFAULT_LIMITS) -> int:
    """Returns the milliseconds of a duration such as `72h`.

    Args:
        value: The member as read from JSON.
        field: Path of the member, for the error.
        limits: Holds the longest duration.

    Raises:
        InvalidArgument: Not a string of that form, negative or too long.
    """
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidArgument(
            f"{shown(value)} is no duration: an integer followed by ms, s, m, h or d", field=field
        )
    duration_ms = int(match[1]) * _UNITS_MS[match[2]]
    if duration_ms > limits.duration_ms:
        longest = format_duration(limits.duration_ms)
        raise InvalidArgument(f"{shown(value)} is longer than {longest}", field=field)
    return duration_ms


def format_duration(duration_ms: int) -> str:
    """Returns the shortest exact form, for example `3d` for 72 hours; inverse of parsing."""
    for unit, unit_ms in _UNITS_MS.items():
        if duration_ms and duration_ms % unit_ms == 0:
            return f"{duration_ms // unit_ms}{unit}"
    return "0ms"
