"""Text analysis: from a text to its terms, and from a term to its hash.

A text is normalised to NFKC once, casefolded, and cut into maximal runs of characters of the
Unicode categories L, M, N and of `_`; each run is a term. Normalisation is not repeated after
the casefold: the result of casefolding is taken as it is. Inside the system a term is its
xxh3-64 hash.
"""

from __future__ import annotations

import unicodedata

import numpy as np
import xxhash
from numpy.typing import NDArray

from sirocco.kernels.utf8 import mark_invalid_utf8
from sirocco.kernels.xxh3 import hash_spans


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


def hash_rows(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Returns u8[n], the xxh3-64 of each row of a byte column (u1[b], i8[n + 1])."""
    hashes = np.empty(len(offsets) - 1, np.uint64)
    # The kernel reads whole words.
    hash_spans(np.concatenate([data, np.zeros(8, np.uint8)]), offsets, hashes)
    return hashes


def invalid_utf8_rows(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns i8[k], ascending: the rows of a byte column that are not well-formed UTF-8."""
    invalid = np.empty(len(offsets) - 1, np.bool_)
    mark_invalid_utf8(data, offsets, invalid)
    return np.flatnonzero(invalid)
