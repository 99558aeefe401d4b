"""Reads stored objects out of slices: rows of any slices of a store, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.active_slice import ActiveView
from sirocco.index.store.slices import SealedSlice
from sirocco.kernels.store.slice_gather import PIECES, copy_plain, copy_ragged, measure_ragged
from sirocco.kernels.store.slice_table import AT_TERM_OFFSETS
from sirocco.model.objects import ObjectColumns

__all__ = ["gather_rows", "gather_table", "row_bytes", "slice_rows"]

# Bytes of an object besides text, attributes and string id: four numbers, three offsets.
_PLAIN_BYTES = 56


def gather_rows(
    sources: Sequence[SealedSlice | ActiveView],
    numbers: NDArray[np.int64],
    rows: NDArray[np.int64],
    *,
    terms: bool = True,
) -> StoredRows:
    """Returns stored objects with all their data, in the given order.

    Args:
        sources: s ≥ 1 slices.
        numbers: i8[m], for each object the place of its slice in `sources`.
        rows: i8[m], its row there.
        terms: whether to include terms, which are most of the work.
    """
    return gather_table(np.array([s.table_row for s in sources]), numbers, rows, terms=terms)


def gather_table(
    table: NDArray[np.int64],
    numbers: NDArray[np.int64],
    rows: NDArray[np.int64],
    *,
    terms: bool = True,
) -> StoredRows:
    """Does the same for slices as rows of a table (i8[s, TABLE_WORDS], see `slice_table`)."""
    if not terms:
        # A column without an address is empty.
        table = table.copy()
        table[:, AT_TERM_OFFSETS] = 0
    m = len(rows)
    keys, places = np.empty((3, m), np.uint64), np.empty((2, m))
    times, lengths = np.empty((3, m), np.int64), np.empty(m, np.int32)
    copy_plain(table, numbers, rows, keys, places, times, lengths)
    begins, offsets = np.empty((PIECES, m), np.int64), np.empty((PIECES, m + 1), np.int64)
    measure_ragged(table, numbers, rows, begins, offsets)
    terms_total, *bytes_totals = offsets[:, m].tolist()
    hashes, counts = np.empty(terms_total, np.uint64), np.empty(terms_total, np.uint16)
    names, text, attributes = (np.empty(size, np.uint8) for size in bytes_totals)
    copy_ragged(table, numbers, begins, offsets, hashes, counts, names, text, attributes)
    ids, sessions, own_numbers = keys
    lon, lat = places
    ts, arrivals_ms, seqs = times
    term_offsets, name_offsets, text_offsets, attribute_offsets = offsets
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
    """Returns i8[m], the bytes of rows of a slice as `ObjectColumns`."""
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
    """Returns all rows of a slice in its order; `sealing.seal` builds the same slice from them."""
    return gather_rows([slice_], np.zeros(len(slice_), np.int64), np.arange(len(slice_)))
