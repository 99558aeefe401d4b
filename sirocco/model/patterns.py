"""Phrases and beginnings of words, as queries name them: `"big fire"` and `evacuat*`.

A pattern is written as the words of a query are, with its tokens as they were analysed. So it is a
term of its own for an index: an object holds it where its text does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.hash_placement import secret
from sirocco.kernels.text.patterns import BEGINNINGS, FIRST_NODE, PHRASES, add_pattern

__all__ = [
    "PatternTable",
    "begins",
    "held_patterns",
    "is_pattern",
    "pattern_rows",
    "phrase",
    "words_of",
]

_QUOTE, _STAR = ord('"'), ord("*")
_NODES_MIN = 64


def phrase(tokens: Sequence[str]) -> str:
    """Returns the pattern of tokens side by side."""
    return f'"{" ".join(tokens)}"'


def begins(start: str) -> str:
    """Returns the pattern of words that begin like this."""
    return f"{start}*"


def is_pattern(word: str) -> bool:
    """Whether a word of a query is a pattern: tokens hold neither quotes nor stars."""
    return word.startswith('"') or word.endswith("*")


def words_of(word: str) -> list[str]:
    """Returns the tokens that every text with a word of a query holds."""
    if word.startswith('"'):
        return word[1:-1].split(" ")
    return [] if word.endswith("*") else [word]


def held_patterns(patterns: Iterable[str], tokens: Sequence[str]) -> set[str]:
    """Returns those patterns that a text holds; the reference for `PatternTable`.

    Args:
        patterns: phrases and beginnings.
        tokens: of the text, in order.
    """
    held = set()
    for pattern in patterns:
        if pattern.startswith('"'):
            wanted = words_of(pattern)
            ends = range(len(wanted), len(tokens) + 1)
            is_held = any(list(tokens[end - len(wanted) : end]) == wanted for end in ends)
        else:
            start = pattern[:-1]
            is_held = any(token.startswith(start) for token in tokens)
        if is_held:
            held.add(pattern)
    return held


def pattern_rows(words: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.intp]:
    """Returns the rows of a column of words (u1[b], i8[w + 1]; none empty) that are patterns."""
    if not len(words):
        return np.empty(0, np.intp)
    is_phrase = words[offsets[:-1].clip(max=len(words) - 1)] == _QUOTE
    is_beginning = words[offsets[1:] - 1] == _STAR
    return np.flatnonzero((is_phrase | is_beginning) & (offsets[1:] > offsets[:-1]))


class PatternTable:
    """Patterns that texts are searched for, in the form for kernels.

    Attributes:
        known: pattern → its number.
        begins_some: bool[65536], see `find_patterns`.
        has_phrases: whether there are phrases.
    """

    def __init__(self, numbers_of: Callable[[Sequence[str]], NDArray[np.uint64]]) -> None:
        """Creates an empty one; `numbers_of` numbers words."""
        self.known: dict[str, int] = {}
        self._numbers_of = numbers_of
        self.secret = np.array(secret(), np.uint64)
        self._clear(_NODES_MIN)

    def _clear(self, nodes_max: int) -> None:
        self.begins_some = np.zeros(1 << 16, np.bool_)
        self.has_phrases = False
        self._nodes = FIRST_NODE
        self.numbers = np.zeros(nodes_max, np.uint64)
        self.is_end = np.zeros(nodes_max, np.bool_)
        self.edges = np.zeros((2 * nodes_max, 2), np.int32)
        self.symbols = np.zeros(2 * nodes_max, np.uint64)

    def __len__(self) -> int:
        return len(self.known)

    @property
    def bytes_total(self) -> int:
        """Memory in bytes, the strings included."""
        arrays = self.begins_some, self.numbers, self.is_end, self.edges, self.symbols
        return sum(each.nbytes for each in arrays) + 150 * len(self.known)

    @property
    def tree(self) -> tuple[NDArray[np.generic], ...]:
        """The tree as `find_patterns` takes it."""
        return (
            self.edges, self.symbols, self.numbers, self.is_end, self.secret, self.begins_some,
        )  # fmt: skip

    def add(self, patterns: Sequence[str]) -> None:
        """Adds patterns; known ones stay."""
        fresh = [pattern for pattern in dict.fromkeys(patterns) if pattern not in self.known]
        if not fresh:
            return
        numbers = self._numbers_of(fresh).tolist()
        self.known.update(zip(fresh, numbers, strict=True))
        paths = [self._path(pattern) for pattern in fresh]
        if self._nodes + sum(map(len, paths)) > len(self.numbers):
            self.keep(lambda _: True)
            return
        for pattern, path in zip(fresh, paths, strict=True):
            self._insert(pattern, path)

    def keep(self, is_wanted: Callable[[int], bool]) -> None:
        """Drops all patterns but those with a wanted number."""
        kept = {pattern: number for pattern, number in self.known.items() if is_wanted(number)}
        self.known = kept
        paths = [self._path(pattern) for pattern in kept]
        nodes_max = _NODES_MIN
        while nodes_max < 2 * (FIRST_NODE + sum(map(len, paths))):
            nodes_max *= 2
        self._clear(nodes_max)
        for pattern, path in zip(kept, paths, strict=True):
            self._insert(pattern, path)

    def _path(self, pattern: str) -> NDArray[np.uint64]:
        if pattern.startswith('"'):
            return self._numbers_of(words_of(pattern))
        return np.frombuffer(pattern[:-1].encode(), np.uint8).astype(np.uint64)

    def _insert(self, pattern: str, path: NDArray[np.uint64]) -> None:
        root = PHRASES if pattern.startswith('"') else BEGINNINGS
        if root == PHRASES:
            self.has_phrases = True
        else:
            self.begins_some[int(path[0]) | int(path[1]) << 8] = True
        self._nodes = add_pattern(
            path, root, np.uint64(self.known[pattern]), self.edges, self.symbols, self.numbers,
            self.is_end, self.secret, self._nodes,
        )  # fmt: skip
