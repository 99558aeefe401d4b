"""Phrases, beginnings and texts that a client could choose, and as many by chance.

usage: SIROCCO_JIT=0 python -m tests.fuzz.chosen_phrases PATTERNS WORDS

Prints, by family, the steps of a chosen text over those of one by chance: lines of kernels that
are executed from the text to its patterns, analysis included. What is one instruction of a
processor counts with its line. The number does not depend on the machine.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from sirocco.kernels.base.hash_placement import fixed_secret
from sirocco.kernels.jit.compiled import JIT_ENABLED
from sirocco.model.folding.query_patterns import QueryPatterns
from sirocco.model.objects import pack_bytes
from sirocco.model.patterns import begins, is_pattern, phrase, words_of
from sirocco.model.term_hashing import TermHashing
from sirocco.model.text import TextAnalyser

__all__ = ["FAMILIES", "Case", "by_chance", "chosen", "ratios", "search"]

# As long as an expression may name them.
LONGEST = 64
_TWO = "ab"
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_VOCABULARY = 5_000
# Not `kernels.base`, which has operations of one instruction each, nor `kernels.jit`.
_COUNTED = "sirocco.kernels.text"
_KEY = TermHashing("0b" * 16)


@dataclass(frozen=True)
class Case:
    """Patterns, and the words of a text that is searched for them."""

    patterns: list[str]
    words: list[str]


Family = Callable[[random.Random, int, int], Case]
"""From dice, a number of patterns and one of words of the text."""


def _random_phrases(dice: random.Random, patterns: int, words: int) -> Case:
    named = [phrase(dice.choices(_TWO, k=LONGEST)) for _ in range(patterns)]
    return Case(named, dice.choices(_TWO, k=words))


def _phrases_of_all_lengths(dice: random.Random, patterns: int, words: int) -> Case:
    named = [phrase(dice.choices(_TWO, k=dice.randint(2, LONGEST))) for _ in range(patterns)]
    return Case(named, dice.choices(_TWO, k=words))


def _a_phrase_at_each_word(dice: random.Random, patterns: int, words: int) -> Case:
    text = dice.choices(_TWO, k=patterns + LONGEST - 1)
    named = [phrase(text[at : at + LONGEST]) for at in range(patterns)]
    return Case(named, list(itertools.islice(itertools.cycle(text), words)))


def _a_phrase_and_a_word_less(dice: random.Random, patterns: int, words: int) -> Case:
    text = dice.choices(_TWO, k=patterns + LONGEST - 1)
    longest = [text[at : at + LONGEST] for at in range(patterns)]
    other = {"a": "b", "b": "a"}
    named = [phrase([*each[:-1], other[each[-1]]]) for each in longest]
    return Case(named, list(itertools.islice(itertools.cycle(text), words)))


def _nested_phrases(dice: random.Random, patterns: int, words: int) -> Case:
    chains = [dice.choices(_TWO, k=LONGEST) for _ in range(-(-patterns // (LONGEST - 1)))]
    named = [phrase(chain[:end]) for chain in chains for end in range(2, LONGEST + 1)]
    text = [word for chain in chains for word in chain]
    return Case(named[:patterns], list(itertools.islice(itertools.cycle(text), words)))


def _one_word(dice: random.Random, patterns: int, words: int) -> Case:
    return Case([phrase("a" * length) for length in range(2, LONGEST + 1)], ["a"] * words)


def _words_in_turn(dice: random.Random, patterns: int, words: int) -> Case:
    turns = list(_TWO) * LONGEST
    ends = itertools.product((0, 1), range(2, LONGEST + 1))
    named = [phrase(turns[first : first + length]) for first, length in ends]
    return Case(named, (list(_TWO) * words)[:words])


def _nested_beginnings(dice: random.Random, patterns: int, words: int) -> Case:
    word = "".join(dice.choices(_LETTERS, k=7 * patterns))
    return Case([begins(word[:end]) for end in range(2, len(word), 7)], [word])


def _beginnings_of_beginnings(dice: random.Random, patterns: int, words: int) -> Case:
    named = [begins("a" * length) for length in range(2, patterns + 2)]
    return Case(named, ["a" * dice.randint(2, 30) for _ in range(words)])


def _beginnings_of_each_word(dice: random.Random, patterns: int, words: int) -> Case:
    chosen = ["".join(dice.choices(_LETTERS, k=31)) for _ in range(patterns // 30 + 1)]
    named = [begins(word[:length]) for word in chosen for length in range(2, 32)]
    return Case(named[:patterns], list(itertools.islice(itertools.cycle(chosen), words)))


FAMILIES: dict[str, Family] = {
    "phrases over two words": _random_phrases,
    "the same, of all lengths": _phrases_of_all_lengths,
    "a phrase begins at each word": _a_phrase_at_each_word,
    "each but for its last word": _a_phrase_and_a_word_less,
    "nested phrases": _nested_phrases,
    "phrases of one word, a text of it": _one_word,
    "two words in turn": _words_in_turn,
    "nested beginnings of one word": _nested_beginnings,
    "beginnings a…a, words of them": _beginnings_of_beginnings,
    "all beginnings of each word": _beginnings_of_each_word,
}


def chosen(family: str, patterns: int, words: int) -> Case:
    """Returns a case of a family, the same each time."""
    return FAMILIES[family](random.Random(5), patterns, words)


def by_chance(case: Case) -> Case:
    """Returns as many patterns, as long, and as many words; long words are as long."""
    dice = random.Random(9)

    def drawn(length: int) -> str:
        return "".join(dice.choices(_LETTERS, k=length))

    known = [drawn(dice.randint(2, 9)) for _ in range(_VOCABULARY)]
    patterns = []
    for pattern in case.patterns:
        if pattern.startswith('"'):
            patterns.append(phrase(dice.choices(known, k=len(words_of(pattern)))))
        else:
            patterns.append(begins(drawn(len(pattern) - 1)))
    assert all(is_pattern(each) for each in patterns)
    return Case(patterns, [drawn(len(w)) if len(w) > 1 else dice.choice(known) for w in case.words])


def search(case: Case) -> Callable[[], int]:
    """Returns what searches the text anew at each call, and returns how many patterns it holds."""
    table, analyser = QueryPatterns(_KEY.numbers), TextAnalyser()
    table.add(case.patterns)
    columns = pack_bytes([" ".join(case.words).encode()])

    def once() -> int:
        _, _, in_order = _KEY.analyse_in_order(*columns, analyser)
        return len(_KEY.patterns(*columns, table, analyser, in_order=in_order)[0])

    return once


def _steps(case: Case) -> int:
    """Returns how many lines of kernels one search executes, once links are there."""
    lines = 0
    with fixed_secret(0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
        once = search(case)
    once()

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return line

    def call(frame: FrameType, event: str, argument: Any) -> Any:
        return line if frame.f_globals["__name__"].startswith(_COUNTED) else None

    sys.settrace(call)
    try:
        once()
    finally:
        sys.settrace(None)
    return lines


def ratios(patterns: int, words: int) -> Iterator[tuple[str, float]]:
    """Yields families, and the steps of a chosen case over those of one by chance."""
    for family in FAMILIES:
        case = chosen(family, patterns, words)
        yield family, _steps(case) / _steps(by_chance(case))


def main() -> None:
    """Prints the ratios as one JSON object."""
    if JIT_ENABLED:
        sys.exit("steps are counted with SIROCCO_JIT=0")
    patterns, words = (int(each) for each in sys.argv[1:])
    found = {family: round(ratio, 2) for family, ratio in ratios(patterns, words)}
    print(json.dumps(found, ensure_ascii=False))


if __name__ == "__main__":
    main()
