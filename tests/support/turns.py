"""Work in turns: what yields when others may go first, and has a result."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def result_of(turns: Generator[None, None, T]) -> tuple[T, int]:
    """Does the work; returns the result, and how often it let others go first."""
    count = 0
    while True:
        try:
            next(turns)
        except StopIteration as end:
            found: T = end.value
            return found, count
        count += 1
