"""One seed of a whole run of tests, from which each random test draws its own.

`SIROCCO_TEST_SEED` repeats a run; without it a new one is chosen, and printed at the start.
"""

from __future__ import annotations

import hashlib
import os
import secrets

VARIABLE = "SIROCCO_TEST_SEED"

# How often the running test has drawn, by its name: only the newest is kept.
_draws: dict[str, int] = {}


def choose() -> str:
    """Returns the seed of this run; worker processes of the run inherit it."""
    return os.environ.setdefault(VARIABLE, str(secrets.randbelow(1 << 32)))


def drawn_seed() -> int:
    """Returns the next seed of the running test: of 32 bits, by the run's seed and its name.

    A test that runs alone draws what it drew among all others.
    """
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    number = _draws.get(test, 0)
    _draws.clear()
    _draws[test] = number + 1
    digest = hashlib.sha256(f"{choose()}/{test}/{number}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
