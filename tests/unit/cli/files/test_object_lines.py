"""Lines of published objects."""

from __future__ import annotations

import random

import numpy as np

from sirocco.cli.files.object_lines import ObjectLines


def test_every_object_finds_its_line() -> None:
    seed = 20261121
    dice = random.Random(seed)
    lines = sorted(dice.sample(range(1, 4_000), 3_000))
    known = ObjectLines()
    rest = lines
    while rest:
        count = dice.randint(0, 400)
        first = known.add(np.array(rest[:count], np.int64))
        assert first == len(lines) - len(rest) + 1
        rest = rest[count:]
    assert known.count == 3_000
    assert [known.line_of(i) for i in range(1, 3_001)] == lines, f"seed {seed}"


def test_neighbouring_lines_are_one_run() -> None:
    known = ObjectLines()
    for start in range(1, 10_001, 1_000):
        known.add(np.arange(start, start + 1_000))
    assert known.line_of(1) == 1
    assert known.line_of(10_000) == 10_000
    assert len(known._first_numbers) == 1


def test_objects_may_share_a_line_or_take_several() -> None:
    known = ObjectLines()
    lines = [1, 1, 1, 4, 7, 10, 10, 11, 12, 40]
    for part in (lines[:2], lines[2:5], lines[5:]):
        known.add(np.array(part, np.int64))
    assert [known.line_of(i) for i in range(1, 11)] == lines
    one = ObjectLines()
    for _ in range(10):
        one.add(np.full(1_000, 1))
    assert len(one._first_numbers) <= 2
