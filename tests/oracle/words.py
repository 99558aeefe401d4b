"""Terms of a text, and boolean expressions over terms, from the words of the contract."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

_TOKEN = re.compile(r"[()]|[^\s()]+")
_OPERATORS = ("AND", "OR", "NOT", "ANY")


class _Separators(dict[int, int]):
    """Code point → itself if it belongs to terms, else a blank; filled on demand."""

    def __missing__(self, point: int) -> int:
        character = chr(point)
        is_kept = character == "_" or unicodedata.category(character)[0] in "LMN"
        self[point] = point if is_kept else ord(" ")
        return self[point]


_SEPARATORS = _Separators()


def terms_of(text: str) -> list[str]:
    """Returns the terms of a text in order, with repeats."""
    return unicodedata.normalize("NFKC", text).casefold().translate(_SEPARATORS).split()


class BadExpressionError(ValueError):
    """The text is not an expression."""


@dataclass(frozen=True, slots=True)
class Branch:
    """An inner node: `all`, `any` or `not` of its parts; leaves are terms."""

    operator: str
    parts: tuple[Tree, ...]


Tree: TypeAlias = "str | Branch"


def parse(source: str) -> Tree:
    """Returns the tree of an expression.

    Raises:
        BadExpressionError: It is malformed or empty.
    """
    tokens = _TOKEN.findall(source)
    tree, end = _alternatives(tokens, 0)
    if end < len(tokens):
        raise BadExpressionError(f"{tokens[end]} behind the end of {source!r}")
    return tree


def evaluate(tree: Tree, holding: Callable[[str], Any]) -> Any:
    """Returns the value of a tree; `holding` gives a term's value, of any type with & | ~."""
    if isinstance(tree, str):
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


def _alternatives(tokens: list[str], at: int) -> tuple[Tree, int]:
    """Reads the part between two ORs, from `at`; returns it with the next place."""
    part, at = _together(tokens, at)
    parts = [part]
    while at < len(tokens) and tokens[at] == "OR":
        part, at = _together(tokens, at + 1)
        parts.append(part)
    return _joined("any", parts), at


def _together(tokens: list[str], at: int) -> tuple[Tree, int]:
    part, at = _single(tokens, at)
    parts = [part]
    while at < len(tokens) and tokens[at] not in ("OR", ")"):
        part, at = _single(tokens, at + (tokens[at] == "AND"))
        parts.append(part)
    return _joined("all", parts), at


def _single(tokens: list[str], at: int) -> tuple[Tree, int]:
    token = tokens[at] if at < len(tokens) else "the end"
    if token == "NOT":
        part, at = _single(tokens, at + 1)
        return Branch("not", (part,)), at
    if token == "(":
        part, at = _alternatives(tokens, at + 1)
        return part, _closed(tokens, at)
    if token == "ANY":
        if tokens[at + 1 : at + 2] != ["("]:
            raise BadExpressionError("no ( behind ANY")
        at += 2
        parts = [_word(tokens, at)]
        while at + 1 < len(tokens) and tokens[at + 1] != ")":
            at += 1
            parts.append(_word(tokens, at))
        return _joined("any", parts), _closed(tokens, at + 1)
    return _word(tokens, at), at + 1


def _closed(tokens: list[str], at: int) -> int:
    if tokens[at : at + 1] != [")"]:
        raise BadExpressionError("a ) is missing")
    return at + 1


def _word(tokens: list[str], at: int) -> Tree:
    token = tokens[at] if at < len(tokens) else "AND"
    found = [] if token in (*_OPERATORS, "(", ")") else terms_of(token)
    if not found:
        raise BadExpressionError(f"{token} is no word")
    return _joined("all", list(found))
