"""Summaries of slices: what they rule out, no object satisfies."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from sirocco.index.base.compile import compile_queries
from sirocco.index.store.sealing import seal
from sirocco.index.store.slice_summary import SliceSummary
from sirocco.index.store.slices import SealedSlice
from sirocco.index.store.store import SlotStore, StoreView, slice_table
from sirocco.index.store.store_condition import ALL_TIME, Condition, compile_condition
from sirocco.index.store.store_search import scan_range
from sirocco.model.geometry import Circle
from sirocco.model.query import parse_query
from sirocco.model.text import term_hash
from tests.support.range_oracle import columns, random_query
from tests.support.store_rows import random_rows

WORDS = [f"word{number}" for number in range(400)]
TERMS = [term_hash(word) for word in WORDS]


def here(rng: random.Random) -> tuple[float, float]:
    return rng.uniform(10.0, 11.0), rng.uniform(50.0, 51.0)


def sealed(
    seed: int,
    count: int,
    terms: list[int],
    place: Callable[[random.Random], tuple[float, float]] | None = here,
) -> SealedSlice:
    return seal(random_rows(random.Random(seed), count, place=place, known=terms))


def hits(slice_: SealedSlice, condition: Condition) -> int:
    nothing = SlotStore().view().active.first(0)
    view = StoreView((slice_,), nothing, slice_.last_seq + 1, slice_table((slice_,)))
    return sum(len(found) for found in scan_range(view, condition, ALL_TIME))


def asked(**members: object) -> Condition:
    query = parse_query({"id": "q", "kind": "range", "mode": "snapshot", **members})
    return compile_condition(compile_queries([query], [0]))


def rect(west: float, south: float, east: float, north: float) -> dict[str, object]:
    return {"rect": {"west": west, "south": south, "east": east, "north": north}}


@pytest.mark.parametrize("seed", range(20))
def test_a_slice_that_is_ruled_out_has_no_hits(seed: int) -> None:
    rng = random.Random(seed)
    slice_ = seal(random_rows(rng, rng.choice([1, 40, 900]), known=list(range(10, 35))))
    summary = SliceSummary.of(slice_)
    queries = [random_query(rng, 20) for _ in range(60)]
    ruled_out = 0
    for query in queries:
        condition = compile_condition(columns([query]))
        if not summary.may_hold(condition):
            ruled_out += 1
            assert hits(slice_, condition) == 0
    assert ruled_out or len(slice_) > 1


def test_regions_elsewhere_and_in_holes_are_ruled_out() -> None:
    def two_places(rng: random.Random) -> tuple[float, float]:
        west = rng.choice([10.0, 40.0])
        return rng.uniform(west, west + 1), rng.uniform(50.0, 51.0)

    summary = SliceSummary.of(sealed(1, 3_000, TERMS, two_places))
    assert summary.may_hold(asked())
    assert summary.may_hold(asked(region=rect(10.5, 50.5, 10.6, 50.6)))
    assert summary.may_hold(asked(region=rect(-20, 50.5, 60, 50.6)))
    assert not summary.may_hold(asked(region=rect(20, 50, 30, 51)))
    assert not summary.may_hold(asked(region=rect(10, 60, 11, 61)))
    # Across the antimeridian.
    assert not summary.may_hold(asked(region=rect(170, 50, -170, 51)))
    assert summary.may_hold(asked(region=rect(170, 50, 10.5, 51)))


def test_words_that_are_missing_rule_out_their_conjunctions() -> None:
    summary = SliceSummary.of(sealed(2, 2_000, TERMS[:200]))
    assert summary.may_hold(asked(text=WORDS[3]))
    assert summary.may_hold(asked(text=f"{WORDS[3]} AND NOT {WORDS[300]}"))
    missing = [word for word in WORDS[200:] if not summary.may_hold(asked(text=word))]
    # A few words that are not there seem to be.
    assert len(missing) > 180
    assert not summary.may_hold(asked(text=f"{WORDS[3]} AND {missing[0]}"))
    assert not summary.may_hold(asked(text=f"{missing[1]} OR {missing[0]}"))
    assert summary.may_hold(asked(text=f"{missing[1]} OR {WORDS[3]}"))
    assert not summary.may_hold(asked(text=f"{missing[1]} AND NOT {WORDS[3]}"))


def test_a_circle_around_the_nearest_so_far_rules_out_what_is_farther() -> None:
    summary = SliceSummary.of(sealed(3, 500, TERMS))

    def boxes(radius_m: float) -> NDArray[np.float64]:
        return Circle(12.0, 50.5, radius_m).boxes()

    assert not summary.may_hold(asked(), boxes(20_000))
    assert summary.may_hold(asked(), boxes(80_000))


def test_a_large_vocabulary_takes_bounded_memory() -> None:
    slice_ = sealed(4, 2_000, list(range(1, 5_000)))
    summary = SliceSummary.of(slice_, bits_max=1 << 10)
    assert summary.bits.nbytes == 128
    assert summary.may_hold(asked(region=rect(10, 50, 11, 51)))
