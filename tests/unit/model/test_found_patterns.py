"""Phrases and beginnings in texts: as the definition says."""

import itertools
import random

import pytest

from sirocco.model.folding.query_patterns import QueryPatterns
from sirocco.model.objects import pack_bytes
from sirocco.model.patterns import begins, held_patterns, phrase
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import tokens_of

KEYED = TermHashing("0b" * 16)


def word(dice: random.Random, alphabet: str) -> str:
    return "".join(dice.choice(alphabet) for _ in range(dice.choice([1, 1, 2, 3, 7, 8, 9, 17, 30])))


def patterns_of(dice: random.Random, words: list[str], count: int) -> list[str]:
    found = []
    for _ in range(count):
        if dice.random() < 0.6:
            length = dice.choice([2, 2, 3, 4, 5, 7, 20, 64, 100])
            found.append(phrase([dice.choice(words) for _ in range(length)]))
            continue
        chosen = dice.choice(words)
        start = chosen[: dice.randint(1, len(chosen))] if dice.random() < 0.8 else chosen + "a"
        if len(start) > 1:
            found.append(begins(start))
    return found


def held(table: QueryPatterns, hashing: TermHashing, texts: list[str]) -> list[list[str]]:
    data, offsets = pack_bytes([text.encode() for text in texts])
    numbers, ends = hashing.patterns(data, offsets, table)
    names = {number: pattern for pattern, number in table.known.items()}
    return [
        [names[number] for number in numbers[begin:end].tolist()]
        for begin, end in itertools.pairwise(ends.tolist())
    ]


@pytest.mark.parametrize("seed", range(20))
def test_texts_hold_the_patterns_that_the_definition_says(seed: int) -> None:
    dice = random.Random(seed)
    hashing = dice.choice([WIRE_TERMS, KEYED])
    alphabet = dice.choice(["a", "ab", "abc", "aéж"])
    words = sorted({word(dice, alphabet) for _ in range(dice.choice([1, 3, 20]))})
    table = QueryPatterns(hashing.numbers)
    known: set[str] = set()
    for _ in range(4):
        fresh = patterns_of(dice, words, dice.choice([1, 5, 60]))
        table.add(fresh)
        known.update(fresh)
        if dice.random() < 0.2:
            known.difference_update(dice.sample(sorted(known), len(known) // 2))
            kept = {table.known[pattern] for pattern in known}
            table.keep(kept.__contains__)
        counts = [0, 1, 5, 30, 200]
        texts = [" ".join(dice.choices(words, k=dice.choice(counts))) for _ in range(8)]
        for text, found in zip(texts, held(table, hashing, texts), strict=True):
            assert len(found) == len(set(found))
            assert set(found) == held_patterns(known, tokens_of(text))


def test_a_unit_is_not_the_word_of_its_characters() -> None:
    table = QueryPatterns(KEYED.numbers)
    table.add(["\u30fc\u0301*", phrase(["カ", "\u30fc\u0301"])])
    texts = ["\u30fc\u0301", "カ\u30fc\u0301"]
    assert held(table, KEYED, texts) == [["\u30fc\u0301*"], [phrase(["カ", "\u30fc\u0301"])]]
