"""Finds phrases and beginnings of words in cleaned texts (`text`).

All patterns are one tree: a phrase is a path of tokens' numbers from node PHRASES, a beginning one
of bytes from node BEGINNINGS. Edges are in a hash table of (parent, symbol), which are compared in
full. A text is walked from each of its tokens, as deep as patterns go.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.hash_placement import mix
from sirocco.kernels.base.keyed_hash import hash_first, hash_rest
from sirocco.kernels.base.xxh3 import hash_span
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.terms import UNIT_FIRST, find_mixed_spans, find_spans

__all__ = ["BEGINNINGS", "FIRST_NODE", "PHRASES", "add_pattern", "find_patterns", "number_tokens"]

PHRASES, BEGINNINGS, FIRST_NODE = 1, 2, 3

_U32 = np.uint64(32)
_LENGTH_MASK = np.uint64(0xFFFF_FFFF)
_SPREAD = np.uint64(0x9E37_79B9_7F4A_7C15)

_READ_ONLY_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_READ_ONLY_BOOL = types.Array(types.boolean, 1, "C", readonly=True)
_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)
_READ_ONLY_U8 = types.Array(types.uint64, 1, "C", readonly=True)


@kernel(inline=True)
def _place_of(parent: Any, symbol: Any, secret: Any, size: Any) -> Any:
    """Returns where the search for an edge begins."""
    key = mix(symbol, secret[0], secret[1]) + np.uint64(parent) * _SPREAD
    return np.int64(mix(key, secret[0], secret[1]) & np.uint64(size - 1))


@kernel()
def _child(parent: Any, symbol: Any, edges: Any, symbols: Any, secret: Any) -> Any:
    """Returns the node at the end of an edge, 0 where there is none."""
    place = _place_of(parent, symbol, secret, edges.shape[0])
    while edges[place, 1] != 0:
        if edges[place, 0] == parent and symbols[place] == symbol:
            return np.int64(edges[place, 1])
        place = (place + 1) & (edges.shape[0] - 1)
    return np.int64(0)


@kernel(
    types.int64(
        _READ_ONLY_U8,
        types.int64,
        types.uint64,
        types.int32[:, ::1],
        types.uint64[::1],
        types.uint64[::1],
        types.boolean[::1],
        _READ_ONLY_U8,
        types.int64,
    )
)
def add_pattern(
    path: Any,
    root: Any,
    number: Any,
    edges: Any,
    symbols: Any,
    numbers: Any,
    is_end: Any,
    secret: Any,
    nodes: Any,
) -> Any:
    """Adds a pattern.

    Args:
        path: u8[s], its symbols.
        root: i8, where it begins.
        number: u8, its own number.
        edges: i4[m, 2], symbols: u8[m]: the table, parent and child (0: free); m is a power of two,
            with a free place for each symbol.
        numbers, is_end: u8[k], bool[k], of each node, whether a pattern ends there; with room.
        secret: u8[2].
        nodes: i8, number of nodes.

    Returns:
        The new number of nodes.
    """
    node = root
    for i in range(path.shape[0]):
        child = _child(node, path[i], edges, symbols, secret)
        if child == 0:
            child = nodes
            place = _place_of(node, path[i], secret, edges.shape[0])
            while edges[place, 1] != 0:
                place = (place + 1) & (edges.shape[0] - 1)
            edges[place, 0], edges[place, 1] = node, child
            symbols[place] = path[i]
            is_end[child] = False
            nodes += 1
        node = child
    is_end[node] = True
    numbers[node] = number
    return nodes


@kernel(
    types.int64(
        types.uint8[::1],
        _READ_ONLY_I8,
        _READ_ONLY_I8,
        _READ_ONLY_BOOL,
        types.boolean,
        _READ_ONLY_U8,
        types.uint64[::1],
        types.uint64[::1],
        types.int64[::1],
    )
)
def number_tokens(
    cleaned: Any,
    begins: Any,
    ends: Any,
    has_units: Any,
    is_keyed: Any,
    key: Any,
    spans: Any,
    numbers: Any,
    offsets: Any,
) -> Any:
    """Finds the tokens of cleaned rows, in order, and their numbers.

    Args:
        cleaned, begins, ends, has_units: as of `clean_rows`.
        is_keyed: whether numbers are keyed hashes.
        key: u8[KEY_WORDS].
        spans: u8, overwritten: start << 32 | length of each token.
        numbers: u8, as long, overwritten.
        offsets: i8[n + 1], overwritten: the tokens of row r are those from offsets[r] on.

    Returns:
        The number of tokens.
    """
    count = 0
    offsets[0] = 0
    for row in range(begins.shape[0]):
        if has_units[row]:
            count, _ = find_mixed_spans(cleaned, begins[row], ends[row], True, spans, count, 0)
        else:
            count = find_spans(cleaned, begins[row], ends[row], spans, count)
        offsets[row + 1] = count
    for i in range(count):
        start, length = np.int64(spans[i] >> _U32), np.int64(spans[i] & _LENGTH_MASK)
        if is_keyed:
            numbers[i] = hash_first(cleaned, start, length, key)
            if length > 8:
                numbers[i] = hash_rest(numbers[i], cleaned, start, length, key)
        else:
            numbers[i] = hash_span(cleaned, start, length)
    return count


@kernel(
    types.int64(
        _READ_ONLY_BYTES,
        _READ_ONLY_U8,
        _READ_ONLY_U8,
        _READ_ONLY_I8,
        types.Array(types.int32, 2, "C", readonly=True),
        _READ_ONLY_U8,
        _READ_ONLY_U8,
        _READ_ONLY_BOOL,
        _READ_ONLY_U8,
        _READ_ONLY_BOOL,
        types.boolean,
        types.int64[::1],
        types.uint64[::1],
    )
)
def find_patterns(
    cleaned: Any,
    spans: Any,
    tokens: Any,
    token_offsets: Any,
    edges: Any,
    symbols: Any,
    numbers: Any,
    is_end: Any,
    secret: Any,
    begins_some: Any,
    has_phrases: Any,
    offsets: Any,
    found: Any,
) -> Any:
    """Finds the patterns that rows of tokens hold.

    Args:
        cleaned: u1.
        spans, tokens: u8[t], token_offsets: i8[n + 1]: see `number_tokens`.
        edges, symbols, numbers, is_end, secret: the tree, see `add_pattern`.
        begins_some: bool[65536], whether any beginning has these first two bytes, the second times
            256.
        has_phrases: whether there are phrases.
        offsets: i8[n + 1], overwritten: the patterns of row r are found[offsets[r]:offsets[r + 1]].
        found: u8, overwritten: their numbers, each once a row, ascending.

    Returns:
        The number of all; -1 where `found` is too short.
    """
    count = 0
    offsets[0] = 0
    for row in range(token_offsets.shape[0] - 1):
        first = count
        last_token = token_offsets[row + 1]
        for i in range(token_offsets[row], last_token):
            # A walk adds at most one pattern a step.
            start, length = np.int64(spans[i] >> _U32), np.int64(spans[i] & _LENGTH_MASK)
            if has_phrases:
                node = _child(PHRASES, tokens[i], edges, symbols, secret)
                k = i + 1
                while node != 0 and k < last_token:
                    node = _child(node, tokens[k], edges, symbols, secret)
                    k += 1
                    if node != 0 and is_end[node]:
                        if count == found.shape[0]:
                            return np.int64(-1)
                        found[count] = numbers[node]
                        count += 1
            pair = np.int64(cleaned[start])
            # Units are no words, though what begins a word may be their first bytes.
            if length < 2 or (start > 0 and cleaned[start - 1] >= UNIT_FIRST):
                continue
            pair |= np.int64(cleaned[start + 1]) << 8
            if not begins_some[pair]:
                continue
            node = BEGINNINGS
            for k in range(start, start + length):
                node = _child(node, np.uint64(cleaned[k]), edges, symbols, secret)
                if node == 0:
                    break
                if is_end[node]:
                    if count == found.shape[0]:
                        return np.int64(-1)
                    found[count] = numbers[node]
                    count += 1
        if count - first > 1:
            found[first:count].sort()
            kept = first + 1
            for i in range(first + 1, count):
                if found[i] != found[i - 1]:
                    found[kept] = found[i]
                    kept += 1
            count = kept
        offsets[row + 1] = count
    return count
