"""SWARM's statistics, compared with counting all objects and queries anew."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sirocco.schemes.builders.swarm_split import best_split
from sirocco.schemes.workload.spatial_grid import even_grid
from sirocco.schemes.workload.swarm_statistics import KEPT_SHARE, no_statistics

SEEDS = st.integers(0, 2**32 - 1)


class Raw:
    """The oracle: keeps every object and query of a leaf, and counts on request."""

    def __init__(self, kept_share):
        self.kept_share = kept_share
        self.objects = []  # (column, row, round)
        self.queries = []  # (x0, y0, x1, y1, round)
        self.arrived = []  # (round, columns, rows) of everything, also what left
        self.round = 0

    def price(self, x0, y0, x1, y1):
        """Returns N, Q and R of the cells from (x0, y0) up to, without, (x1, y1), after a round."""
        now = self.round - 1
        objects = sum(
            self.kept_share ** (now - when)
            for column, row, when in self.objects
            if x0 <= column < x1 and y0 <= row < y1
        )
        queries = sum(self._overlaps(query, x0, y0, x1, y1) for query in self.queries)
        recent = sum(
            when == now and self._overlaps(span, x0, y0, x1, y1) for *span, when in self.arrived
        )
        return objects, queries, recent

    @staticmethod
    def _overlaps(span, x0, y0, x1, y1):
        return span[0] < x1 and span[2] >= x0 and span[1] < y1 and span[3] >= y0


def random_leaf(rng, kept_share=KEPT_SHARE):
    """Returns statistics and oracle after some rounds of arrivals and departures."""
    columns, rows = int(rng.integers(1, 8)), int(rng.integers(1, 8))
    grid = even_grid(16, 16)
    x0, y0 = int(rng.integers(0, 16 - columns + 1)), int(rng.integers(0, 16 - rows + 1))
    leaf_grid = grid.within(grid.box(x0, y0, x0 + columns, y0 + rows))
    west, south, east, north = grid.box(x0, y0, x0 + columns, y0 + rows)
    raw, statistics = Raw(kept_share), no_statistics(columns, rows)
    held = []
    for _ in range(int(rng.integers(1, 5))):
        count = int(rng.integers(0, 15))
        lon, lat = rng.uniform(west, east, count), rng.uniform(south, north, count)
        statistics = statistics.with_objects(leaf_grid, lon, lat)
        column = ((lon - west) // 22.5).astype(np.int64)
        row = ((lat - south) // 11.25).astype(np.int64)
        raw.objects += [(x, y, raw.round) for x, y in zip(column, row, strict=True)]
        raw.arrived += [(x, y, x, y, raw.round) for x, y in zip(column, row, strict=True)]
        corner = rng.uniform((-180, -90), (180, 90), (int(rng.integers(0, 10)), 2))
        boxes = np.concatenate([corner, corner + rng.uniform(0, 90, corner.shape)], 1)
        boxes = np.clip(boxes, (-180, -90, -180, -90), (180, 90, 180, 90))
        statistics = statistics.with_queries(leaf_grid, boxes)
        for box in boxes:
            span = span_of(box, west, south, columns, rows)
            if span is not None:
                raw.queries.append(span)
                raw.arrived.append((*span, raw.round))
                held.append((span, box))
        for _ in range(int(rng.integers(0, len(held) // 2 + 1))):
            span, box = held.pop(int(rng.integers(len(held))))
            raw.queries.remove(span)
            statistics = statistics.without_queries(leaf_grid, box[None])
        statistics = statistics.after_round(kept_share)
        raw.round += 1
    return statistics, raw, columns, rows


def span_of(box, west, south, columns, rows):
    x0, x1 = (int((box[side] - west) // 22.5) for side in (0, 2))
    y0, y1 = (int((box[side] - south) // 11.25) for side in (1, 3))
    # Boxes that end on the border of the world belong to its last cells.
    x1 -= box[2] == 180.0
    y1 -= box[3] == 90.0
    if x1 < 0 or y1 < 0 or x0 >= columns or y0 >= rows:
        return None
    return max(x0, 0), max(y0, 0), min(x1, columns - 1), min(y1, rows - 1)


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_the_whole_and_both_parts_of_every_cut_are_priced_exactly(seed):
    rng = np.random.default_rng(seed)
    statistics, raw, columns, rows = random_leaf(rng, float(rng.choice([KEPT_SHARE, 1.0])))
    whole = statistics.objects, statistics.queries, statistics.recent
    assert whole == raw.price(0, 0, columns, rows), f"seed {seed}"
    for axis, cells in ((statistics.columns, columns), (statistics.rows, rows)):
        for cut in range(cells - 1):
            at = cut + 1
            boxes = ((0, 0, at, rows), (at, 0, columns, rows))
            if axis is statistics.rows:
                boxes = ((0, 0, columns, at), (0, at, columns, rows))
            expected = [float(np.prod(raw.price(*box))) for box in boxes]
            assert list(axis.part_numerators_at(cut)) == expected, f"seed {seed}, cut {cut}"


@settings(max_examples=80, deadline=None)
@given(SEEDS)
def test_cumulative_numbers_sum_all_cells_up_to_each(seed):
    """4.2.1, Row 3 of Figure 5: objects in the first three rows, arrivals in the second."""
    rng = np.random.default_rng(seed)
    statistics, raw, columns, rows = random_leaf(rng)
    for i in range(columns):
        objects, queries, recent = raw.price(0, 0, i + 1, rows)
        assert statistics.columns.objects[i] == objects, f"seed {seed}"
        assert statistics.columns.queries[i] == queries, f"seed {seed}"
        assert statistics.columns.recent[i] == recent, f"seed {seed}"
        spans = sum(x0 < i <= x1 for x0, _, x1, _ in raw.queries)
        assert statistics.columns.spans[i] == spans, f"seed {seed}"
        now = raw.round - 1
        spans = sum(x0 < i <= x1 for x0, _, x1, _, when in raw.arrived if when == now)
        assert statistics.columns.recent_spans[i] == spans, f"seed {seed}"


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_the_binary_search_finds_the_split_of_least_difference(seed):
    rng = np.random.default_rng(seed)
    statistics, _raw, columns, rows = random_leaf(rng)
    total = float(rng.integers(0, 3) * 50)
    own = statistics.cost(total)
    dearest = own + float(rng.integers(0, 3)) * rng.random() * own
    cheapest = float(rng.random()) * dearest
    every = []
    for axis in (statistics.columns, statistics.rows):
        for before, behind in map(axis.part_numerators_at, range(len(axis.objects) - 1)):
            parts = (before / total, behind / total) if total else (0.0, 0.0)
            every += [
                (dearest - own + stays) - (cheapest + moves)
                for moves, stays in (parts, parts[::-1])
            ]
    split = best_split(statistics, dearest, cheapest, total)
    if not every:
        assert (columns, rows) == (1, 1)
        assert split is None
        return
    assert split is not None
    least = min(every, key=abs)
    assert abs(split.difference) == pytest.approx(abs(least), abs=1e-9), f"seed {seed}"
    axis = (statistics.columns, statistics.rows)[split.axis]
    shares = [part / total if total else 0.0 for part in axis.part_numerators_at(split.at - 1)]
    moves, stays = shares if split.moves_first else shares[::-1]
    reported = (dearest - own + stays) - (cheapest + moves)
    assert reported == pytest.approx(split.difference, abs=1e-9), f"seed {seed}"


def test_each_split_is_found_with_few_looks(monkeypatch):
    """4.3.2: four binary searches, not a look at each of 2 x 999 splits."""
    grid = even_grid(1000, 1000)
    rng = np.random.default_rng(4)
    statistics = no_statistics(1000, 1000)
    statistics = statistics.with_objects(
        grid, rng.uniform(-180, 180, 5000), rng.normal(0, 20, 5000).clip(-90, 90)
    )
    corner = rng.uniform((-180, -90), (170, 80), (900, 2))
    statistics = statistics.with_queries(grid, np.concatenate([corner, corner + 5], 1))
    statistics = statistics.after_round()
    looks = []
    kind = type(statistics.columns)
    original = kind.part_numerators_at

    def count(self, cut):
        looks.append(cut)
        return original(self, cut)

    monkeypatch.setattr(kind, "part_numerators_at", count)
    own = statistics.cost(5900)
    split = best_split(statistics, own, 0.0, 5900)
    assert split is not None
    assert abs(split.difference) < 0.05 * own
    assert len(looks) <= 4 * (10 + 4)


def test_collectors_change_nothing_until_the_round_ends():
    grid = even_grid(4, 4)
    before = no_statistics(4, 4)
    after = before.with_objects(grid, np.array([1.0]), np.array([1.0]))
    after = after.with_queries(grid, np.array([[0.0, 0.0, 100.0, 50.0]]))
    assert (after.objects, after.queries, after.recent, after.numerator) == (0, 0, 0, 0)
    assert before.columns.new_objects.sum() == 0
    assert after.columns.new_objects.tolist() == [0, 0, 1, 0]
    ended = after.after_round()
    assert (ended.objects, ended.queries, ended.recent) == (1, 1, 2)
    assert ended.numerator == 2
    assert not ended.columns.new_objects.any()
    assert not ended.rows.new_spans.any()
