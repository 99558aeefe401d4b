"""Text analysis: from a text to its tokens and terms, and from these to their hashes.

A text is normalised and casefolded (NFKC_Casefold of the Unicode Standard, with characters that are
ignored by default left out), by the table of one version of Unicode (`characters`). Tokens are what
queries match: words, which are runs of letters, marks, numbers and `_`; emoji; and, in scripts
written without spaces, single characters with their marks. Terms are what is counted and ranked:
the same, but in those scripts pairs of neighbours, unless a character has none. Inside the system a
token or term is its xxh3-64 hash.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from sirocco.kernels.base.keyed_hash import KEY_WORDS
from sirocco.kernels.base.xxh3 import hash_spans
from sirocco.kernels.text.characters import UNIT_FIRST, UNIT_NEXT
from sirocco.kernels.text.cleaning import CLEANED_BYTES, CLEANED_ROW, clean_rows
from sirocco.kernels.text.normalising import SCRATCH_MORE
from sirocco.kernels.text.terms import OTHERS_MORE, collect_keyed_terms, collect_terms
from sirocco.kernels.text.token_rows import number_tokens
from sirocco.kernels.text.utf8 import mark_invalid_utf8
from sirocco.model.characters import CharacterTable, character_table
from sirocco.model.patterns import NearPatterns, OrderedTokens, PatternTable

ANALYSIS = 2
"""The number of this analysis, which checkpoints and archived slices name. 1 had neither emoji nor
scripts without spaces; texts are stored and are analysed anew."""

# Scratch memory for this many bytes of cleaned texts is kept between batches; in all about ten
# times as much.
KEPT_BYTES_MAX = 4 << 20

_LENGTHENING = "\u30fc"
# A unit, after which U+30FC is one too.
_ANY_UNIT = "ア"

_ASCII_TERM = re.compile(r"\w+", re.ASCII)

_NO_KEY = np.zeros(KEY_WORDS, np.uint64)
_NO_ORDER = np.empty(0, np.uint64), np.empty(0, np.uint64)
# Kernels read whole words.
_WORD_BYTES = 8

_PART = re.compile(rb"[^\x00]+")
_UNIT_BORDER = re.compile(bytes([0x5B, UNIT_FIRST, UNIT_NEXT, 0x5D]))


def tokens_of(text: str, table: CharacterTable | None = None) -> list[str]:
    """Returns the tokens of a text in order, with repeats, by the usual table or another one."""
    if text.isascii():
        # ASCII is already normal, and its L, M and N are the letters and digits.
        return _ASCII_TERM.findall(text.lower())
    return [token for part in _parts_of(text, table) for token in part]


def terms_of(text: str) -> list[str]:
    """Returns the terms of a text in order, with repeats."""
    if text.isascii():
        return _ASCII_TERM.findall(text.lower())
    terms: list[str] = []
    for part in _parts_of(text):
        pairs = [first + second for first, second in itertools.pairwise(part)]
        terms += pairs or part
    return terms


def keywords_for(terms: Sequence[str]) -> list[str]:
    """Returns keywords that stand for the terms of a query, and for no others.

    U+30FC is a unit only after others. The pair `ーヒ` of `コーヒー`, read by itself, would be the
    word `ー` and the unit `ヒ`. It is written after a pair that leads to it: `コーヒ`.

    Args:
        terms: all terms of the query.
    """
    return [_keyword(term, terms) if term.startswith(_LENGTHENING) else term for term in terms]


def is_pair(word: str) -> bool:
    """Whether a stored keyword is a pair that begins with U+30FC, as `keywords_for` writes none.

    Queries were stored with such pairs; read by themselves, they are other terms.
    """
    return word.startswith(_LENGTHENING) and len(_units(word)) == 2


def _keyword(term: str, terms: Sequence[str]) -> str:
    """Returns a word that stands for a term and perhaps others of the same query."""
    if terms_of(term) == [term]:
        return term
    pairs = [pair for each in terms if len(pair := _units(each)) == 2]
    # Breadth first; each pair lengthens one way only.
    ways = [_units(term)]
    for way in ways:
        if not way[0].startswith(_LENGTHENING):
            return "".join(way)
        leading = [pair for pair in pairs if pair[1] == way[0]]
        pairs = [pair for pair in pairs if pair[1] != way[0]]
        ways += [[pair[0], *way] for pair in leading]
    # Only if the other terms of its text are not there.
    return term


def _units(term: str) -> list[str]:
    """Returns the units of a term, one element for a word."""
    if term.startswith(_LENGTHENING):
        return tokens_of(_ANY_UNIT + term)[1:]
    return tokens_of(term)


def _parts_of(text: str, table: CharacterTable | None = None) -> list[list[str]]:
    """Returns the words and emoji of a text, each by itself, and the units of each other part."""
    cleaned, _ = TextAnalyser(table).clean(text.encode(errors="replace"))
    parts = []
    for part in _PART.findall(cleaned):
        units = _UNIT_BORDER.split(part)
        parts.append([unit.decode() for unit in (units[1:] if len(units) > 1 else units)])
    return parts


def may_be_unit(token: str) -> bool:
    """Whether a token is a unit in some text: U+30FC is one only after others."""
    return token.startswith("\u30fc") or is_unspaced(token)


def is_unspaced(token: str) -> bool:
    """Whether a token is a unit: a character, with its marks, of a script without spaces."""
    return not token.isascii() and TextAnalyser().clean(token.encode(errors="replace"))[1]


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
    """The terms of n texts, or their tokens.

    Attributes:
        terms: u8[t], hashes, ascending and distinct within a text.
        offsets: i8[n + 1], the terms of text r are terms[offsets[r]:offsets[r + 1]].
        lengths: i4[n], terms of each text with repeats.
        counts: u2[t], occurrences of each term in the text, at least 1. Within the limits, a text
            has a term at most once per two bytes, so they are exact.
    """

    terms: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int32]
    counts: NDArray[np.uint16]


class TextAnalyser:
    """Analyses batches of texts; keeps its scratch memory, so use one per thread."""

    def __init__(self, table: CharacterTable | None = None) -> None:
        """Creates one for a table of characters; None: the usual one."""
        self._table = table or character_table()
        self._forget()

    def _forget(self) -> None:
        """Drops the scratch memory."""
        self._cleaned = np.empty(0, np.uint8)
        self._parts = np.empty(0, np.uint64)
        self._terms = np.empty(0, np.uint64)
        self._counts = np.empty(0, np.uint16)
        self._others = np.empty((0, 2), np.uint64)

    def clean(self, text: bytes) -> tuple[bytes, bool]:
        """Returns a text as `clean_rows` writes it, and whether it has units."""
        cleaned = self._clean(np.frombuffer(text, np.uint8), np.array([0, len(text)], np.int64))
        return self._cleaned[: cleaned.written].tobytes(), bool(cleaned.has_units[0])

    def analyse_batch(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        key: NDArray[np.uint64] | None = None,
    ) -> TermColumns:
        """Returns the terms of each text, equal to those of `terms_of`.

        Args:
            data: u1[b], valid UTF-8 (see `invalid_utf8_rows`).
            offsets: i8[n + 1], ascending, within data.
            key: u8[KEY_WORDS], key of the hash for terms; None for the wire's hash.
        """
        found = self._collect(self._clean(data, offsets), key, tokens=False)
        self._trim()
        return found

    def tokens_of_batch(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        key: NDArray[np.uint64] | None = None,
    ) -> TermColumns:
        """Returns the tokens of each text, equal to those of `tokens_of`; arguments as above."""
        found = self._collect(self._clean(data, offsets), key, tokens=True)
        self._trim()
        return found

    def analyse_both(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        key: NDArray[np.uint64] | None = None,
    ) -> tuple[TermColumns, TermColumns]:
        """Returns (terms, tokens) of each text; one object where they are equal."""
        cleaned = self._clean(data, offsets)
        terms = self._collect(cleaned, key, tokens=False)
        tokens = self._collect(cleaned, key, tokens=True) if cleaned.has_units.any() else terms
        self._trim()
        return terms, tokens

    def analyse_in_order(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        key: NDArray[np.uint64] | None = None,
    ) -> tuple[TermColumns, TermColumns, OrderedTokens]:
        """Returns (terms, tokens, tokens in order) of each text; arguments as above."""
        cleaned = self._clean(data, offsets)
        room = cleaned.written // 2 + 1
        order = np.empty(room, np.uint64), np.empty(room, np.uint64)
        if cleaned.has_units.any():
            terms = self._collect(cleaned, key, tokens=False)
            tokens = self._collect(cleaned, key, tokens=True, order=order)
        else:
            terms = tokens = self._collect(cleaned, key, tokens=False, order=order)
        ends = np.zeros(len(offsets), np.int64)
        np.cumsum(tokens.lengths, out=ends[1:])
        text = self._cleaned[: cleaned.written + _WORD_BYTES].copy()
        self._trim()
        spans, numbers = (each[: ends[-1]] for each in order)
        return terms, tokens, OrderedTokens(text, spans, numbers, ends)

    def patterns_of_batch(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        table: PatternTable,
        key: NDArray[np.uint64] | None = None,
        near: NearPatterns | None = None,
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Returns the numbers of the patterns that texts hold, u8[p], and i8[n + 1].

        Args:
            data, offsets: as above.
            table: the patterns.
            key: that of their numbers.
            near: where the texts are; None: all patterns are wanted.
        """
        cleaned = self._clean(data, offsets)
        room = cleaned.written // 2 + 1
        spans, numbers = np.empty(room, np.uint64), np.empty(room, np.uint64)
        token_offsets = np.empty(len(offsets), np.int64)
        count = number_tokens(
            self._cleaned, cleaned.begins, cleaned.ends, cleaned.has_units, key is not None,
            _NO_KEY if key is None else key, spans, numbers, token_offsets,
        )  # fmt: skip
        texts = OrderedTokens(self._cleaned, spans[:count], numbers[:count], token_offsets)
        found = table.find(texts, near)
        self._trim()
        return found

    def _clean(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> _Cleaned:
        """Writes the cleaned texts to `_cleaned`."""
        count = len(offsets) - 1
        table = self._table
        begins, ends = np.empty(count, np.int64), np.empty(count, np.int64)
        has_units = np.empty(count, np.bool_)
        longest = int(np.diff(offsets).max(initial=0))
        if len(self._parts) < 2 * (longest + SCRATCH_MORE):
            self._parts = np.empty(2 * (longest + SCRATCH_MORE), np.uint64)
        size = CLEANED_BYTES * len(data) + CLEANED_ROW * (count + 1)
        while True:
            self._reserve(size, kept=0)
            written = clean_rows(
                data, offsets, table.index, table.blocks, table.row_index, table.row_blocks,
                table.starts, table.pool, table.compositions, self._parts, self._cleaned,
                begins, ends, has_units,
            )  # fmt: skip
            if written >= 0:
                break
            # Few texts hold characters that become many: 3 bytes may become 33.
            size = 2 * len(self._cleaned)
        if has_units.any():
            self._reserve(3 * written, kept=written)
        return _Cleaned(written, begins, ends, has_units)

    def _collect(
        self,
        cleaned: _Cleaned,
        key: NDArray[np.uint64] | None,
        *,
        tokens: bool,
        order: tuple[NDArray[np.uint64], NDArray[np.uint64]] = _NO_ORDER,
    ) -> TermColumns:
        """Returns the terms or tokens of cleaned texts; writes spans and hashes to `order`."""
        count, written = len(cleaned.begins), cleaned.written
        # Each term takes at least one byte, followed by a zero byte or before a border.
        if len(self._terms) < written // 2 + 1:
            self._terms = np.empty(written, np.uint64)
            self._counts = np.empty(written, np.uint16)
            self._others = np.empty((written + OTHERS_MORE, 2), np.uint64)
        offsets, lengths = np.empty(count + 1, np.int64), np.empty(count, np.int32)
        rows = self._cleaned, cleaned.begins, cleaned.ends, cleaned.has_units, tokens, written
        columns = self._terms, self._others, offsets, lengths, self._counts, *order
        if key is None:
            total = collect_terms(*rows, *columns)
        else:
            total = collect_keyed_terms(*rows, key, *columns)
        return TermColumns(
            self._terms[:total].copy(), offsets, lengths, self._counts[:total].copy()
        )

    def _reserve(self, size: int, *, kept: int) -> None:
        """Makes room for `size` bytes and what the kernels read and write beyond."""
        if len(self._cleaned) < size + 80:
            grown = np.empty(size + size // 2 + 80, np.uint8)
            grown[:kept] = self._cleaned[:kept]
            self._cleaned = grown

    def _trim(self) -> None:
        """Gives back what one batch of long texts took: it must not be held from now on."""
        if len(self._cleaned) > KEPT_BYTES_MAX:
            self._forget()


@dataclass(frozen=True, slots=True, eq=False)
class _Cleaned:
    """Texts in an analyser's scratch memory: see `clean_rows`."""

    written: int
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    has_units: NDArray[np.bool_]


def analyse_batch(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> TermColumns:
    """Returns the terms of each text; for many batches use a `TextAnalyser`."""
    return TextAnalyser().analyse_batch(data, offsets)


def tokens_of_batch(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> TermColumns:
    """Returns the tokens of each text; for many batches use a `TextAnalyser`."""
    return TextAnalyser().tokens_of_batch(data, offsets)
