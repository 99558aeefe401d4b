"""Phrases and beginnings in texts: as the definition says, and with bounded work a text."""

import itertools
import random
import time

import pytest

from sirocco.model.folding.query_patterns import QueryPatterns
from sirocco.model.objects import pack_bytes
from sirocco.model.patterns import begins, held_patterns, phrase
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import TextAnalyser, tokens_of

KEYED = TermHashing("0b" * 16)
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
TEXT_BYTES = 64_000
PASSES = 5
TIMES_MAX = 3.0


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


def seconds(patterns: list[str], text: str) -> float:
    """Returns the least time in which a text is analysed and searched for patterns."""
    table, analyser = QueryPatterns(KEYED.numbers), TextAnalyser()
    table.add(patterns)
    columns, times = pack_bytes([text.encode()]), []
    for _ in range(PASSES):
        started = time.process_time()
        KEYED.analyse_both(*columns, analyser)
        KEYED.patterns(*columns, table, analyser)
        times.append(time.process_time() - started)
    return min(times)


def times_slower(patterns: list[str], chosen: str, usual: str) -> float:
    """Returns how much longer a chosen text takes; the best of three, as machines drift."""
    return min(seconds(patterns, chosen) / seconds(patterns, usual) for _ in range(3))


def usual_words(dice: random.Random) -> str:
    words = ["".join(dice.choices(LETTERS, k=dice.randint(2, 9))) for _ in range(5_000)]
    return " ".join(dice.choices(words, k=TEXT_BYTES))[:TEXT_BYTES]


def test_phrases_of_one_word_in_a_text_of_it() -> None:
    patterns = [phrase(["a"] * length) for length in range(2, 65)]
    usual = usual_words(random.Random(1))
    assert times_slower(patterns, "a " * (TEXT_BYTES // 2), usual) < TIMES_MAX


def test_beginnings_of_many_lengths_in_a_text_of_one_word() -> None:
    dice = random.Random(2)
    chosen = "".join(dice.choices(LETTERS, k=TEXT_BYTES))
    patterns = [begins(chosen[:length]) for length in range(2, 16_000, 50)]
    other = "".join(dice.choices(LETTERS, k=TEXT_BYTES))
    assert times_slower(patterns, chosen, other) < TIMES_MAX


def test_all_words_of_a_text_begin_with_many_beginnings() -> None:
    dice = random.Random(3)
    words = ["".join(dice.choices(LETTERS, k=31)) for _ in range(TEXT_BYTES // 32)]
    patterns = [begins(each[:length]) for each in words for length in (4, 8, 16, 30, 31)]
    assert (
        times_slower(patterns, " ".join(words), " ".join(each[::-1] for each in words)) < TIMES_MAX
    )
