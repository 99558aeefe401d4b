"""Scores of ranked lists, to 1e-9, in the order of their rounded values."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from sirocco.model.query import RankedQuery, Weights
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.search.ranked_merge import Candidates, best
from tests.support.values import columns_of


@pytest.mark.parametrize("radius_m", [400_000.0, 800_000.0, 2_000_000.0])
def test_scores_in_the_middle_between_two_are_rounded_by_their_value(radius_m: float) -> None:
    """With such a radius every other whole millimetre gives such a score."""
    count = 2_000
    distances_m = np.random.default_rng(5).integers(0, int(radius_m * 1_000), count) / 1_000
    found = candidates(distances_m, np.zeros(count, np.int64))
    query = query_of(radius_m, count, Weights(0.0, 1.0, 0.0))
    rows, scores = best(query, 0, found)
    exact = [round(1 - each / radius_m, 9) for each in distances_m.tolist()]
    assert scores.tolist() == [exact[row] for row in rows.tolist()]
    assert rows.tolist() == sorted(range(count), key=lambda row: (-exact[row], row))


def test_scores_of_objects_far_ahead_of_the_clock_are_finite() -> None:
    arrivals_ms = np.array([1_000, 1_001, 1_002, 1_020, 1_022, 5_000_000], np.int64)
    found = candidates(np.zeros(6), arrivals_ms)
    rows, scores = best(query_of(10.0, 6, Weights(0.0, 0.0, 1.0)), 1_001, found)
    assert rows.tolist() == [4, 5, 3, 2, 1, 0]
    assert scores.tolist() == [2.0**20, 2.0**20, 2.0**19, 2.0, 1.0, 0.5]


def candidates(distances_m: NDArray[np.float64], arrivals_ms: NDArray[np.int64]) -> Candidates:
    count = len(distances_m)
    columns = columns_of([{"id": i, "lon": 0.0, "lat": 0.0, "text": "light"} for i in range(count)])
    events = EventColumns(np.ones(count, np.uint64), np.arange(count, dtype=np.uint64), arrivals_ms)
    ones = np.ones(count, np.uint32)
    return Candidates(
        slot=0,
        total=count,
        tokens=count,
        holders=np.array([count], np.uint64),
        objects=columns,
        events=events,
        lengths=ones,
        distances_m=distances_m,
        frequencies=ones[:, None].astype(np.uint16),
    )


def query_of(radius_m: float, k: int, weights: Weights) -> RankedQuery:
    return RankedQuery(
        id="q",
        mode="snapshot",
        lon=0.0,
        lat=0.0,
        radius_m=radius_m,
        k=k,
        keywords=("light",),
        weights=weights,
        half_life_ms=1,
    )
