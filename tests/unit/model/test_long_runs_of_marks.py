"""Texts with many combining marks: the normal form of Unicode, in linear time."""

from __future__ import annotations

import random
import sys
import unicodedata
from collections.abc import Callable

import pytest

from sirocco.model.expression import Expression
from sirocco.model.hints.places import spans_of
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.objects import pack_bytes
from sirocco.model.text import TextAnalyser, term_hash, terms_of, tokens_of
from tests.oracle.words import tokens_of as reference
from tests.support.cpu_time import cpu_ratio

ABOVE, BELOW, IOTA = "\u0301", "\u0316", "\u0345"
HALF = DEFAULT_LIMITS.text_bytes // 4 - 1

LONG = {
    "reversed": "a" + ABOVE * HALF + BELOW * HALF,
    "alternating": "a" + (ABOVE + BELOW) * HALF,
    "iota": "a" + (IOTA + ABOVE) * HALF,
    # Neither is a mark: they decompose to marks of two classes, and to one.
    "vowels": "a" + "\u0f73" * (2 * HALF // 3),
    "halfwidth": "a" + (ABOVE + "\uff9e") * (2 * HALF // 5),
    "after a letter with marks": "\u01d6" + BELOW * (2 * HALF - 1),
    # One character becomes eighteen.
    "ligatures": "\ufdfa" * (4 * HALF // 3),
}

# Starters, some of which compose with the next character, or decompose to letters with marks.
BASES = "a \u00e9\u01d5\u0f40\u304b\uff76\ud55c\u1100\u1161\ufdfa\uff71\u09c7\u09be\U0001d15f\n"


def grows_linearly(analyse: Callable[[str], object], text: str) -> bool:
    """Whether a sixteenth of a text takes about a sixteenth of the time.

    Where the time grows with the square, the whole takes 256 times as long.
    """
    part = text[: len(text) // 32] + text[len(text) - len(text) // 32 :]
    return cpu_ratio(lambda: analyse(text), lambda: analyse(part)) < 64


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_the_time_for_marks_grows_with_their_number(text: str) -> None:
    """64 KB took up to five seconds, in the loop that serves all clients."""
    analyser = TextAnalyser()
    assert grows_linearly(lambda some: analyser.analyse_batch(*pack_bytes([some.encode()])), text)
    assert grows_linearly(terms_of, text)
    for fold in (False, True):
        assert grows_linearly(lambda some, fold=fold: spans_of(some, fold=fold), text)


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_runs_are_analysed_as_by_the_reference(text: str) -> None:
    """Tests shorter texts, which `unicodedata` also normalises in time."""
    some = text[:900]
    assert tokens_of(some) == reference(some)
    assert [token for token, _, _ in spans_of(some)] == reference(some)
    columns = TextAnalyser().analyse_batch(*pack_bytes([some.encode()]))
    assert columns.terms.tolist() == sorted({term_hash(term) for term in terms_of(some)})


def test_the_normal_form_is_that_of_unicode() -> None:
    codes = [code for code in range(sys.maxunicode + 1) if not 0xD7FF < code < 0xE000]
    marks = [c for c in map(chr, codes) if unicodedata.combining(c)]
    rng = random.Random(28)
    for _ in range(3_000):
        pieces = []
        for _ in range(rng.randint(1, 3)):
            some = marks if rng.random() < 0.5 else rng.sample(marks, 3)
            pieces += [rng.choice(BASES), *rng.choices(some, k=rng.choice([0, 1, 29, 33, 80]))]
        text = "".join(pieces)
        assert tokens_of(text) == reference(text), ascii(text)


def test_the_time_for_expressions_of_marks_grows_with_their_number() -> None:
    text = ("a" + (ABOVE + BELOW) * (DEFAULT_LIMITS.expression_bytes // 4 - 1))[:8_000]
    assert grows_linearly(lambda some: Expression.parse(some, "text"), text)
