"""Warnings about valid queries that probably mean something else than what they say."""

from __future__ import annotations

import re

from sirocco.model.geometry import Polygon
from sirocco.model.query import KnnQuery, Query, RankedQuery

__all__ = ["warnings_of", "warnings_of_text"]

_SMALL_OPERATOR = re.compile(r'(?<![^\s()"])(and|or|not)(?![^\s()"])')
_PHRASE = re.compile(r'"[^"]*"')
# Marks of other keyboards, and quotes of programs around several words: they belong to no token.
_NO_QUOTES = re.compile(r"[“”„‟«»‹›＂″]|(?<![^\s()])['‘][^'’\s]+\s[^'’]*['’](?![^\s()])")
_NO_STARS = re.compile("[＊∗✱٭]")
_HALF_EARTH_DEGREES = 180.0


def warnings_of(query: Query) -> tuple[str, ...]:
    """Returns warnings, at most one of each sort, each with the path of its member first."""
    found: list[str] = []
    if not isinstance(query, RankedQuery) and query.expression is not None:
        found += warnings_of_text(query.expression.source)
        first = query.expression.conjunctions[0]
        if len(query.expression.conjunctions) == 1 and set(first.positive) & set(first.negative):
            found.append("text: contradicts itself, nothing matches")
    region = None if isinstance(query, RankedQuery | KnnQuery) else query.region
    if isinstance(region, Polygon) and any(map(_is_wide, region.rings)):
        found.append(
            "region.polygon: is wider than half the Earth; it does not cross the antimeridian"
        )
    return tuple(found)


def warnings_of_text(source: str) -> list[str]:
    """Returns the warnings about an expression as it is written."""
    found = []
    unquoted = source
    if '"' in source:
        # Within quotes, small operators are words beyond doubt.
        unquoted = _PHRASE.sub(lambda match: "x" * len(match[0]), source)
    operator = _SMALL_OPERATOR.search(unquoted)
    if operator is not None:
        word = operator[0]
        found.append(
            f"text: {word!r} at character {operator.start()} is a word to be found; "
            f"the operator is {word.upper()}"
        )
    if unquoted.isascii() and "'" not in unquoted:
        return found
    quote = _NO_QUOTES.search(unquoted)
    if quote is not None:
        found.append(
            f"text: {quote[0][0]} at character {quote.start()} means nothing; "
            'a phrase stands between two "'
        )
    star = _NO_STARS.search(unquoted)
    if star is not None:
        found.append(
            f"text: {star[0]} at character {star.start()} means nothing; "
            "the beginning of a word ends with *"
        )
    return found


def _is_wide(ring: tuple[tuple[float, float], ...]) -> bool:
    longitudes = [lon for lon, _ in ring]
    return max(longitudes) - min(longitudes) > _HALF_EARTH_DEGREES
