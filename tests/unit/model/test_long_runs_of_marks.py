"""Texts with many combining marks: the normal form of Unicode, in linear time."""

from __future__ import annotations

import random
import sys
import time
import unicodedata
from collections.abc import Callable
from itertools import pairwise

import pytest

from sirocco.model.expression import Expression
from sirocco.model.limits import DEFAULT_LIMITS
from sirocco.model.objects import pack_bytes
from sirocco.model.text import (
    NORMALISED_BYTES_MAX,
    TextAnalyser,
    _is_mark,
    _marks,
    analyse,
    normalise,
    term_hash,
)

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
    # The tables are built once.
    analyser.analyse_batch(*pack_bytes([(text[:50]).encode()]))
    assert cpu_seconds(lambda: analyser.analyse_batch(data, offsets)) < 2
    assert cpu_seconds(lambda: analyse(text)) < 1


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_both_analyses_agree_about_long_runs(text: str) -> None:
    """Tests shorter texts, which `unicodedata` also normalises in time."""
    some = text[:900]
    folded = unicodedata.normalize("NFKC", some).casefold()
    assert normalise(some).casefold() == folded
    columns = TextAnalyser().analyse_batch(*pack_bytes([some.encode()]))
    assert columns.terms.tolist() == sorted({term_hash(term) for term in analyse(some)})


def test_the_normal_form_is_that_of_unicode() -> None:
    marks = [chr(code) for code in range(sys.maxunicode + 1) if _is_mark(chr(code))]
    rng = random.Random(28)
    for _ in range(3_000):
        pieces = []
        for _ in range(rng.randint(1, 3)):
            some = marks if rng.random() < 0.5 else rng.sample(marks, 3)
            pieces += [rng.choice(BASES), *rng.choices(some, k=rng.choice([0, 1, 29, 30, 31, 80]))]
        text = "".join(pieces)
        assert normalise(text) == unicodedata.normalize("NFKC", text), ascii(text)


def test_the_table_holds_all_marks() -> None:
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        assert _marks()[code] == _is_mark(character)
        parts = unicodedata.normalize("NFKD", character)
        is_begun = bool(unicodedata.combining(parts[0]))
        assert _is_mark(character) == is_begun
        assert not is_begun or all(map(unicodedata.combining, parts))


def test_expressions_of_marks_are_read_in_time() -> None:
    text = ("a" + (ABOVE + BELOW) * (DEFAULT_LIMITS.expression_bytes // 4 - 1))[:8_000]
    assert cpu_seconds(lambda: Expression.parse(text, "text")) < 1


def test_others_have_their_turn_while_texts_are_normalised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight megabytes were one call, which held the interpreter's lock for seconds."""
    sizes: list[int] = []

    def counted(text: str) -> str:
        sizes.append(len(text.encode()))
        return normalise(text)

    rng = random.Random(28)
    texts = ["\ufdfa" * (DEFAULT_LIMITS.text_bytes // 3)] * 9
    texts += [
        "".join(rng.choices("\u01d5\u0301a \ufdfa", k=rng.randint(0, 3_000))) for _ in range(200)
    ]
    rng.shuffle(texts)
    expected = [sorted(set(map(term_hash, analyse(text)))) for text in texts]
    monkeypatch.setattr("sirocco.model.text.normalise", counted)
    columns = TextAnalyser().analyse_batch(*pack_bytes([text.encode() for text in texts]))
    bounds = columns.offsets.tolist()
    found = [columns.terms[a:b].tolist() for a, b in pairwise(bounds)]
    assert found == expected
    assert len(sizes) > 5
    assert max(sizes) <= NORMALISED_BYTES_MAX
