"""Durations as people write them: an integer followed by ms, s, m, h or d."""

from __future__ import annotations

import re
from datetime import timedelta

from sirocco_client.base.members import shown
from sirocco_client.errors import InvalidArgument

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# 18 digits exceed any server's limit and fit the wire's 64 bits.
_DURATION = re.compile(r"([0-9]{1,18})(ms|s|m|h|d)", re.ASCII)
_MILLISECOND = timedelta(milliseconds=1)
# Longer than anything that is stored.
_ALL_MS = (1 << 63) - 1


def read_duration_ms(value: object, field: str) -> int:
    """Returns the milliseconds of a text such as `72h`, or of a `timedelta`.

    Raises:
        InvalidArgument: Neither of them, negative, a fraction of a millisecond or beyond 64 bits.
    """
    if isinstance(value, timedelta):
        whole, rest = divmod(value, _MILLISECOND)
        if rest or whole < 0:
            raise InvalidArgument(f"{value} is no whole number of ms, from 0 on", field=field)
        return whole
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InvalidArgument(
            f"{shown(value)} is no duration: an integer followed by ms, s, m, h or d", field=field
        )
    duration_ms = int(match[1]) * _UNITS_MS[match[2]]
    if duration_ms >= 1 << 63:
        raise InvalidArgument(f"{shown(value)} is longer than a message can express", field=field)
    return duration_ms


def read_past_ms(value: object) -> int | None:
    """Returns how much of the past a registration covers, ms; `all` is everything stored.

    Raises:
        InvalidArgument: As `read_duration_ms`.
    """
    if value is None:
        return None
    return _ALL_MS if value == "all" else read_duration_ms(value, "past")
