"""The active slice: the newest objects of a slot, in order of arrival.

One thread appends; other threads read the rows that existed when they took a view. So nothing below
the count is ever written again, and a full array is replaced by a longer copy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.slices import address_of
from sirocco.kernels.store.slice_table import (
    AT_ARRIVALS,
    AT_ATTRIBUTE_OFFSETS,
    AT_ATTRIBUTES,
    AT_IDS,
    AT_LAT,
    AT_LENGTHS,
    AT_LON,
    AT_NAME_OFFSETS,
    AT_NAMES,
    AT_NUMBERS,
    AT_ROW_COUNTS,
    AT_ROW_SESSIONS,
    AT_TAGS,
    AT_TERM_OFFSETS,
    AT_TERMS,
    AT_TEXT,
    AT_TEXT_OFFSETS,
    AT_TS,
    FIRST_SEQ,
    IS_ACTIVE,
    LAST_SEQ,
    N_ROWS,
    TABLE_WORDS,
    TS_FORM,
    TS_PLAIN,
)
from sirocco.model.objects import Bytes, ObjectColumns, Offsets

__all__ = ["ActiveSlice", "ActiveView"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ActiveView:
    """The first n rows of an active slice; the arrays may be longer and must not be written.

    Attributes:
        rows: n.
        first_seq: number within the slot of the first row; the others follow.
        lon, lat: f8, degrees.
        arrivals_ms: i8, epoch ms.
        ids: u8.
        sessions, numbers: u8.
        lengths: i4, tokens of the text with repeats.
        ts: i8, epoch ms, MISSING_TS where absent.
        term_offsets: i8, terms: u8 (wire hashes, ascending within a row), counts: u2.
        tags: u2, the lower bits of `terms`, searched for a word: a quarter of the bytes.
        names, text, attributes: u1, with offsets i8.
        table_row: i8[TABLE_WORDS], the slice as kernels read it; valid as long as the view exists.
    """

    rows: int
    first_seq: int
    lon: NDArray[np.float64]
    lat: NDArray[np.float64]
    arrivals_ms: NDArray[np.int64]
    ids: NDArray[np.uint64]
    sessions: NDArray[np.uint64]
    numbers: NDArray[np.uint64]
    lengths: NDArray[np.int32]
    ts: NDArray[np.int64]
    term_offsets: Offsets
    terms: NDArray[np.uint64]
    counts: NDArray[np.uint16]
    tags: NDArray[np.uint16]
    names: Bytes
    name_offsets: Offsets
    text: Bytes
    text_offsets: Offsets
    attributes: Bytes
    attribute_offsets: Offsets
    table_row: NDArray[np.int64]

    def __len__(self) -> int:
        return self.rows

    def first(self, rows: int) -> ActiveView:
        """Returns a view of the first rows."""
        table_row = self.table_row.copy()
        table_row[LAST_SEQ] = self.first_seq + rows - 1
        table_row[N_ROWS] = rows
        return replace(self, rows=rows, table_row=table_row)

    def stored(self) -> StoredRows:
        """Returns all rows, without copying."""
        n = self.rows
        terms = int(self.term_offsets[n])
        return StoredRows(
            objects=ObjectColumns(
                ids=self.ids[:n],
                names=self.names[: self.name_offsets[n]],
                name_offsets=self.name_offsets[: n + 1],
                lon=self.lon[:n],
                lat=self.lat[:n],
                ts=self.ts[:n],
                text=self.text[: self.text_offsets[n]],
                text_offsets=self.text_offsets[: n + 1],
                attributes=self.attributes[: self.attribute_offsets[n]],
                attribute_offsets=self.attribute_offsets[: n + 1],
            ),
            sessions=self.sessions[:n],
            numbers=self.numbers[:n],
            arrivals_ms=self.arrivals_ms[:n],
            seqs=np.arange(self.first_seq, self.first_seq + n),
            lengths=self.lengths[:n],
            term_offsets=self.term_offsets[: n + 1],
            terms=self.terms[:terms],
            counts=self.counts[:terms],
        )


_PLAIN: dict[str, type[np.generic]] = {
    "lon": np.float64,
    "lat": np.float64,
    "arrivals_ms": np.int64,
    "ids": np.uint64,
    "sessions": np.uint64,
    "numbers": np.uint64,
    "lengths": np.int32,
    "ts": np.int64,
}
# Flat column, dtype, offsets, initial capacity in elements per row.
_RAGGED: tuple[tuple[str, type[np.generic], str, int], ...] = (
    ("terms", np.uint64, "term_offsets", 12),
    ("counts", np.uint16, "term_offsets", 12),
    ("tags", np.uint16, "term_offsets", 12),
    ("names", np.uint8, "name_offsets", 0),
    ("text", np.uint8, "text_offsets", 80),
    ("attributes", np.uint8, "attribute_offsets", 0),
)
# Columns by the places of their addresses in a row of a table, see `slice_table`.
_ADDRESSED: dict[int, str] = {
    AT_LON: "lon", AT_LAT: "lat", AT_ARRIVALS: "arrivals_ms", AT_TERM_OFFSETS: "term_offsets",
    AT_TERMS: "terms", AT_ROW_COUNTS: "counts", AT_TAGS: "tags", AT_IDS: "ids",
    AT_ROW_SESSIONS: "sessions", AT_NUMBERS: "numbers", AT_LENGTHS: "lengths", AT_TS: "ts",
    AT_NAME_OFFSETS: "name_offsets", AT_NAMES: "names", AT_TEXT_OFFSETS: "text_offsets",
    AT_TEXT: "text", AT_ATTRIBUTE_OFFSETS: "attribute_offsets", AT_ATTRIBUTES: "attributes",
}  # fmt: skip


class ActiveSlice:
    """Rows in the order of the log: full pieces waiting to be sealed, and one open piece.

    Attributes:
        first_seq: number within the slot of the first row.
        rows: number of rows.
        ends: number of rows up to the end of each full piece.
    """

    __slots__ = (
        "_bytes_max",
        "_columns",
        "_rows_max",
        "_table_row",
        "_terms_max",
        "ends",
        "first_seq",
        "rows",
    )

    def __init__(self, first_seq: int, rows_max: int, terms_max: int, bytes_max: int) -> None:
        """Creates an empty slice whose first piece holds `rows_max` rows.

        Args:
            first_seq: number within the slot of the first row.
            rows_max: rows of the first piece.
            terms_max, bytes_max: of a piece, see `StoreLimits`.
        """
        self._terms_max, self._bytes_max = terms_max, bytes_max
        self.first_seq = first_seq
        self.rows = 0
        self.ends: list[int] = []
        self._rows_max = rows_max
        self._columns: dict[str, NDArray[Any]] = {
            name: np.empty(rows_max, dtype) for name, dtype in _PLAIN.items()
        }
        for name, dtype, offsets, room in _RAGGED:
            self._columns[name] = np.empty(rows_max * room, dtype)
            # Not zeros: in a slot without objects they would take memory for nothing.
            self._columns[offsets] = np.empty(rows_max + 1, np.int64)
            self._columns[offsets][0] = 0
        # None since a column was replaced.
        self._table_row: NDArray[np.int64] | None = None

    def fitting(self, rows: StoredRows, begin: int) -> int:
        """Returns how many rows from `begin` on fit the last piece, at least 1.

        It depends only on the rows, not on their batches: the contents of a slice are a function of
        the log.
        """
        room = self._begin + self._rows_max - self.rows
        if len(rows) - begin <= room and not self._is_large(rows):
            return len(rows) - begin
        count = min(room, len(rows) - begin)
        for filled, offsets, most in (
            (self._filled("term_offsets"), rows.term_offsets, self._terms_max),
            (self._filled("text_offsets"), rows.objects.text_offsets, self._bytes_max),
            (self._filled("attribute_offsets"), rows.objects.attribute_offsets, self._bytes_max),
        ):
            ends = offsets[begin + 1 : begin + count + 1] - offsets[begin]
            # Up to and including the row that reaches the bound.
            count = min(count, int(np.searchsorted(ends, most - filled)) + 1)
        return count

    @property
    def _begin(self) -> int:
        """First row of the last piece."""
        return self.ends[-1] if self.ends else 0

    def _filled(self, offsets: str) -> int:
        """Number of elements of a ragged column in the last piece."""
        column = self._columns[offsets]
        return int(column[self.rows]) - int(column[self._begin])

    def _is_large(self, rows: StoredRows) -> bool:
        """Whether the last piece may be full of terms or bytes with these rows."""
        objects = rows.objects
        content = max(len(objects.text), len(objects.attributes))
        held = max(self._filled("text_offsets"), self._filled("attribute_offsets"))
        terms = self._filled("term_offsets") + len(rows.terms)
        return terms >= self._terms_max or held + content >= self._bytes_max

    @property
    def is_full(self) -> bool:
        """Whether the last piece is full."""
        return (
            self.rows == self._begin + self._rows_max
            or self._filled("term_offsets") >= self._terms_max
            or self._filled("text_offsets") >= self._bytes_max
            or self._filled("attribute_offsets") >= self._bytes_max
        )

    def end_piece(self, rows_max: int) -> None:
        """Ends the last piece; the next one holds `rows_max` rows."""
        self.ends.append(self.rows)
        self._rows_max = rows_max

    def first_piece(self) -> StoredRows:
        """Returns the rows of the first full piece, without copying."""
        return self.view().first(self.ends[0]).stored()

    def without_first(self) -> ActiveSlice:
        """Returns the rows after the first full piece, as a copy."""
        end = self.ends[0]
        rest = ActiveSlice(self.first_seq + end, self._rows_max, self._terms_max, self._bytes_max)
        rest.append(self.view().stored(), end, self.rows)
        rest.ends = [later - end for later in self.ends[1:]]
        return rest

    @property
    def bytes_total(self) -> int:
        """Bytes of the rows, without untouched reserves."""
        columns, n = self._columns, self.rows
        plain = sum(columns[name].itemsize for name in _PLAIN)
        offsets = {offsets_name for _, _, offsets_name, _ in _RAGGED}
        flat = sum(
            int(columns[offsets_name][n]) * columns[name].itemsize
            for name, _, offsets_name, _ in _RAGGED
        )
        return n * (plain + 8 * len(offsets)) + flat

    def append(self, rows: StoredRows, begin: int, end: int) -> None:
        """Appends rows [begin, end), which belong to the last piece."""
        columns, objects = self._columns, rows.objects
        at, stop = self.rows, self.rows + end - begin
        if stop > len(columns["lon"]):
            self._lengthen(stop)
        columns["lon"][at:stop] = objects.lon[begin:end]
        columns["lat"][at:stop] = objects.lat[begin:end]
        columns["ids"][at:stop] = objects.ids[begin:end]
        columns["ts"][at:stop] = objects.ts[begin:end]
        columns["arrivals_ms"][at:stop] = rows.arrivals_ms[begin:end]
        columns["sessions"][at:stop] = rows.sessions[begin:end]
        columns["numbers"][at:stop] = rows.numbers[begin:end]
        columns["lengths"][at:stop] = rows.lengths[begin:end]
        for name, offsets_name, data, offsets in (
            ("terms", "term_offsets", rows.terms, rows.term_offsets),
            ("counts", "term_offsets", rows.counts, rows.term_offsets),
            ("tags", "term_offsets", rows.terms.astype(np.uint16), rows.term_offsets),
            ("names", "name_offsets", objects.names, objects.name_offsets),
            ("text", "text_offsets", objects.text, objects.text_offsets),
            ("attributes", "attribute_offsets", objects.attributes, objects.attribute_offsets),
        ):
            self._append_ragged(name, offsets_name, data, offsets, begin, end)
        self.rows = stop

    def _lengthen(self, rows: int) -> None:
        """Makes room for `rows` rows, without changing existing views."""
        self._table_row = None
        room = max(rows, 2 * len(self._columns["lon"]))
        ends = dict.fromkeys((offsets for _, _, offsets, _ in _RAGGED), 1)
        for name, extra in (dict.fromkeys(_PLAIN, 0) | ends).items():
            column = self._columns[name]
            longer = self._columns[name] = np.empty(room + extra, column.dtype)
            longer[: self.rows + extra] = column[: self.rows + extra]

    def _append_ragged(
        self,
        name: str,
        offsets_name: str,
        data: NDArray[Any],
        offsets: Offsets,
        begin: int,
        end: int,
    ) -> None:
        own = self._columns[offsets_name]
        first, last = int(offsets[begin]), int(offsets[end])
        filled = int(own[self.rows])
        needed = filled + last - first
        if first == last:
            own[self.rows + 1 : self.rows + end - begin + 1] = filled
            return
        column = self._columns[name]
        if needed > len(column):
            self._table_row = None
            longer = np.empty(max(needed, 2 * len(column)), column.dtype)
            longer[:filled] = column[:filled]
            column = self._columns[name] = longer
        column[filled:needed] = data[first:last]
        own[self.rows + 1 : self.rows + end - begin + 1] = offsets[begin + 1 : end + 1] + (
            filled - first
        )

    def view(self) -> ActiveView:
        """Returns the present rows."""
        if self._table_row is None:
            self._table_row = self._addresses()
        table_row = self._table_row.copy()
        table_row[LAST_SEQ] = self.first_seq + self.rows - 1
        table_row[N_ROWS] = self.rows
        return ActiveView(
            rows=self.rows, first_seq=self.first_seq, **self._columns, table_row=table_row
        )

    def _addresses(self) -> NDArray[np.int64]:
        """Returns the slice as a row of a table, without its counts."""
        table_row = np.zeros(TABLE_WORDS, np.int64)
        table_row[[FIRST_SEQ, TS_FORM, IS_ACTIVE]] = self.first_seq, TS_PLAIN, 1
        for place, name in _ADDRESSED.items():
            table_row[place] = address_of(self._columns[name])
        return table_row
