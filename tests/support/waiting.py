"""Waits of tests: on conditions, never for a time that ought to be enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

# Far longer than anything takes, so that only what never comes fails.
WAIT_S = 60.0


def eventually(condition: Callable[[], Any], what: object = "") -> Any:
    """Returns the condition's value once it is true.

    Raises:
        AssertionError: It never was; `what` is said then.
    """
    deadline_s = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"never came to hold: {what}"
        time.sleep(0.002)
    return found
