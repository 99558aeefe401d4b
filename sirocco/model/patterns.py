"""Phrases and beginnings of words, as queries name them: `"big fire"` and `evacuat*`.

A pattern is written as the words of a query are, with its tokens as they were analysed. So it is a
term of its own for an index: an object holds it where its text does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.hash_placement import secret
from sirocco.kernels.text.pattern_search import find_patterns
from sirocco.kernels.text.pattern_tree import (
    FIRST_NODE,
    ROW_WORDS,
    SPREAD,
    STATE_ENDS,
    STATE_KEPT,
    STATE_NODES,
    STATE_WORDS,
    WALKED,
    add_patterns,
)

__all__ = [
    "FOLDED",
    "NearPatterns",
    "OrderedTokens",
    "PatternTable",
    "begins",
    "held_patterns",
    "is_pattern",
    "pattern_rows",
    "phrase",
    "placed_rows",
    "words_of",
]

FOLDED = "~"
"""Begins each term of a query to which accents do not matter."""

_QUOTE, _STAR = ord('"'), ord("*")
_NODES_MIN = 64
_FOUND_MIN = 4_096
# Words whose longest beginning is remembered: two megabytes.
_WORDS_MAX = 1 << 17
# With at least eight bits for each pattern, one pair of words in eight is looked up in vain.
_ENDS_A_WORD = 8
# With at least sixteen bits for each mark, one in sixty that is not there is looked for.
_MARKS_A_WORD = 4
_LINE_WORDS = 8
_NO_SYMBOLS = np.empty(0, np.uint64)


def phrase(tokens: Sequence[str]) -> str:
    """Returns the pattern of tokens side by side."""
    return f'"{" ".join(tokens)}"'


def begins(start: str) -> str:
    """Returns the pattern of words that begin like this."""
    return f"{start}*"


def is_pattern(word: str) -> bool:
    """Whether a word of a query is a pattern: tokens hold neither quotes, stars nor tildes.

    What accents do not matter to is one (`folding`): no text holds it as a token.
    """
    return word.startswith(('"', FOLDED)) or word.endswith("*")


def words_of(word: str) -> list[str]:
    """Returns the tokens that every text with a word of a query holds."""
    if word.startswith('"'):
        return word[1:-1].split(" ")
    return [] if word.endswith("*") or word.startswith(FOLDED) else [word]


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
    firsts = words[offsets[:-1].clip(max=len(words) - 1)]
    is_phrase = (firsts == _QUOTE) | (firsts == ord(FOLDED))
    is_beginning = words[offsets[1:] - 1] == _STAR
    return np.flatnonzero((is_phrase | is_beginning) & (offsets[1:] > offsets[:-1]))


@dataclass(frozen=True, slots=True, eq=False)
class OrderedTokens:
    """The tokens of n texts as they follow one another, repeats included.

    Attributes:
        cleaned: u1, the texts as `clean_rows` writes them, with eight readable bytes after them.
        spans: u8[t], start << 32 | length of each token in `cleaned`.
        numbers: u8[t].
        offsets: i8[n + 1], the tokens of text r are those from offsets[r] on.
    """

    cleaned: NDArray[np.uint8]
    spans: NDArray[np.uint64]
    numbers: NDArray[np.uint64]
    offsets: NDArray[np.int64]

    def take(self, rows: NDArray[np.integer]) -> OrderedTokens:
        """Returns those of some texts, in the given order."""
        counts = np.diff(self.offsets)[rows]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        places = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], counts)
        return OrderedTokens(self.cleaned, self.spans[places], self.numbers[places], offsets)


@dataclass(frozen=True, slots=True, eq=False)
class NearPatterns:
    """Where n texts are, and what queries name at each place: see `kernels.text.pattern_places`.

    Attributes:
        lon, lat: f8[n], degrees.
        extent: f8[4]; blocks: u8; state: i8; secret: u8.
    """

    lon: NDArray[np.float64]
    lat: NDArray[np.float64]
    extent: NDArray[np.float64]
    blocks: NDArray[np.uint64]
    state: NDArray[np.int64]
    secret: NDArray[np.uint64]

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """In the order of `find_patterns`."""
        return self.lon, self.lat, self.extent, self.blocks, self.state, self.secret


_NOWHERE, _NONE = np.empty(0), np.empty(0, np.uint64)
_ANYWHERE = NearPatterns(_NOWHERE, _NOWHERE, _NOWHERE, _NONE, np.empty(0, np.int64), _NONE)


def placed_rows(words: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.intp]:
    """Returns those that may be left out by place: all but terms to which accents do not matter."""
    rows = pattern_rows(words, offsets)
    return rows[words[offsets[rows]] != ord(FOLDED)] if len(rows) else rows


class PatternTable:
    """Patterns that texts are searched for, in the form for kernels; for one thread at a time.

    Attributes:
        known: pattern → its number.
    """

    def __init__(self, numbers_of: Callable[[Sequence[str]], NDArray[np.uint64]]) -> None:
        """Creates an empty one; `numbers_of` numbers words."""
        self.known: dict[str, int] = {}
        self._numbers_of = numbers_of
        self._secret = np.array(secret(), np.uint64)
        self._found_max = _FOUND_MIN
        self._clear(_NODES_MIN, _NODES_MIN, _NODES_MIN, _NODES_MIN)

    def _clear(self, nodes_max: int, ends_max: int, marks_max: int, kept_max: int) -> None:
        """Makes an empty tree with room for some nodes, ends, marks and tokens, powers of two."""
        self._places = np.zeros((2 * nodes_max, 2), np.uint64)
        self._marks = np.zeros((2 * marks_max, 2), np.uint64)
        self._marks_room = marks_max
        self._mark_filter = np.zeros(marks_max // _MARKS_A_WORD, np.uint64)
        self._kept = np.empty(kept_max, np.uint64)
        self._nodes = _rows(nodes_max)
        self._ends = _rows(ends_max)
        self._pairs = np.zeros(max(1, ends_max // _ENDS_A_WORD), np.uint64)
        self._begins_some = np.zeros(1 << 16, np.bool_)
        self._state = np.zeros(STATE_WORDS, np.int64)
        self._state[[STATE_NODES, STATE_ENDS]] = FIRST_NODE, 1
        self._words = np.zeros(2 * min(nodes_max, _WORDS_MAX), np.uint64)

    def __len__(self) -> int:
        return len(self.known)

    @property
    def bytes_total(self) -> int:
        """Memory in bytes, the strings included."""
        arrays = (*self._tree, self._words)
        return sum(each.nbytes for each in arrays) + 150 * len(self.known)

    @property
    def secret(self) -> NDArray[np.uint64]:
        """u8, by which patterns are placed."""
        return self._secret

    def groups(self, patterns: Sequence[str]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Returns the groups of patterns, u8[p] (see `add_places`), and which are phrases."""
        is_phrase = np.array([each.startswith('"') for each in patterns], np.bool_)
        groups = np.empty(len(patterns), np.uint64)
        starts = [each[:-1].encode()[:8] for each in patterns if not each.startswith('"')]
        groups[~is_phrase] = [int.from_bytes(start, "little") for start in starts]
        words = [w for each in patterns if each.startswith('"') for w in words_of(each)[:2]]
        if words:
            numbers = self._numbers_of(words).reshape(-1, 2)
            groups[is_phrase] = numbers[:, 0] + SPREAD * numbers[:, 1]
        return groups, is_phrase

    @property
    def _tree(self) -> tuple[NDArray[Any], ...]:
        return (
            self._places, self._marks, self._mark_filter, self._kept, self._nodes, self._ends,
            self._pairs, self._begins_some, self._secret, self._state,
        )  # fmt: skip

    def add(self, patterns: Sequence[str]) -> None:
        """Adds patterns; known ones stay."""
        fresh = [pattern for pattern in dict.fromkeys(patterns) if pattern not in self.known]
        if not fresh:
            return
        self.known.update(zip(fresh, self._numbers_of(fresh).tolist(), strict=True))
        paths = self._paths(fresh)
        nodes, ends, kept = self._state[[STATE_NODES, STATE_ENDS, STATE_KEPT]].tolist()
        room = len(self._nodes) - nodes, len(self._ends) - ends, len(self._kept) - kept
        wanted = len(paths.symbols), len(fresh), paths.tokens
        if paths.marks > self._marks_room or any(map(operator.gt, wanted, room)):
            self.keep(lambda _: True)
        else:
            self._insert(fresh, paths)

    def keep(self, is_wanted: Callable[[int], bool]) -> None:
        """Drops all patterns but those with a wanted number."""
        self.known = {word: number for word, number in self.known.items() if is_wanted(number)}
        kept = list(self.known)
        paths = self._paths(kept)
        nodes = 2 * (FIRST_NODE + len(paths.symbols))
        sizes = nodes, 2 * (1 + len(kept)), 2 * paths.marks, 2 * paths.tokens
        self._clear(*(_power_of_two(size) for size in sizes))
        self._insert(kept, paths)

    def find(
        self, texts: OrderedTokens, near: NearPatterns | None = None
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Returns the numbers of the patterns that texts hold, u8[p], and i8[n + 1].

        Args:
            texts: n texts, their tokens numbered as those of the patterns.
            near: where they are; patterns that no query names there may be left out. None: all are
                wanted.
        """
        offsets = np.empty(len(texts.offsets), np.int64)
        columns = texts.cleaned, texts.spans, texts.numbers, texts.offsets
        places = (near or _ANYWHERE).columns
        # A text's last token is written where it would have a place, and not counted.
        room = len(texts.numbers) + 1
        scratch = tuple(np.empty(room, np.int32) for _ in range(4))
        while True:
            found = np.empty(self._found_max, np.uint64)
            total = find_patterns(columns, places, self._tree, self._words, scratch, offsets, found)
            if total >= 0:
                return found[:total], offsets
            self._found_max *= 4

    def _paths(self, patterns: Sequence[str]) -> _Paths:
        is_phrase = np.array([pattern.startswith('"') for pattern in patterns], np.bool_)
        tokens = self._numbers_of(
            [word for pattern in patterns if pattern.startswith('"') for word in words_of(pattern)]
        )
        parts, at = [], 0
        for pattern in patterns:
            if pattern.startswith('"'):
                length = pattern.count(" ") + 1
                parts.append(tokens[at : at + length])
                at += length
            else:
                data = np.frombuffer(pattern[:-1].encode(), np.uint8)
                parts.append(data.astype(np.uint64))
        offsets = np.zeros(len(parts) + 1, np.int64)
        np.cumsum([len(part) for part in parts], out=offsets[1:])
        return _Paths(np.concatenate(parts) if parts else _NO_SYMBOLS, offsets, is_phrase)

    def _insert(self, patterns: Sequence[str], paths: _Paths) -> None:
        numbers = np.array([self.known[pattern] for pattern in patterns], np.uint64)
        add_patterns(paths.symbols, paths.offsets, paths.is_phrase, numbers, *self._tree)
        self._marks_room -= paths.marks
        if not paths.is_phrase.all():
            # Words may begin with more than is noted.
            self._words[:] = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Paths:
    """What patterns consist of: see `add_patterns`."""

    symbols: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    is_phrase: NDArray[np.bool_]

    @property
    def _further(self) -> NDArray[np.int64]:
        """How many tokens those phrases have after the first WALKED that have some."""
        further = np.diff(self.offsets)[self.is_phrase] - WALKED
        return further[further > 0]

    @property
    def marks(self) -> int:
        """How many nodes `add_patterns` may mark."""
        return sum(each.bit_count() for each in self._further.tolist())

    @property
    def tokens(self) -> int:
        """How many tokens `add_patterns` keeps."""
        return int((self._further + WALKED).sum())


def _rows(count: int) -> NDArray[np.uint64]:
    """Returns u8[count, ROW_WORDS], zeros, none of which is in two lines of a cache."""
    words = np.zeros(ROW_WORDS * count + _LINE_WORDS, np.uint64)
    begin = -words.ctypes.data // words.itemsize % _LINE_WORDS
    return words[begin : begin + ROW_WORDS * count].reshape(count, ROW_WORDS)


def _power_of_two(at_least: int) -> int:
    size = _NODES_MIN
    while size < at_least:
        size *= 2
    return size
