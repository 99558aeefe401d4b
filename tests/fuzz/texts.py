"""The text analysis against the words of the contract (`tests.oracle.words`).

All code points, runs of marks, characters that become many, and borders of scripts, emoji and
flags; several texts in one batch, of which one must not change another.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np

from sirocco.kernels.base.keyed_hash import KEY_WORDS
from sirocco.model.hints.places import spans_of
from sirocco.model.objects import pack_bytes
from sirocco.model.text import TextAnalyser, term_hash, terms_of, tokens_of
from tests.oracle import words

# Blocks where the analysis decides: letters and marks, scripts without spaces, jamo, forms that are
# compatible to others, emoji and flags, what is ignored by default.
_BLOCKS = (
    *((0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x600), (0x600, 0x900), (0x900, 0xE00)),
    *((0xE00, 0x10A0), (0x1100, 0x1200), (0x1D00, 0x2000), (0x2000, 0x2C00), (0x3000, 0x3400)),
    *((0xA640, 0xA830), (0xAC00, 0xAC80), (0xF900, 0xFB50), (0xFB50, 0xFE00), (0xFE00, 0x10000)),
    *((0x1D100, 0x1D800), (0x1F100, 0x1F200), (0x1F1E6, 0x1F200), (0x1F200, 0x1FB00)),
    *((0x2F800, 0x2FA20), (0xE0000, 0xE0200), (0, 0xD800), (0xE000, 0x110000)),
)
_MARKS = "\u0301\u0316\u0345\u0327\u3099\u309a\u0f73\u0e33\u0eb3\u1039\u200d\ufe0f\u20e3\u00ad"
_PIECES = (
    *("\u30fc", "\uff70", "コーヒー", "火事", "กำ", "ဗမာ", "\u1100\u1161\u11a8", "5½", "İ", "ﬃ"),
    *(
        "\ufdfa",
        "㌀",
        "🇫🇷",
        "🇫",
        "👩🏽\u200d🚒",
        "©",
        "\u0130\u0307",
        "ſt",
        "ẞ",
        "_",
        "\0",
        "\ufffd",
    ),
    *("\u1e9b\u0323", "\U0001d15f", "\u2f83", "A\u030a", "\u212b", "e\u0301", "\u03c2\u03a3"),
)


def _text(dice: Random) -> str:
    first, end = dice.choice(_BLOCKS)
    near = [chr(dice.randrange(first, end)) for _ in range(4)]
    pieces = []
    for _ in range(dice.choice((0, 1, 3, 12))):
        one = dice.choice((*near, dice.choice(_PIECES), dice.choice(_MARKS), " ", "ab"))
        # Marks in a run are ordered together; some bounds are near 30.
        pieces.append(one * dice.choice((1, 1, 1, 2, 31, 70)) if len(one) == 1 else one)
    return "".join(pieces)


def tokens(dice: Random) -> None:
    """Tokens and terms of a text, in order, and where each stands."""
    text = _text(dice)
    expected = words.tokens_of(text)
    assert tokens_of(text) == expected, ascii(text)
    assert terms_of(text) == words.terms_of(text), ascii(text)
    for fold in (False, True):
        found = spans_of(text, fold=fold)
        assert [token for token, _, _ in found] == words.tokens_of(text, fold=fold), ascii(text)
        places = [place for _, begin, end in found for place in (begin, end)]
        assert all(0 <= place <= len(text) for place in places), ascii(text)
        assert all(begin < end for _, begin, end in found), ascii(text)


def batches(dice: Random) -> None:
    """Texts side by side: each has the terms that it has alone, under any key."""
    texts = [_text(dice) for _ in range(dice.choice((1, 2, 9)))]
    key = None
    if dice.random() < 0.5:
        key = np.array([dice.getrandbits(64) for _ in range(KEY_WORDS)], np.uint64)
    data, offsets = pack_bytes([text.encode() for text in texts])
    terms, found, order = TextAnalyser().analyse_in_order(data, offsets, key)
    for row, text in enumerate(texts):
        alone = TextAnalyser().analyse_both(*pack_bytes([text.encode()]), key)
        for one, each in zip((terms, found), alone, strict=True):
            span = slice(one.offsets[row], one.offsets[row + 1])
            assert one.terms[span].tolist() == each.terms.tolist(), ascii(texts)
            assert one.counts[span].tolist() == each.counts.tolist(), ascii(texts)
        span = slice(terms.offsets[row], terms.offsets[row + 1])
        expected = words.terms_of(text)
        assert terms.lengths[row] == len(expected), ascii(texts)
        if key is None:
            hashes = {term_hash(term): expected.count(term) for term in expected}
            assert (
                dict(zip(terms.terms[span].tolist(), terms.counts[span].tolist(), strict=True))
                == hashes
            ), ascii(texts)
        assert order.offsets[row + 1] - order.offsets[row] == len(words.tokens_of(text))


WORKS: tuple[Callable[[Random], None], ...] = (tokens, batches)
