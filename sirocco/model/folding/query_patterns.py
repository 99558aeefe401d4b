"""What queries name besides tokens: phrases and beginnings, and terms without accents.

Texts are searched only for what is there. For terms without accents they are analysed once more, by
the table that leaves accents out: an index without such queries pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.model.characters import folded_table
from sirocco.model.folding.folded_terms import is_folded, unmarked
from sirocco.model.patterns import (
    FOLDED,
    NearPatterns,
    OrderedTokens,
    PatternTable,
    is_pattern,
)
from sirocco.model.text import TextAnalyser

__all__ = ["QueryPatterns"]

# The numbers of what texts hold, u8[p], and i8[n + 1].
Found: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.int64]]

_Numbering: TypeAlias = Callable[[Sequence[str]], NDArray[np.uint64]]


class QueryPatterns:
    """Patterns of queries, each with its number; for one thread at a time.

    Attributes:
        known: pattern → its number.
    """

    def __init__(self, numbers_of: _Numbering) -> None:
        """Creates an empty one; `numbers_of` numbers words."""
        self.known: dict[str, int] = {}
        self._numbers_of = numbers_of
        self._plain = PatternTable(numbers_of)
        # Made for the first of each: most indexes have none.
        self._folded: PatternTable | None = None
        self._words: _Words | None = None

    def __len__(self) -> int:
        return len(self.known)

    @property
    def bytes_total(self) -> int:
        """Memory in bytes, the strings included."""
        folded = 0 if self._folded is None else self._folded.bytes_total
        words = 0 if self._words is None else self._words.bytes_total
        return self._plain.bytes_total + folded + words

    def add(self, patterns: Sequence[str]) -> None:
        """Adds patterns; known ones stay."""
        fresh = [each for each in dict.fromkeys(patterns) if each not in self.known]
        if not fresh:
            return
        self.known.update(zip(fresh, self._numbers_of(fresh).tolist(), strict=True))
        self._plain.add([each for each in fresh if not is_folded(each)])
        folded = [unmarked(each) for each in fresh if is_folded(each)]
        others = [each for each in folded if is_pattern(each)]
        if others:
            self._folded = self._folded or PatternTable(self._numbers_folded)
            self._folded.add(others)
        if len(others) < len(folded):
            self._words = self._words or _Words()
            words = [each for each in folded if not is_pattern(each)]
            numbers = [self.known[f"{FOLDED}{each}"] for each in words]
            self._words.add(self._numbers_of(words), np.array(numbers, np.uint64))

    def keep(self, is_wanted: Callable[[int], bool]) -> None:
        """Drops all patterns but those with a wanted number."""
        self.known = {each: number for each, number in self.known.items() if is_wanted(number)}
        self._plain.keep(is_wanted)
        if self._folded is not None:
            self._folded.keep(is_wanted)
            self._folded = self._folded if len(self._folded) else None
        if self._words is not None:
            self._words.keep(is_wanted)
            self._words = self._words if len(self._words) else None

    def columns_of(
        self, words: NDArray[np.uint8], offsets: NDArray[np.int64], rows: NDArray[np.intp]
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.bool_]]:
        """Returns numbers u8[k], groups u8[k], and bool[k] which are phrases, of known patterns.

        Args:
            words: u1[b], offsets: i8[w + 1]: words of queries.
            rows: i8[k], of those that are phrases or beginnings (`placed_rows`).
        """
        found = [words[offsets[row] : offsets[row + 1]].tobytes().decode() for row in rows.tolist()]
        numbers = np.array([self.known[each] for each in found], np.uint64)
        return numbers, *self._plain.groups(found)

    @property
    def placed(self) -> PatternTable:
        """Phrases and beginnings as texts hold them, which may be left out by place."""
        return self._plain

    def find(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        key: NDArray[np.uint64] | None,
        analyser: TextAnalyser | None = None,
        *,
        in_order: OrderedTokens | None = None,
        near: NearPatterns | None = None,
    ) -> Found:
        """Returns the numbers of the patterns that texts (u1[b], i8[n + 1]) hold.

        Args:
            data, offsets: the texts.
            key: that of the numbers, None for those of the wire.
            analyser: the thread's analyser, if it has many batches.
            in_order: the texts' tokens, where they are known.
            near: where the texts are; phrases and beginnings that no query names there may be left
                out. None: all are wanted.
        """
        parts: list[Found] = []
        if len(self._plain) and in_order is not None:
            parts.append(self._plain.find(in_order, near))
        elif len(self._plain):
            plain = analyser or TextAnalyser()
            parts.append(plain.patterns_of_batch(data, offsets, self._plain, key, near))
        if self._folded is not None or self._words is not None:
            folding = TextAnalyser(folded_table())
            if self._folded is not None:
                parts.append(folding.patterns_of_batch(data, offsets, self._folded, key))
            if self._words is not None:
                tokens = folding.tokens_of_batch(data, offsets, key)
                parts.append(self._words.find(tokens.terms, tokens.offsets))
        return _joined(parts, len(offsets) - 1)

    def _numbers_folded(self, words: Sequence[str]) -> NDArray[np.uint64]:
        """Numbers tokens of folded texts as they are, and patterns as those of queries."""
        return self._numbers_of([f"{FOLDED}{w}" if is_pattern(w) else w for w in words])


class _Words:
    """Single words that folded texts are searched for."""

    def __init__(self) -> None:
        self._tokens = self._numbers = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._tokens)

    @property
    def bytes_total(self) -> int:
        """Memory in bytes, the strings included."""
        return 166 * len(self)

    def add(self, tokens: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> None:
        """Adds words: u8[w], the numbers of their tokens, and their own."""
        tokens = np.concatenate([self._tokens, tokens])
        order = np.argsort(tokens)
        self._tokens = tokens[order]
        self._numbers = np.concatenate([self._numbers, numbers])[order]

    def keep(self, is_wanted: Callable[[int], bool]) -> None:
        """Drops all words but those with a wanted number."""
        kept = np.array([is_wanted(number) for number in self._numbers.tolist()], np.bool_)
        self._tokens, self._numbers = self._tokens[kept], self._numbers[kept]

    def find(self, terms: NDArray[np.uint64], offsets: NDArray[np.int64]) -> Found:
        """Returns the numbers of the words among the tokens of texts, u8[t] and i8[n + 1]."""
        places = np.searchsorted(self._tokens, terms).clip(max=len(self._tokens) - 1)
        is_held = self._tokens[places] == terms
        ends = np.zeros(len(terms) + 1, np.int64)
        np.cumsum(is_held, out=ends[1:])
        return self._numbers[places[is_held]], ends[offsets]


def _joined(parts: list[Found], rows: int) -> Found:
    """Returns what each row has in any of the parts."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return np.empty(0, np.uint64), np.zeros(rows + 1, np.int64)
    numbers = np.concatenate([found for found, _ in parts])
    owners = np.concatenate([np.repeat(np.arange(rows), np.diff(ends)) for _, ends in parts])
    offsets = np.zeros(rows + 1, np.int64)
    for _, ends in parts:
        offsets += ends
    return numbers[np.argsort(owners, kind="stable")], offsets
