"""The promises hold under faults: small worlds, each from a seed, checked by brute force."""

from __future__ import annotations

import pytest

from tests.simulation.cluster import simulate
from tests.simulation.faults import PROFILES

# For each profile: enough for what breaks at once. Campaigns run thousands (`make sim`).
SEEDS = 2

# Of these one seed runs twice: a world has to repeat exactly.
REPEATED = frozenset({"storm", "searching", "plans", "torn"})


@pytest.mark.parametrize("profile", PROFILES)
def test_promises_hold(profile: str) -> None:
    for seed in range(SEEDS):
        report = simulate(seed, profile)
        if seed == 1 and profile in REPEATED:
            assert simulate(seed, profile) == report


def test_some_profiles_repeat() -> None:
    assert PROFILES.keys() >= REPEATED
