"""Finds the terms of a condition in a slice, and decides whether a row satisfies its text.

A condition's text is a disjunction of conjunctions. `heads` i8[2c + 1] bounds them in the array of
its terms: the positive terms of conjunction i are heads[2i] : heads[2i + 1], the negative ones
heads[2i + 1] : heads[2i + 2]. Without conjunctions, any text satisfies it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.store.slice_seal import TERM_MASK

__all__ = [
    "choose_anchors",
    "find_term",
    "first_holding_hashes",
    "number_hashes",
    "only_term",
    "text_holds",
]

_NEAR = 64


@kernel
def find_term(vocabulary: Any, term: Any) -> Any:
    """Returns the place of a wire hash in the vocabulary (u8[v], ascending), or −1.

    Hashes are spread evenly, so the search begins at the expected place: it reads a few cache
    lines instead of one for each bit of v.
    """
    n = vocabulary.shape[0]
    if n == 0:
        return np.int64(-1)
    guess = min(np.int64(n - 1), np.int64(np.float64(term) * (np.float64(n) / 2.0**64)))
    step = np.int64(_NEAR)
    if vocabulary[guess] <= term:
        least = guess
        while least + step < n and vocabulary[least + step] <= term:
            least += step
            step *= 2
        most = min(np.int64(n), least + step)
    else:
        most = guess
        while most - step >= 0 and vocabulary[most - step] > term:
            most -= step
            step *= 2
        least = max(np.int64(0), most - step)
    while most - least > 1:
        middle = (least + most) >> 1
        if vocabulary[middle] <= term:
            least = middle
        else:
            most = middle
    return least if vocabulary[least] == term else np.int64(-1)


@kernel
def number_hashes(vocabulary: Any, hashes: Any, numbers: Any) -> None:
    """Writes the number of each wire hash in a slice's vocabulary, −1 where it has none.

    Args:
        vocabulary: u8[v], ascending.
        hashes: u8[m].
        numbers: i8[m], overwritten.
    """
    for i in range(hashes.shape[0]):
        numbers[i] = find_term(vocabulary, hashes[i])


@kernel
def choose_anchors(
    heads: Any, first: Any, conjunctions: Any, numbers: Any, posting_offsets: Any, anchors: Any
) -> Any:
    """Chooses the rarest positive term of each conjunction.

    Args:
        heads: i8, holds the heads.
        first: where they begin in it.
        conjunctions: their number.
        numbers: i8[m], the slice's number of each term.
        posting_offsets: u4[v + 1].
        anchors: i8[conjunctions], overwritten: a place in `numbers`, −1 where the slice lacks a
            positive term.

    Returns:
        The total number of the anchors' postings.
    """
    total = np.int64(0)
    for i in range(conjunctions):
        best = np.int64(-1)
        least = np.int64(0)
        for k in range(heads[first + 2 * i], heads[first + 2 * i + 1]):
            if numbers[k] < 0:
                best = np.int64(-1)
                least = np.int64(0)
                break
            count = np.int64(posting_offsets[numbers[k] + 1]) - np.int64(
                posting_offsets[numbers[k]]
            )
            if best < 0 or count < least:
                best = np.int64(k)
                least = count
        anchors[i] = best
        total += least
    return total


@kernel(inline=True)
def _holds_number(terms: Any, begin: Any, end: Any, number: Any) -> Any:
    found = False
    for i in range(begin, end):
        found |= np.int64(terms[i] & np.uint32(TERM_MASK)) == number
    return found


@kernel(inline=True)
def only_term(heads: Any, first: Any, conjunctions: Any, numbers: Any) -> Any:
    """Returns the number of the term if the text asks for one term and nothing else, else −1."""
    if conjunctions == 1 and heads[first + 1] == 1 and heads[first + 2] == 1:
        return numbers[0]
    return np.int64(-1)


@kernel
def _first_holding(
    heads: Any, first: Any, conjunctions: Any, numbers: Any, anchors: Any, terms: Any, begin: Any,
    end: Any, known: Any,
) -> Any:  # fmt: skip
    """Returns the first conjunction that a row satisfies, −1 for none.

    Args:
        heads, first, conjunctions, numbers, anchors: see `choose_anchors`.
        terms: u4, words of the row at [begin:end].
        known: conjunction whose anchor the row is known to hold, −1 for none; later conjunctions
            are not examined.
    """
    last = conjunctions if known < 0 else known + 1
    for i in range(last):
        if anchors[i] < 0:
            continue
        holds = True
        for k in range(heads[first + 2 * i], heads[first + 2 * i + 1]):
            if i == known and k == anchors[i]:
                continue
            if not _holds_number(terms, begin, end, numbers[k]):
                holds = False
                break
        if holds:
            for k in range(heads[first + 2 * i + 1], heads[first + 2 * i + 2]):
                if numbers[k] >= 0 and _holds_number(terms, begin, end, numbers[k]):
                    holds = False
                    break
        if holds:
            return np.int64(i)
    return np.int64(-1)


@kernel(inline=True)
def text_holds(
    heads: Any, conjunctions: Any, numbers: Any, anchors: Any, only: Any, term_offsets: Any,
    terms: Any, row: Any, known: Any,
) -> Any:  # fmt: skip
    """Returns whether a row satisfies the text.

    Args:
        heads: i8, [4] where the heads begin in it; conjunctions, numbers, anchors: see
            `choose_anchors`.
        only: see `only_term`.
        term_offsets, terms: columns of the slice.
        row: the row.
        known: conjunction by whose anchor the row was found, −1 for none. If the row also satisfies
            an earlier conjunction, it counts for that one and not here.
    """
    if conjunctions == 0:
        return True
    if only >= 0:
        return known >= 0 or _holds_number(
            terms, np.int64(term_offsets[row]), np.int64(term_offsets[row + 1]), only
        )
    holding = _first_holding(
        heads, heads[4], conjunctions, numbers, anchors, terms, np.int64(term_offsets[row]),
        np.int64(term_offsets[row + 1]), known,
    )  # fmt: skip
    return holding == known if known >= 0 else holding >= 0


@kernel(inline=True)
def _holds_hash(terms: Any, begin: Any, end: Any, term: Any) -> Any:
    found = False
    for i in range(begin, end):
        found |= terms[i] == term
    return found


@kernel
def first_holding_hashes(
    heads: Any, first: Any, conjunctions: Any, hashes: Any, terms: Any, begin: Any, end: Any
) -> Any:
    """As `_first_holding`, for rows whose terms (u8) are wire hashes."""
    for i in range(conjunctions):
        holds = True
        for k in range(heads[first + 2 * i], heads[first + 2 * i + 1]):
            if not _holds_hash(terms, begin, end, hashes[k]):
                holds = False
                break
        if holds:
            for k in range(heads[first + 2 * i + 1], heads[first + 2 * i + 2]):
                if _holds_hash(terms, begin, end, hashes[k]):
                    holds = False
                    break
        if holds:
            return np.int64(i)
    return np.int64(-1)
