"""Finds phrases and beginnings of words in cleaned texts (`text`).

All patterns are one tree. A phrase is a path of tokens' numbers from node PHRASES, a beginning one
of bytes from node BEGINNINGS. Each node has the hash of its path, a polynomial of a secret modulo
2^61 - 1 (R. M. Karp, M. O. Rabin, "Efficient randomized pattern-matching algorithms", 1987), and is
in a table by it. So the deepest node of a text from one of its tokens on is found by bisection, and
not step by step: many phrases of one word, and a text of that word, cost some probes a token.
Bytes are taken eight at a time: the symbol of a node is all of them since the last multiple of
eight.

Patterns that end on one path hang together, each at the next shorter one, so what has been found in
a text is not found again, nor is anything above it. These links are made when they are first
needed, as a pattern may end in the middle of others.

The node of a word's longest beginning is remembered by the word's number: texts repeat words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.hash_placement import mix
from sirocco.kernels.base.keyed_hash import hash_first, hash_rest
from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.base.words import load_u64, multiply_fold
from sirocco.kernels.base.xxh3 import hash_span
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.terms import UNIT_FIRST, find_mixed_spans, find_spans

__all__ = [
    "BEGINNINGS",
    "FIRST_NODE",
    "PHRASES",
    "ROW_WORDS",
    "STATE_DEEPEST",
    "STATE_ENDS",
    "STATE_NODES",
    "STATE_WORDS",
    "WALKED",
    "add_patterns",
    "append_patterns",
    "find_patterns",
    "number_tokens",
]

PHRASES, BEGINNINGS, FIRST_NODE = 1, 2, 3

# So many tokens of a phrase are walked step by step: most phrases have no more.
WALKED = 3

# Words of `state`: nodes and ends so far, with the roots and end 0; how often a pattern has ended
# in the middle of others; texts searched; tokens of the longest phrase.
STATE_NODES, STATE_ENDS, STATE_CHANGES, STATE_TEXTS, STATE_DEEPEST, STATE_WORDS = range(6)
# Words of an end: the pattern's number, the last text that held it, the end above | changes << 32,
# its node. Words of a node: its symbol, the one before on its path | the one that its symbol begins
# at << 32, its end or 0, the nearest end at or above it | as of so many changes << 32. Each is half
# a line of the processor's caches.
_NUMBER, _TEXT, _ABOVE, _NODE, ROW_WORDS = range(5)
_SYMBOL, _PARENT, _END, _NEAREST = range(4)

# Tokens whose memory is fetched together.
_GROUP = 128

_PRIME = np.uint64((1 << 61) - 1)
_U0, _U1, _U3, _U6, _U8, _U32, _U61 = (np.uint64(n) for n in (0, 1, 3, 6, 8, 32, 61))
_U63 = np.uint64(63)
# As of no change.
_NOT_YET = np.uint64(0xFFFF_FFFF_0000_0000)
# The place in `secret` of the hash of root r is _ROOTS + r.
_ROOTS = 2
_LENGTH_MASK = np.uint64(0xFFFF_FFFF)
_SPREAD = np.uint64(0x9E37_79B9_7F4A_7C15)

_READ_ONLY_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_READ_ONLY_BOOL = types.Array(types.boolean, 1, "C", readonly=True)
_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)
_READ_ONLY_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_WORDS_I8, _WORDS_U8 = types.int64[::1], types.uint64[::1]
_ROWS = types.uint64[:, ::1]


@kernel(inline=True)
def _reduced(value: Any) -> Any:
    """Returns a u8 modulo the prime."""
    value = (value & _PRIME) + (value >> _U61)
    return value - _PRIME if value >= _PRIME else value


@kernel(inline=True)
def _times(left: Any, right: Any) -> Any:
    """Returns the product of two u8 below the prime, modulo it."""
    low = left * right
    # `multiply_fold` returns high ^ low.
    high = multiply_fold(left, right) ^ low
    return _reduced((low & _PRIME) + (low >> _U61 | high << _U3))


@kernel(inline=True)
def _extended(path: Any, symbol: Any, factor: Any) -> Any:
    """Returns the hash of a path with a symbol more."""
    return _times(_reduced(path + _reduced(symbol)), factor)


@kernel(inline=True)
def _pair_bit(first: Any, second: Any, secret: Any) -> Any:
    """Returns the number of the bit for two tokens side by side, modulo the length of `pairs`."""
    return mix(first + _SPREAD * second, secret[0], secret[1])


@kernel(inline=True)
def _place_of(path: Any, places: Any, secret: Any) -> Any:
    """Returns where the search for a node begins."""
    mixed = multiply_fold(path ^ secret[0], secret[1])
    return np.int64(mixed & np.uint64(places.shape[0] - 1))


@kernel(inline=True)
def _parent(node: Any, nodes: Any) -> Any:
    """Returns the node before one on its path."""
    return np.int64(nodes[node, _PARENT] & _LENGTH_MASK)


@kernel()
def _child(base: Any, symbol: Any, path: Any, places: Any, nodes: Any, secret: Any) -> Any:
    """Returns the node of a path, its symbol from a given node on; 0 where there is none."""
    place = _place_of(path, places, secret)
    while places[place, 1] != 0:
        if places[place, 0] == path:
            node = np.int64(places[place, 1])
            if nodes[node, _SYMBOL] == symbol and nodes[node, _PARENT] >> _U32 == np.uint64(base):
                return node
        place = (place + 1) & (places.shape[0] - 1)
    return np.int64(0)


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


@kernel()
def _marked_node(sums: Any, at: Any, depth: Any, powers: Any, marks: Any, secret: Any) -> Any:
    """Returns the marked node of some tokens of a text by their hash, 0 where there is none.

    Args:
        sums: u8, the hashes of all that the text begins with.
        at: i8, number of the first token.
        depth: i8, how many tokens.
        powers: u8[d + 1, 2], see `find_patterns`.
        marks: u8[m, 2], see `add_patterns`.
    """
    before = _times(sums[at], powers[depth, 0])
    path = _reduced(sums[at + depth] + (_PRIME - before) + powers[depth, 1])
    place = _place_of(path, marks, secret)
    while marks[place, 1] != 0:
        if marks[place, 0] == path:
            return np.int64(marks[place, 1])
        place = (place + 1) & (marks.shape[0] - 1)
    return np.int64(0)


@kernel(inline=True)
def _mark(path: Any, node: Any, marks: Any, secret: Any) -> None:
    """Marks a node, unless it is marked."""
    place = _place_of(path, marks, secret)
    while marks[place, 1] != 0:
        if marks[place, 1] == np.uint64(node):
            return
        place = (place + 1) & (marks.shape[0] - 1)
    marks[place, 0], marks[place, 1] = path, np.uint64(node)


@kernel()
def _is_path(node: Any, tokens: Any, first: Any, depth: Any, nodes: Any) -> Any:
    """Returns whether a node is that of the tokens from one on."""
    for k in range(first + depth - 1, first - 1, -1):
        if node < FIRST_NODE or nodes[node, _SYMBOL] != tokens[k]:
            return False
        node = _parent(node, nodes)
    return node == PHRASES


@kernel(
    types.void(
        _READ_ONLY_U8, _READ_ONLY_I8, _READ_ONLY_BOOL, _READ_ONLY_U8,
        _ROWS, _ROWS, _ROWS, _ROWS, _WORDS_U8, types.boolean[::1], _READ_ONLY_U8, _WORDS_I8,
    )
)  # fmt: skip
def add_patterns(
    paths: Any,
    offsets: Any,
    is_phrase: Any,
    numbers: Any,
    places: Any,
    marks: Any,
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
        marks: u8[m, 2], likewise: of phrases longer than WALKED, the nodes at which their number
            of further tokens, in binary digits, is less than itself by its last digits alone. So
            a search takes the greatest power of two that leads to a mark, then a smaller one. For
            each of these digits there is a free place and more.
        nodes, ends: u8[k, ROW_WORDS], u8[e, ROW_WORDS], with room.
        pairs: u8[w], a bit for the first two tokens of each phrase; w is a power of two.
        begins_some: bool[65536], whether any beginning has these first two bytes, the second times
            256.
        secret: u8[5]: two words that place hashes, the factor of the hashes, and the hashes of the
            roots PHRASES and BEGINNINGS.
        state: i8[STATE_WORDS].
    """
    for p in range(offsets.shape[0] - 1):
        begin, length = offsets[p], offsets[p + 1] - offsets[p]
        node = np.int64(PHRASES if is_phrase[p] else BEGINNINGS)
        path = secret[_ROOTS + node]
        if is_phrase[p]:
            state[STATE_DEEPEST] = max(state[STATE_DEEPEST], length)
            bit = _pair_bit(paths[begin], paths[begin + 1], secret)
            pairs[np.int64(bit >> _U6) & (pairs.shape[0] - 1)] |= _U1 << (bit & _U63)
        else:
            begins_some[np.int64(paths[begin] | paths[begin + 1] << _U8)] = True
        base, of_base, symbol, is_new = node, path, np.uint64(0), False
        for i in range(length):
            if is_phrase[p] or i & 7 == 0:
                base, of_base, symbol = node, path, np.uint64(0)
            symbol |= paths[begin + i] << (_U8 * np.uint64(0 if is_phrase[p] else i & 7))
            path = _extended(of_base, symbol, secret[2])
            child = _child(base, symbol, path, places, nodes, secret)
            is_new = child == 0
            if is_new:
                child = state[STATE_NODES]
                state[STATE_NODES] += 1
                place = _place_of(path, places, secret)
                while places[place, 1] != 0:
                    place = (place + 1) & (places.shape[0] - 1)
                places[place, 0], places[place, 1] = path, np.uint64(child)
                nodes[child, _SYMBOL] = symbol
                nodes[child, _PARENT] = np.uint64(node) | np.uint64(base) << _U32
                nodes[child, _END], nodes[child, _NEAREST] = _U0, _NOT_YET
            node = child
            further = i + 1 - WALKED
            if is_phrase[p] and further > 0 and length - i - 1 < (further & -further):
                _mark(path, node, marks, secret)
        if nodes[node, _END] == 0:
            end = state[STATE_ENDS]
            state[STATE_ENDS] += 1
            nodes[node, _END] = np.uint64(end)
            ends[end, _NODE] = np.uint64(node)
            ends[end, _TEXT], ends[end, _ABOVE] = _U0, _NOT_YET
            # What hangs below it hung at an end above it.
            state[STATE_CHANGES] += not is_new
        ends[np.int64(nodes[node, _END]), _NUMBER] = numbers[p]


@kernel()
def _nearest_end(node: Any, nodes: Any, changes: Any) -> Any:
    """Returns the nearest end at or above a node, 0 for none; notes it at the nodes between."""
    as_of = np.uint64(changes)
    top = node
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
def _above(end: Any, nodes: Any, ends: Any, changes: Any) -> Any:
    """Returns the nearest end above one, 0 for none."""
    above = ends[end, _ABOVE]
    if above >> _U32 != np.uint64(changes):
        node = _parent(np.int64(ends[end, _NODE]), nodes)
        above = np.uint64(_nearest_end(node, nodes, changes)) | np.uint64(changes) << _U32
        ends[end, _ABOVE] = above
    return np.int64(above & _LENGTH_MASK)


@kernel(inline=True)
def _add_found(
    end: Any, text: Any, nodes: Any, ends: Any, changes: Any, found: Any, count: Any
) -> Any:
    """Adds the patterns of an end and of those above it that the text has not shown yet.

    Returns:
        The new count; -1 where `found` is too short.
    """
    while end != 0 and ends[end, _TEXT] != text:
        if count == found.shape[0]:
            return np.int64(-1)
        ends[end, _TEXT] = text
        found[count] = ends[end, _NUMBER]
        count += 1
        end = _above(end, nodes, ends, changes)
    return count


@kernel()
def _beginning_of(
    cleaned: Any, start: Any, length: Any, places: Any, nodes: Any, begins_some: Any, secret: Any
) -> Any:
    """Returns the deepest node of beginnings on the path of a word, BEGINNINGS for none."""
    node = np.int64(BEGINNINGS)
    if length < 2 or not begins_some[np.int64(load_u64(cleaned, start) & np.uint64(0xFFFF))]:
        return node
    at, of_base = np.int64(0), secret[_ROOTS + BEGINNINGS]
    while at < length:
        word = load_u64(cleaned, start + at)
        base, least, most = node, np.int64(0), min(length - at, np.int64(7))
        if length - at >= 8:
            path = _extended(of_base, word, secret[2])
            child = _child(base, word, path, places, nodes, secret)
            if child != 0:
                node, of_base = child, path
                at += 8
                continue
        while least < most:
            middle = (least + most + 1) >> 1
            symbol = word & ((_U1 << (_U8 * np.uint64(middle))) - _U1)
            path = _extended(of_base, symbol, secret[2])
            child = _child(base, symbol, path, places, nodes, secret)
            if child != 0:
                node, least = child, middle
            else:
                most = middle - 1
        break
    return node


@kernel()
def _sum_up(tokens: Any, first: Any, last: Any, secret: Any, sums: Any) -> None:
    """Writes the hashes of all that a text begins with to `sums`."""
    sums[0] = np.uint64(0)
    for i in range(last - first):
        sums[i + 1] = _extended(sums[i], tokens[first + i], secret[2])


@kernel()
def _walk(tokens: Any, first: Any, most: Any, places: Any, nodes: Any, secret: Any) -> Any:
    """Returns the deepest node of phrases from a token on within some tokens, and its depth."""
    node, depth, path = np.int64(PHRASES), np.int64(0), secret[_ROOTS + PHRASES]
    while depth < most:
        token = tokens[first + depth]
        path = _extended(path, token, secret[2])
        child = _child(node, token, path, places, nodes, secret)
        if child == 0:
            break
        node = child
        depth += 1
    return node, depth


@kernel()
def _deepest_mark(sums: Any, at: Any, most: Any, powers: Any, marks: Any, secret: Any) -> Any:
    """Returns the deepest marked node, 0 for none, and its depth, at least WALKED.

    Args:
        sums, at, powers, marks: see `_marked_node`.
        most: i8, the greatest depth possible.
    """
    node, depth = np.int64(0), np.int64(WALKED)
    step = np.int64(1)
    while WALKED + 2 * step <= most:
        step *= 2
    while step > 0:
        if depth + step <= most:
            child = _marked_node(sums, at, depth + step, powers, marks, secret)
            if child != 0:
                node, depth = child, depth + step
        step >>= 1
    return node, depth


@kernel()
def _note_longest(
    cleaned: Any, spans: Any, tokens: Any, places: Any, nodes: Any, ends: Any, begins_some: Any,
    secret: Any, changes: Any, known: Any, longest: Any,
) -> None:  # fmt: skip
    """Writes the end of the longest beginning of each token to `longest`, 0 for none."""
    mask = known.shape[0] // 2 - 1
    at = np.empty(_GROUP, np.int64)
    flat = ends.ravel()
    for begin in range(0, tokens.shape[0], _GROUP):
        size = min(_GROUP, tokens.shape[0] - begin)
        for k in range(size):
            at[k] = 2 * (np.int64((tokens[begin + k] * _SPREAD) >> _U32) & mask)
            prefetch(known, at[k])
        for k in range(size):
            i, place = begin + k, at[k]
            start, length = np.int64(spans[i] >> _U32), np.int64(spans[i] & _LENGTH_MASK)
            longest[i] = 0
            # Units are no words, though what begins a word may be their first bytes.
            if start > 0 and cleaned[start - 1] >= UNIT_FIRST:
                continue
            if known[place] != tokens[i] or tokens[i] == 0:
                node = _beginning_of(cleaned, start, length, places, nodes, begins_some, secret)
                known[place] = tokens[i]
                known[place + 1] = np.uint64(_nearest_end(node, nodes, changes))
            longest[i] = known[place + 1]
            prefetch(flat, np.int64(longest[i]) * ROW_WORDS)
        for k in range(size):
            above = _above(np.int64(longest[begin + k]), nodes, ends, changes)
            prefetch(flat, above * ROW_WORDS)


@kernel()
def _note_seconds(
    tokens: Any, places: Any, nodes: Any, pairs: Any, secret: Any, seconds: Any
) -> None:
    """Writes the node of each token and the next one to `seconds`, 0 for none.

    Whether both are of one text is not looked at.
    """
    mask = np.uint64(pairs.shape[0] - 1)
    bits, paths = np.empty(_GROUP, np.uint64), np.empty(_GROUP, np.uint64)
    chosen = np.empty(_GROUP, np.int64)
    flat_places, flat_nodes = places.ravel(), nodes.ravel()
    seconds[tokens.shape[0] - 1 :] = 0
    for begin in range(0, tokens.shape[0] - 1, _GROUP):
        size = min(_GROUP, tokens.shape[0] - 1 - begin)
        for k in range(size):
            bits[k] = _pair_bit(tokens[begin + k], tokens[begin + k + 1], secret)
            prefetch(pairs, np.int64(bits[k] >> _U6 & mask))
        count = 0
        for k in range(size):
            i = begin + k
            seconds[i] = 0
            if pairs[bits[k] >> _U6 & mask] >> (bits[k] & _U63) & _U1 != 0:
                path = _extended(secret[_ROOTS + PHRASES], tokens[i], secret[2])
                paths[count] = _extended(path, tokens[i + 1], secret[2])
                prefetch(flat_places, 2 * _place_of(paths[count], places, secret))
                chosen[count] = i
                count += 1
        for k in range(count):
            place = _place_of(paths[k], places, secret)
            while places[place, 1] != 0:
                if places[place, 0] == paths[k]:
                    seconds[chosen[k]] = places[place, 1]
                    prefetch(flat_nodes, np.int64(places[place, 1]) * ROW_WORDS)
                    break
                place = (place + 1) & (places.shape[0] - 1)
        for k in range(count):
            i = chosen[k]
            if not _is_path(np.int64(seconds[i]), tokens, i, 2, nodes):
                node, depth = _walk(tokens, i, 2, places, nodes, secret)
                seconds[i] = node if depth == 2 else 0


@kernel(
    types.int64(
        _READ_ONLY_BYTES, _READ_ONLY_U8, _READ_ONLY_U8, _READ_ONLY_I8,
        _ROWS, _ROWS, _ROWS, _ROWS, _WORDS_U8, types.boolean[::1], _READ_ONLY_U8, _WORDS_I8,
        types.Array(types.uint64, 2, "C", readonly=True), _WORDS_U8,
        types.boolean, types.boolean, types.int32[::1], types.int32[::1], _WORDS_I8, _WORDS_U8,
    )
)  # fmt: skip
def find_patterns(
    cleaned: Any,
    spans: Any,
    tokens: Any,
    token_offsets: Any,
    places: Any,
    marks: Any,
    nodes: Any,
    ends: Any,
    pairs: Any,
    begins_some: Any,
    secret: Any,
    state: Any,
    powers: Any,
    known: Any,
    has_phrases: Any,
    has_beginnings: Any,
    seconds: Any,
    longest: Any,
    offsets: Any,
    found: Any,
) -> Any:
    """Finds the patterns that rows of tokens hold.

    The time is that of some probes for each token and each eight bytes, and of what is found.

    Args:
        cleaned: u1.
        spans, tokens: u8[t], token_offsets: i8[n + 1]: see `number_tokens`.
        places, marks, nodes, ends, pairs, begins_some, secret, state: the tree, see
            `add_patterns`; links and texts are noted in it.
        powers: u8[d + 1, 2], of the secret factor up to the depth of phrases, and the same times
            the hash of their root.
        known: u8[2 c], a word's number and the nearest end of its longest beginning, at a place by
            the number; 0: none; c is a power of two.
        has_phrases, has_beginnings: whether there are any.
        seconds, longest: i4[t], scratch.
        offsets: i8[n + 1], overwritten: the patterns of row r are found[offsets[r]:offsets[r + 1]].
        found: u8, overwritten: their numbers, each once a row, in no order.

    Returns:
        The number of all; -1 where `found` is too short.
    """
    count = np.int64(0)
    changes, deepest = state[STATE_CHANGES], state[STATE_DEEPEST]
    if has_phrases:
        _note_seconds(tokens, places, nodes, pairs, secret, seconds)
    if has_beginnings:
        _note_longest(
            cleaned, spans, tokens, places, nodes, ends, begins_some, secret, changes, known,
            longest,
        )  # fmt: skip
    sums = np.empty(0, np.uint64)
    offsets[0] = 0
    for row in range(token_offsets.shape[0] - 1):
        first, last = token_offsets[row], token_offsets[row + 1]
        state[STATE_TEXTS] += 1
        text = np.uint64(state[STATE_TEXTS])
        depth, has_sums = np.int64(0), False
        for i in range(first, last - 1 if has_phrases else first):
            node, walked = np.int64(seconds[i]), np.int64(2)
            if node == 0:
                depth = np.int64(0)
                continue
            most = min(last - i, deepest)
            is_run = depth == deepest and most == deepest and has_sums
            deeper = np.int64(0)
            if is_run:
                # A run of one word.
                deeper = _marked_node(sums, i - first, most, powers, marks, secret)
            if deeper == 0:
                depth = walked
                if most > walked:
                    node, walked = _walk(tokens, i, min(most, WALKED), places, nodes, secret)
                    depth = walked
                if walked == WALKED and walked < most:
                    if not has_sums:
                        has_sums = True
                        if sums.shape[0] <= last - first:
                            sums = np.empty(last - first + 1, np.uint64)
                        _sum_up(tokens, first, last, secret, sums)
                    deeper, depth = _deepest_mark(sums, i - first, most, powers, marks, secret)
            node = node if deeper == 0 else deeper
            end = _nearest_end(node, nodes, changes)
            if end == 0 or ends[end, _TEXT] == text:
                continue
            if deeper != 0 and not _is_path(node, tokens, i, depth, nodes):
                node, depth = _walk(tokens, i, most, places, nodes, secret)
                end = _nearest_end(node, nodes, changes)
            count = _add_found(end, text, nodes, ends, changes, found, count)
            if count < 0:
                return np.int64(-1)
        for i in range(first, last if has_beginnings else first):
            end = np.int64(longest[i])
            count = _add_found(end, text, nodes, ends, changes, found, count)
            if count < 0:
                return np.int64(-1)
        offsets[row + 1] = count
    return count


@kernel(
    types.void(
        _READ_ONLY_U8,
        types.Array(types.uint16, 1, "C", readonly=True),
        _READ_ONLY_I8,
        _READ_ONLY_U8,
        _READ_ONLY_I8,
        types.uint64[::1],
        types.uint16[::1],
        types.int64[::1],
    )
)
def append_patterns(
    terms: Any,
    counts: Any,
    offsets: Any,
    patterns: Any,
    pattern_offsets: Any,
    out_terms: Any,
    out_counts: Any,
    out_offsets: Any,
) -> None:
    """Writes the terms of each row with its patterns after them, each of which counts once.

    Args:
        terms: u8[t], counts: u2[t], offsets: i8[n + 1]: the terms of row r are
            terms[offsets[r]:offsets[r + 1]].
        patterns: u8[p], pattern_offsets: i8[n + 1]: likewise.
        out_terms, out_counts, out_offsets: overwritten; for all terms and patterns.
    """
    written = np.int64(0)
    out_offsets[0] = 0
    for row in range(offsets.shape[0] - 1):
        for i in range(offsets[row], offsets[row + 1]):
            out_terms[written], out_counts[written] = terms[i], counts[i]
            written += 1
        for i in range(pattern_offsets[row], pattern_offsets[row + 1]):
            out_terms[written], out_counts[written] = patterns[i], 1
            written += 1
        out_offsets[row + 1] = written
