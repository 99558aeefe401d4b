"""Reads every number on the command line outside queries.

Each function returns a `type` for argparse, whose errors name the option and the bounds.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable

from sirocco.model.durations import parse_duration_ms
from sirocco.model.errors import InvalidArgument

# Bounds of the wire's integers.
INTEGER_LEAST, INTEGER_GREATEST = -(1 << 63), (1 << 63) - 1

# Processes, slots and leaves.
COUNT_GREATEST = 65_536

# A call longer than a week is a mistake.
SECONDS_GREATEST = 7 * 86_400.0

# Slower than one in a quarter of an hour is not a rate; no machine is faster than the maximum.
RATE_LEAST, RATE_GREATEST = 0.001, 1e9

# More digits than any bound needs; for very long numbers `int` raises an error text of its own.
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)


def whole(least: int = INTEGER_LEAST, greatest: int = INTEGER_GREATEST) -> Callable[[str], int]:
    """Returns a reader of whole numbers within bounds, both included."""

    def read(text: str) -> int:
        value = int(text) if _WHOLE.fullmatch(text) else None
        if value is None or not least <= value <= greatest:
            raise argparse.ArgumentTypeError(
                f"{text!r:.60} is no whole number from {least} to {greatest}"
            )
        return value

    return read


def real(least: float, greatest: float) -> Callable[[str], float]:
    """Returns a reader of numbers within bounds, both included."""

    def read(text: str) -> float:
        value = _finite(text)
        if value is None or not least <= value <= greatest:
            raise argparse.ArgumentTypeError(
                f"{text!r:.60} is no number from {least:g} to {greatest:g}"
            )
        return value

    return read


def finite(text: str) -> float:
    """Reads a number of a query; the query's own rules check its bounds."""
    value = _finite(text)
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r:.60} is no number")
    return value


def _finite(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def duration_ms(text: str) -> int | None:
    """Reads a duration such as 1h; `unlimited` is None."""
    if text == "unlimited":
        return None
    try:
        return parse_duration_ms(text, "")
    except InvalidArgument as error:
        raise argparse.ArgumentTypeError(f"{error.message}, or unlimited") from None


count = whole(1, COUNT_GREATEST)
"""Reads a number of processes, slots or leaves."""

at_least_one = whole(1)
"""Reads a number of things that can be any but none."""

epoch_ms = whole()
"""Reads a time in epoch milliseconds."""

rate = real(RATE_LEAST, RATE_GREATEST)
"""Reads a number of things a second."""

seconds = real(0.001, SECONDS_GREATEST)
"""Reads a length of time in seconds."""
