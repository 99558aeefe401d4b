"""Birth, death and expiry of rows, as the matching kernel reads them (words: see `pyramid`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from sirocco.kernels.base.memory import prefetch
from sirocco.kernels.jit.compiled import kernel
from sirocco.kernels.standing.pyramid import (
    BORN,
    DEAD,
    EXPIRES,
    ROW_WORDS,
    STATE_CHECK,
    STATE_FREE,
    STATE_MASK,
    STATE_PLAIN,
)

__all__ = ["check_rows", "end_rows", "settle_rows", "split_expired"]

_FOR_EVER = 0x7FFFFFFFFFFFFFFF
_AHEAD = 8

_I8 = types.Array(types.int64, 1, "C")
_I4 = types.Array(types.int32, 1, "C")
_I4_IN = types.Array(types.int32, 1, "C", readonly=True)
_U1 = types.Array(types.uint8, 1, "C")


@kernel(types.void(_I4_IN, types.int64, _I8, _U1))
def end_rows(rows: Any, position: Any, row_words: Any, row_state: Any) -> None:
    """Sets the dead position of rows (i4[k], in use)."""
    for i in range(rows.shape[0]):
        row = np.int64(rows[i])
        row_words[row * ROW_WORDS + DEAD] = position
        row_state[row] = (np.int64(row_state[row]) & ~STATE_MASK) | STATE_CHECK


@kernel(types.void(_I4_IN, types.int64, _I8, _U1))
def check_rows(rows: Any, horizon_ms: Any, row_words: Any, row_state: Any) -> None:
    """Marks rows for individual checks that are in use and end at `horizon_ms` or before.

    A row that was freed and reused by a query that ends later is left as it is.
    """
    for i in range(rows.shape[0]):
        row = np.int64(rows[i])
        if (
            row_state[row] & STATE_MASK != STATE_FREE
            and row_words[row * ROW_WORDS + EXPIRES] <= horizon_ms
        ):
            row_state[row] = (np.int64(row_state[row]) & ~STATE_MASK) | STATE_CHECK


@kernel(types.void(_I4_IN, types.int64, types.int64, _I8, _U1))
def settle_rows(rows: Any, position: Any, horizon_ms: Any, row_words: Any, row_state: Any) -> None:
    """Ends individual checks of rows born at `position` or before that end after a time."""
    for i in range(rows.shape[0]):
        if i + _AHEAD < rows.shape[0]:
            prefetch(row_words, np.int64(rows[i + _AHEAD]) * ROW_WORDS)
        row = np.int64(rows[i])
        base = row * ROW_WORDS
        if (
            row_state[row] & STATE_MASK == STATE_CHECK
            and row_words[base + BORN] <= position
            and row_words[base + DEAD] == _FOR_EVER
            and row_words[base + EXPIRES] > horizon_ms
        ):
            row_state[row] = (np.int64(row_state[row]) & ~STATE_MASK) | STATE_PLAIN


@kernel(types.UniTuple(types.int64, 2)(_I4_IN, types.int64, types.int64, _I8, _U1, _I4, _I4))
def split_expired(
    rows: Any,
    now_ms: Any,
    horizon_ms: Any,
    row_words: Any,
    row_state: Any,
    ended: Any,
    later: Any,
) -> Any:
    """Splits rows by whether their lifetime ended.

    Args:
        rows: i4[k]; free and dead rows are in neither result.
        now_ms: lifetimes up to it have ended.
        horizon_ms: rows that end later are in neither result.
        row_words, row_state: the rows.
        ended, later: i4[k], overwritten.

    Returns:
        (rows in `ended`, rows in `later`).
    """
    ended_count = 0
    later_count = 0
    for i in range(rows.shape[0]):
        row = np.int64(rows[i])
        base = row * ROW_WORDS
        if row_state[row] & STATE_MASK == STATE_FREE or row_words[base + DEAD] != _FOR_EVER:
            continue
        if row_words[base + EXPIRES] <= now_ms:
            ended[ended_count] = row
            ended_count += 1
        elif row_words[base + EXPIRES] <= horizon_ms:
            later[later_count] = row
            later_count += 1
    return ended_count, later_count
