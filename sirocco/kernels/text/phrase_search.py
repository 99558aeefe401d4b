"""Finds phrases from the tokens of texts at which some may begin.

The node of a token and the next one is looked up for many tokens together. From there on, the
deepest marked node (`pattern_tree`) is found by bisection, for which the filter of marks is enough.
What leads to a phrase that the text has not shown yet is compared with its tokens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.pattern_ends import add_found
from sirocco.kernels.text.pattern_tree import (
    END_TEXT,
    PHRASES,
    ROW_WORDS,
    SPREAD,
    STATE_CHANGES,
    STATE_DEEPEST,
    STATE_TEXTS,
    WALKED,
    child_of,
    is_path,
    joined,
    marked_node,
    may_be_marked,
    nearest_end,
    place_of,
)
from sirocco.kernels.text.token_runs import are_equal_runs

__all__ = ["add_phrases", "digits_of", "note_seconds"]

# Tokens whose memory is fetched together.
_GROUP = 128
# Pairs of tokens that are remembered, by 64 - _U58 bits of a hash.
_LATEST = 64

_U58 = np.uint64(58)


@kernel()
def _join(tokens: Any, first: Any, last: Any, digits: Any, secret: Any, hashes: Any) -> None:
    """Writes the hashes of 1, 2, 4, … tokens from each one on.

    Args:
        tokens: u8, of which those from `first` to `last` count.
        digits: i8, how many powers of two.
        hashes: u8[last - first or more, digits or more], overwritten.
    """
    for i in range(last - first):
        hashes[i, 0] = tokens[first + i]
    for digit in range(1, digits):
        half = 1 << (digit - 1)
        for i in range(last - first - 2 * half + 1):
            hashes[i, digit] = joined(hashes[i, digit - 1], hashes[i + half, digit - 1], secret)


@kernel()
def _walk(tokens: Any, first: Any, most: Any, places: Any, nodes: Any, secret: Any) -> Any:
    """Returns the deepest node of phrases from a token on within some tokens, and its depth."""
    node, depth, path = np.int64(PHRASES), np.int64(0), np.uint64(PHRASES)
    while depth < most:
        token = tokens[first + depth]
        path = joined(path, token, secret)
        child = child_of(node, token, path, places, nodes)
        if child == 0:
            break
        node = child
        depth += 1
    return node, depth


@kernel(inline=True)
def digits_of(number: Any) -> Any:
    """Returns how many binary digits a number has, 0 where it is below 1."""
    digits = np.int64(0)
    while number >> digits > 0:
        digits += 1
    return digits


@kernel()
def _deepest_mark(
    second: Any, hashes: Any, at: Any, most: Any, digits: Any, marks: Any, mark_filter: Any,
    secret: Any,
) -> Any:  # fmt: skip
    """Returns the deepest marked node, its depth, and where its tokens are kept.

    Args:
        second: the node of the first WALKED tokens, returned where none is marked.
        hashes: u8, see `_join`; at: i8, the first token's place there.
        most: i8, the greatest depth possible.
        digits: i8, of the greatest number of further tokens.
        marks, mark_filter: see `add_patterns`.
    """
    depth, deepest = np.int64(WALKED), np.uint64(second)
    for digit in range(digits - 1, -1, -1):
        if depth + (1 << digit) <= most:
            path = joined(deepest, hashes[at + depth, digit], secret)
            if may_be_marked(path, mark_filter):
                depth, deepest = depth + (1 << digit), path
    if depth == WALKED:
        return second, depth, np.int64(0)
    node, kept_at = marked_node(deepest, marks)
    if node != 0:
        return node, depth, kept_at
    # The filter held what is no mark.
    node, depth, deepest = second, np.int64(WALKED), np.uint64(second)
    for digit in range(digits - 1, -1, -1):
        if depth + (1 << digit) <= most:
            path = joined(deepest, hashes[at + depth, digit], secret)
            child, child_at = marked_node(path, marks)
            if child != 0:
                node, kept_at, depth, deepest = child, child_at, depth + (1 << digit), path
    return node, depth, kept_at


@kernel(inline=True)
def _latest_place(first: Any, second: Any) -> Any:
    """Returns where a pair of tokens is remembered."""
    return np.int64(((first ^ second * np.uint64(3)) * SPREAD) >> _U58)


@kernel(inline=True)
def _node_with(path: Any, places: Any) -> Any:
    """Returns a node with the hash of a path, 0 where there is none."""
    place = place_of(path, places)
    while places[place, 1] != 0:
        if places[place, 0] == path:
            return np.int64(places[place, 1])
        place = (place + 1) & (places.shape[0] - 1)
    return np.int64(0)


@kernel()
def note_seconds(
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
            path = joined(np.uint64(PHRASES), tokens[i], secret)
            paths[waiting] = joined(path, tokens[i + 1], secret)
            prefetch(flat_places, 2 * place_of(paths[waiting], places))
            pending[waiting] = k
            waiting += 1
        for p in range(waiting):
            node = _node_with(paths[p], places)
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


@kernel()
def add_phrases(
    tokens: Any, first: Any, last: Any, chosen: Any, seconds: Any, tree: Any, hashes: Any,
    cells: Any, blocks: Any, found: Any, count: Any,
) -> Any:  # fmt: skip
    """Adds the phrases of a text.

    Args:
        tokens: u8; the text's are those from `first` to `last`.
        chosen, seconds: i4, tokens from which a phrase may begin, and their nodes.
        tree: see `find_patterns`.
        hashes: u8[last - first or more, digits of the longest phrase], scratch.
        cells, blocks, found, count: see `add_found`.

    Returns:
        The new count; -1 where `found` is too short.
    """
    places, marks, mark_filter, kept, nodes, ends, _, _, secret, state = tree
    changes, deepest = state[STATE_CHANGES], state[STATE_DEEPEST]
    text = np.uint64(state[STATE_TEXTS])
    digits, is_joined = digits_of(min(last - first, deepest) - WALKED), False
    for k in range(chosen.shape[0]):
        if seconds[k] == 0:
            continue
        i, node, is_guess = np.int64(chosen[k]), np.int64(seconds[k]), False
        depth, kept_at, most = np.int64(WALKED), np.int64(0), min(last - i, deepest)
        if most > WALKED:
            if not is_joined:
                _join(tokens, first, last, digits, secret, hashes)
                is_joined = True
            node, depth, kept_at = _deepest_mark(
                node, hashes, i - first, most, digits, marks, mark_filter, secret
            )
            is_guess = depth > WALKED
        end = nearest_end(node, nodes, changes)
        if end == 0 or ends[end, END_TEXT] == text:
            continue
        if is_guess and not are_equal_runs(tokens, i, kept, kept_at, depth):
            node, _ = _walk(tokens, i, most, places, nodes, secret)
            end = nearest_end(node, nodes, changes)
        count = add_found(end, text, nodes, ends, changes, cells, blocks, found, count)
        if count < 0:
            break
    return count
