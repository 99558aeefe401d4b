"""Sealed slices as a table of addresses, so that one call of a kernel reads all of a store.

A call with the arrays of one slice costs 1.5 us before it begins: for a search in eight slices
that is more than the search. A row of the table is i8[TABLE_WORDS]: counts, bounds and the
addresses of the slice's columns (see `sirocco/index/slices.py`). Whoever has a table keeps the
slices alive; the columns are only read.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from sirocco.kernels.compiled import JIT_ENABLED, kernel

__all__ = [
    "ADDRESSES",
    "ARRIVAL_FIRST",
    "ARRIVAL_LAST",
    "COUNTS",
    "FIRST_SEQ",
    "LAST_SEQ",
    "TABLE_WORDS",
    "event_columns",
    "is_outside",
    "is_within",
    "search_columns",
]

FIRST_SEQ = 0
LAST_SEQ = 1
ARRIVAL_FIRST = 2
ARRIVAL_LAST = 3
# From here on: rows, terms, vocabulary, nodes · 4, levels, sessions.
COUNTS = 4
# From here on: lon, lat, arrivals_ms, seqs, term_offsets, terms, vocabulary, posting_offsets,
# postings, boxes, levels, ids, session_rows, numbers, sessions, number_bases.
ADDRESSES = 10
TABLE_WORDS = 26


def _plain(dtype: Any) -> Any:
    """Makes the twin of `_native` without compilation."""
    code = np.ctypeslib.as_ctypes_type(dtype)

    def array_at(address: Any, length: Any) -> Any:
        if length == 0:
            return np.empty(0, dtype)
        return np.ctypeslib.as_array((code * int(length)).from_address(int(address)))

    return array_at


def _native() -> Any:
    """Builds the intrinsic that takes a number for an address."""
    from numba.core import cgutils, types  # noqa: PLC0415 - only where kernels are compiled
    from numba.extending import intrinsic  # noqa: PLC0415

    @intrinsic
    def pointer_of(typing_context, address):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return builder.inttoptr(args[0], cgutils.voidptr_t)

        return types.voidptr(types.int64), generate

    return pointer_of


if JIT_ENABLED:
    from numba import carray

    _pointer_of = _native()

    @kernel(inline=True)
    def _f8(address: Any, length: Any) -> Any:
        return carray(_pointer_of(address), (length,), np.float64)

    @kernel(inline=True)
    def _f4(address: Any, length: Any) -> Any:
        return carray(_pointer_of(address), (length,), np.float32)

    @kernel(inline=True)
    def _i8(address: Any, length: Any) -> Any:
        return carray(_pointer_of(address), (length,), np.int64)

    @kernel(inline=True)
    def _u8(address: Any, length: Any) -> Any:
        return carray(_pointer_of(address), (length,), np.uint64)

    @kernel(inline=True)
    def _u4(address: Any, length: Any) -> Any:
        return carray(_pointer_of(address), (length,), np.uint32)
else:
    _f8, _f4, _i8, _u8, _u4 = map(_plain, (np.float64, np.float32, np.int64, np.uint64, np.uint32))

# ctypes is what NumPy makes the plain twin of; named here so that its absence shows at import.
assert ctypes.sizeof(ctypes.c_void_p) == 8


@kernel(inline=True)
def is_outside(row: Any, arrival_from_ms: Any, arrival_upto_ms: Any, seq_before: Any) -> Any:
    """Returns whether no object of a slice lies within the bounds (arrivals both inclusive)."""
    return (
        row[ARRIVAL_LAST] < arrival_from_ms
        or row[ARRIVAL_FIRST] > arrival_upto_ms
        or row[FIRST_SEQ] >= seq_before
    )


@kernel(inline=True)
def is_within(row: Any, arrival_from_ms: Any, arrival_upto_ms: Any, seq_before: Any) -> Any:
    """Returns whether all objects of a slice lie within the bounds."""
    return (
        row[ARRIVAL_FIRST] >= arrival_from_ms
        and row[ARRIVAL_LAST] <= arrival_upto_ms
        and row[LAST_SEQ] < seq_before
    )


@kernel(inline=True)
def search_columns(row: Any) -> Any:
    """Returns (lon, lat, arrivals_ms, seqs, term_offsets, terms, vocabulary, posting_offsets,
    postings, boxes, levels) of a slice.
    """
    rows, terms, vocabulary = row[COUNTS], row[COUNTS + 1], row[COUNTS + 2]
    return (
        _f8(row[ADDRESSES], rows),
        _f8(row[ADDRESSES + 1], rows),
        _i8(row[ADDRESSES + 2], rows),
        _u4(row[ADDRESSES + 3], rows),
        _u4(row[ADDRESSES + 4], rows + 1),
        _u4(row[ADDRESSES + 5], terms),
        _u8(row[ADDRESSES + 6], vocabulary),
        _u4(row[ADDRESSES + 7], vocabulary + 1),
        _u4(row[ADDRESSES + 8], terms),
        _f4(row[ADDRESSES + 9], row[COUNTS + 3]),
        _i8(row[ADDRESSES + 10], row[COUNTS + 4]),
    )


@kernel(inline=True)
def event_columns(row: Any) -> Any:
    """Returns (ids, session_rows, numbers, sessions, number_bases) of a slice."""
    rows, sessions = row[COUNTS], row[COUNTS + 5]
    return (
        _u8(row[ADDRESSES + 11], rows),
        _u4(row[ADDRESSES + 12], rows),
        _u4(row[ADDRESSES + 13], rows),
        _u8(row[ADDRESSES + 14], sessions),
        _u8(row[ADDRESSES + 15], sessions),
    )
