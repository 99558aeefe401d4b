"""The promises hold under faults: small worlds, each from a seed, checked by brute force."""

from __future__ import annotations

import pytest

from tests.simulation.cluster import simulate
from tests.simulation.faults import PROFILES

# For each profile; `python -m tests.simulation --seeds FIRST:END` runs campaigns of many more.
SEEDS = 6


@pytest.mark.parametrize("profile", PROFILES)
def test_promises_hold(profile: str) -> None:
    for seed in range(SEEDS):
        simulate(seed, profile)


@pytest.mark.parametrize("profile", ["storm", "searching", "plans", "torn"])
def test_a_seed_repeats_exactly(profile: str) -> None:
    assert simulate(3, profile) == simulate(3, profile)
