"""Objects are kept for a slot by one of its keywords: compared with sets and dictionaries."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from sirocco.index.routing.keyword_slots import (
    ANY_TERM,
    KeywordSlots,
    joined,
    keywords_max,
    set_of,
    words_of,
)

U64 = np.uint64


def _terms(dice: Random, count: int) -> list[int]:
    """Returns hashes, many of which share a place in the table, or a bit of its hints."""
    return [
        dice.choice([1, 3]) << dice.choice([0, 5, 32, 40, 62]) | dice.randrange(4)
        if dice.random() < 0.5
        else dice.getrandbits(64) or 1
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(30))
def test_kept_is_what_a_slot_has_a_keyword_of(seed: int) -> None:
    dice = Random(seed)
    print(f"seed {seed}")
    slots = dice.choice([1, 3, 64, 65, 200])
    words = words_of(slots)
    limit = dice.choice([5, 100, 10_000])
    table = KeywordSlots(words, limit)
    known: dict[int, set[int]] = {}
    open_slots: set[int] = set()
    universe = _terms(dice, dice.choice([3, 50, 400]))
    for _ in range(dice.randint(1, 6)):
        added = [
            (dice.choice(universe), {dice.randrange(slots)}) for _ in range(dice.randint(0, 300))
        ]
        added += [(ANY_TERM, {dice.randrange(slots)})] * (dice.random() < 0.2)
        sets = np.array([set_of(each, words) for _, each in added], U64).reshape(-1, words)
        fresh = table.add(np.array([term for term, _ in added], U64), sets)
        for is_fresh, (term, each) in zip(fresh.tolist(), added, strict=True):
            if term == ANY_TERM or (term not in known and len(known) == limit):
                assert is_fresh == bool(each - open_slots)
                open_slots |= each
            else:
                assert is_fresh == bool(each - known.get(term, set()))
                known.setdefault(term, set()).update(each)
        assert len(table) == len(known)
    texts = [dice.choices([*universe, *_terms(dice, 5)], k=dice.randint(0, 8)) for _ in range(200)]
    routes = sorted((dice.randrange(200), dice.randrange(slots)) for _ in range(300))
    keep = np.empty(len(routes), np.bool_)
    table.mark_wanted(
        np.cumsum([0, *map(len, texts)]),
        np.array([term for text in texts for term in text], U64),
        np.array([row for row, _ in routes], np.int32),
        np.array([slot for _, slot in routes], np.int32),
        keep,
    )
    expected = [
        slot in open_slots or any(slot in known.get(term, ()) for term in texts[row])
        for row, slot in routes
    ]
    assert keep.tolist() == expected


def test_a_keyword_that_finds_no_room_opens_its_slots() -> None:
    table = KeywordSlots(1, 1)
    assert table.add(np.array([7, 8], U64), np.array([[1], [6]], U64)).tolist() == [True, True]
    assert (len(table), table.open_set.tolist()) == (1, [6])
    # Known keywords still get further slots.
    assert table.add(np.array([7, 9], U64), np.array([[3], [4]], U64)).tolist() == [True, False]
    assert table.open_set.tolist() == [6]


def test_joining_adds_up_slots() -> None:
    terms, sets = joined(np.array([5, 2, 5], U64), np.array([[1, 0], [2, 0], [4, 8]], U64))
    assert terms.tolist() == [2, 5]
    assert sets.tolist() == [[2, 0], [5, 8]]
    assert joined(np.empty(0, U64), np.empty((0, 1), U64))[1].shape == (0, 1)


def test_memory_stays_below_its_bound() -> None:
    count = keywords_max(1 << 20, 2)
    table = KeywordSlots(2, count)
    terms = np.arange(1, 5 * count, dtype=U64) * U64(0x9E3779B97F4A7C15)
    table.add(terms, np.ones((len(terms), 2), U64))
    assert len(table) == count
    # Tables double: twice the share of the load factor at most.
    assert table.bytes_total <= 2 << 20
