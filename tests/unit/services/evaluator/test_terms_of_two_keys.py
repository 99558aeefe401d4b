"""Frequent terms of evaluators that number terms alike, under two keys, or as on the wire."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from sirocco.codec.search import read_part, write_part
from sirocco.index.store.store import SlotStore
from sirocco.model.query import Query
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.protocol.search.gather_events import Ask
from sirocco.protocol.search.messages import Part, Question
from sirocco.protocol.search.term_merge import most_frequent
from sirocco.services.evaluator.slot_search import answer
from sirocco.services.evaluator.slot_store import StoredSearch
from tests.collisions import FOUND, PAIRS
from tests.support.gather_cluster import SLOTS, Searching, World, objects_at, snapshot
from tests.support.values import columns_of

KEY, OTHER_KEY = TermHashing("ab" * 16), TermHashing("cd" * 16)
PAIRED = (*PAIRS[:5], ("fire", FOUND["fire"]))
WORDS = [word for pair in PAIRED for word in pair]
MEMBERS = ("e", "f")


@dataclass
class Stores(World):
    """Slots with words, of two evaluators."""

    hashings: dict[str, TermHashing] = field(default_factory=dict)
    texts: dict[int, list[str]] = field(default_factory=dict)

    def parts(self, query: Query, ask: Ask) -> list[Part]:
        hashing = self.hashings[ask.member]
        question = Question(
            query=query,
            slots=ask.slots,
            now_ms=1,
            from_ms=0,
            upto_ms=10,
            position_token="",
            timeout_ms=1_000,
            radius_m=None,
            answers=ask.answers,
            parts=9,
            nearby=(),
            takes_numbers=ask.takes_numbers,
        )
        found = answer(
            question,
            lambda slot: self.search(slot, hashing),
            lambda: False,
            hashing,
        )
        parts = [read_part(write_part(1, part)) for part in found if part is not None]
        assert all(isinstance(part, Part) for part in parts)
        return [part for part in parts if isinstance(part, Part)]

    def search(self, slot: int, hashing: TermHashing) -> StoredSearch:
        store = SlotStore()
        texts = self.texts[slot]
        rows = columns_of(
            [{"id": i, "lon": 0.0, "lat": 0.0, "text": text} for i, text in enumerate(texts)]
        )
        ones = np.ones(len(rows), np.uint64)
        numbers, times_ms = np.arange(len(rows), dtype=np.uint64), np.full(len(rows), 5)
        terms = hashing.analyse(rows.text, rows.text_offsets)
        store.append(rows, ones, numbers, times_ms, terms)
        return StoredSearch(store.view(), hashing=hashing)


def searching(hashings: Sequence[TermHashing], seed: int, k: int) -> tuple[Searching, Stores]:
    dice = random.Random(seed)
    texts = {
        slot: [" ".join(dice.choices(WORDS, k=3)) for _ in range(dice.randrange(1, 9))]
        for slot in range(SLOTS)
    }
    world = Stores(objects_at([]), hashings=dict(zip(MEMBERS, hashings, strict=True)), texts=texts)
    world.owners = {slot: MEMBERS[slot % 2] for slot in range(SLOTS)}
    return Searching(world, snapshot(kind="terms", k=k)), world


@pytest.mark.parametrize("k", [1, 3, 100])
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("hashings", [(KEY, KEY), (KEY, OTHER_KEY)])
def test_terms_are_counted_word_by_word(hashings: Sequence[TermHashing], seed: int, k: int) -> None:
    # init: under two keys, words that collide on the wire are left out, since they would be one.
    search, world = searching(hashings, seed, k)
    if hashings[0] is not hashings[1]:
        for texts in world.texts.values():
            texts[:] = [" ".join(w for w in t.split() if w in WORDS[::2]) for t in texts]

    # test
    search.begin()
    finish = search.drive()

    # check
    assert finish.error is None
    counts = Counter(w for texts in world.texts.values() for t in texts for w in set(t.split()))
    best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:k]
    found = most_frequent(finish.answer.terms, k)
    assert [(word.decode(), count) for word, count in found] == best, f"seed {seed}"


def test_an_evaluator_of_an_earlier_version_beside_a_new_one_is_added_up() -> None:
    search, world = searching((KEY, WIRE_TERMS), 1, 3)
    for texts in world.texts.values():
        texts[:] = [" ".join(w for w in t.split() if w in WORDS[::2]) for t in texts]
    search.begin()
    finish = search.drive()
    counts = Counter(w for texts in world.texts.values() for t in texts for w in set(t.split()))
    best = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:3]
    found = most_frequent(finish.answer.terms, 3)
    assert [(word.decode(), count) for word, count in found] == best
    # Both were asked once more.
    assert [ask.takes_numbers for ask in search.asks] == [True, True, False, False]
