"""Decides at which of its places an object counts for a query: the rule of the first alternative.

If a map splits the vocabulary, an object is in several slots: in that of each of its terms, and in
its home. A *locator* of a query is a list of alternatives, each with a key: the first one that the
object satisfies decides, and the object counts at the place of that key, one of its terms. An
alternative without terms, which all objects satisfy, means the home.

A locator is words of u8, alternative by alternative: positive terms | negative terms << 32 (their
numbers), the key (0 if there are no positive terms), the positive terms, the negative ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.pyramid import ROW_WORDS, TERM_BLOCK, TERM_UNIT

__all__ = ["LOCATOR_HEAD", "are_locators", "mark_counted"]

# Words before the terms of an alternative.
LOCATOR_HEAD = 2

_ROW_WORDS = ROW_WORDS
_TERM_UNIT = TERM_UNIT
_HEAD = LOCATOR_HEAD
_COUNT = 0x1FFF

_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_I8_IN = types.Array(types.int64, 1, "C", readonly=True)
_U8_IN = types.Array(types.uint64, 1, "C", readonly=True)
_BOOL_IN = types.Array(types.boolean, 1, "C", readonly=True)
_BOOL = types.Array(types.boolean, 1, "C")


@kernel(inline=True)
def _find(terms: Any, begin: Any, end: Any, term: Any) -> Any:
    """Returns the place of a term in [begin, end), -1 if it is not there."""
    for i in range(begin, end):
        if terms[i] == term:
            return i
    return np.int64(-1)


@kernel(inline=True)
def _holds(
    block: Any, at: Any, positives: Any, negatives: Any, terms: Any, begin: Any, end: Any
) -> Any:
    """Returns whether terms [begin, end) satisfy an alternative whose terms begin at `at`."""
    for i in range(at, at + positives):
        if _find(terms, begin, end, block[i]) < 0:
            return False
    for i in range(at + positives, at + positives + negatives):
        if _find(terms, begin, end, block[i]) >= 0:
            return False
    return True


@kernel(inline=True)
def _by_locator(
    first: Any, words: Any, terms: Any, begin: Any, end: Any, leads_here: Any, is_home: Any
) -> Any:
    last = first + 1 + np.int64(words[first])
    # A term may have the hash of another one that is excluded. The object satisfies the query all
    # the same, and each of its slots has to find the same alternative: then exclusions are ignored.
    for is_lenient in range(2):
        at = first + 1
        while at < last:
            positives = np.int64(words[at] & np.uint64(0xFFFFFFFF))
            negatives = np.int64(words[at] >> np.uint64(32))
            refused = np.int64(0) if is_lenient else negatives
            if _holds(words, at + _HEAD, positives, refused, terms, begin, end):
                if positives == 0:
                    return is_home
                place = _find(terms, begin, end, words[at + 1])
                return place >= 0 and leads_here[place]
            at += _HEAD + positives + negatives
    return is_home


@kernel(inline=True)
def _by_conjunctions(
    reference: Any,
    terms_words: Any,
    wire_of: Any,
    term_ids: Any,
    id_begin: Any,
    id_end: Any,
    terms: Any,
    begin: Any,
    end: Any,
    leads_here: Any,
    is_home: Any,
) -> Any:
    at = np.int64((reference & 0xFFFFFFFF) * _TERM_UNIT)
    for _ in range(reference >> 40):
        head = np.int64(terms_words[at])
        positives = head & _COUNT
        negatives = (head >> 13) & _COUNT
        at += 1
        if _holds(terms_words, at, positives, negatives, term_ids, id_begin, id_end):
            if positives == 0:
                return is_home
            key = wire_of[terms_words[at]]
            for i in range(at + 1, at + positives):
                key = min(key, wire_of[terms_words[i]])
            place = _find(terms, begin, end, key)
            return place >= 0 and leads_here[place]
        at += positives + negatives
    return is_home


@kernel(
    types.void(
        _I4_IN, _I4_IN, _BOOL_IN, _I8_IN, _U8_IN, _BOOL_IN, _I8_IN, _I4_IN,
        _I4_IN, _U8_IN, _I8_IN, _I4_IN, _U8_IN, _BOOL,
    )
)  # fmt: skip
def mark_counted(
    object_rows: Any,
    query_rows: Any,
    homes: Any,
    term_offsets: Any,
    terms: Any,
    leads_here: Any,
    id_offsets: Any,
    term_ids: Any,
    references: Any,
    words: Any,
    row_words: Any,
    terms_words: Any,
    wire_of: Any,
    counted: Any,
) -> None:
    """Marks the pairs of objects and range queries that count at this place.

    Args:
        object_rows, query_rows: i4[m], pairs that satisfy the query's region and text.
        homes: bool[n], whether this place is the object's home.
        term_offsets: i8[n + 1], into the following two.
        terms: u8[t], wire hashes.
        leads_here: bool[t], whether the term leads to this place.
        id_offsets: i8[n + 1], term_ids: i4[…], the terms of objects in the index's vocabulary.
        references: i4[r], for each query row the place of its locator in `words`, after the number
            of its words. 0 and rows beyond the end: the conjunctions are the alternatives, and the
            key of each is its positive term of least hash.
        words: u8, locators.
        row_words: i8[8 · rows]; terms_words: i4, term blocks; see `pyramid`.
        wire_of: u8[ids], wire hash of each term of the vocabulary.
        counted: bool[m], overwritten.
    """
    for i in range(object_rows.shape[0]):
        row = object_rows[i]
        query = np.int64(query_rows[i])
        begin = term_offsets[row]
        end = term_offsets[row + 1]
        at = np.int64(0)
        if query < references.shape[0]:
            at = np.int64(references[query])
        if at > 0:
            counted[i] = _by_locator(at, words, terms, begin, end, leads_here, homes[row])
        else:
            reference = row_words[query * _ROW_WORDS + TERM_BLOCK]
            counted[i] = _by_conjunctions(
                reference, terms_words, wire_of, term_ids, id_offsets[row], id_offsets[row + 1],
                terms, begin, end, leads_here, homes[row],
            )  # fmt: skip


@kernel(types.boolean(_U8_IN, _I8_IN))
def are_locators(words: Any, offsets: Any) -> Any:
    """Returns whether each piece of words is a locator, or empty.

    Args:
        words: u8[w].
        offsets: i8[n + 1], from 0 to w, not falling.
    """
    for row in range(offsets.shape[0] - 1):
        at = offsets[row]
        last = offsets[row + 1]
        while at < last:
            if last - at < _HEAD:
                return False
            positives = np.int64(words[at] & np.uint64(0xFFFFFFFF))
            negatives = np.int64(words[at] >> np.uint64(32))
            if positives + negatives > last - at - _HEAD:
                return False
            first = at + _HEAD
            if positives == 0 and (words[at + 1] != 0 or negatives > 0):
                return False
            if positives > 0 and _find(words, first, first + positives, words[at + 1]) < 0:
                return False
            at = first + positives + negatives
    return True
