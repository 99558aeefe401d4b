"""An index exports all that was inserted, also after many changes."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from sirocco.index.base.compile import take_queries
from sirocco.index.base.query_rows import NEVER_MS, QueryRows
from sirocco.index.standing.export import export_queries
from sirocco.index.standing.range_index import Grid, RangeIndex
from tests.support.range_oracle import PlainQuery, columns, pairs_of, random_object, random_query

VOCABULARY = 30
GRIDS = [Grid(), Grid(-10.0, -10.0, 30.0, 20.0, finest_level=8)]


def sorted_terms(offsets: np.ndarray, terms: np.ndarray) -> np.ndarray:
    """Returns the terms of each conjunction in ascending order."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    return terms[np.lexsort((terms, rows))]


def comparable(queries: QueryRows) -> dict[str, object]:
    form = {name: getattr(queries, name) for name in QueryRows.__slots__}
    form["pos_terms"] = sorted_terms(queries.pos_offsets, queries.pos_terms)
    form["neg_terms"] = sorted_terms(queries.neg_offsets, queries.neg_terms)
    return {name: (c.dtype, c.shape, c.tolist()) for name, c in form.items()}


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("seed", range(6))
def test_a_random_life_is_exported_and_rebuilt(grid: Grid, seed: int) -> None:
    rng = random.Random(seed)
    index = RangeIndex(grid)
    live: dict[int, PlainQuery] = {}
    position = 0
    for step in range(10):
        fresh = [random_query(rng, VOCABULARY) for _ in range(rng.randrange(0, 80))]
        rows = index.insert(columns(fresh), position)
        live |= dict(zip(rows.tolist(), fresh, strict=True))
        chosen = rng.sample(sorted(live), rng.randrange(len(live) + 1))
        want = columns([live[row] for row in chosen])
        got = export_queries(index, np.array(chosen, np.int32))
        assert comparable(got) == comparable(want), f"seed={seed} step={step}"

        position += 10
        removed = rng.sample(sorted(live), len(live) // 3)
        index.remove(np.array(removed, np.int32), position)
        if rng.random() < 0.7:
            # Their rows, blocks and term ids are assigned again by the next insertion.
            while index.reclaim(position):
                pass
        for row in removed:
            del live[row]

    rows = np.array(sorted(live), np.int32)
    again = RangeIndex(grid)
    new_rows = again.insert(export_queries(index, rows), position)
    old = dict(zip(new_rows.tolist(), rows.tolist(), strict=True))
    objects = [
        replace(random_object(rng, VOCABULARY, i, list(live.values())), position=position)
        for i in range(200)
    ]
    want_pairs = pairs_of(index, objects)
    got_pairs = pairs_of(again, objects)
    assert {(o, old[q]): n for (o, q), n in got_pairs.items()} == want_pairs, f"seed={seed}"
    assert want_pairs, f"seed={seed}"


def test_removed_queries_are_there_until_they_are_reclaimed() -> None:
    index = RangeIndex()
    queries = columns([PlainQuery([([10], [11])]), PlainQuery(expires_ms=5)])
    rows = index.insert(queries, 0)
    index.remove(rows[:1], 3)
    assert comparable(export_queries(index, rows)) == comparable(queries)


def test_order_repeats_and_nothing_at_all() -> None:
    index = RangeIndex()
    queries = columns([PlainQuery([([term], [])]) for term in range(10, 15)])
    rows = index.insert(queries, 0)
    wanted = np.array([4, 0, 0, 2])
    exported = export_queries(index, rows[wanted])
    assert comparable(exported) == comparable(take_queries(queries, wanted))
    assert len(export_queries(index, rows[:0])) == 0
    assert len(export_queries(RangeIndex(), rows[:0])) == 0


def test_columns_that_cannot_be_written_are_taken_in() -> None:
    rng = random.Random(5)
    queries = columns([random_query(rng, VOCABULARY) for _ in range(100)])
    frozen = {}
    for name in QueryRows.__slots__:
        column = getattr(queries, name)
        frozen[name] = np.frombuffer(column.tobytes(), column.dtype).reshape(column.shape)
    index = RangeIndex()
    rows = index.insert(QueryRows(**frozen), 0)
    exported = export_queries(index, rows)
    assert comparable(exported) == comparable(queries)
    assert (exported.expires_ms == NEVER_MS).any()
