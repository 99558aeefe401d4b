"""The layout of a sealed slice: the objects of one slot in one stretch of its log.

Rows are in the order of a space-filling curve (`slice_curve`), so that neighbours in space are near
in memory, and a region is a few runs of rows. Blocks of BLOCK_ROWS rows are the leaves of a packed
tree of boxes over the same order: no pointers, a node's children and rows follow from its number.
Unlike a grid of even cells, it adapts to dense places.

A word of `terms` is the term's number in the slice's own vocabulary, with its count in the text
above TERM_BITS; a column of counts would take as much memory as the objects' ids. See `term_of`,
`count_of`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.store.slice_seal import BLOCK_ROWS, COUNT_LONG, FANOUT, TERM_BITS, TERM_MASK
from sirocco.kernels.store.slice_table import (
    ARRIVAL_FIRST,
    ARRIVAL_LAST,
    AT_ARRIVALS,
    AT_ATTRIBUTE_OFFSETS,
    AT_ATTRIBUTES,
    AT_BOXES,
    AT_IDS,
    AT_LAT,
    AT_LENGTHS,
    AT_LEVELS,
    AT_LON,
    AT_LONG_COUNTS,
    AT_LONG_PLACES,
    AT_NAME_OFFSETS,
    AT_NAMES,
    AT_NUMBER_BASES,
    AT_NUMBERS,
    AT_POSTING_OFFSETS,
    AT_POSTINGS,
    AT_SEQS,
    AT_SESSION_ROWS,
    AT_SESSIONS,
    AT_TERM_OFFSETS,
    AT_TERMS,
    AT_TEXT,
    AT_TEXT_OFFSETS,
    AT_TS,
    AT_VOCABULARY,
    FIRST_SEQ,
    LAST_SEQ,
    N_BOX_EDGES,
    N_LEVELS,
    N_LONG,
    N_ROWS,
    N_SESSIONS,
    N_TERMS,
    N_WORDS,
    TABLE_WORDS,
    TS_ARRIVAL,
    TS_DELTA,
    TS_FORM,
    TS_MISSING,
    TS_PLAIN,
)
from sirocco.model.objects import MISSING_TS, Bytes

__all__ = [
    "BLOCK_ROWS",
    "COUNT_LONG",
    "FANOUT",
    "TERM_BITS",
    "TERM_MASK",
    "VOCABULARY_MAX",
    "SealedSlice",
    "address_of",
    "event_times",
]

# Numbers that fit the lower bits of a word of `terms`.
VOCABULARY_MAX = 1 << TERM_BITS


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SealedSlice:
    """n ≥ 1 stored objects, sorted along the curve; immutable.

    Attributes:
        first_seq, last_seq: range of the slot's objects that it holds, both inclusive.
        arrival_first_ms, arrival_last_ms: least and greatest arrival.
        lon, lat: f8[n], degrees.
        arrivals_ms: i8[n], epoch ms.
        ids: u8[n].
        session_rows: u4[n], row of `sessions`.
        numbers: u4[n], number within the session, less its `number_bases`.
        seqs: u4[n], less `first_seq`; a permutation of 0 … n − 1.
        lengths: i4[n], tokens of the text with repeats.
        sessions: u8[s], number_bases: u8[s]; a session has several rows if its numbers differ by
            2^32 or more.
        term_offsets: u4[n + 1] into `terms`.
        terms: u4[t], number of the term in the vocabulary (ascending within a row) | count <<
            TERM_BITS; count COUNT_LONG: see `long_places`.
        long_places: i8[l], ascending, places in `terms` whose count is COUNT_LONG or more;
            long_counts: i4[l], those counts.
        vocabulary: u8[v], wire hashes, ascending.
        posting_offsets: u4[v + 1] into `postings`; the difference is the number of objects with
            the term.
        postings: u4[t], rows with the term, ascending.
        boxes: f4[4 · nodes], rows (west, south, −east, −north), each rounded down; all nodes of
            level 0 (blocks of BLOCK_ROWS rows), then of level 1 (FANOUT nodes of level 0 each), …,
            last the root.
        levels: i8[h + 1], number of the first node of each level, and of all nodes at its end.
        block_lengths: i8[blocks + 1], sum of `lengths` of all rows before each block.
        names, text, attributes: u1[b], bytes of the rows in the order of the curve, with offsets
            u4[n + 1]; None if all rows are empty.
        ts: i4[n], event time less arrival, or i8[n] unchanged (MISSING_TS where absent); None if
            all are missing or, with `ts_is_arrival`, equal to the arrival.
        derived: data that searches derive once and keep, by name; values must have a `bytes_total`.
            Concurrent derivation is harmless.
        table_row: i8[TABLE_WORDS], the slice in the kernels' form, see `slice_table`.
    """

    first_seq: int
    last_seq: int
    arrival_first_ms: int
    arrival_last_ms: int
    lon: NDArray[np.float64]
    lat: NDArray[np.float64]
    arrivals_ms: NDArray[np.int64]
    ids: NDArray[np.uint64]
    session_rows: NDArray[np.uint32]
    numbers: NDArray[np.uint32]
    seqs: NDArray[np.uint32]
    lengths: NDArray[np.int32]
    sessions: NDArray[np.uint64]
    number_bases: NDArray[np.uint64]
    term_offsets: NDArray[np.uint32]
    terms: NDArray[np.uint32]
    long_places: NDArray[np.int64]
    long_counts: NDArray[np.int32]
    vocabulary: NDArray[np.uint64]
    posting_offsets: NDArray[np.uint32]
    postings: NDArray[np.uint32]
    boxes: NDArray[np.float32]
    levels: NDArray[np.int64]
    block_lengths: NDArray[np.int64]
    names: tuple[Bytes, NDArray[np.uint32]] | None
    text: tuple[Bytes, NDArray[np.uint32]] | None
    attributes: tuple[Bytes, NDArray[np.uint32]] | None
    ts: NDArray[np.int32] | NDArray[np.int64] | None
    ts_is_arrival: bool
    derived: dict[str, Any] = field(default_factory=dict)
    table_row: NDArray[np.int64] = field(init=False)
    _own_bytes: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "table_row", _table_row(self))
        columns = [getattr(self, f.name) for f in fields(self) if f.init]
        flat = [part for each in columns for part in (each if isinstance(each, tuple) else (each,))]
        own_bytes = sum(part.nbytes for part in flat if isinstance(part, np.ndarray))
        object.__setattr__(self, "_own_bytes", own_bytes)

    def __len__(self) -> int:
        return len(self.lon)

    @property
    def bytes_total(self) -> int:
        """Bytes of memory, including text and derived data."""
        return self._own_bytes + sum(int(v.bytes_total) for v in list(self.derived.values()))

    @property
    def content_bytes(self) -> int:
        """Bytes of string ids, texts and attributes only."""
        return sum(
            part[0].nbytes for part in (self.names, self.text, self.attributes) if part is not None
        )

    def event_keys(
        self, rows: NDArray[np.integer]
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Returns (sessions u8[k], numbers u8[k]) of some rows."""
        places = self.session_rows[rows]
        return self.sessions[places], self.number_bases[places] + self.numbers[rows]


def _table_row(slice_: SealedSlice) -> NDArray[np.int64]:
    """Returns the slice as a row of a table of addresses, see `slice_table`."""
    row = np.zeros(TABLE_WORDS, np.int64)
    row[[FIRST_SEQ, LAST_SEQ]] = slice_.first_seq, slice_.last_seq
    row[[ARRIVAL_FIRST, ARRIVAL_LAST]] = slice_.arrival_first_ms, slice_.arrival_last_ms
    row[TS_FORM] = _ts_form(slice_)
    row[N_ROWS] = len(slice_)
    for place, counted in (
        (N_TERMS, slice_.terms), (N_WORDS, slice_.vocabulary), (N_BOX_EDGES, slice_.boxes),
        (N_LEVELS, slice_.levels), (N_SESSIONS, slice_.sessions), (N_LONG, slice_.long_places),
    ):  # fmt: skip
        row[place] = len(counted)
    columns: list[tuple[int, NDArray[Any] | None]] = [
        (AT_LON, slice_.lon), (AT_LAT, slice_.lat), (AT_ARRIVALS, slice_.arrivals_ms),
        (AT_SEQS, slice_.seqs), (AT_TERM_OFFSETS, slice_.term_offsets), (AT_TERMS, slice_.terms),
        (AT_VOCABULARY, slice_.vocabulary), (AT_POSTING_OFFSETS, slice_.posting_offsets),
        (AT_POSTINGS, slice_.postings), (AT_BOXES, slice_.boxes), (AT_LEVELS, slice_.levels),
        (AT_IDS, slice_.ids), (AT_SESSION_ROWS, slice_.session_rows),
        (AT_NUMBERS, slice_.numbers), (AT_SESSIONS, slice_.sessions),
        (AT_NUMBER_BASES, slice_.number_bases), (AT_LENGTHS, slice_.lengths), (AT_TS, slice_.ts),
        (AT_LONG_PLACES, slice_.long_places), (AT_LONG_COUNTS, slice_.long_counts),
    ]  # fmt: skip
    for data, offsets, part in (
        (AT_NAMES, AT_NAME_OFFSETS, slice_.names),
        (AT_TEXT, AT_TEXT_OFFSETS, slice_.text),
        (AT_ATTRIBUTES, AT_ATTRIBUTE_OFFSETS, slice_.attributes),
    ):
        if part is not None:
            columns += [(data, part[0]), (offsets, part[1])]
    for place, column in columns:
        row[place] = 0 if column is None else address_of(column)
    return row


def address_of(column: NDArray[Any]) -> int:
    """Returns the address of an array's values."""
    return int(column.__array_interface__["data"][0])


def _ts_form(slice_: SealedSlice) -> int:
    if slice_.ts is None:
        return TS_ARRIVAL if slice_.ts_is_arrival else TS_MISSING
    return TS_DELTA if slice_.ts.dtype == np.int32 else TS_PLAIN


def event_times(
    slice_: SealedSlice, rows: NDArray[np.integer] | slice = slice(None)
) -> NDArray[np.int64]:
    """Returns i8[k], the event times of some rows (all by default), MISSING_TS where absent."""
    if slice_.ts_is_arrival:
        return np.asarray(slice_.arrivals_ms[rows], np.int64)
    if slice_.ts is None:
        return np.full_like(slice_.arrivals_ms[rows], MISSING_TS)
    if slice_.ts.dtype == np.int32:
        return np.asarray(slice_.arrivals_ms[rows] + slice_.ts[rows], np.int64)
    return np.asarray(slice_.ts[rows], np.int64)
