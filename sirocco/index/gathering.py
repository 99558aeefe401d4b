"""Stored objects out of slices: rows of any slices of a store, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.active_slice import ActiveView
from sirocco.index.slices import SealedSlice, address_of
from sirocco.index.stored_rows import StoredRows
from sirocco.kernels.slice_gather import copy_plain, copy_ragged, measure_ragged
from sirocco.kernels.slice_table import ADDRESSES, TS_PLAIN
from sirocco.model.objects import ObjectColumns

__all__ = ["gather_rows", "row_bytes", "slice_rows"]

# Place of the address of the terms' offsets in a row of the table.
_TERM_OFFSETS = ADDRESSES + 4

# Of an object beside its text, attributes and string id: four numbers, three offsets.
_PLAIN_BYTES = 56


def gather_rows(
    sources: Sequence[SealedSlice | ActiveView],
    numbers: NDArray[np.int64],
    rows: NDArray[np.int64],
    *,
    terms: bool = True,
) -> StoredRows:
    """Returns stored objects with all that is kept of them, in the given order.

    Args:
        sources: s ≥ 1 slices.
        numbers: i8[m], for each object the place of its slice in `sources`.
        rows: i8[m], its row there.
        terms: whether their terms are wanted, which are most of the work; else all have none.
    """
    table = np.array(
        [_active_row(s) if isinstance(s, ActiveView) else s.table_row for s in sources], np.int64
    )
    if not terms:
        # A column without an address is empty.
        table[:, _TERM_OFFSETS] = 0
    m = len(rows)
    ids, sessions, own_numbers = np.empty((3, m), np.uint64)
    lon, lat = np.empty((2, m))
    ts, arrivals_ms, seqs = np.empty((3, m), np.int64)
    lengths = np.empty(m, np.int32)
    copy_plain(
        table, numbers, rows, ids, lon, lat, ts, sessions, own_numbers, arrivals_ms, seqs, lengths
    )
    term_offsets, name_offsets, text_offsets, attribute_offsets = np.empty((4, m + 1), np.int64)
    measure_ragged(
        table, numbers, rows, term_offsets, name_offsets, text_offsets, attribute_offsets
    )
    hashes = np.empty(term_offsets[m], np.uint64)
    counts = np.empty(term_offsets[m], np.uint16)
    names = np.empty(name_offsets[m], np.uint8)
    text = np.empty(text_offsets[m], np.uint8)
    attributes = np.empty(attribute_offsets[m], np.uint8)
    copy_ragged(
        table, numbers, rows, term_offsets, hashes, counts, name_offsets, names,
        text_offsets, text, attribute_offsets, attributes,
    )  # fmt: skip
    return StoredRows(
        objects=ObjectColumns(
            ids=ids,
            names=names,
            name_offsets=name_offsets,
            lon=lon,
            lat=lat,
            ts=ts,
            text=text,
            text_offsets=text_offsets,
            attributes=attributes,
            attribute_offsets=attribute_offsets,
        ),
        sessions=sessions,
        numbers=own_numbers,
        arrivals_ms=arrivals_ms,
        seqs=seqs,
        lengths=lengths,
        term_offsets=term_offsets,
        terms=hashes,
        counts=counts,
    )


def row_bytes(source: SealedSlice | ActiveView, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns i8[m], how many bytes some rows of a slice take as `ObjectColumns`."""
    sizes = np.full(len(rows), _PLAIN_BYTES)
    ends: list[NDArray[Any]]
    if isinstance(source, ActiveView):
        ends = [source.name_offsets, source.text_offsets, source.attribute_offsets]
    else:
        contents = (source.names, source.text, source.attributes)
        ends = [one[1] for one in contents if one is not None]
    for offsets in ends:
        sizes += offsets[rows + 1] - offsets[rows]
    return sizes


def slice_rows(slice_: SealedSlice) -> StoredRows:
    """Returns all rows of a slice in its order; `sealing.seal` makes the same slice of them."""
    return gather_rows([slice_], np.zeros(len(slice_), np.int64), np.arange(len(slice_)))


def _active_row(view: ActiveView) -> list[int]:
    """An active slice as a row of a table of addresses, see `slice_table`."""
    n = view.rows
    addresses = [
        address_of(column)
        for column in (
            view.lon, view.lat, view.arrivals_ms, view.term_offsets, view.terms, view.counts,
            view.ids, view.sessions, view.numbers, view.lengths, view.ts,
            view.name_offsets, view.names, view.text_offsets, view.text,
            view.attribute_offsets, view.attributes,
        )
    ]  # fmt: skip
    lon, lat, arrivals, term_offsets, terms, counts, ids, sessions, numbers = addresses[:9]
    lengths, ts, *content = addresses[9:]
    return [
        view.first_seq, view.first_seq + n - 1, 0, 0, n, 0, 0, 0, 0, 0, 0, TS_PLAIN, 1,
        lon, lat, arrivals, 0, term_offsets, terms, counts, 0, 0, 0, 0, ids, sessions, numbers,
        0, 0, lengths, ts, 0, 0, *content,
    ]  # fmt: skip
