"""The part of a search's text that slices cannot decide: looked up in the texts of candidates.

Slices hold the terms that are counted: of scripts without spaces pairs of characters, and no
positions. So a single character and a phrase are searched for in the texts of the objects that
satisfy the rest, and so are the beginning of a word and what accents do not matter to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sirocco.model.expression import Conjunction
from sirocco.model.folding.query_patterns import QueryPatterns
from sirocco.model.patterns import is_pattern, words_of
from sirocco.model.term_hashing import TermHashing
from sirocco.model.text import TextAnalyser, may_be_unit

__all__ = ["TextCheck", "stored_conjunctions"]

# Texts analysed together, and bits of what they hold: some 256 KB.
_ROWS_MAX = 2_048
_BITS_MAX = 1 << 18


def stored_conjunctions(conjunctions: Sequence[Conjunction]) -> list[Conjunction] | None:
    """Returns conditions on terms that slices have, which all objects of some others satisfy.

    None where slices have all of these terms.
    """
    words = {word for one in conjunctions for word in (*one.positive, *one.negative)}
    is_open = {word for word in words if is_pattern(word) or may_be_unit(word)}
    if not is_open:
        return None
    found = []
    for one in conjunctions:
        implied = {token for word in one.positive for token in words_of(word)}
        positive = {word for word in implied if not may_be_unit(word)}
        negative = [word for word in one.negative if word not in is_open]
        found.append(Conjunction(tuple(sorted(positive)), tuple(negative)))
    return found


class TextCheck:
    """An expression, evaluated on texts."""

    __slots__ = ("_conjunctions", "_hashing", "_numbers", "_table")

    def __init__(self, conjunctions: Sequence[Conjunction], hashing: TermHashing) -> None:
        """Prepares an expression, given by its conjunctions; `hashing` numbers its terms."""
        words = sorted({word for one in conjunctions for word in (*one.positive, *one.negative)})
        self._hashing = hashing
        self._table = QueryPatterns(hashing.numbers)
        self._table.add([word for word in words if is_pattern(word)])
        numbers = hashing.numbers(words)
        order = np.argsort(numbers)
        self._numbers = numbers[order]
        place_of = {words[at]: place for place, at in enumerate(order.tolist())}
        self._conjunctions = [
            ([place_of[word] for word in one.positive], [place_of[word] for word in one.negative])
            for one in conjunctions
        ]

    def holds(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns which texts of a byte column satisfy the expression."""
        count, analyser = len(offsets) - 1, TextAnalyser()
        found = np.zeros(count, np.bool_)
        step = max(1, min(_ROWS_MAX, _BITS_MAX // max(1, len(self._numbers))))
        for begin in range(0, count, step):
            own = offsets[begin : begin + step + 1]
            texts = data[own[0] : own[-1]], own - own[0]
            found[begin : begin + step] = self._holds(*texts, analyser)
        return found

    def _holds(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], analyser: TextAnalyser
    ) -> NDArray[np.bool_]:
        has = np.zeros((len(self._numbers), len(offsets) - 1), np.bool_)
        tokens = self._hashing.tokens(data, offsets, analyser)
        self._mark(tokens.terms, tokens.offsets, has)
        if len(self._table):
            self._mark(*self._hashing.patterns(data, offsets, self._table, analyser), has)
        found = np.zeros(len(offsets) - 1, np.bool_)
        for positive, negative in self._conjunctions:
            found |= has[positive].all(axis=0) & ~has[negative].any(axis=0)
        return found

    def _mark(
        self, terms: NDArray[np.uint64], offsets: NDArray[np.int64], has: NDArray[np.bool_]
    ) -> None:
        places = np.searchsorted(self._numbers, terms).clip(max=len(self._numbers) - 1)
        rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        is_known = self._numbers[places] == terms
        has[places[is_known], rows[is_known]] = True
