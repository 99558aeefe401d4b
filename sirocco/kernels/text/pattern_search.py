"""Finds phrases and beginnings of words in cleaned texts, by one tree of all (`pattern_tree`).

Only those tokens are looked at from which a pattern of that place may begin (`pattern_choice`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.text.beginning_search import note_longest
from sirocco.kernels.text.pattern_choice import choose_tokens
from sirocco.kernels.text.pattern_ends import add_found
from sirocco.kernels.text.pattern_places import LEVELS_MAX
from sirocco.kernels.text.pattern_tree import STATE_CHANGES, STATE_DEEPEST, STATE_TEXTS
from sirocco.kernels.text.phrase_search import add_phrases, digits_of, note_seconds

__all__ = ["find_patterns"]

_READ_ONLY_BYTES = types.Array(types.uint8, 1, "C", readonly=True)
_READ_ONLY_I8 = types.Array(types.int64, 1, "C", readonly=True)
_READ_ONLY_U8 = types.Array(types.uint64, 1, "C", readonly=True)
_READ_ONLY_F8 = types.Array(types.float64, 1, "C", readonly=True)
_WORDS_I8, _WORDS_U8 = types.int64[::1], types.uint64[::1]
_ROWS = types.uint64[:, ::1]
_CHOSEN = types.int32[::1]


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
            (
                _ROWS,
                _ROWS,
                _WORDS_U8,
                _WORDS_U8,
                _ROWS,
                _ROWS,
                _WORDS_U8,
                types.boolean[::1],
                _READ_ONLY_U8,
                _WORDS_I8,
            )
        ),
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
        tree: places, marks, mark_filter, kept, nodes, ends, pairs, begins_some, secret, state, see
            `add_patterns`; links and texts are noted in it.
        known: u8[2 c], a word's number and the nearest end of its longest beginning, at a place by
            the number; 0: none; c is a power of two.
        scratch: four times i4[t + 1].
        offsets: i8[n + 1], overwritten: the patterns of row r are found[offsets[r]:offsets[r + 1]].
        found: u8, overwritten: their numbers, each once a row, in no order.

    Returns:
        The number of all; -1 where `found` is too short.
    """
    cleaned, spans, tokens, token_offsets = texts
    places, _, _, _, nodes, ends, pairs, begins_some, secret, state = tree
    pairs_at, seconds, words_at, longest = scratch
    blocks = near[3]
    rows = token_offsets.shape[0] - 1
    cells, cell_counts = np.empty((rows, LEVELS_MAX), np.uint64), np.empty(rows, np.int64)
    pair_count, word_count = choose_tokens(
        texts, near, pairs, begins_some, secret, pairs_at, words_at, cells, cell_counts
    )
    changes = state[STATE_CHANGES]
    note_seconds(tokens, pairs_at, pair_count, places, nodes, secret, seconds)
    note_longest(
        cleaned, spans, tokens, words_at, word_count, places, nodes, ends, begins_some, secret,
        changes, known, longest,
    )  # fmt: skip
    hashes = np.empty((0, digits_of(state[STATE_DEEPEST])), np.uint64)
    pair_at = word_at = count = np.int64(0)
    offsets[0] = 0
    for row in range(rows):
        first, last = token_offsets[row], token_offsets[row + 1]
        state[STATE_TEXTS] += 1
        here = cells[row, : max(cell_counts[row], 0)]
        pair_end = _first_from(pairs_at, pair_at, pair_count, last)
        word_end = _first_from(words_at, word_at, word_count, last)
        if pair_at < pair_end:
            if hashes.shape[0] < last - first:
                hashes = np.empty((last - first, hashes.shape[1]), np.uint64)
            count = add_phrases(
                tokens, first, last, pairs_at[pair_at:pair_end], seconds[pair_at:pair_end], tree,
                hashes, here, blocks, found, count,
            )  # fmt: skip
        for k in range(word_at, word_end):
            if count < 0:
                break
            count = add_found(
                np.int64(longest[k]), np.uint64(state[STATE_TEXTS]), nodes, ends, changes, here,
                blocks, found, count,
            )  # fmt: skip
        if count < 0:
            return np.int64(-1)
        pair_at, word_at = pair_end, word_end
        offsets[row + 1] = count
    return count
