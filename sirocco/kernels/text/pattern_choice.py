"""Chooses the tokens of texts from which a phrase or beginning may begin at the text's place.

What queries name at a place is in a filter (`pattern_places`), of which a text needs four lines a
level. Without a place, what any query names counts.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.base.words import load_u64
from sirocco.kernels.jit.compiled import kernel
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
    near_cells,
)
from sirocco.kernels.text.pattern_tree import pair_of

__all__ = ["choose_tokens"]

# Rows whose memory is fetched together.
_ROWS_TOGETHER = 64

_U1, _U6, _U32, _U63 = (np.uint64(n) for n in (1, 6, 32, 63))
_LENGTH_MASK = np.uint64(0xFFFF_FFFF)
# By the length of a word up to 8: a mask of those of its first eight bytes that belong to it.
_FIRST_BYTES = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)


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
def choose_tokens(
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
