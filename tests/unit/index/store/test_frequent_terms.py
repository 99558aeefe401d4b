"""Frequent terms from the counts of nodes, compared with counting one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from sirocco.index.base.compile import compile_queries
from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.frequent_terms import count_frequent, list_frequent
from sirocco.index.store.node_counts import node_counts
from sirocco.index.store.store import SlotStore, StoreLimits, StoreView
from sirocco.index.store.store_condition import (
    ALL_TIME,
    ANY_OBJECT,
    Bounds,
    Condition,
    compile_condition,
)
from sirocco.index.store.terms_search import count_terms
from sirocco.model.geometry import Circle, Polygon, Rectangle
from sirocco.model.objects import ObjectColumns
from sirocco.model.query import TermsQuery
from tests.support.seeds import drawn_seed

ROWS = 40_000
TERMS = 8


def rows_of(lon: np.ndarray, lat: np.ndarray, terms: np.ndarray, first_seq: int = 0) -> StoredRows:
    """Returns rows with texts of terms (i8[n, t], repeats within a row count once)."""
    n = len(lon)
    own = [np.unique(row) for row in terms]
    offsets = np.cumsum([0, *map(len, own)])
    numbers = np.concatenate(own)
    none = np.zeros(n + 1, np.int64)
    seqs = np.arange(first_seq, first_seq + n)
    # Spread over all hashes, and ascending within a row.
    hashes = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    rows = np.repeat(np.arange(n), np.diff(offsets))
    hashes = hashes[np.lexsort((hashes, rows))]
    return StoredRows(
        objects=ObjectColumns(
            ids=seqs.astype(np.uint64),
            names=np.empty(0, np.uint8),
            name_offsets=none,
            lon=lon,
            lat=lat,
            ts=seqs + 1_000,
            text=np.empty(0, np.uint8),
            text_offsets=none,
            attributes=np.empty(0, np.uint8),
            attribute_offsets=none,
        ),
        sessions=np.zeros(n, np.uint64),
        numbers=seqs.astype(np.uint64),
        arrivals_ms=1_000 + seqs,
        seqs=seqs,
        lengths=np.diff(offsets).astype(np.int32),
        term_offsets=offsets,
        terms=hashes,
        counts=np.ones(len(hashes), np.uint16),
    )


def random_rows(rng: np.random.Generator, skew: float, vocabulary: int) -> StoredRows:
    """Returns clusters whose words are common words and words of their own."""
    centres = rng.uniform(-60, 60, (6, 2))
    cluster = rng.integers(0, 6, ROWS)
    spread = rng.choice([0.0, 1.0, 6.0], ROWS)
    lon = centres[cluster, 0] + spread * rng.normal(size=ROWS)
    lat = centres[cluster, 1] + spread * rng.normal(size=ROWS)
    words = (rng.random((ROWS, TERMS)) ** skew * vocabulary).astype(np.int64)
    is_own = rng.random((ROWS, TERMS)) < 0.5
    words = np.where(is_own, words + vocabulary * (1 + cluster[:, None]), words)
    # A late word: frequent in some slices, rare in others.
    late = np.arange(ROWS)[:, None] > ROWS * 2 // 3
    words = np.where(late & (rng.random((ROWS, TERMS)) < 0.02), 7 * vocabulary, words)
    return rows_of(lon, lat.clip(-90, 90), words)


def stored(rows: StoredRows, limits: StoreLimits) -> StoreView:
    store = SlotStore(limits)
    store.append_rows(rows)
    while job := store.next_job():
        job.run()
        store.install(job)
    for slice_ in store.slices:
        # Small ones have counts, too.
        node_counts(slice_, rows_min=1)
    return store.view()


def counted(rows: StoredRows, is_in: np.ndarray) -> Counter[int]:
    offsets = rows.term_offsets.tolist()
    terms = rows.terms.tolist()
    found: Counter[int] = Counter()
    for row in np.flatnonzero(is_in).tolist():
        found.update(terms[offsets[row] : offsets[row + 1]])
    return found


def most_frequent(found: Counter[int], k: int) -> dict[int, int]:
    least = min((count for _, count in found.most_common(k)), default=0)
    return {term: count for term, count in found.items() if count >= least}


def condition_of(region: Rectangle | Circle | Polygon) -> Condition:
    return compile_condition(
        compile_queries([TermsQuery(id="q", mode="snapshot", k=1, region=region)], [0])
    )


def random_box(rng: np.random.Generator, rows: StoredRows) -> Rectangle:
    x, y = (float(v[rng.integers(0, ROWS)]) for v in (rows.objects.lon, rows.objects.lat))
    side = float(rng.choice([0.5, 3.0, 10.0, 40.0, 170.0]))
    return Rectangle(
        max(-180.0, x - side), max(-90.0, y - side), min(180.0, x + side), min(90.0, y + side)
    )


@pytest.mark.parametrize("trial", range(6))
def test_terms_by_nodes_are_those_by_rows(trial: int) -> None:
    seed = drawn_seed()
    print(f"seed {seed}, trial {trial}")
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, float(rng.choice([3.0, 6.0])), int(rng.choice([300, 3_000])))
    limits = StoreLimits(
        active_rows=int(rng.choice([7_000, 15_000, 39_000])), slices=int(rng.choice([1, 3, 8]))
    )
    view = stored(rows, limits)
    lon, lat = rows.objects.lon, rows.objects.lat
    by_nodes = 0
    for _ in range(12):
        box = random_box(rng, rows)
        is_in = (lon >= box.west) & (lon <= box.east) & (lat >= box.south) & (lat <= box.north)
        bounds = ALL_TIME
        if rng.random() < 0.5:
            begin, end = np.sort(rng.integers(0, ROWS, 2)).tolist()
            bounds = Bounds(1_000 + begin, 1_000 + end, int(rng.integers(1, 2 * ROWS)))
            seqs = np.arange(ROWS)
            is_in &= (seqs >= begin) & (seqs <= end) & (seqs < bounds.seq_before)
        k = int(rng.choice([1, 3, 10, 60]))
        wanted = most_frequent(counted(rows, is_in), k)
        condition = condition_of(box)
        frequent = count_frequent(view, condition, bounds, k)
        if frequent is not None:
            by_nodes += 1
            hashes, counts = frequent
            assert (np.diff(hashes.astype(object)) > 0).all()
            assert dict(zip(hashes.tolist(), counts.tolist(), strict=True)) == wanted
        either = count_terms(view, condition, bounds, k=k)
        reported = dict(zip(either.hashes.tolist(), either.counts.tolist(), strict=True))
        assert {term: reported[term] for term in wanted} == wanted
        assert frequent is None or reported == wanted
    assert by_nodes, "the counts of nodes were never used"


def test_regions_that_are_no_boxes() -> None:
    rng = np.random.default_rng(5)
    rows = random_rows(rng, 4.0, 2_000)
    view = stored(rows, StoreLimits(active_rows=15_000, slices=2))
    ring = ((-70.0, -70.0), (70.0, -70.0), (0.0, 70.0), (-70.0, -70.0))
    for region in (Circle(0.0, 0.0, 5_000_000.0), Polygon((ring,))):
        condition = condition_of(region)
        every = count_terms(view, condition)
        found = Counter(dict(zip(every.hashes.tolist(), every.counts.tolist(), strict=True)))
        frequent = count_frequent(view, condition, ALL_TIME, 10)
        assert frequent is not None
        assert dict(zip(*(c.tolist() for c in frequent), strict=True)) == most_frequent(found, 10)


def test_terms_of_about_equal_frequency_are_counted_one_by_one() -> None:
    rng = np.random.default_rng(6)
    words = rng.integers(0, 30_000, (ROWS, TERMS))
    rows = rows_of(rng.uniform(-50, 50, ROWS), rng.uniform(-50, 50, ROWS), words)
    view = stored(rows, StoreLimits(active_rows=39_000))
    assert count_frequent(view, ANY_OBJECT, ALL_TIME, 100) is None
    found = counted(rows, np.ones(ROWS, np.bool_))
    first = count_terms(view, k=100)
    counts = dict(zip(first.hashes.tolist(), first.counts.tolist(), strict=True))
    assert counts == most_frequent(found, 100)


def test_texts_and_filters_are_counted_one_by_one() -> None:
    rng = np.random.default_rng(7)
    view = stored(random_rows(rng, 4.0, 300), StoreLimits(active_rows=15_000))
    text = np.array([*ANY_OBJECT.words[:3], 1, *ANY_OBJECT.words[4:]], np.int64)
    assert count_frequent(view, replace(ANY_OBJECT, words=text), ALL_TIME, 5) is None
    assert count_frequent(view, ANY_OBJECT, ALL_TIME, 5_000) is None


def test_terms_that_nodes_do_not_list_count_where_they_list_fewer_than_k() -> None:
    rng = np.random.default_rng(8)
    here = np.arange(ROWS) < 2_000
    lon = np.where(here, rng.uniform(0, 1, ROWS), rng.uniform(50, 90, ROWS))
    lat = np.where(here, rng.uniform(0, 1, ROWS), rng.uniform(-50, 50, ROWS))
    # Two words here, which five objects hold besides a word of their own; many elsewhere.
    words = np.where(here[:, None], np.arange(TERMS) % 2, rng.integers(100, 1_600, (ROWS, TERMS)))
    words[:5, 2] = 10_000 + np.arange(5)
    rows = rows_of(lon, lat, words)
    view = stored(rows, StoreLimits(active_rows=39_000))
    wanted = counted(rows, here)
    assert sorted(wanted.values()) == [1] * 5 + [2_000] * 2
    reported = count_terms(view, condition_of(Rectangle(-1, -1, 2, 2)), k=10)
    assert dict(zip(reported.hashes.tolist(), reported.counts.tolist(), strict=True)) == wanted


@pytest.mark.parametrize("trial", range(4))
def test_several_stores_are_one_list_and_count_any_other_term(trial: int) -> None:
    seed = drawn_seed()
    print(f"seed {seed}, trial {trial}")
    rng = np.random.default_rng(seed)
    limits = StoreLimits(active_rows=int(rng.choice([7_000, 15_000])), slices=2)
    several = [random_rows(rng, float(rng.choice([3.0, 6.0])), 1_000) for _ in range(3)]
    views = [stored(rows, limits) for rows in several]
    by_nodes = 0
    for _ in range(12):
        box = random_box(rng, several[0])
        total: Counter[int] = Counter()
        for rows in several:
            lon, lat = rows.objects.lon, rows.objects.lat
            total += counted(
                rows,
                (lon >= box.west) & (lon <= box.east) & (lat >= box.south) & (lat <= box.north),
            )
        k = int(rng.choice([1, 10, 60]))
        found = list_frequent(views, condition_of(box), ALL_TIME, k)
        if found is None:
            continue
        by_nodes += 1
        reported = dict(zip(found.hashes.tolist(), found.counts.tolist(), strict=True))
        assert reported == most_frequent(total, k)
        # Listed or not, frequent, rare, or nowhere.
        vocabulary = sorted({term for rows in several for term in rows.terms.tolist()})
        asked = [*rng.choice(np.array(vocabulary, np.uint64), 300).tolist(), 5, *reported]
        counts = found.count_of(np.array(asked, np.uint64)).tolist()
        assert counts == [total[term] for term in asked]
    assert by_nodes, "the counts of nodes were never used"
