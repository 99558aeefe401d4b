"""`sirocco replay` of texts whose words collide: two words with one xxh3-64 hash stay distinct.

Every word of every text and query collides with another word, and both are about as
frequent. Code that mistakes one for the other differs from the oracle, which compares words.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.collisions import FOUND, PAIRS
from tests.end_to_end.moving_vehicles import moving_vehicles
from tests.end_to_end.random_queries import random_queries_of_all_kinds
from tests.end_to_end.replayed import agree, replay, write_lines

SEED = 20261125
SHAPE = ("--slots", 6, "--leaves", 18)
PAIRED = (*PAIRS[:9], ("fire", FOUND["fire"]))


def _objects(count: int) -> list[dict[str, Any]]:
    """Returns vehicles whose texts have two to five words of `TWINS`, the first ones most often."""
    dice = random.Random(SEED)
    words = [word for pair in PAIRED for word in pair]
    weights = [1 / (1 + rank // 2) for rank in range(len(words))]
    objects = moving_vehicles(count, SEED)
    for one in objects:
        one["text"] = " ".join(dice.choices(words, weights, k=dice.randint(2, 5)))
    return objects


@pytest.mark.parametrize("scheme", ["qt-tree", "kdt-tree", "text-frequency"])
def test_queries_of_all_kinds_distinguish_colliding_words(tmp_path: Path, scheme: str) -> None:
    objects = _objects(1_500)
    queries = random_queries_of_all_kinds(objects, 270, SEED, track="vehicle")
    write_lines(tmp_path / "objects", objects)
    write_lines(tmp_path / "queries", queries)
    sample = write_lines(tmp_path / "sample", objects[:500])
    done = replay(tmp_path, 3, "--mergers", 2, "--scheme", scheme, "--sample", sample, *SHAPE)
    agree(done, objects, queries, seed=SEED)
