"""Arrivals, durations, lifetimes, windows and steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def arrivals_ms(objects: Sequence[Mapping[str, Any]]) -> list[int]:
    """Returns the arrival of each object where arrivals follow the objects' own times."""
    arrivals: list[int] = []
    for one in objects:
        before = arrivals[-1] if arrivals else None
        ts = one.get("ts")
        if ts is None:
            assert before is not None, "the first object has no time"
            ts = before
        arrivals.append(int(ts) if before is None else max(int(ts), before))
    return arrivals


def duration_ms(text: str) -> int:
    """Returns the milliseconds of a duration."""
    digits = text.rstrip("msdh")
    return int(digits) * _UNITS_MS[text[len(digits) :]]


def steps_ms(
    query: Mapping[str, Any], start_ms: int, newest_ms: int, default: str | None = None
) -> Iterator[int]:
    """Yields the times at which a continuous query is evaluated.

    Args:
        query: Its JSON members.
        start_ms: When its lifetime began.
        newest_ms: The newest arrival.
        default: The step of a query without one.
    """
    step_ms = duration_ms(query.get("step", default))
    last_ms = newest_ms
    if "ttl" in query:
        last_ms = min(last_ms, start_ms + duration_ms(query["ttl"]))
    yield from range(start_ms + step_ms, last_ms + 1, step_ms)
