"""Finds in texts what queries of an index may name: tokens, and the patterns in use."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.index.standing.vocabulary import Vocabulary
from sirocco.kernels.text.token_rows import append_patterns
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing
from sirocco.model.text import TermColumns

__all__ = ["both_terms", "terms_of_texts", "with_patterns"]


def both_terms(first: TermColumns, second: TermColumns) -> TermColumns:
    """Returns the terms of objects under two numberings; those of an object are not in order."""
    lengths = np.diff(first.offsets), np.diff(second.offsets)
    offsets = first.offsets + second.offsets
    terms = np.empty(int(offsets[-1]), np.uint64)
    counts = np.empty(len(terms), np.uint16)
    is_first = np.repeat(np.tile([True, False], len(first.lengths)), np.stack(lengths, 1).ravel())
    for one, places in ((first, is_first), (second, ~is_first)):
        terms[places] = one.terms[one.offsets[0] : one.offsets[-1]]
        counts[places] = one.counts[one.offsets[0] : one.offsets[-1]]
    return TermColumns(terms, offsets, first.lengths, counts)


def with_patterns(
    terms: TermColumns, numbers: NDArray[np.uint64], offsets: NDArray[np.int64]
) -> TermColumns:
    """Returns the terms of objects with the patterns of their texts: u8[p], i8[n + 1]."""
    if not len(numbers):
        return terms
    total = int(terms.offsets[-1] - terms.offsets[0]) + len(numbers)
    joined = np.empty(total, np.uint64), np.empty(total, np.uint16)
    ends = np.empty(len(offsets), np.int64)
    append_patterns(terms.terms, terms.counts, terms.offsets, numbers, offsets, *joined, ends)
    return TermColumns(joined[0], ends, terms.lengths, joined[1])


def terms_of_texts(
    vocabulary: Vocabulary,
    hashing: TermHashing,
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
) -> TermColumns:
    """Returns what the queries of an index may name in texts (u1[b], i8[n + 1])."""
    found = hashing.tokens(data, offsets)
    if hashing.is_keyed and vocabulary.has_wire_terms:
        # Queries without words are met by the hashes of the wire.
        found = both_terms(found, WIRE_TERMS.tokens(data, offsets))
    if vocabulary.patterns is not None and len(vocabulary.patterns):
        found = with_patterns(found, *hashing.patterns(data, offsets, vocabulary.patterns))
    return found
