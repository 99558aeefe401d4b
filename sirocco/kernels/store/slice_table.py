"""Describes sealed slices as a table of addresses, so that one kernel call reads a whole store.

A call with the arrays of one slice costs 1.5 us before it begins: for eight slices that is more
than the search itself. A row of the table is i8[TABLE_WORDS]: counts, bounds and the addresses of
the slice's columns (see `sirocco/index/store/slices.py`). The owner of a table keeps the slices
alive; the columns are only read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sirocco.kernels.jit.compiled import JIT_ENABLED, kernel

__all__ = [
    "ADDRESSES",
    "ARRIVAL_FIRST",
    "ARRIVAL_LAST",
    "COUNTS",
    "FIRST_SEQ",
    "IS_ACTIVE",
    "LAST_SEQ",
    "TABLE_WORDS",
    "TS_ARRIVAL",
    "TS_DELTA",
    "TS_FORM",
    "TS_MISSING",
    "TS_PLAIN",
    "event_columns",
    "f8_at",
    "i4_at",
    "i8_at",
    "is_outside",
    "is_within",
    "search_columns",
    "u1_at",
    "u2_at",
    "u4_at",
    "u8_at",
]

FIRST_SEQ = 0
LAST_SEQ = 1
ARRIVAL_FIRST = 2
ARRIVAL_LAST = 3
# From here on: rows, terms, vocabulary, nodes · 4, levels, sessions, long counts.
COUNTS = 4
# How event times are stored: TS_*.
TS_FORM = 11
TS_MISSING = 0
TS_ARRIVAL = 1
TS_DELTA = 2
TS_PLAIN = 3
# 1 for an active slice.
IS_ACTIVE = 12
# From here on: lon, lat, arrivals_ms, seqs, term_offsets, terms, vocabulary, posting_offsets,
# postings, boxes, levels, ids, session_rows, numbers, sessions, number_bases; then lengths, ts,
# long_places, long_counts, name_offsets, names, text_offsets, text, attribute_offsets, attributes.
# An active slice has its sessions at session_rows, its counts at vocabulary, its tags at postings;
# 0 for a missing column.
ADDRESSES = 13
TABLE_WORDS = 39


def _plain(dtype: Any) -> Any:
    """Returns the uncompiled equivalent of `_native`."""
    code = np.ctypeslib.as_ctypes_type(dtype)

    def array_at(address: Any, length: Any) -> Any:
        if length == 0:
            return np.empty(0, dtype)
        return np.ctypeslib.as_array((code * int(length)).from_address(int(address)))

    return array_at


def _native() -> Any:
    """Builds the intrinsic that turns a number into a pointer."""
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
    def f8_at(address: Any, length: Any) -> Any:
        """Returns the f8[length] at an address."""
        return carray(_pointer_of(address), (length,), np.float64)

    @kernel(inline=True)
    def f4_at(address: Any, length: Any) -> Any:
        """Returns the f4[length] at an address."""
        return carray(_pointer_of(address), (length,), np.float32)

    @kernel(inline=True)
    def i8_at(address: Any, length: Any) -> Any:
        """Returns the i8[length] at an address."""
        return carray(_pointer_of(address), (length,), np.int64)

    @kernel(inline=True)
    def u8_at(address: Any, length: Any) -> Any:
        """Returns the u8[length] at an address."""
        return carray(_pointer_of(address), (length,), np.uint64)

    @kernel(inline=True)
    def u4_at(address: Any, length: Any) -> Any:
        """Returns the u4[length] at an address."""
        return carray(_pointer_of(address), (length,), np.uint32)

    @kernel(inline=True)
    def i4_at(address: Any, length: Any) -> Any:
        """Returns the i4[length] at an address."""
        return carray(_pointer_of(address), (length,), np.int32)

    @kernel(inline=True)
    def u2_at(address: Any, length: Any) -> Any:
        """Returns the u2[length] at an address."""
        return carray(_pointer_of(address), (length,), np.uint16)

    @kernel(inline=True)
    def u1_at(address: Any, length: Any) -> Any:
        """Returns the u1[length] at an address."""
        return carray(_pointer_of(address), (length,), np.uint8)
else:
    f8_at, f4_at = _plain(np.float64), _plain(np.float32)
    i8_at, u8_at, i4_at = _plain(np.int64), _plain(np.uint64), _plain(np.int32)
    u4_at, u2_at, u1_at = _plain(np.uint32), _plain(np.uint16), _plain(np.uint8)


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
        f8_at(row[ADDRESSES], rows),
        f8_at(row[ADDRESSES + 1], rows),
        i8_at(row[ADDRESSES + 2], rows),
        u4_at(row[ADDRESSES + 3], rows),
        u4_at(row[ADDRESSES + 4], rows + 1),
        u4_at(row[ADDRESSES + 5], terms),
        u8_at(row[ADDRESSES + 6], vocabulary),
        u4_at(row[ADDRESSES + 7], vocabulary + 1),
        u4_at(row[ADDRESSES + 8], terms),
        f4_at(row[ADDRESSES + 9], row[COUNTS + 3]),
        i8_at(row[ADDRESSES + 10], row[COUNTS + 4]),
    )


@kernel(inline=True)
def event_columns(row: Any) -> Any:
    """Returns (ids, session_rows, numbers, sessions, number_bases) of a slice."""
    rows, sessions = row[COUNTS], row[COUNTS + 5]
    return (
        u8_at(row[ADDRESSES + 11], rows),
        u4_at(row[ADDRESSES + 12], rows),
        u4_at(row[ADDRESSES + 13], rows),
        u8_at(row[ADDRESSES + 14], sessions),
        u8_at(row[ADDRESSES + 15], sessions),
    )
