"""Text analysis: from a text to its terms, and from a term to its hash.

A text is normalised to NFKC once, casefolded, and cut into maximal runs of characters of the
Unicode categories L, M, N and of `_`; each run is a term. Normalisation is not repeated after
the casefold: the result of casefolding is taken as it is. Inside the system a term is its
xxh3-64 hash.
"""

from __future__ import annotations

import unicodedata

import xxhash


def is_term_character(character: str) -> bool:
    """Tells whether a character belongs to a term: category L*, M* or N*, or `_`."""
    return character == "_" or unicodedata.category(character)[0] in "LMN"


def analyse(text: str) -> list[str]:
    """Returns the terms of a text in order, with repeats; the reference of the analysis."""
    terms: list[str] = []
    start = -1
    folded = unicodedata.normalize("NFKC", text).casefold()
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
