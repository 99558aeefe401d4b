"""Finds phrases and beginnings of words in cleaned texts, by one tree of all (`pattern_tree`).

Only those tokens are looked at from which a pattern of that place may begin (`pattern_places`). The
node of a word's longest beginning is remembered by the word's number: texts repeat words.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.base.words import load_u64
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.characters import UNIT_FIRST
from sirocco.kernels.text.pattern_places import (
    BLOCK_WORDS,
    LEVELS_MAX,
    LINE_WORDS,
    LONG_HERE,
    PHRASES_HERE,
    SHORT_HERE,
    TINY_HERE,
    block_of,
    group_of,
    holds_group,
    holds_number,
    near_cells,
)
from sirocco.kernels.text.pattern_tree import (
    BEGINNINGS,
    END_NUMBER,
    END_TEXT,
    PHRASES,
    PRIME,
    ROOTS,
    ROW_WORDS,
    SPREAD,
    STATE_CHANGES,
    STATE_DEEPEST,
    STATE_TEXTS,
    WALKED,
    above,
    child_of,
    extended,
    is_path,
    nearest_end,
    pair_of,
    place_of,
    reduced,
    times,
)

__all__ = ["find_patterns"]

# Tokens and rows whose memory is fetched together.
_GROUP = 128
_ROWS_TOGETHER = 64
# Pairs of tokens that are remembered, 64 - _U58 bits of a hash.
_LATEST = 64

_U1, _U6, _U8, _U32, _U58, _U63 = (np.uint64(n) for n in (1, 6, 8, 32, 58, 63))
_LENGTH_MASK = np.uint64(0xFFFF_FFFF)
# By the length of a word up to 8: a mask of those of its first eight bytes that belong to it.
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)

_READ_ONLY_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)
_READ_ONLY_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_READ_ONLY_F8 = types.Array(types.float64, 1, "C", readonly=True)
_WORDS_I8, _WORDS_U8 = types.int64[::1], types.uint64[::1]
_ROWS = types.uint64[:, ::1]
_CHOSEN = types.int32[::1]


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
    before = times(sums[at], powers[depth, 0])
    path = reduced(sums[at + depth] + (PRIME - before) + powers[depth, 1])
    place = place_of(path, marks, secret)
    while marks[place, 1] != 0:
        if marks[place, 0] == path:
            return np.int64(marks[place, 1])
        place = (place + 1) & (marks.shape[0] - 1)
    return np.int64(0)


@kernel()
def _beginning_of(
    cleaned: Any, start: Any, length: Any, places: Any, nodes: Any, begins_some: Any, secret: Any
) -> Any:
    """Returns the deepest node of beginnings on the path of a word, BEGINNINGS for none."""
    node = np.int64(BEGINNINGS)
    if length < 2 or not begins_some[np.int64(load_u64(cleaned, start) & np.uint64(0xFFFF))]:
        return node
    at, of_base = np.int64(0), secret[ROOTS + BEGINNINGS]
    while at < length:
        word = load_u64(cleaned, start + at)
        base, least, most = node, np.int64(0), min(length - at, np.int64(7))
        if length - at >= 8:
            path = extended(of_base, word, secret[2])
            child = child_of(base, word, path, places, nodes, secret)
            if child != 0:
                node, of_base = child, path
                at += 8
                continue
        while least < most:
            middle = (least + most + 1) >> 1
            symbol = word & ((_U1 << (_U8 * np.uint64(middle))) - _U1)
            path = extended(of_base, symbol, secret[2])
            child = child_of(base, symbol, path, places, nodes, secret)
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
        sums[i + 1] = extended(sums[i], tokens[first + i], secret[2])


@kernel()
def _walk(tokens: Any, first: Any, most: Any, places: Any, nodes: Any, secret: Any) -> Any:
    """Returns the deepest node of phrases from a token on within some tokens, and its depth."""
    node, depth, path = np.int64(PHRASES), np.int64(0), secret[ROOTS + PHRASES]
    while depth < most:
        token = tokens[first + depth]
        path = extended(path, token, secret[2])
        child = child_of(node, token, path, places, nodes, secret)
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
    cleaned: Any, spans: Any, tokens: Any, chosen: Any, count: Any, places: Any, nodes: Any,
    ends: Any, begins_some: Any, secret: Any, changes: Any, known: Any, longest: Any,
) -> None:  # fmt: skip
    """Writes the end of the longest beginning of each chosen token to `longest`, 0 for none."""
    mask = known.shape[0] // 2 - 1
    at = np.empty(_GROUP, np.int64)
    flat = ends.ravel()
    for begin in range(0, count, _GROUP):
        size = min(_GROUP, count - begin)
        for k in range(size):
            at[k] = 2 * (np.int64((tokens[chosen[begin + k]] * SPREAD) >> _U32) & mask)
            prefetch(known, at[k])
        for k in range(size):
            i, place = np.int64(chosen[begin + k]), at[k]
            start, length = np.int64(spans[i] >> _U32), np.int64(spans[i] & _LENGTH_MASK)
            longest[begin + k] = 0
            # Units are no words, though what begins a word may be their first bytes.
            if start > 0 and cleaned[start - 1] >= UNIT_FIRST:
                continue
            if known[place] != tokens[i] or tokens[i] == 0:
                node = _beginning_of(cleaned, start, length, places, nodes, begins_some, secret)
                known[place] = tokens[i]
                known[place + 1] = np.uint64(nearest_end(node, nodes, changes))
            longest[begin + k] = known[place + 1]
            prefetch(flat, np.int64(longest[begin + k]) * ROW_WORDS)
        for k in range(size):
            prefetch(flat, above(np.int64(longest[begin + k]), nodes, ends, changes) * ROW_WORDS)


@kernel(inline=True)
def _latest_place(first: Any, second: Any) -> Any:
    """Returns where a pair of tokens is remembered."""
    return np.int64(((first ^ second * np.uint64(3)) * SPREAD) >> _U58)


@kernel(inline=True)
def _node_with(path: Any, places: Any, secret: Any) -> Any:
    """Returns a node with the hash of a path, 0 where there is none."""
    place = place_of(path, places, secret)
    while places[place, 1] != 0:
        if places[place, 0] == path:
            return np.int64(places[place, 1])
        place = (place + 1) & (places.shape[0] - 1)
    return np.int64(0)


@kernel()
def _note_seconds(
    tokens: Any, chosen: Any, count: Any, places: Any, nodes: Any, secret: Any, seconds: Any
) -> None:
    """Writes the node of each chosen token and the next one to `seconds`, 0 for none.

    The latest pairs are remembered: a text of few words has few.
    """
    paths, pending = np.empty(_GROUP, np.uint64), np.empty(_GROUP, np.int64)
    # First and second token, node. Empty places hold pair (0, 0), which belongs to the first: that
    # one begins with a pair which belongs to another.
    latest = np.zeros((_LATEST, 3), np.uint64)
    latest[0, 1] = np.uint64(1)
    flat_places, flat_nodes = places.ravel(), nodes.ravel()
    for begin in range(0, count, _GROUP):
        waiting = 0
        for k in range(begin, min(begin + _GROUP, count)):
            i = np.int64(chosen[k])
            pair = latest[_latest_place(tokens[i], tokens[i + 1])]
            seconds[k] = pair[2]
            if pair[0] == tokens[i] and pair[1] == tokens[i + 1]:
                continue
            path = extended(secret[ROOTS + PHRASES], tokens[i], secret[2])
            paths[waiting] = extended(path, tokens[i + 1], secret[2])
            prefetch(flat_places, 2 * place_of(paths[waiting], places, secret))
            pending[waiting] = k
            waiting += 1
        for p in range(waiting):
            node = _node_with(paths[p], places, secret)
            seconds[pending[p]] = node
            prefetch(flat_nodes, node * ROW_WORDS)
        for p in range(waiting):
            k = pending[p]
            i, node = np.int64(chosen[k]), np.int64(seconds[k])
            if node != 0 and not is_path(node, tokens, i, 2, nodes):
                node, depth = _walk(tokens, i, 2, places, nodes, secret)
                node = node if depth == 2 else np.int64(0)
                seconds[k] = node
            pair = latest[_latest_place(tokens[i], tokens[i + 1])]
            pair[0], pair[1], pair[2] = tokens[i], tokens[i + 1], np.uint64(node)


@kernel(inline=True)
def _is_anywhere(row: Any, lon: Any, blocks: Any) -> Any:
    """Returns whether a text's place does not exclude patterns."""
    # ±180 are one meridian, which has two cells.
    return blocks.shape[0] == 0 or abs(lon[row]) == 180.0


@kernel(inline=True)
def _cells_with(cells: Any, kind: Any, blocks: Any, chosen: Any) -> Any:
    """Writes those cells that have patterns of a kind to `chosen`; returns their number."""
    kept = 0
    for k in range(cells.shape[0]):
        chosen[kept] = cells[k]
        kept += holds_group(cells[k], kind, blocks)
    return kept


@kernel(inline=True)
def _any_has(cells: Any, count: Any, key: Any, blocks: Any) -> Any:
    """Returns whether any of some cells has a group."""
    is_held = False
    for k in range(count):
        is_held |= holds_group(cells[k], key, blocks)
    return is_held


@kernel(inline=True)
def _first_bytes_of(cleaned: Any, span: Any) -> Any:
    """Returns the first eight bytes of a token, u8, zero after its end."""
    length: Any = np.int64(span & _LENGTH_MASK)
    return load_u64(cleaned, np.int64(span >> _U32)) & _FIRST_BYTES[min(length, 8)]


@kernel()
def _choose_pairs(
    tokens: Any, first: Any, last: Any, cells: Any, blocks: Any, secret: Any, own: Any,
    chosen: Any, count: Any,
) -> Any:  # fmt: skip
    """Appends the tokens of a text from which a phrase of its place may begin.

    Args:
        first, last: the text's tokens.
        cells: u8, see `near_cells`.
        own: u8[3, LEVELS_MAX], scratch.
        chosen: i4, so far `count`.

    Returns:
        The new count.
    """
    here = _cells_with(cells, PHRASES_HERE, blocks, own[0])
    for i in range(first, last - 1 if here > 0 else first):
        chosen[count] = i
        key = pair_of(tokens[i], tokens[i + 1], secret)
        count += np.int64(_any_has(own[0], here, key, blocks))
    return count


@kernel()
def _choose_words(
    cleaned: Any, spans: Any, first: Any, last: Any, cells: Any, blocks: Any, secret: Any,
    own: Any, chosen: Any, count: Any,
) -> Any:  # fmt: skip
    """Does the same with beginnings."""
    longs = _cells_with(cells, LONG_HERE, blocks, own[0])
    shorts = _cells_with(cells, SHORT_HERE, blocks, own[1])
    tiny = _cells_with(cells, TINY_HERE, blocks, own[2])
    if longs + shorts + tiny == 0:
        return count
    for i in range(first, last):
        chosen[count] = i
        word = _first_bytes_of(cleaned, spans[i])
        key, has_group = group_of(word, True, secret)
        is_chosen = has_group & _any_has(own[0], longs, key, blocks)
        if shorts + tiny > 0:
            key, has_group = group_of(word, False, secret)
            is_chosen |= has_group & _any_has(own[1], shorts, key, blocks)
            is_chosen |= tiny > 0
        count += np.int64(is_chosen)
    return count


@kernel()
def _choose_all(
    cleaned: Any, spans: Any, tokens: Any, first: Any, last: Any, pairs: Any, begins_some: Any,
    secret: Any, pairs_at: Any, pair_count: Any, words_at: Any, word_count: Any,
) -> Any:  # fmt: skip
    """Appends the tokens of a text from which a phrase or beginning of anywhere may begin."""
    mask = np.uint64(pairs.shape[0] - 1)
    for i in range(first, last - 1):
        bit = pair_of(tokens[i], tokens[i + 1], secret)
        pairs_at[pair_count] = i
        pair_count += np.int64(pairs[bit >> _U6 & mask] >> (bit & _U63) & _U1)
    for i in range(first, last):
        words_at[word_count] = i
        word = load_u64(cleaned, np.int64(spans[i] >> _U32))
        word_count += np.int64(begins_some[np.int64(word & np.uint64(0xFFFF))])
    return pair_count, word_count


@kernel()
def _note_cells(near: Any, begin: Any, end: Any, cells: Any, counts: Any) -> None:
    """Writes the cells of some texts and their numbers, -1 for anywhere; fetches their lines."""
    lon, lat, extent, blocks, state, secret = near
    for row in range(begin, end):
        counts[row] = -1
        if not _is_anywhere(row, lon, blocks):
            counts[row] = near_cells(lon[row], lat[row], extent, state, secret, cells[row])
        for k in range(counts[row]):
            block = np.int64(block_of(cells[row, k], blocks))
            for line in range(0, BLOCK_WORDS, LINE_WORDS):
                prefetch(blocks, block + line)


@kernel()
def _choose(
    texts: Any, near: Any, pairs: Any, begins_some: Any, secret: Any, pairs_at: Any, words_at: Any,
    cells: Any, cell_counts: Any,
) -> Any:  # fmt: skip
    """Writes the tokens from which a pattern may begin, by row; returns how many of each kind.

    Args:
        texts, near: see `find_patterns`.
        pairs, begins_some, secret: see `add_patterns`.
        pairs_at, words_at: i4, overwritten: tokens from which a phrase or a beginning may begin.
        cells: u8[n, LEVELS_MAX], cell_counts: i8[n], overwritten: the cells of each row.
    """
    cleaned, spans, tokens, token_offsets = texts
    blocks = near[3]
    own = np.empty((3, LEVELS_MAX), np.uint64)
    pair_count = word_count = np.int64(0)
    for begin in range(0, cell_counts.shape[0], _ROWS_TOGETHER):
        end = min(begin + _ROWS_TOGETHER, cell_counts.shape[0])
        _note_cells(near, begin, end, cells, cell_counts)
        for row in range(begin, end):
            first, last = token_offsets[row], token_offsets[row + 1]
            if cell_counts[row] < 0:
                pair_count, word_count = _choose_all(
                    cleaned, spans, tokens, first, last, pairs, begins_some, secret, pairs_at,
                    pair_count, words_at, word_count,
                )  # fmt: skip
                continue
            here = cells[row, : cell_counts[row]]
            pair_count = _choose_pairs(
                tokens, first, last, here, blocks, secret, own, pairs_at, pair_count
            )
            word_count = _choose_words(
                cleaned, spans, first, last, here, blocks, secret, own, words_at, word_count
            )
    return pair_count, word_count


@kernel(inline=True)
def _add_found(
    end: Any, text: Any, nodes: Any, ends: Any, changes: Any, cells: Any, blocks: Any, found: Any,
    count: Any,
) -> Any:  # fmt: skip
    """Adds the patterns of an end and of those above it that the text has not shown yet.

    Args:
        cells: u8, of the text, whose patterns are wanted; none: all are.
        blocks: u8, see `pattern_places`.

    Returns:
        The new count; -1 where `found` is too short.
    """
    while end != 0 and ends[end, END_TEXT] != text:
        if count == found.shape[0]:
            return np.int64(-1)
        ends[end, END_TEXT] = text
        found[count] = ends[end, END_NUMBER]
        is_wanted = cells.shape[0] == 0
        for k in range(cells.shape[0]):
            is_wanted |= holds_number(cells[k], found[count], blocks)
        count += np.int64(is_wanted)
        end = above(end, nodes, ends, changes)
    return count


@kernel(inline=True)
def _deepest_of(
    tokens: Any, i: Any, second: Any, first: Any, last: Any, most: Any, places: Any, marks: Any,
    nodes: Any, secret: Any, powers: Any, sums: Any,
) -> Any:  # fmt: skip
    """Returns the deepest node of phrases from a token on, its depth, and whether it may be wrong.

    Args:
        i: the token.
        second: the node of it and the next one.
        first, last: the text's tokens; most: how many from `i` on are looked at.
        sums: u8, as `_sum_up` writes them; sums[0] is 1 as long as it has not.
    """
    node, depth = second, np.int64(2)
    if most > 2:
        node, depth = _walk(tokens, i, min(most, WALKED), places, nodes, secret)
    if depth < WALKED or depth >= most:
        return node, depth, False
    if sums[0] != 0:
        _sum_up(tokens, first, last, secret, sums)
    deeper, depth = _deepest_mark(sums, i - first, most, powers, marks, secret)
    return (node, depth, False) if deeper == 0 else (deeper, depth, True)


@kernel()
def _add_phrases(
    tokens: Any, first: Any, last: Any, chosen: Any, seconds: Any, tree: Any, powers: Any,
    sums: Any, cells: Any, blocks: Any, found: Any, count: Any,
) -> Any:  # fmt: skip
    """Adds the phrases of a text.

    Args:
        tokens: u8; the text's are those from `first` to `last`.
        chosen, seconds: i4, tokens from which a phrase may begin, and their nodes.
        tree, powers: see `find_patterns`.
        sums: u8, scratch, longer than the text.
        cells, blocks, found, count: see `_add_found`.

    Returns:
        The new count; -1 where `found` is too short.
    """
    places, marks, nodes, ends, _, _, secret, state = tree
    changes, deepest = state[STATE_CHANGES], state[STATE_DEEPEST]
    text = np.uint64(state[STATE_TEXTS])
    sums[0] = np.uint64(1)
    run_end = first
    for k in range(chosen.shape[0]):
        i = np.int64(chosen[k])
        if seconds[k] == 0:
            continue
        if tokens[i] == tokens[i + 1]:
            run_end = max(run_end, i)
            while run_end < last and tokens[run_end] == tokens[i]:
                run_end += 1
            is_like_before = k > 0 and chosen[k - 1] == i - 1 and tokens[i - 1] == tokens[i]
            if is_like_before and i + deepest <= run_end:
                # A run of one word: what begins here began at the token before.
                continue
        most = min(last - i, deepest)
        node, depth, is_guess = _deepest_of(
            tokens, i, np.int64(seconds[k]), first, last, most, places, marks, nodes, secret,
            powers, sums,
        )  # fmt: skip
        end = nearest_end(node, nodes, changes)
        if end == 0 or ends[end, END_TEXT] == text:
            continue
        if is_guess and not is_path(node, tokens, i, depth, nodes):
            node, depth = _walk(tokens, i, most, places, nodes, secret)
            end = nearest_end(node, nodes, changes)
        count = _add_found(end, text, nodes, ends, changes, cells, blocks, found, count)
        if count < 0:
            break
    return count


@kernel(inline=True)
def _first_from(chosen: Any, at: Any, count: Any, last: Any) -> Any:
    """Returns the first place from one on whose token is not before `last`."""
    while at < count and chosen[at] < last:
        at += 1
    return at


@kernel(
    types.int64(
        types.Tuple((_READ_ONLY_BYTES, _READ_ONLY_U8, _READ_ONLY_U8, _READ_ONLY_I8)),
        types.Tuple(
            (
                _READ_ONLY_F8,
                _READ_ONLY_F8,
                _READ_ONLY_F8,
                _READ_ONLY_U8,
                _READ_ONLY_I8,
                _READ_ONLY_U8,
            )
        ),
        types.Tuple(
            (_ROWS, _ROWS, _ROWS, _ROWS, _WORDS_U8, types.boolean[::1], _READ_ONLY_U8, _WORDS_I8)
        ),
        types.Array(types.uint64, 2, "C", readonly=True),
        _WORDS_U8,
        types.UniTuple(_CHOSEN, 4),
        _WORDS_I8,
        _WORDS_U8,
    )
)
def find_patterns(
    texts: Any,
    near: Any,
    tree: Any,
    powers: Any,
    known: Any,
    scratch: Any,
    offsets: Any,
    found: Any,
) -> Any:
    """Finds the patterns that rows of tokens hold.

    The time is that of some probes for each token and each eight bytes, and of what is found.

    Args:
        texts: cleaned u1, spans, tokens u8[t], token_offsets i8[n + 1]: see `number_tokens`.
        near: where the texts are: lon, lat f8[n], extent, blocks, state, secret, see
            `pattern_places`; no words: all patterns are wanted, wherever the texts are.
        tree: places, marks, nodes, ends, pairs, begins_some, secret, state, see `add_patterns`;
            links and texts are noted in it.
        powers: u8[d + 1, 2], of the secret factor up to the depth of phrases, and the same times
            the hash of their root.
        known: u8[2 c], a word's number and the nearest end of its longest beginning, at a place by
            the number; 0: none; c is a power of two.
        scratch: four times i4[t + 1].
        offsets: i8[n + 1], overwritten: the patterns of row r are found[offsets[r]:offsets[r + 1]].
        found: u8, overwritten: their numbers, each once a row, in no order.

    Returns:
        The number of all; -1 where `found` is too short.
    """
    cleaned, spans, tokens, token_offsets = texts
    places, _, nodes, ends, pairs, begins_some, secret, state = tree
    pairs_at, seconds, words_at, longest = scratch
    blocks = near[3]
    rows = token_offsets.shape[0] - 1
    cells, cell_counts = np.empty((rows, LEVELS_MAX), np.uint64), np.empty(rows, np.int64)
    pair_count, word_count = _choose(
        texts, near, pairs, begins_some, secret, pairs_at, words_at, cells, cell_counts
    )
    changes = state[STATE_CHANGES]
    _note_seconds(tokens, pairs_at, pair_count, places, nodes, secret, seconds)
    _note_longest(
        cleaned, spans, tokens, words_at, word_count, places, nodes, ends, begins_some, secret,
        changes, known, longest,
    )  # fmt: skip
    sums = np.empty(1, np.uint64)
    pair_at = word_at = count = np.int64(0)
    offsets[0] = 0
    for row in range(rows):
        first, last = token_offsets[row], token_offsets[row + 1]
        state[STATE_TEXTS] += 1
        here = cells[row, : max(cell_counts[row], 0)]
        pair_end = _first_from(pairs_at, pair_at, pair_count, last)
        word_end = _first_from(words_at, word_at, word_count, last)
        if pair_at < pair_end:
            if sums.shape[0] <= last - first:
                sums = np.empty(last - first + 1, np.uint64)
            count = _add_phrases(
                tokens, first, last, pairs_at[pair_at:pair_end], seconds[pair_at:pair_end], tree,
                powers, sums, here, blocks, found, count,
            )  # fmt: skip
        for k in range(word_at, word_end):
            if count < 0:
                break
            count = _add_found(
                np.int64(longest[k]), np.uint64(state[STATE_TEXTS]), nodes, ends, changes, here,
                blocks, found, count,
            )  # fmt: skip
        if count < 0:
            return np.int64(-1)
        pair_at, word_at = pair_end, word_end
        offsets[row + 1] = count
    return count
