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
    "AT_ARRIVALS",
    "AT_ATTRIBUTES",
    "AT_ATTRIBUTE_OFFSETS",
    "AT_BOXES",
    "AT_IDS",
    "AT_LAT",
    "AT_LENGTHS",
    "AT_LEVELS",
    "AT_LON",
    "AT_LONG_COUNTS",
    "AT_LONG_PLACES",
    "AT_NAMES",
    "AT_NAME_OFFSETS",
    "AT_NUMBERS",
    "AT_NUMBER_BASES",
    "AT_POSTINGS",
    "AT_POSTING_OFFSETS",
    "AT_ROW_COUNTS",
    "AT_ROW_SESSIONS",
    "AT_SEQS",
    "AT_SESSIONS",
    "AT_SESSION_ROWS",
    "AT_TAGS",
    "AT_TERMS",
    "AT_TERM_OFFSETS",
    "AT_TEXT",
    "AT_TEXT_OFFSETS",
    "AT_TS",
    "AT_VOCABULARY",
    "FIRST_SEQ",
    "IS_ACTIVE",
    "LAST_SEQ",
    "N_BOX_EDGES",
    "N_LEVELS",
    "N_LONG",
    "N_ROWS",
    "N_SESSIONS",
    "N_TERMS",
    "N_WORDS",
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
# Numbers of rows, terms and words of the vocabulary, of edges of boxes (4 of each node), of levels,
# sessions and long counts.
N_ROWS, N_TERMS, N_WORDS, N_BOX_EDGES, N_LEVELS, N_SESSIONS, N_LONG = range(4, 11)
# How event times are stored: TS_*.
TS_FORM = 11
TS_MISSING = 0
TS_ARRIVAL = 1
TS_DELTA = 2
TS_PLAIN = 3
# 1 for an active slice.
IS_ACTIVE = 12
# Addresses of columns; 0 for a missing one.
ADDRESSES = 13
TABLE_WORDS = 39
AT_LON, AT_LAT, AT_ARRIVALS, AT_SEQS, AT_TERM_OFFSETS, AT_TERMS = range(ADDRESSES, 19)
AT_VOCABULARY, AT_POSTING_OFFSETS, AT_POSTINGS, AT_BOXES, AT_LEVELS = range(19, 24)
AT_IDS, AT_SESSION_ROWS, AT_NUMBERS, AT_SESSIONS, AT_NUMBER_BASES = range(24, 29)
AT_LENGTHS, AT_TS, AT_LONG_PLACES, AT_LONG_COUNTS = range(29, 33)
AT_NAME_OFFSETS, AT_NAMES, AT_TEXT_OFFSETS, AT_TEXT = range(33, 37)
AT_ATTRIBUTE_OFFSETS, AT_ATTRIBUTES = range(37, TABLE_WORDS)
# An active slice has other columns at three places: the session of each row, counts and tags.
AT_ROW_SESSIONS, AT_ROW_COUNTS, AT_TAGS = AT_SESSION_ROWS, AT_VOCABULARY, AT_POSTINGS


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
def is_outside(row: Any, arrival_from_ms: Any, arrival_to_ms: Any, seq_before: Any) -> Any:
    """Returns whether no object of a slice lies within the bounds (arrivals both inclusive)."""
    return (
        row[ARRIVAL_LAST] < arrival_from_ms
        or row[ARRIVAL_FIRST] > arrival_to_ms
        or row[FIRST_SEQ] >= seq_before
    )


@kernel(inline=True)
def is_within(row: Any, arrival_from_ms: Any, arrival_to_ms: Any, seq_before: Any) -> Any:
    """Returns whether all objects of a slice lie within the bounds."""
    return (
        row[ARRIVAL_FIRST] >= arrival_from_ms
        and row[ARRIVAL_LAST] <= arrival_to_ms
        and row[LAST_SEQ] < seq_before
    )


@kernel(inline=True)
def search_columns(row: Any) -> Any:
    """Returns (lon, lat, arrivals_ms, seqs, term_offsets, terms, vocabulary, posting_offsets,
    postings, boxes, levels) of a slice.
    """
    rows, terms, vocabulary = row[N_ROWS], row[N_TERMS], row[N_WORDS]
    return (
        f8_at(row[AT_LON], rows),
        f8_at(row[AT_LAT], rows),
        i8_at(row[AT_ARRIVALS], rows),
        u4_at(row[AT_SEQS], rows),
        u4_at(row[AT_TERM_OFFSETS], rows + 1),
        u4_at(row[AT_TERMS], terms),
        u8_at(row[AT_VOCABULARY], vocabulary),
        u4_at(row[AT_POSTING_OFFSETS], vocabulary + 1),
        u4_at(row[AT_POSTINGS], terms),
        f4_at(row[AT_BOXES], row[N_BOX_EDGES]),
        i8_at(row[AT_LEVELS], row[N_LEVELS]),
    )


@kernel(inline=True)
def event_columns(row: Any) -> Any:
    """Returns (ids, session_rows, numbers, sessions, number_bases) of a slice."""
    rows, sessions = row[N_ROWS], row[N_SESSIONS]
    return (
        u8_at(row[AT_IDS], rows),
        u4_at(row[AT_SESSION_ROWS], rows),
        u4_at(row[AT_NUMBERS], rows),
        u8_at(row[AT_SESSIONS], sessions),
        u8_at(row[AT_NUMBER_BASES], sessions),
    )
