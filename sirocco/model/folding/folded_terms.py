"""The terms of queries to which accents do not matter, and where a text holds them.

Such a term is the folded token, phrase or beginning after a tilde: `~zurich`. So it is a term of
its own for an index, like a phrase, and an object holds it where its folded text does.
"""

from __future__ import annotations

from collections.abc import Iterable

from sirocco.model.characters import folded_table
from sirocco.model.patterns import FOLDED, held_patterns, is_pattern
from sirocco.model.text import tokens_of

__all__ = ["folded_tokens_of", "is_folded", "present_terms", "unmarked"]


def is_folded(term: str) -> bool:
    """Whether accents do not matter to a term."""
    return term.startswith(FOLDED)


def unmarked(term: str) -> str:
    """Returns a folded term as the token, phrase or beginning that folded texts hold."""
    return term.removeprefix(FOLDED)


def folded_tokens_of(text: str) -> list[str]:
    """Returns the tokens of a text in order, without accents."""
    return tokens_of(text, folded_table())


def present_terms(terms: Iterable[str], text: str) -> frozenset[str]:
    """Returns a text's tokens, and those patterns and folded ones among some terms that it holds.

    The reference for `QueryPatterns`.
    """
    tokens = tokens_of(text)
    wanted = set(terms)
    folded = {term for term in wanted if is_folded(term)}
    held = held_patterns((term for term in wanted - folded if is_pattern(term)), tokens)
    if folded:
        tokens_folded = folded_tokens_of(text)
        words = {unmarked(term) for term in folded}
        found = held_patterns(filter(is_pattern, words), tokens_folded)
        found |= words.intersection(tokens_folded)
        held |= {f"{FOLDED}{word}" for word in found}
    return frozenset(held.union(tokens))
