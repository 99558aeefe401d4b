"""The simulator finds what is broken on purpose, within a bounded number of seeds."""

from __future__ import annotations

import pytest

from tests.simulation.cluster import simulate
from tests.simulation.keyword_plants import KEYWORD_PLANTS
from tests.simulation.ledger import BrokenPromiseError
from tests.simulation.map_plants import MAP_PLANTS
from tests.simulation.plants import PLANTS, Plant

SEEDS_MAX = 120


@pytest.mark.parametrize(
    "plant",
    [*PLANTS, *KEYWORD_PLANTS, *MAP_PLANTS],
    ids=lambda plant: plant.name.replace(" ", "_"),
)
def test_a_planted_bug_is_found(plant: Plant) -> None:
    with plant.planted():
        for seed in range(SEEDS_MAX):
            try:
                simulate(seed, plant.profile, plant.shell)
            except BrokenPromiseError as broken:
                if isinstance(broken.__cause__, TypeError | AttributeError):
                    pytest.fail(f"the plant does not fit the machine any more: {broken}")
                return
    pytest.fail(f"not found within {SEEDS_MAX} seeds under {plant.profile}: {plant.name}")
