"""What the steps of standing queries count as, before they are let in."""

from __future__ import annotations

from typing import Any

import pytest

from sirocco.model.query import parse_query
from sirocco.model.quotas.step_load import step_load

TERMS: dict[str, Any] = {"kind": "terms", "k": 100, "window": "10h", "step": "10s"}
RANKED: dict[str, Any] = {
    "kind": "ranked",
    "point": {"lon": 2.35, "lat": 48.85},
    "k": 100,
    "keywords": ["coffee", "museum"],
    "radius_m": 3_000,
    "window": "10h",
}


@pytest.mark.parametrize(
    ("members", "load"),
    [
        (TERMS, 6.2),
        (TERMS | {"step": "100ms"}, 620),
        (TERMS | {"window": "1m"}, 0.21),
        (TERMS | {"k": 10_000}, 16.1),
        (TERMS | {"text": "fire"}, 6.2),
        (TERMS | {"text": "(fire OR smoke) (storm OR flood)"}, 24.2),
        (RANKED, 12.2),
        (RANKED | {"keywords": ["coffee"]}, 6.2),
        (RANKED | {"keywords": [f"word{number}" for number in range(16)]}, 192.2),
        ({"kind": "range", "text": "fire"}, 0),
        ({"kind": "knn", "point": {"lon": 0, "lat": 0}, "k": 3}, 0),
    ],
)
def test_windows_lists_and_alternatives_count(members: dict[str, Any], load: float) -> None:
    query = parse_query({"id": "q", "mode": "continuous", **members})
    assert step_load(query) == pytest.approx(load)
