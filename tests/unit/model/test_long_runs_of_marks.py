"""Texts with many combining marks: the normal form of Unicode, in linear time."""

from __future__ import annotations

import random
import sys
import time
import unicodedata
from collections.abc import Callable

import pytest

from sirocco.model.expression import Expression
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.objects import pack_bytes
from sirocco.model.text import TextAnalyser, term_hash, terms_of, tokens_of
from tests.oracle.words import tokens_of as reference

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


def cpu_seconds(action: Callable[[], object]) -> float:
    """Returns the CPU time of this thread: the same however busy the machine is."""
    begin_s = time.thread_time()
    action()
    return time.thread_time() - begin_s


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_marks_in_the_wrong_order_take_no_longer_than_others(text: str) -> None:
    """64 KB took up to five seconds, in the loop that serves all clients."""
    analyser = TextAnalyser()
    data, offsets = pack_bytes([text.encode()] * 4)
    # The table is read once.
    analyser.analyse_batch(*pack_bytes([(text[:50]).encode()]))
    assert cpu_seconds(lambda: analyser.analyse_batch(data, offsets)) < 0.5
    assert cpu_seconds(lambda: terms_of(text)) < 0.5


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_long_runs_are_analysed_as_by_the_reference(text: str) -> None:
    """Tests shorter texts, which `unicodedata` also normalises in time."""
    some = text[:900]
    assert tokens_of(some) == reference(some)
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


def test_expressions_of_marks_are_read_in_time() -> None:
    text = ("a" + (ABOVE + BELOW) * (DEFAULT_LIMITS.expression_bytes // 4 - 1))[:8_000]
    assert cpu_seconds(lambda: Expression.parse(text, "text")) < 1
