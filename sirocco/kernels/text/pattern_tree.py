"""The tree of phrases and beginnings of words: its layout, and how patterns are added to it.

A phrase is a path of tokens' numbers from node PHRASES, a beginning one of bytes from node
BEGINNINGS. Each node has a hash of its path by a secret, and is in a table by it. Bytes are taken
eight at a time: the symbol of a node is all of them since the last multiple of eight.

The deepest node of a text from one of its tokens on is found by bisection, and not step by step:
many phrases of few words, and a text of these, cost some probes a token. For that, of phrases
longer than WALKED, those nodes are marked at which their number of further tokens, in binary
digits, is less than itself by its last digits alone (M. Waldvogel, G. Varghese, J. Turner, B.
Plattner, "Scalable high speed IP routing lookups", 1997). The hash of a mark is made of one hash
for each digit, of so many tokens (`joined`), which a text has once for all. A filter of bits tells
what is not marked (B. H. Bloom, "Space/time trade-offs in hash coding with allowable errors",
1970), and a phrase that was found is compared with the tokens of the text.

Patterns that end on one path are linked, each to the next shorter one, so what has been found in a
text is not found again, nor is anything above it. These links are made when they are first needed,
as a pattern may end in the middle of others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.words import multiply_fold
from sirocco.kernels.jit.compiled import kernel

__all__ = [
    "BEGINNINGS",
    "END_NODE",
    "END_NUMBER",
    "END_TEXT",
    "FIRST_NODE",
    "PHRASES",
    "ROW_WORDS",
    "SPREAD",
    "STATE_CHANGES",
    "STATE_DEEPEST",
    "STATE_ENDS",
    "STATE_KEPT",
    "STATE_NODES",
    "STATE_TEXTS",
    "STATE_WORDS",
    "WALKED",
    "above",
    "add_patterns",
    "child_of",
    "is_path",
    "joined",
    "marked_node",
    "may_be_marked",
    "nearest_end",
    "pair_of",
    "place_of",
]

PHRASES, BEGINNINGS, FIRST_NODE = 1, 2, 3

# The node of so many tokens of a phrase is looked up at once: most phrases have no more.
WALKED = 2

# Words of `state`: nodes and ends so far, with the roots and end 0; how often a pattern has ended
# in the middle of others; texts searched; tokens of the longest phrase; tokens kept of phrases.
(
    STATE_NODES,
    STATE_ENDS,
    STATE_CHANGES,
    STATE_TEXTS,
    STATE_DEEPEST,
    STATE_KEPT,
    STATE_WORDS,
) = range(7)
# Words of an end: the pattern's number, the last text that held it, the end above | changes << 32,
# its node. Words of a node: its symbol, the one before on its path | the one that its symbol begins
# at << 32, its end or 0, the nearest end at or above it | as of so many changes << 32. Each is half
# a line of the processor's caches.
END_NUMBER, END_TEXT, _ABOVE, END_NODE, ROW_WORDS = range(5)
_SYMBOL, _PARENT, _END, _NEAREST = range(4)

_U0, _U1, _U6, _U8, _U16, _U32 = (np.uint64(n) for n in (0, 1, 6, 8, 16, 32))
_U52, _U58, _U63 = (np.uint64(n) for n in (52, 58, 63))
# As of no change.
_NOT_YET = np.uint64(0xFFFF_FFFF_0000_0000)
_LENGTH_MASK = np.uint64(0xFFFF_FFFF)
SPREAD = np.uint64(0x9E37_79B9_7F4A_7C15)

_READ_ONLY_BOOL = types.Array(types.boolean, 1, "C", readonly=True)
_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)
_READ_ONLY_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_WORDS_I8, _WORDS_U8 = types.int64[::1], types.uint64[::1]
_ROWS = types.uint64[:, ::1]


@kernel(inline=True)
def joined(left: Any, right: Any, secret: Any) -> Any:
    """Returns the hash of two hashes, one after the other: of a path and a symbol, or of tokens.

    The second product is needed as in `hash_placement`: under some secrets, one leaves symbols in
    even steps, which clients choose, in few runs of places.
    """
    return multiply_fold(multiply_fold(left ^ secret[0], right ^ secret[1]) ^ secret[1], secret[0])


@kernel(inline=True)
def pair_of(first: Any, second: Any, secret: Any) -> Any:
    """Returns a u8 hash of two tokens side by side, by two words of a secret."""
    return multiply_fold((first + SPREAD * second) ^ secret[0], secret[1])


@kernel(inline=True)
def place_of(path: Any, places: Any) -> Any:
    """Returns where the search for a node begins."""
    return np.int64(path & np.uint64(places.shape[0] - 1))


@kernel(inline=True)
def _bits_of(path: Any) -> Any:
    """Returns the bits of a path in its word of the filter of marks."""
    return _U1 << (path >> _U52 & _U63) | _U1 << (path >> _U58)


@kernel(inline=True)
def may_be_marked(path: Any, mark_filter: Any) -> Any:
    """Returns whether a node with the hash of a path may be marked."""
    bits = _bits_of(path)
    return mark_filter[path >> _U16 & np.uint64(mark_filter.shape[0] - 1)] & bits == bits


@kernel(inline=True)
def marked_node(path: Any, marks: Any) -> Any:
    """Returns the marked node with the hash of a path and where its tokens are kept; 0: none."""
    place = place_of(path, marks)
    while marks[place, 1] != 0 and marks[place, 0] != path:
        place = (place + 1) & (marks.shape[0] - 1)
    return np.int64(marks[place, 1] & _LENGTH_MASK), np.int64(marks[place, 1] >> _U32)


@kernel(inline=True)
def _parent(node: Any, nodes: Any) -> Any:
    """Returns the node before one on its path."""
    return np.int64(nodes[node, _PARENT] & _LENGTH_MASK)


@kernel()
def child_of(base: Any, symbol: Any, path: Any, places: Any, nodes: Any) -> Any:
    """Returns the node of a path, its symbol from a given node on; 0 where there is none."""
    place = place_of(path, places)
    while places[place, 1] != 0:
        if places[place, 0] == path:
            node = np.int64(places[place, 1])
            if nodes[node, _SYMBOL] == symbol and nodes[node, _PARENT] >> _U32 == np.uint64(base):
                return node
        place = (place + 1) & (places.shape[0] - 1)
    return np.int64(0)


@kernel()
def is_path(node: Any, tokens: Any, first: Any, depth: Any, nodes: Any) -> Any:
    """Returns whether a node is that of the tokens from one on."""
    for k in range(first + depth - 1, first - 1, -1):
        if node < FIRST_NODE or nodes[node, _SYMBOL] != tokens[k]:
            return False
        node = _parent(node, nodes)
    return node == PHRASES


@kernel(inline=True)
def _mark(path: Any, node: Any, at: Any, marks: Any, mark_filter: Any) -> None:
    """Marks a node whose tokens are kept from `at` on, unless it is marked."""
    place = place_of(path, marks)
    while marks[place, 1] != 0:
        if marks[place, 1] & _LENGTH_MASK == np.uint64(node):
            return
        place = (place + 1) & (marks.shape[0] - 1)
    marks[place, 0], marks[place, 1] = path, np.uint64(node) | np.uint64(at) << _U32
    mark_filter[path >> _U16 & np.uint64(mark_filter.shape[0] - 1)] |= _bits_of(path)


@kernel(inline=True)
def _new_node(
    path: Any, symbol: Any, node: Any, base: Any, places: Any, nodes: Any, state: Any
) -> Any:
    """Adds the node of a path after another one, its symbol from `base` on; returns it."""
    child = state[STATE_NODES]
    state[STATE_NODES] += 1
    place = place_of(path, places)
    while places[place, 1] != 0:
        place = (place + 1) & (places.shape[0] - 1)
    places[place, 0], places[place, 1] = path, np.uint64(child)
    nodes[child, _SYMBOL] = symbol
    nodes[child, _PARENT] = np.uint64(node) | np.uint64(base) << _U32
    nodes[child, _END], nodes[child, _NEAREST] = _U0, _NOT_YET
    return child


@kernel()
def _joined_all(tokens: Any, at: Any, count: Any, secret: Any) -> Any:
    """Returns the hash of 1, 2, 4, … tokens, `joined` of those of the halves."""
    hashes = tokens[at : at + count].copy()
    while count > 1:
        count >>= 1
        for k in range(count):
            hashes[k] = joined(hashes[2 * k], hashes[2 * k + 1], secret)
    return hashes[0]


@kernel()
def _path_of(
    paths: Any, begin: Any, length: Any, is_phrase: Any, places: Any, marks: Any,
    mark_filter: Any, kept: Any, nodes: Any, secret: Any, state: Any,
) -> Any:  # fmt: skip
    """Returns the node of a pattern, with those before it, and whether it is new."""
    kept_at = state[STATE_KEPT]
    if is_phrase and length > WALKED:
        kept[kept_at : kept_at + length] = paths[begin : begin + length]
        state[STATE_KEPT] += length
    node = np.int64(PHRASES if is_phrase else BEGINNINGS)
    path = np.uint64(node)
    base, of_base, symbol, mark, is_new = node, path, _U0, _U0, False
    for i in range(length):
        if is_phrase or i & 7 == 0:
            base, of_base, symbol = node, path, np.uint64(0)
        symbol |= paths[begin + i] << (_U8 * np.uint64(0 if is_phrase else i & 7))
        path = joined(of_base, symbol, secret)
        child = child_of(base, symbol, path, places, nodes)
        is_new = child == 0
        if is_new:
            child = _new_node(path, symbol, node, base, places, nodes, state)
        node = child
        further = i + 1 - WALKED
        digit = further & -further
        if further == 0:
            mark = np.uint64(node)
        elif is_phrase and further > 0 and length - i - 1 < digit:
            mark = joined(mark, _joined_all(paths, begin + i + 1 - digit, digit, secret), secret)
            _mark(mark, node, kept_at, marks, mark_filter)
    return node, is_new


@kernel(
    types.void(
        _READ_ONLY_U8, _READ_ONLY_I8, _READ_ONLY_BOOL, _READ_ONLY_U8, _ROWS, _ROWS, _WORDS_U8,
        _WORDS_U8, _ROWS, _ROWS, _WORDS_U8, types.boolean[::1], _READ_ONLY_U8, _WORDS_I8,
    )
)  # fmt: skip
def add_patterns(
    paths: Any,
    offsets: Any,
    is_phrase: Any,
    numbers: Any,
    places: Any,
    marks: Any,
    mark_filter: Any,
    kept: Any,
    nodes: Any,
    ends: Any,
    pairs: Any,
    begins_some: Any,
    secret: Any,
    state: Any,
) -> None:
    """Adds patterns.

    Args:
        paths: u8, offsets: i8[p + 1]: their tokens' numbers, or bytes; at least two of each.
        is_phrase: bool[p].
        numbers: u8[p], of the patterns themselves.
        places: u8[m, 2], hash and node, 0: free; m is a power of two, with a free place for each
            symbol and more.
        marks: u8[m, 2], hash, and node | where its tokens are kept << 32, likewise. The hash is
            that of the node of the first WALKED tokens, joined with one of each digit's tokens.
        mark_filter: u8[w], two bits of one word for each mark; w is a power of two.
        kept: u8, the tokens of phrases longer than WALKED, with room.
        nodes, ends: u8[k, ROW_WORDS], u8[e, ROW_WORDS], with room.
        pairs: u8[w], a bit for the first two tokens of each phrase; w is a power of two.
        begins_some: bool[65536], whether any beginning has these first two bytes, the second times
            256.
        secret: u8[2].
        state: i8[STATE_WORDS].
    """
    for p in range(offsets.shape[0] - 1):
        begin, length = offsets[p], offsets[p + 1] - offsets[p]
        if is_phrase[p]:
            state[STATE_DEEPEST] = max(state[STATE_DEEPEST], length)
            bit = pair_of(paths[begin], paths[begin + 1], secret)
            pairs[np.int64(bit >> _U6) & (pairs.shape[0] - 1)] |= _U1 << (bit & _U63)
        else:
            begins_some[np.int64(paths[begin] | paths[begin + 1] << _U8)] = True
        node, is_new = _path_of(
            paths, begin, length, is_phrase[p], places, marks, mark_filter, kept, nodes, secret,
            state,
        )  # fmt: skip
        if nodes[node, _END] == 0:
            end = state[STATE_ENDS]
            state[STATE_ENDS] += 1
            nodes[node, _END] = np.uint64(end)
            ends[end, END_NODE] = np.uint64(node)
            ends[end, END_TEXT], ends[end, _ABOVE] = _U0, _NOT_YET
            # What is linked to an end above it belongs to this one now.
            state[STATE_CHANGES] += not is_new
        ends[np.int64(nodes[node, _END]), END_NUMBER] = numbers[p]


@kernel()
def nearest_end(node: Any, nodes: Any, changes: Any) -> Any:
    """Returns the nearest end at or above a node, 0 for none; notes it at the nodes between."""
    as_of, noted = np.uint64(changes), nodes[node, _NEAREST]
    if nodes[node, _END] != 0:
        return np.int64(nodes[node, _END])
    if noted >> _U32 == as_of:
        return np.int64(noted & _LENGTH_MASK)
    top = _parent(node, nodes) if node >= FIRST_NODE else node
    while top >= FIRST_NODE and nodes[top, _END] == 0 and nodes[top, _NEAREST] >> _U32 != as_of:
        top = _parent(top, nodes)
    end = _U0
    if top >= FIRST_NODE:
        end = nodes[top, _END]
        if end == 0:
            end = nodes[top, _NEAREST] & _LENGTH_MASK
    while node != top:
        nodes[node, _NEAREST] = end | as_of << _U32
        node = _parent(node, nodes)
    return np.int64(end)


@kernel(inline=True)
def above(end: Any, nodes: Any, ends: Any, changes: Any) -> Any:
    """Returns the nearest end above one, 0 for none."""
    above = ends[end, _ABOVE]
    if above >> _U32 != np.uint64(changes):
        node = _parent(np.int64(ends[end, END_NODE]), nodes)
        above = np.uint64(nearest_end(node, nodes, changes)) | np.uint64(changes) << _U32
        ends[end, _ABOVE] = above
    return np.int64(above & _LENGTH_MASK)
