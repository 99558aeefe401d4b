"""Ranked search over a store: its result gives the same list as all objects would."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.ranked_search import RankedPart, RankedSearch
from sirocco.index.store.store import SlotStore, StoreLimits, StoreView
from sirocco.index.store.store_condition import ALL_TIME, Bounds
from sirocco.model.attributes import Filter
from sirocco.model.query import RankedQuery, Weights
from sirocco.model.text import term_hash
from sirocco.protocol.search.ranked_merge import Candidates
from tests.support.ranked_rules import all_candidates, candidates_in, event_keys, listed
from tests.support.store_rows import random_place, random_rows
from tests.support.turns import result_of

WORDS = [f"word{i}" for i in range(30)]
HASHES = [term_hash(word) for word in WORDS]
POINTS = [(13.4, 52.5), (180.0, 0.0), (-180.0, 2.0), (179.99, 1.0), (0.0, 90.0), (45.0, -90.0)]
RADII = [1.0, 700.0, 20_000.0, 600_000.0, 5_000_000.0, 21_000_000.0]
WEIGHTS = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (0.5, 0.5, 0.0), (0.5, 0.0, 0.5)]
WEIGHTS += [(0.2, 0.5, 0.3), (1 / 3, 1 / 3, 1 / 3), (0.9, 0.05, 0.05)]
# How often each search let others go first.
INTERRUPTIONS: list[int] = []
SMALL = StoreLimits(active_rows=50, slices=3, slice_rows=2_000)


def a_query(rng: random.Random) -> RankedQuery:
    lon, lat = rng.choice(POINTS) if rng.random() < 0.8 else random_place(rng)
    keywords = rng.sample(WORDS, rng.choice([1, 2, 5, 5, 12]))
    if rng.random() < 0.3:
        keywords.append("nobody")
    text, space, time = rng.choice(WEIGHTS)
    return RankedQuery(
        id="q",
        mode="snapshot",
        lon=lon,
        lat=lat,
        radius_m=rng.choice(RADII),
        k=rng.choice([1, 2, 3, 10, 40]),
        keywords=tuple(sorted(keywords)),
        weights=Weights(text, space, time),
        half_life_ms=rng.choice([1, 50, 4_000, 10**6, 10**12]),
        where=Filter.parse({"a": {"gte": 1}}) if rng.random() < 0.2 else None,
    )


def with_ties(rng: random.Random, rows: StoredRows) -> StoredRows:
    """Repeats some objects at the same place, perhaps time, and with the text of others."""
    places = np.arange(len(rows))
    for row in range(len(rows)):
        if rng.random() < 0.3:
            places[row] = rng.randrange(row + 1)
    arrivals_ms = rows.arrivals_ms
    if rng.random() < 0.5:
        arrivals_ms = arrivals_ms - arrivals_ms % rng.choice([100, 5_000])
    return replace(
        rows.take(places),
        sessions=rows.sessions,
        numbers=rows.numbers,
        seqs=rows.seqs,
        arrivals_ms=arrivals_ms,
    )


def with_few_repeats(rng: random.Random, rows: StoredRows) -> StoredRows:
    """Returns the same with texts that repeat few words, as most do."""
    counts = np.array([rng.choice([1, 1, 1, 1, 2, 3]) for _ in rows.counts], np.uint16)
    ends = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])[rows.term_offsets]
    return replace(rows, counts=counts, lengths=np.diff(ends).astype(np.int32))


def a_store(rng: random.Random, rows: StoredRows, limits: StoreLimits) -> SlotStore:
    store = SlotStore(limits)
    begin = 0
    while begin < len(rows):
        end = min(len(rows), begin + rng.randrange(1, 90))
        store.append_rows(rows.take(np.arange(begin, end)))
        while rng.random() < 0.7 and (job := store.next_job()) is not None:
            job.run()
            assert store.install(job)
        begin = end
    return store


def some_bounds(rng: random.Random, rows: StoredRows) -> Bounds:
    if rng.random() < 0.4 or not len(rows):
        return ALL_TIME
    first, last = sorted(rng.choices(rows.arrivals_ms.tolist(), k=2))
    before = rng.choice([1 << 62, rng.randrange(len(rows) + 1)])
    return Bounds(first, last + rng.choice([0, -1, 1]), before)


def in_pieces(
    query: RankedQuery, views: Sequence[StoreView], now_ms: int, bounds: Bounds, work: int
) -> RankedPart:
    """Returns the result of a search that others interrupt; it has to be that of the whole."""
    found, count = result_of(RankedSearch(query).in_turns(views, now_ms, bounds, work))
    INTERRUPTIONS.append(count)
    whole = RankedSearch(query).search_of(views, now_ms, bounds)
    assert (found.objects_total, found.tokens_total) == (whole.objects_total, whole.tokens_total)
    assert found.holders.tolist() == whole.holders.tolist()
    assert event_keys(candidates_in(found)) == event_keys(candidates_in(whole))
    return found


def check(
    query: RankedQuery, store: SlotStore, rows: StoredRows, now_ms: int, bounds: Bounds, note: str
) -> tuple[int, int]:
    """Compares a store's result with the simple rules; returns candidates of both."""
    found = in_pieces(query, [store.view()], now_ms, bounds, random.Random(note).randrange(9_000))
    return check_found(candidates_in(found), query, rows, now_ms, bounds, note)


def check_found(
    got: Candidates, query: RankedQuery, rows: StoredRows, now_ms: int, bounds: Bounds, note: str
) -> tuple[int, int]:
    want = all_candidates(query, rows, bounds)
    assert (got.total, got.tokens) == (want.total, want.tokens), note
    assert got.holders.tolist() == want.holders.tolist(), note
    known = {key: place for place, key in enumerate(event_keys(want))}
    places = [known[key] for key in event_keys(got)]
    assert len(set(places)) == len(places), note
    assert got.objects.ids.tolist() == want.objects.ids[places].tolist(), note
    assert got.lengths.tolist() == want.lengths[places].tolist(), note
    assert got.frequencies.tolist() == want.frequencies[places].tolist(), note
    assert got.distances_m == pytest.approx(want.distances_m[places], abs=1e-9), note
    # Exact distances are those of the search: the library's functions may differ.
    want.distances_m[places] = got.distances_m
    assert listed(query, now_ms, got) == listed(query, now_ms, want), note
    # The same, whatever other slots report for the rest.
    rng = random.Random(note)
    for _ in range(4):
        others = rng.randrange(10 ** rng.randrange(1, 7))
        holders = np.array([rng.randint(0, others) for _ in query.keywords], np.uint64)
        tokens = others * rng.randrange(1, 30)
        assert listed(query, now_ms, joined(got, others, tokens, holders)) == listed(
            query, now_ms, joined(want, others, tokens, holders)
        ), note
    return len(got), len(want)


def joined(
    found: Candidates,
    others: int,
    tokens: int,
    holders: np.ndarray[tuple[int], np.dtype[np.uint64]],
) -> Candidates:
    return replace(
        found,
        total=found.total + others,
        tokens=found.tokens + tokens,
        holders=found.holders + holders,
    )


@pytest.mark.parametrize("seed", range(40))
def test_candidates_of_a_slot_lead_to_the_list_of_all_objects(seed: int) -> None:
    rng = random.Random(seed)
    known = HASHES[: rng.choice([6, 12, 30])]
    place = (lambda _: (13.4, 52.5)) if rng.random() < 0.15 else None
    rows = random_rows(rng, rng.choice([0, 3, 300, 1_500]), place=place, known=known)
    if rng.random() < 0.8:
        rows = with_few_repeats(rng, rows)
    if len(rows) and rng.random() < 0.7:
        rows = with_ties(rng, rows)
    store = a_store(rng, rows, rng.choice([SMALL, StoreLimits(), StoreLimits(active_rows=700)]))
    if rng.random() < 0.3:
        store.seal()
    for number in range(8):
        newest_ms = int(rows.arrivals_ms[-1]) if len(rows) else 0
        query = a_query(rng)
        now_ms = newest_ms + rng.choice([0, 10, 5_000, -5_000])
        bounds = some_bounds(rng, rows)
        check(query, store, rows, now_ms, bounds, f"seed={seed} {number}: {query} {bounds}")


def test_a_long_search_gives_others_their_turn() -> None:
    """60 keywords, and lists of 10,000, took a thread of the pool for minutes."""
    rng = random.Random(1)
    rows = random_rows(rng, 6_000, known=HASHES[:12])
    store = SlotStore(StoreLimits(active_rows=8_000))
    store.append_rows(rows)
    store.seal()
    query = replace(a_query(rng), radius_m=21_000_000.0, keywords=tuple(sorted(WORDS[:12])))
    in_pieces(query, [store.view()], int(rows.arrivals_ms[-1]), ALL_TIME, 0)
    # One for each stretch of 1,024 rows.
    assert INTERRUPTIONS[-1] >= 5


@pytest.mark.parametrize("seed", range(20))
def test_candidates_of_several_slots_lead_to_the_list_of_all_objects(seed: int) -> None:
    rng = random.Random(seed)
    rows = with_few_repeats(rng, random_rows(rng, rng.choice([3, 900, 1_500]), known=HASHES[:12]))
    rows = with_ties(rng, rows)
    slot_of = np.array([rng.choice([0, 1, 1, 3]) for _ in range(len(rows))])
    stores = []
    for slot in range(4):
        own = rows.take(np.flatnonzero(slot_of == slot))
        own = replace(own, seqs=np.arange(len(own)))
        stores.append(
            a_store(rng, own, rng.choice([SMALL, StoreLimits(), StoreLimits(active_rows=200)]))
        )
        if rng.random() < 0.3:
            stores[-1].seal()
    alone = together = 0
    for number in range(8):
        query, now_ms = a_query(rng), int(rows.arrivals_ms[-1])
        first, last = sorted(rng.choices(rows.arrivals_ms.tolist(), k=2))
        bounds = rng.choice([ALL_TIME, Bounds(first, last)])
        views = [store.view() for store in stores]
        found = candidates_in(in_pieces(query, views, now_ms, bounds, rng.randrange(9_000)))
        note = f"seed={seed} {number}: {query} {bounds}"
        together += check_found(found, query, rows, now_ms, bounds, note)[0]
        for view in views:
            alone += len(candidates_in(RankedSearch(query).search(view, now_ms, bounds)))
    # What one slot holds excludes candidates of another.
    assert together <= alone
