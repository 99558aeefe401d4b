"""Waits of tests: on conditions, never for a fixed time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

# Far longer than any wait that succeeds, so that only real failures time out.
WAIT_S = 300.0


def eventually(condition: Callable[[], Any], what: object = "") -> Any:
    """Returns the condition's value once it is true.

    Raises:
        AssertionError: It never was; the message names `what`.
    """
    deadline_s = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"never came to hold: {what}"
        time.sleep(0.002)
    return found


async def until(condition: Callable[[], Any], what: object = "") -> Any:
    """As `eventually`, for a condition that other tasks of the loop make true."""
    deadline_s = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"never came to hold: {what}"
        await asyncio.sleep(0.002)
    return found
