"""Checks of columns, compared with the same checks in plain Python."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sirocco.kernels.base.wire_checks import (
    are_boxes,
    are_counts_of,
    are_rows_ascending,
    is_outside,
    widen_offsets,
)


@pytest.mark.parametrize("seed", range(50))
def test_offsets_are_widened_or_blamed(seed: int) -> None:
    rng = random.Random(seed)
    least = rng.randrange(3)
    offsets = [rng.choice([0, 0, 0, 1])]
    for _ in range(rng.randrange(12)):
        offsets.append(max(0, offsets[-1] + rng.choice([least, least, 1, 2, 3, -1])))
    faults = [0] if offsets[0] else []
    faults += [i for i in range(1, len(offsets)) if offsets[i] < offsets[i - 1] + least]
    out = np.empty(len(offsets), np.int64)
    found = widen_offsets(np.array(offsets, np.uint32), least, out)
    assert found == min(faults, default=-1), f"seed={seed}"
    if not faults:
        assert out.tolist() == offsets, f"seed={seed}"


def test_the_greatest_offsets_do_not_wrap() -> None:
    out = np.empty(3, np.int64)
    offsets = np.array([0, (1 << 32) - 1, (1 << 32) - 1], np.uint32)
    assert widen_offsets(offsets, 0, out) == -1
    assert out.tolist() == offsets.tolist()
    assert widen_offsets(offsets, 1, out) == 2


@pytest.mark.parametrize("bad", [180.1, -180.1, np.nan, np.inf, -np.inf])
def test_values_outside_are_found_wherever_they_stand(bad: float) -> None:
    for place in range(40):
        column = np.linspace(-180.0, 180.0, 40)
        assert not is_outside(column, -180.0, 180.0)
        column[place] = bad
        assert is_outside(column, -180.0, 180.0), place


def test_integers_are_compared_as_such() -> None:
    least, greatest = -(1 << 63), (1 << 63) - 1
    assert not is_outside(np.array([least, greatest]), least, greatest)
    assert is_outside(np.array([least, greatest]), least + 1, greatest)
    assert is_outside(np.array([least, greatest]), least, greatest - 1)
    assert is_outside(np.array([(1 << 32) - 1], np.uint32), 0, (1 << 32) - 2)
    assert is_outside(np.array([0], np.uint32), 0, -1)
    assert not is_outside(np.empty(0, np.uint32), 0, -1)


@pytest.mark.parametrize("seed", range(50))
def test_rows_ascend_without_repeats(seed: int) -> None:
    rng = random.Random(seed)
    rows = [sorted(rng.sample(range(20), rng.randrange(4))) for _ in range(6)]
    if rng.random() < 0.6:
        row = rng.choice(rows)
        row.insert(rng.randrange(len(row) + 1), rng.randrange(20))
    offsets = np.cumsum([0, *map(len, rows)])
    values = np.array([value for row in rows for value in row], np.uint64)
    want = all(row == sorted(set(row)) for row in rows)
    assert are_rows_ascending(values, offsets) == want, f"seed={seed}"


def test_boxes_of_the_world_alone_are_boxes() -> None:
    world = (-180.0, -90.0, 180.0, 90.0)
    assert are_boxes(np.array([world, (0.0, 0.0, 0.0, 0.0)]))
    assert are_boxes(np.empty((0, 4)))
    for place in range(4):
        for bad in (np.nan, np.inf, -np.inf, 181.0, -181.0):
            box = list(world)
            box[place] = bad
            assert not are_boxes(np.array([world, box])), box
    assert not are_boxes(np.array([(1.0, 0.0, 0.5, 1.0)]))
    assert not are_boxes(np.array([(0.0, 1.0, 1.0, 0.5)]))


@pytest.mark.parametrize("seed", range(50))
def test_counts_add_up_to_the_sums_of_their_rows(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        [rng.choice([1, 1, 2, 65_535]) for _ in range(rng.randrange(4))]
        for _ in range(rng.randrange(6))
    ]
    counts = np.array([count for row in rows for count in row], np.uint16)
    offsets = np.cumsum([0, *map(len, rows)])
    sums = np.array([sum(row) for row in rows], np.int32)
    assert are_counts_of(counts, offsets, sums), f"seed={seed}"
    if rows:
        wrong = sums.copy()
        wrong[rng.randrange(len(rows))] += rng.choice([-1, 1, 65_536])
        assert not are_counts_of(counts, offsets, wrong), f"seed={seed}"
    if len(counts):
        place = rng.randrange(len(counts))
        row = int(np.searchsorted(offsets, place, "right")) - 1
        sums[row] -= counts[place]
        counts[place] = 0
        assert not are_counts_of(counts, offsets, sums), f"seed={seed}"
