"""The simulator finds planted bugs within a bounded number of seeds.

The whole suite looks for the bugs against the rules of docs/explanation/guarantees.md, in
checkpoints, searches and balancing; `make mutants` looks for all bugs, which takes some ten
minutes.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.balance_plants import BALANCE_PLANTS
from tests.simulation.checkpoint_plants import CHECKPOINT_PLANTS
from tests.simulation.cluster import simulate
from tests.simulation.end_plants import END_PLANTS
from tests.simulation.keyword_plants import HOME_PLANTS, KEYWORD_PLANTS
from tests.simulation.ledger import BrokenPromiseError
from tests.simulation.map_plants import MAP_PLANTS
from tests.simulation.plants import LIST_PLANTS, PLANTS, Plant
from tests.simulation.poison_plants import POISON_PLANTS
from tests.simulation.registry_plants import IDENTITY_PLANTS, REGISTRY_PLANTS
from tests.simulation.rule_plants import RULE_PLANTS
from tests.simulation.search_plants import SEARCH_PLANTS
from tests.simulation.summary_plants import SUMMARY_PLANTS
from tests.simulation.track_plants import TRACK_PLANTS

SEEDS_MAX = 200
WANTS_ALL = bool(os.environ.get("SIROCCO_MUTANTS"))


def _id(plant: Plant) -> str:
    return plant.name.replace(" ", "_")


@pytest.mark.parametrize(
    "plant",
    [
        *PLANTS,
        *RULE_PLANTS,
        *HOME_PLANTS,
        *CHECKPOINT_PLANTS,
        *SEARCH_PLANTS,
        *BALANCE_PLANTS,
        *POISON_PLANTS,
        *IDENTITY_PLANTS,
        *TRACK_PLANTS,
    ],
    ids=_id,
)
def test_a_planted_bug_is_found(plant: Plant) -> None:
    _find(plant)


@pytest.mark.skipif(not WANTS_ALL, reason="`make mutants` looks for these as well")
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "plant",
    [*LIST_PLANTS, *END_PLANTS, *KEYWORD_PLANTS, *MAP_PLANTS, *REGISTRY_PLANTS, *SUMMARY_PLANTS],
    ids=_id,
)
def test_a_planted_bug_that_shows_seldom_is_found(plant: Plant) -> None:
    _find(plant)


def _find(plant: Plant) -> None:
    with plant.planted():
        for seed in range(plant.first_seed, plant.first_seed + SEEDS_MAX):
            try:
                simulate(seed, plant.profile, plant.shell)
            except BrokenPromiseError as broken:
                if isinstance(broken.__cause__, TypeError | AttributeError):
                    pytest.fail(f"the plant does not fit the machine any more: {broken}")
                return
    pytest.fail(f"not found within {SEEDS_MAX} seeds under {plant.profile}: {plant.name}")
