"""Finds the places of a query's words in a text, to be highlighted.

Places are counted in code points of the text as it was published. The analysis changes a text: it
composes and folds characters, leaves some out, and makes several of one. So here each character of
the analysed text remembers which characters it comes from. This takes Python about a microsecond a
character, a hundred times what matching takes, and is done only for what is shown to people.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from sirocco.kernels.text.characters import (
    CLASS_SHIFT,
    CODE_MASK,
    COMBINING_SHIFT,
    EMOJI,
    EXPANDS,
    FLAG,
    HARD,
    LENGTHENS,
    MARK,
    OTHER,
    SLOW,
    UNSPACED,
    UNSPACED_MARK,
)
from sirocco.model.characters import CharacterTable, character_table, folded_table
from sirocco.model.expression import Expression
from sirocco.model.folding.folded_terms import unmarked
from sirocco.model.patterns import words_of

__all__ = ["Place", "TextPlaces", "keyword_places", "matched_places", "spans_of"]

# Places that are named: a screen shows fewer, and a text may hold a word ten thousand times.
PLACES_MAX = 256

# Characters that are searched for all words of a query together. Within the limits of both, a
# thousand phrases in a text of 64 KB would take half a second.
SEARCHED_MAX = 4 << 20

_WORD = re.compile(r"\w+", re.ASCII)
_PIECE = re.compile(r"[^ \t\n\r]+")
_IOTA_BELOW, _IOTA = "\u0345", "\u03b9"
_CLASS_MASK = 7
# What continues a word begins one where there is none before it.
_AT_BEGIN = {MARK: OTHER, LENGTHENS: OTHER, UNSPACED_MARK: UNSPACED}
_CODE_POINT_MASK = 0xFF_FFFF
_S_BASE, _S_COUNT = 0xAC00, 11_172

# Normalised stretches that stay known, and how long one may be.
_STRETCHES_MAX = 1 << 15
_STRETCH_LENGTH_MAX = 16


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a word of a query.

    Attributes:
        term: the word, phrase or beginning as the analysis writes it.
        start: of its first character in the text, in code points.
        end: after its last character.
    """

    term: str
    start: int
    end: int


# A token with its place.
Span = tuple[str, int, int]


def matched_places(expression: Expression, text: str) -> list[Place]:
    """Returns the places of the words by which a text satisfies an expression; see `TextPlaces`."""
    return TextPlaces(text).matched(expression)


class TextPlaces:
    """A text that several queries are asked about."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: dict[bool, _Tokens] = {}
        self._terms: dict[str, list[Place]] | None = None

    def matched(self, expression: Expression) -> list[Place]:
        """Returns the places of the words by which the text satisfies an expression.

        These are the words that have to be there in the alternatives that hold; none if none holds.
        """
        fold = expression.fold
        tokens = self._tokens.get(fold)
        if tokens is None:
            tokens = self._tokens[fold] = _Tokens(spans_of(self._text, fold=fold))
        return _matched(expression, tokens)

    def keywords(self, keywords: Sequence[str]) -> list[Place]:
        """Returns the places of the keywords of a ranked query."""
        if self._terms is None:
            self._terms = {}
            for part in _parts_of(self._text, _USUAL):
                for term in _terms_of_part(part):
                    self._terms.setdefault(term[0], []).append(Place(*term))
        held = (self._terms.get(keyword, ()) for keyword in keywords)
        return _ordered(place for places in held for place in places)


def _matched(expression: Expression, tokens: _Tokens) -> list[Place]:
    found = {
        term: places for term in _terms_of(expression) if (places := tokens.places(unmarked(term)))
    }
    present = found.keys()
    held = {
        term: found[term]
        for one in expression.conjunctions
        if one.matches(present)
        for term in one.positive
    }
    return _ordered(place for places in held.values() for place in places)


def keyword_places(keywords: Sequence[str], text: str) -> list[Place]:
    """Returns the places of the keywords of a ranked query in a text; see `TextPlaces`."""
    return TextPlaces(text).keywords(keywords)


def spans_of(text: str, *, fold: bool = False) -> list[Span]:
    """Returns the tokens of a text in order, each with its start and end."""
    return [span for part in _parts_of(text, _FOLDED if fold else _USUAL) for span in part]


def _ordered(places: Iterable[Place]) -> list[Place]:
    return sorted(places, key=lambda one: (one.start, one.end, one.term))[:PLACES_MAX]


def _terms_of(expression: Expression) -> Iterator[str]:
    """Yields the terms of an expression."""
    known: set[str] = set()
    for one in expression.conjunctions:
        for term in (*one.positive, *one.negative):
            if term not in known:
                known.add(term)
                yield term


def _terms_of_part(part: list[Span]) -> list[Span]:
    pairs = [(a[0] + b[0], a[1], b[2]) for a, b in pairwise(part)]
    return pairs or part


class _Tokens:
    """The tokens of a text, in which words of queries are looked for."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans = spans
        # Tokens hold no blanks. The blank before each token is at its begin.
        self._joined = f" {' '.join(token for token, _, _ in spans)} "
        self._begins: list[int] = []
        at = 0
        for token, _, _ in spans:
            self._begins.append(at)
            at += len(token) + 1
        self._left = SEARCHED_MAX

    def places(self, term: str) -> list[Place]:
        """Returns the places of a token, phrase or beginning."""
        if term.endswith("*"):
            wanted, count = f" {term[:-1]}", 1
        else:
            words = words_of(term)
            wanted, count = f" {' '.join(words)} ", len(words)
        found: list[Place] = []
        at = 0
        self._left -= len(self._joined)
        while self._left > 0 and len(found) < PLACES_MAX:
            at = self._joined.find(wanted, at)
            if at < 0:
                break
            first = bisect_left(self._begins, at)
            found.append(Place(term, self._spans[first][1], self._spans[first + count - 1][2]))
            at += 1
        return found


def _parts_of(text: str, characters: _Characters) -> Iterator[list[Span]]:
    """Yields the words and emoji of a text, each by itself, and the units of each other part."""
    # A blank changes nothing on either side.
    for piece in _PIECE.finditer(text):
        if piece[0].isascii():
            for word in _WORD.finditer(piece[0]):
                at = piece.start()
                yield [(word[0].lower(), at + word.start(), at + word.end())]
        else:
            yield from _parts_of_piece(characters.normalised(piece[0], piece.start()))


def _parts_of_piece(
    normalised: Iterable[tuple[str, int, int, int]],
) -> Iterator[list[Span]]:
    part: list[tuple[list[str], int, int]] = []
    is_unspaced = False
    half: tuple[str, int] | None = None
    for character, own, begin, end in normalised:
        if own in _AT_BEGIN and part:
            if own == LENGTHENS and is_unspaced:
                part.append(([character], begin, end))
            else:
                _lengthen(part, character, end)
            continue
        class_ = _AT_BEGIN.get(own, own)
        if class_ in (UNSPACED, OTHER):
            half = None
            if part and is_unspaced == (class_ == UNSPACED):
                if is_unspaced:
                    part.append(([character], begin, end))
                else:
                    _lengthen(part, character, end)
                continue
        if part:
            yield _finished(part)
            part = []
        if class_ in (UNSPACED, OTHER):
            part, is_unspaced = [([character], begin, end)], class_ == UNSPACED
        elif class_ == FLAG and half is not None:
            yield [(half[0] + character, half[1], end)]
            half = None
        elif class_ == FLAG:
            half = character, begin
        else:
            half = None
            if class_ == EMOJI:
                yield [(character, begin, end)]
    if part:
        yield _finished(part)


def _lengthen(part: list[tuple[list[str], int, int]], character: str, end: int) -> None:
    characters, begin, _ = part[-1]
    characters.append(character)
    part[-1] = characters, begin, end


def _finished(part: list[tuple[list[str], int, int]]) -> list[Span]:
    return [("".join(characters), begin, end) for characters, begin, end in part]


def _composed(text: str) -> str:
    """Returns a text in NFC.

    Marks are put in order before: Python moves each past all others, so that one text of 64 KB, all
    marks, would hold the interpreter for a second.
    """
    if len(text) <= _STRETCH_LENGTH_MAX:
        return unicodedata.normalize("NFC", text)
    ordered: list[str] = []
    marks: list[str] = []
    for character in "".join(unicodedata.normalize("NFD", one) for one in text):
        if unicodedata.combining(character):
            marks.append(character)
            continue
        ordered += sorted(marks, key=unicodedata.combining)
        ordered.append(character)
        marks.clear()
    ordered += sorted(marks, key=unicodedata.combining)
    return unicodedata.normalize("NFC", "".join(ordered))


class _Characters:
    """What becomes of characters by one table; as in the kernel (`kernels.text.cleaning`)."""

    def __init__(self, table: Callable[[], CharacterTable]) -> None:
        self._table = table
        self._begins_anew = lru_cache(maxsize=_STRETCHES_MAX)(self._is_beginning)
        self._known = lru_cache(maxsize=_STRETCHES_MAX)(self._normal)

    def normalised(self, text: str, offset: int) -> Iterator[tuple[str, int, int, int]]:
        """Yields (character, class, start, end) of the normalised text.

        Characters that may change each other have one place together.
        """
        begin = 0
        for at in range(1, len(text) + 1):
            if at < len(text) and not self._begins_anew(text[at]):
                continue
            stretch = text[begin:at]
            is_short = len(stretch) <= _STRETCH_LENGTH_MAX
            for character, class_ in self._known(stretch) if is_short else self._normal(stretch):
                yield character, class_, offset + begin, offset + at
            begin = at

    def _normal(self, stretch: str) -> tuple[tuple[str, int], ...]:
        """Returns the characters of a normalised stretch, with their classes."""
        text = "".join(map(self._decomposed, stretch))
        composed = _composed(text)
        if _IOTA_BELOW in text:
            # It folds to a letter only after marks are in order.
            text = "".join(map(self._decomposed, composed)).replace(_IOTA_BELOW, _IOTA)
            composed = _composed(text)
        return tuple((c, self._entry(ord(c)) >> CLASS_SHIFT & _CLASS_MASK) for c in composed)

    def _decomposed(self, character: str) -> str:
        """Returns what a character is mapped to."""
        code = ord(character)
        row = 0 if 0 <= code - _S_BASE < _S_COUNT else self._row(code)
        if row == 0:
            return character
        table = self._table()
        pool = table.pool[table.starts[row] : table.starts[row + 1]].tolist()
        return "".join(chr(each & _CODE_POINT_MASK) for each in pool)

    def _is_beginning(self, character: str) -> bool:
        """Returns whether a character changes nothing before it."""
        code = ord(character)
        entry = self._entry(code)
        if not entry & SLOW:
            # Row 1 is the empty mapping, of characters that are left out.
            is_empty = bool(entry & EXPANDS) and entry & CODE_MASK == 1
            return not is_empty and not entry >> COMBINING_SHIFT and not entry & HARD
        row = self._row(code)
        if row == 0:
            return False
        table = self._table()
        first = int(table.pool[table.starts[row]])
        is_hard = self._entry(first & _CODE_POINT_MASK) & HARD
        return not first >> COMBINING_SHIFT and not is_hard

    def _entry(self, code: int) -> int:
        table = self._table()
        return int(table.blocks[table.index[code >> 8], code & 0xFF])

    def _row(self, code: int) -> int:
        table = self._table()
        return int(table.row_blocks[table.row_index[code >> 8], code & 0xFF])


_USUAL, _FOLDED = _Characters(character_table), _Characters(folded_table)
