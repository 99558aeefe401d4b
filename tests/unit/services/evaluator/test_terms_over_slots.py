"""The most frequent terms over several evaluators, whose answers are late, lost, or moved."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from sirocco.codec.search import read_part, write_part
from sirocco.index.store.store import SlotStore, StoreLimits
from sirocco.model.errors import PartialResult, Unavailable
from sirocco.model.query import Query
from sirocco.model.term_hashing import TermHashing
from sirocco.protocol.search.gather_events import Ask, CountTerms, GatherEffect
from sirocco.protocol.search.limits import SearchLimits
from sirocco.protocol.search.messages import Part, Question
from sirocco.protocol.search.term_merge import most_frequent
from sirocco.services.evaluator.slot_search import answer
from sirocco.services.evaluator.slot_store import StoredSearch
from tests.support.gather_cluster import SLOTS, Searching, World, objects_at, snapshot
from tests.support.seeds import drawn_seed
from tests.support.values import columns_of

HASHING = TermHashing("ab" * 16)
MEMBERS = ("e", "f", "g")
LISTS = SearchLimits(listed_factor=1, listed_min=1)


@dataclass
class Stores(World):
    """Slots with words; objects arrive while a search is under way.

    Attributes:
        texts: of each slot, as they are now.
        asked: question → its answer's parts so far unsent, and what was wanted behind its list.
        begun: slot → its texts when its evaluator was last asked for it.
    """

    texts: dict[int, list[str]] = field(default_factory=dict)
    asked: dict[int, Iterator[Part | None]] = field(default_factory=dict)
    wanted: dict[int, NDArray[np.uint64] | None] = field(default_factory=dict)

    def next_part(self, query: Query, ask: Ask) -> Part:
        if ask.number not in self.asked:
            question = Question(
                query=query, slots=ask.slots, now_ms=1, from_ms=0, upto_ms=10, position_token="",
                timeout_ms=1_000, radius_m=None, answers=ask.answers, parts=9,
                takes_numbers=ask.takes_numbers, listed=ask.listed,
            )  # fmt: skip
            self.asked[ask.number] = answer(
                question,
                lambda slot: self.search(slot) if self.owners[slot] == ask.member else None,
                lambda: False,
                HASHING,
                terms_wanted=lambda: self.wanted[ask.number],
            )
        part = None
        while part is None:
            part = next(self.asked[ask.number])
        read = read_part(write_part(1, part))
        assert isinstance(read, Part)
        return read

    def search(self, slot: int) -> StoredSearch:
        store = SlotStore(StoreLimits(active_rows=8, slices=3))
        texts = self.texts[slot]
        for begin in range(0, len(texts), 5):
            some = texts[begin : begin + 5]
            rows = columns_of(
                [{"id": i, "lon": 0.0, "lat": 0.0, "text": text} for i, text in enumerate(some)]
            )
            numbers = np.arange(begin, begin + len(rows), dtype=np.uint64)
            terms = HASHING.analyse(rows.text, rows.text_offsets)
            times_ms = np.full(len(rows), 5)
            store.append(rows, np.ones(len(rows), np.uint64), numbers, times_ms, terms)
        return StoredSearch(store.view(), hashing=HASHING)


class TermsSearching(Searching):
    """A gathering whose effects are kept."""

    def __init__(self, world: Stores, query: Query, limits: SearchLimits) -> None:
        super().__init__(world, query, limits=limits)
        self.stores = world
        self.counted: list[CountTerms] = []
        self.due: dict[int, Ask] = {}

    def took(self, effects: list[GatherEffect]) -> list[Ask]:
        asked = super().took(effects)
        for effect in effects:
            if isinstance(effect, CountTerms):
                self.counted.append(effect)
                self.stores.wanted[effect.ask] = effect.terms
                self.due[effect.ask] = next(a for a in self.asks if a.number == effect.ask)
        self.due |= {ask.number: ask for ask in asked}
        return asked

    def deliver(self, ask: Ask) -> None:
        """Delivers the next part of an answer."""
        del self.due[ask.number]
        part = self.stores.next_part(self.query, ask)
        if not part.is_last and part.rest is None:
            self.due[ask.number] = ask
        self.came(ask, part)

    def run(self, dice: random.Random, failing: float = 0.0) -> None:
        """Delivers whatever is due, in any order, to the end; some questions fail."""
        while self.finish is None:
            due = [ask for number, ask in self.due.items() if number in self.open]
            if not due:
                self.passed(max(1, self.gather.deadline_ms() - self.now_ms))
                continue
            ask = dice.choice(due)
            if dice.random() < failing:
                self.due.pop(ask.number)
                self.came(ask, Unavailable("gone"))
                slot = dice.choice(ask.slots)
                self.world.owners[slot] = dice.choice(MEMBERS)
            else:
                self.deliver(ask)


def made(seed: int, k: int, limits: SearchLimits = LISTS) -> tuple[TermsSearching, Stores]:
    dice = random.Random(seed)
    words = [f"w{i:02}" for i in range(dice.choice([3, 12, 60]))]
    shares = [1 / (i + 1) for i in range(len(words))]
    texts = {}
    for slot in range(SLOTS):
        if dice.random() < 0.3:
            # Each place has words of its own.
            dice.shuffle(shares)
        texts[slot] = [
            " ".join(dice.choices(words, shares, k=3)) for _ in range(dice.randrange(40))
        ]
    world = Stores(objects_at([]), texts=texts)
    world.owners = {slot: MEMBERS[slot % 3] for slot in range(SLOTS)}
    return TermsSearching(world, snapshot(kind="terms", k=k), limits), world


def best_of(
    world: Stores, k: int, slots: range | list[int] = range(SLOTS)
) -> list[tuple[str, int]]:
    counts = Counter(w for s in slots for t in world.texts[s] for w in set(t.split()))
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


def found_by(search: TermsSearching, k: int) -> list[tuple[str, int]]:
    assert search.finish is not None
    found = most_frequent(search.finish.answer.terms, k)
    return [(word.decode(), count) for word, count in found]


@pytest.mark.parametrize("failing", [0.0, 0.2])
def test_the_answer_is_exact_whatever_is_listed_and_lost(failing: float) -> None:
    first = drawn_seed()
    counted = wanted_all = 0
    for seed in range(first, first + 150):
        dice = random.Random(seed)
        k = dice.choice([1, 2, 5, 10])
        limits = SearchLimits(
            listed_factor=1, listed_min=dice.choice([1, 4, 12]), retry_ms_min=1, retry_ms_max=2
        )
        search, world = made(seed, k, limits)
        search.begin()
        search.run(dice, failing)
        assert search.finish is not None
        assert search.finish.error is None, f"seed {seed}"
        assert found_by(search, k) == best_of(world, k), f"seed {seed}"
        counted += any(each.terms is not None for each in search.counted)
        wanted_all += any(each.terms is None for each in search.counted)
    # Both ways were taken.
    assert counted > 10
    assert wanted_all > 10


def test_counts_behind_a_list_are_those_of_the_same_objects() -> None:
    """What arrives between the rounds counts in neither: the answer is that of one moment."""
    for seed in range(200):
        search, world = made(seed, 3, SearchLimits(listed_factor=1, listed_min=4))
        best = best_of(world, 3)
        search.begin()
        for ask in list(search.due.values()):
            search.deliver(ask)
        lists_decided = search.finish is not None
        for texts in world.texts.values():
            texts.extend(["w00 w01 w02 late"] * 20)
        search.run(random.Random(seed))
        if lists_decided or all(each.terms is not None for each in search.counted):
            assert found_by(search, 3) == best, f"seed {seed}"


def test_half_of_the_time_is_left_to_count_everything() -> None:
    """An evaluator that says nothing makes the answer partial, and the others' counts whole."""
    search, world = made(3, 2)
    search.begin()
    silent = search.asks[0]
    del search.due[silent.number]
    for ask in list(search.due.values()):
        search.deliver(ask)
    while search.finish is None:
        for number in list(search.due):
            if search.due[number].member == silent.member:
                del search.due[number]
        due = list(search.due.values())
        if due:
            search.deliver(due[0])
        else:
            search.passed(max(1, search.gather.deadline_ms() - search.now_ms))
    assert isinstance(search.finish.error, PartialResult) or search.finish.missing
    assert set(search.finish.missing) == set(silent.slots)
    others = [slot for slot in range(SLOTS) if slot not in silent.slots]
    assert found_by(search, 2) == best_of(world, 2, others)


def test_one_evaluator_alone_lists_nothing() -> None:
    search, world = made(5, 3)
    world.owners = dict.fromkeys(range(SLOTS), "e")
    search.begin()
    assert [ask.listed for ask in search.asks] == [0]
    search.run(random.Random(5))
    assert found_by(search, 3) == best_of(world, 3)
