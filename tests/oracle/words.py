"""Tokens and terms of a text, and boolean expressions, from the words of the contract."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

_TOKEN = re.compile(r'[()]|"[^"]*"|"|[^\s()"]+')
_ASCII_WORD = re.compile(r"\w+", re.ASCII)
_OPERATORS = ("AND", "OR", "NOT", "ANY")
_UNSPACED = ("Han", "Hiragana", "Katakana", "Thai", "Lao", "Khmer", "Myanmar")
_ROOT = Path(__file__).parents[2]


@functools.cache
def _properties() -> dict[str, frozenset[str]]:
    """Returns the characters of each property that `unicodedata` lacks."""
    (path,) = (_ROOT / "scripts" / "unicode").glob("properties-*.txt")
    found: dict[str, set[str]] = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            span, name = line.split(" ; ")
            first, last = (int(part, 16) for part in span.split(".."))
            found.setdefault(name, set()).update(map(chr, range(first, last + 1)))
    return {name: frozenset(characters) for name, characters in found.items()}


@functools.cache
def _unspaced() -> frozenset[str]:
    return frozenset().union(*(_properties()[name] for name in _UNSPACED))


def _without_ignorables(text: str) -> str:
    ignorables = _properties()["Default_Ignorable_Code_Point"]
    return text if ignorables.isdisjoint(text) else "".join(c for c in text if c not in ignorables)


@functools.lru_cache(8_192)
def _opened(character: str) -> str:
    """Returns a character after step 1."""
    if character == "\u0130":
        return "i"
    is_number = unicodedata.category(character) == "No"
    is_fraction = is_number and "\u2044" in unicodedata.normalize("NFKD", character)
    return f" {character}" if is_fraction else character


@functools.lru_cache(16)
def folded(text: str) -> str:
    """Returns a text after steps 1 and 2."""
    if text.isascii():
        return text.lower()
    text = _without_ignorables("".join(map(_opened, text)))
    while True:
        before = text
        text = unicodedata.normalize("NFKC", text).casefold()
        text = unicodedata.normalize("NFKC", _without_ignorables(text))
        if text == before:
            return text


# Latin letters that are not another one `WITH` something.
_BASE_LETTERS = dict(zip("æœþðŋĸıȷ", ("ae", "oe", "th", "d", "n", "q", "i", "j"), strict=True))


@functools.lru_cache(16)
def unaccented(text: str) -> str:
    """Returns a folded text without accents, as for queries with `fold`."""
    kept = []
    for character in unicodedata.normalize("NFKD", text):
        name = unicodedata.name(character, "").split(" ")
        if unicodedata.category(character) == "Mn":
            is_voicing = character in "\u3099\u309a"
            if name[0] in ("COMBINING", "HEBREW", "ARABIC", "SYRIAC") and not is_voicing:
                continue
        elif name[:3] == ["LATIN", "SMALL", "LETTER"] and name[4:5] == ["WITH"]:
            character = name[3].lower() if len(name[3]) == 1 else character  # noqa: PLW2901
        kept.append(_BASE_LETTERS.get(character, character))
    return unicodedata.normalize("NFC", "".join(kept))


@functools.lru_cache(8_192)
def _without_iota_below(character: str) -> str:
    parts = unicodedata.normalize("NFKD", character)
    return parts.replace("\u0345", "") if "\u0345" in parts else character


@functools.lru_cache(8_192)
def _is_word(character: str) -> bool:
    return character == "_" or unicodedata.category(character)[0] in "LMN"


@functools.lru_cache(8_192)
def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def _is_flag(character: str) -> bool:
    return 0x1F1E6 <= ord(character) <= 0x1F1FF


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """Yields words and emoji, and the parts in scripts without spaces, which are marked."""
    if text.isascii():
        # Most texts that tests make up: the rules below, without a look at each character.
        yield from ((word, False) for word in _ASCII_WORD.findall(text))
        return
    at = 0
    while at < len(text):
        if _is_word(text[at]):
            is_unspaced = text[at] in _unspaced()
            end = at + 1
            while end < len(text) and _is_word(text[end]):
                continues = text[end] == "\u30fc" or _is_mark(text[end])
                if not continues and (text[end] in _unspaced()) != is_unspaced:
                    break
                end += 1
            yield text[at:end], is_unspaced
            at = end
        elif _is_flag(text[at]):
            if at + 1 < len(text) and _is_flag(text[at + 1]):
                yield text[at : at + 2], False
                at += 1
            at += 1
        else:
            if text[at] in _properties()["Extended_Pictographic"]:
                yield text[at], False
            at += 1


def _units(part: str) -> list[str]:
    units: list[str] = []
    for character in part:
        if units and _is_mark(character):
            units[-1] += character
        else:
            units.append(character)
    return units


def tokens_of(text: str, *, fold: bool = False) -> list[str]:
    """Returns the tokens of a text in order, with repeats; without accents where these are folded.

    A mark below a letter (U+0345) is an accent before it becomes a letter.
    """
    text = unaccented(folded("".join(map(_without_iota_below, text)))) if fold else folded(text)
    return [
        token
        for part, is_unspaced in _parts(text)
        for token in (_units(part) if is_unspaced else [part])
    ]


def terms_of(text: str) -> list[str]:
    """Returns the terms of a text in order, with repeats."""
    terms: list[str] = []
    for part, is_unspaced in _parts(folded(text)):
        units = _units(part) if is_unspaced else [part]
        terms += [a + b for a, b in pairwise(units)] or units
    return terms


@dataclass(frozen=True, slots=True)
class Phrase:
    """Tokens side by side; a single token is one of them."""

    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of a word."""

    start: str


Leaf: TypeAlias = Phrase | Beginning


def holds(leaf: Leaf, tokens: list[str]) -> bool:
    """Returns whether a text with these tokens, in order, satisfies a leaf."""
    if isinstance(leaf, Beginning):
        return any(token.startswith(leaf.start) for token in tokens)
    count = len(leaf.tokens)
    return any(tuple(tokens[i : i + count]) == leaf.tokens for i in range(len(tokens)))


class BadExpressionError(ValueError):
    """The text is not an expression."""


@dataclass(frozen=True, slots=True)
class Branch:
    """An inner node: `all`, `any` or `not` of its parts; leaves are words."""

    operator: str
    parts: tuple[Tree, ...]


Tree: TypeAlias = "Leaf | Branch"

# From a word of an expression to its tokens.
Words: TypeAlias = Callable[[str], list[str]]


def parse(source: str, *, fold: bool = False) -> Tree:
    """Returns the tree of an expression; `fold`: its words are without accents.

    Raises:
        BadExpressionError: It is malformed or empty.
    """
    tokens = _TOKEN.findall(source)
    tree, end = _alternatives(tokens, 0, functools.partial(tokens_of, fold=fold))
    if end < len(tokens):
        raise BadExpressionError(f"{tokens[end]} behind the end of {source!r}")
    return tree


def evaluate(tree: Tree, holding: Callable[[Leaf], Any]) -> Any:
    """Returns the value of a tree; `holding` gives a leaf's value, of any type with & | ~."""
    if isinstance(tree, Phrase | Beginning):
        return holding(tree)
    values = [evaluate(part, holding) for part in tree.parts]
    if tree.operator == "not":
        return ~values[0]
    found = values[0]
    for value in values[1:]:
        found = found & value if tree.operator == "all" else found | value
    return found


def _joined(operator: str, parts: list[Tree]) -> Tree:
    return parts[0] if len(parts) == 1 else Branch(operator, tuple(parts))


def _alternatives(tokens: list[str], at: int, words_of: Words) -> tuple[Tree, int]:
    """Reads the part between two ORs, from `at`; returns it with the next place."""
    part, at = _together(tokens, at, words_of)
    parts = [part]
    while at < len(tokens) and tokens[at] == "OR":
        part, at = _together(tokens, at + 1, words_of)
        parts.append(part)
    return _joined("any", parts), at


def _together(tokens: list[str], at: int, words_of: Words) -> tuple[Tree, int]:
    part, at = _single(tokens, at, words_of)
    parts = [part]
    while at < len(tokens) and tokens[at] not in ("OR", ")"):
        part, at = _single(tokens, at + (tokens[at] == "AND"), words_of)
        parts.append(part)
    return _joined("all", parts), at


def _single(tokens: list[str], at: int, words_of: Words) -> tuple[Tree, int]:
    token = tokens[at] if at < len(tokens) else "the end"
    if token == "NOT":
        part, at = _single(tokens, at + 1, words_of)
        return Branch("not", (part,)), at
    if token == "(":
        part, at = _alternatives(tokens, at + 1, words_of)
        return part, _closed(tokens, at)
    if token == "ANY":
        if tokens[at + 1 : at + 2] != ["("]:
            raise BadExpressionError("no ( behind ANY")
        at += 2
        parts = [_word(tokens, at, words_of)]
        while at + 1 < len(tokens) and tokens[at + 1] != ")":
            at += 1
            parts.append(_word(tokens, at, words_of))
        return _joined("any", parts), _closed(tokens, at + 1)
    return _word(tokens, at, words_of), at + 1


def _closed(tokens: list[str], at: int) -> int:
    if tokens[at : at + 1] != [")"]:
        raise BadExpressionError("a ) is missing")
    return at + 1


def _word(tokens: list[str], at: int, words_of: Words) -> Tree:
    token = tokens[at] if at < len(tokens) else "AND"
    is_phrase = token.startswith('"') and len(token) > 1
    if "*" in token[: len(token) - (token.endswith("*") and not is_phrase)]:
        raise BadExpressionError(f"a star within {token}")
    found = [] if token in (*_OPERATORS, "(", ")") else words_of(token)
    if not found:
        raise BadExpressionError(f"{token} is no word")
    if token.endswith("*"):
        (start, *more) = found
        if more or len(start) < 2 or start[0] in _unspaced():
            raise BadExpressionError(f"{token} begins no word")
        return Beginning(start)
    return Phrase(tuple(found))
