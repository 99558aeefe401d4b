"""Text analysis: from a text to its terms, and from a term to its hash.

A text is normalised to NFKC once, casefolded, and split into maximal runs of characters of the
Unicode categories L, M, N and of `_`; each run is a term. Normalisation is not repeated after the
casefold: the result of casefolding is taken as it is. Inside the system a term is its xxh3-64 hash.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from sirocco.kernels.base.text import (
    clean_rows,
    collect_keyed_terms,
    collect_terms,
    join_rows,
    separate_words,
)
from sirocco.kernels.base.utf8 import mark_invalid_utf8
from sirocco.kernels.base.xxh3 import hash_spans
from sirocco.model.characters import character_table

# Scratch memory for this many bytes of cleaned texts is kept between batches; in all about ten
# times as much.
KEPT_BYTES_MAX = 4 << 20

# Texts normalised in one call, or one text: a call holds the interpreter's lock, and a character
# may become eighteen.
NORMALISED_BYTES_MAX = 128 << 10

_ASCII_TERM = re.compile(r"\w+", re.ASCII)


# Longest run of combining marks that is normalised as it is; people write one to four. As many as
# in the Stream-Safe Text Format of the Unicode Standard (UAX 15).
_MARKS_MAX = 30

# No plane from the third on has marks; a test compares with all code points.
_MARKS_END = 0x20000

# Long runs are looked for in every seventh character first, where they leave four marks.
_STRIDE = 7


def normalise(text: str) -> str:
    """Returns the NFKC form of a text, in time proportional to its length.

    `unicodedata` puts marks into order by exchanging neighbours: 64 KB of them in the wrong order
    took five seconds. Long runs are sorted here first, which does not change their normal form.
    """
    if len(text) > _MARKS_MAX:
        text = _with_sorted_marks(text)
    return unicodedata.normalize("NFKC", text)


def _with_sorted_marks(text: str) -> str:
    """Returns a text whose long runs of marks are decomposed and in canonical order."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    sampled = _marks()[codes[::_STRIDE]]
    if not (sampled[3:] & sampled[2:-1] & sampled[1:-2] & sampled[:-3]).any():
        return text
    edges = np.flatnonzero(np.diff(_marks()[codes], prepend=False, append=False))
    begins, ends = edges[::2], edges[1::2]
    is_long = ends - begins > _MARKS_MAX
    pieces, position = [], 0
    for begin, end in zip(begins[is_long].tolist(), ends[is_long].tolist(), strict=True):
        marks = "".join(unicodedata.normalize("NFKD", mark) for mark in text[begin:end])
        # By their classes; those of one class stay as they are.
        pieces += [text[position:begin], *sorted(marks, key=unicodedata.combining)]
        position = end
    return "".join([*pieces, text[position:]])


@functools.cache
def _marks() -> NDArray[np.bool_]:
    """Returns bool[c]: which code points are combining marks, or decompose to some."""
    marks = np.zeros(sys.maxunicode + 1, np.bool_)
    marks[:_MARKS_END] = [_is_mark(chr(code)) for code in range(_MARKS_END)]
    return marks


def _is_mark(character: str) -> bool:
    if unicodedata.combining(character):
        return True
    # Such as U+0F73 and U+FF9E, which are none by themselves.
    return bool(
        unicodedata.decomposition(character)
        and unicodedata.combining(unicodedata.normalize("NFKD", character)[0])
    )


def is_term_character(character: str) -> bool:
    """Returns whether a character belongs to a term: category L*, M* or N*, or `_`."""
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def analyse(text: str) -> list[str]:
    """Returns the terms of a text in order, with repeats; the reference of the analysis."""
    if text.isascii():
        # ASCII is already normal, and its L, M and N are the letters and digits.
        return _ASCII_TERM.findall(text.lower())
    terms: list[str] = []
    start = -1
    folded = normalise(text).casefold()
    for position, character in enumerate(folded):
        if is_term_character(character):
            if start < 0:
                start = position
        elif start >= 0:
            terms.append(folded[start:position])
            start = -1
    if start >= 0:
        terms.append(folded[start:])
    return terms


def term_hash(term: str) -> int:
    """Returns the xxh3-64 hash of a term's UTF-8 form, an unsigned 64-bit integer."""
    return xxhash.xxh3_64_intdigest(term.encode())


def hash_rows(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Returns u8[n], the xxh3-64 of each row of a byte column (u1[b], i8[n + 1])."""
    hashes = np.empty(len(offsets) - 1, np.uint64)
    # The kernel reads whole words.
    hash_spans(np.concatenate([data, np.zeros(8, np.uint8)]), offsets, hashes)
    return hashes


def invalid_utf8_rows(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns i8[k], ascending: the rows of a byte column that are not well-formed UTF-8."""
    invalid = np.empty(len(offsets) - 1, np.bool_)
    if mark_invalid_utf8(data, offsets, invalid) == 0:
        return np.empty(0, np.int64)
    return np.flatnonzero(invalid)


@dataclass(frozen=True, slots=True, eq=False)
class TermColumns:
    """The terms of n texts.

    Attributes:
        terms: u8[t], hashes, ascending and distinct within a text.
        offsets: i8[n + 1], the terms of text r are terms[offsets[r]:offsets[r + 1]].
        lengths: i4[n], tokens of each text with repeats.
        counts: u2[t], occurrences of each term in the text, at least 1. Within the limits, a text
            has a term at most once per two bytes, so they are exact.
    """

    terms: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int32]
    counts: NDArray[np.uint16]


class TextAnalyser:
    """Analyses batches of texts; keeps its scratch memory, so use one per thread."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        """Drops the scratch memory."""
        self._cleaned = np.empty(0, np.uint8)
        self._terms = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.uint16)
        self._others = np.empty((1, 2), np.uint64)

    def analyse_batch(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        key: NDArray[np.uint64] | None = None,
    ) -> TermColumns:
        """Returns the terms of each text, equal to those of `analyse`.

        Args:
            data: u1[b], valid UTF-8 (see `invalid_utf8_rows`).
            offsets: i8[n + 1], ascending, within data.
            key: u8[KEY_WORDS], key of the hash for terms; None for the wire's hash.
        """
        count = len(offsets) - 1
        table = character_table()
        self._reserve_cleaned(3 * len(data) + count, kept=0)
        starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
        hard_rows = np.empty(count, np.int64)
        rows = np.arange(count)
        written, hard_count = clean_rows(
            data, offsets, rows, False,
            table.index, table.blocks, table.expansions, table.compositions,
            self._cleaned, 0, starts, ends, hard_rows,
        )  # fmt: skip
        if hard_count:
            rows = hard_rows[:hard_count].copy()
            data, offsets = _normalise(data, offsets, rows)
            self._reserve_cleaned(written + len(data) + hard_count, kept=written)
            written, _ = clean_rows(
                data, offsets, rows, True,
                table.index, table.blocks, table.expansions, table.compositions,
                self._cleaned, written, starts, ends, hard_rows,
            )  # fmt: skip
        # Each term takes at least one byte, followed by a zero byte.
        if len(self._terms) < written // 2 + 1:
            self._terms = np.empty(written, np.uint64)
            self._counts = np.empty(written, np.uint16)
            self._others = np.empty((written + 1, 2), np.uint64)
        term_offsets, lengths = np.empty(count + 1, np.int64), np.empty(count, np.int32)
        if key is None:
            total = collect_terms(
                self._cleaned, starts, ends, self._terms, self._others,
                term_offsets, lengths, self._counts,
            )  # fmt: skip
        else:
            total = collect_keyed_terms(
                self._cleaned, starts, ends, key, self._terms, self._others,
                term_offsets, lengths, self._counts,
            )  # fmt: skip
        terms, counts = self._terms[:total].copy(), self._counts[:total].copy()
        if len(self._cleaned) > KEPT_BYTES_MAX:
            # One batch of long texts must not hold this much memory from now on.
            self._forget()
        return TermColumns(terms, term_offsets, lengths, counts)

    def _reserve_cleaned(self, size: int, *, kept: int) -> None:
        """Makes room for `size` bytes and what the kernels read and write beyond."""
        if len(self._cleaned) < size + 80:
            grown = np.empty(size + size // 2 + 80, np.uint8)
            grown[:kept] = self._cleaned[:kept]
            self._cleaned = grown


def _normalise(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns the words of the named rows normalised and casefolded, as (data, offsets).

    Only non-ASCII words are normalised, those of all rows as one string, since a call costs more
    than a text. Spaces and line feeds separate them: they are starters that take part in no
    composition, so nothing is reordered or composed across them, and no other character normalises
    or folds to a line feed. The order of words within a row changes, but not the term columns.
    """
    size = int((offsets[rows + 1] - offsets[rows]).sum()) + 2 * len(rows)
    count = len(rows) + 1
    plain, plain_offsets = np.empty(size, np.uint8), np.empty(count, np.int64)
    foreign, foreign_offsets = np.empty(size, np.uint8), np.empty(count, np.int64)
    separate_words(data, offsets, rows, plain, plain_offsets, foreign, foreign_offsets)
    pieces = [
        normalise(foreign[begin:end].tobytes().decode()).casefold().encode()
        for begin, end in _stretches(foreign_offsets)
    ]
    normal = np.frombuffer(b"".join(pieces), np.uint8)
    normal_offsets = np.zeros(count, np.int64)
    normal_offsets[1:] = np.flatnonzero(normal == ord("\n")) + 1
    joined = np.empty(plain_offsets[-1] + len(normal), np.uint8)
    joined_offsets = np.empty(count, np.int64)
    join_rows(plain, plain_offsets, normal, normal_offsets, joined, joined_offsets)
    return joined, joined_offsets


def _stretches(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yields where stretches of rows begin and end, each one row or `NORMALISED_BYTES_MAX`."""
    row = 0
    while row < len(offsets) - 1:
        begin = int(offsets[row])
        end = int(np.searchsorted(offsets, begin + NORMALISED_BYTES_MAX, side="right")) - 1
        row = max(end, row + 1)
        yield begin, int(offsets[row])


def analyse_batch(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> TermColumns:
    """Returns the terms of each text; for many batches use a `TextAnalyser`."""
    return TextAnalyser().analyse_batch(data, offsets)
