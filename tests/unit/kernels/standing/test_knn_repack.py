"""Posting lists that are moved together keep their content."""

from __future__ import annotations

import random
from itertools import chain

import numpy as np
import pytest

from sirocco.index.standing.knn_table import KnnTable
from sirocco.kernels.base.blocks import END, FREE_UNITS
from sirocco.kernels.standing.pyramid import POSTING_WORDS

COUNT_MASK = 0x3FFFFFF
ROW_WORD = 6


def lists_of(table: KnnTable) -> dict[int, list[int]]:
    """Returns the rows of the postings under each key."""
    pairs = table.slots.reshape(-1, 2)
    postings = table.postings.reshape(-1, POSTING_WORDS)
    return {
        int(key): postings[int(value) >> 32 :][: int(value) & COUNT_MASK, ROW_WORD].tolist()
        for key, value in pairs[pairs[:, 1] != 0]
    }


def post(table: KnnTable, keys: list[int], rows: list[int]) -> None:
    templates = np.zeros((len(keys), POSTING_WORDS), np.int32)
    templates[:, ROW_WORD] = rows
    owners = np.arange(len(keys), dtype=np.int32)
    table.post(templates.ravel(), np.array(keys, np.uint64), owners)


@pytest.mark.parametrize("seed", range(3))
def test_repacked_lists_are_the_same(seed: int) -> None:
    """Long lists become short, are moved together, and grow again."""
    print(f"seed={seed}")
    rng = random.Random(seed)
    table = KnnTable(0, repacked_min=64)
    marks = np.ones(10_000, np.uint8)
    rows = list(range(2_000))
    post(table, [rng.randrange(5) + 1 for _ in rows], rows)
    end = int(table.blocks[END])
    for step in range(3):
        removed = [row for row in rows if rng.random() < 0.9]
        marks[removed] = 0
        table.unpost(np.array(sorted(lists_of(table)), np.uint64), marks)
        rows = sorted(set(rows) - set(removed))
        before = lists_of(table)
        assert sorted(chain(*before.values())) == rows
        table.repack()
        assert lists_of(table) == before
        assert table.blocks[END] < end
        assert table.blocks[FREE_UNITS] == 0
        fresh = list(range(2_000 + 600 * step, 2_600 + 600 * step))
        post(table, [rng.randrange(40) + 1 for _ in fresh], fresh)
        rows += fresh
        assert sorted(chain(*lists_of(table).values())) == rows
        end = int(table.blocks[END])
