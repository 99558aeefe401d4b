"""Makes a sealed slice of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.slices import (
    BLOCK_ROWS,
    COUNT_LONG,
    FANOUT,
    TERM_BITS,
    VOCABULARY_MAX,
    SealedSlice,
)
from sirocco.kernels.base.faults import required
from sirocco.kernels.base.hash_placement import secret
from sirocco.kernels.store.slice_curve import curve_keys, curve_order
from sirocco.kernels.store.slice_seal import (
    fill_postings,
    gather_pieces,
    lay_boxes,
    lay_terms,
    number_terms,
    rank_terms,
    sum_lengths,
)
from sirocco.model.objects import MISSING_TS, Bytes

__all__ = ["narrow_times", "seal", "tree_levels"]

_LOW = np.uint64(0xFFFFFFFF)
_HIGH_BITS = np.uint64(32)


def tree_levels(rows: int) -> NDArray[np.int64]:
    """Returns i8[h + 1]: the first node of each level of a slice's tree, and all its nodes."""
    nodes = -(-rows // BLOCK_ROWS)
    levels = [0, nodes]
    while nodes > 1:
        nodes = -(-nodes // FANOUT)
        levels.append(levels[-1] + nodes)
    return np.array(levels, np.int64)


def seal(rows: StoredRows) -> SealedSlice:
    """Seals consecutive rows of a slot's log, given in any order, into a slice.

    Args:
        rows: n ≥ 1 rows; their `seqs` are a permutation of n successive numbers.

    Raises:
        ValueError: There are more distinct terms, or more bytes, than a slice can number.
    """
    objects = rows.objects
    order = np.empty(len(rows), np.uint32)
    keys = np.empty(len(rows), np.uint64)
    curve_keys(objects.lon, objects.lat, keys)
    curve_order(keys, order)
    lon, lat, lengths = objects.lon[order], objects.lat[order], rows.lengths[order]
    arrivals_ms = rows.arrivals_ms[order]
    first_seq = int(rows.seqs.min())
    sessions, number_bases, session_rows = _session_table(rows.sessions, rows.numbers)
    ts, ts_is_arrival = narrow_times(objects.ts[order], arrivals_ms)
    term_offsets, terms, vocabulary, posting_offsets, postings = _lay_terms(rows, order)
    long_places, long_counts = _long_counts(rows, order, terms)
    levels = tree_levels(len(rows))
    boxes = np.empty(4 * levels[-1], np.float32)
    lay_boxes(lon, lat, levels, boxes)
    block_lengths = np.empty(levels[1] + 1, np.int64)
    sum_lengths(lengths, block_lengths)
    return SealedSlice(
        first_seq=first_seq,
        last_seq=first_seq + len(rows) - 1,
        arrival_first_ms=int(arrivals_ms.min()),
        arrival_last_ms=int(arrivals_ms.max()),
        lon=lon,
        lat=lat,
        arrivals_ms=arrivals_ms,
        ids=objects.ids[order],
        session_rows=session_rows[order],
        numbers=(rows.numbers[order] & _LOW).astype(np.uint32),
        seqs=(rows.seqs[order] - first_seq).astype(np.uint32),
        lengths=lengths,
        sessions=sessions,
        number_bases=number_bases,
        term_offsets=term_offsets,
        terms=terms,
        long_places=long_places,
        long_counts=long_counts,
        vocabulary=vocabulary,
        posting_offsets=posting_offsets,
        postings=postings,
        boxes=boxes,
        levels=levels,
        block_lengths=block_lengths,
        names=_take_bytes(objects.names, objects.name_offsets, order),
        text=_take_bytes(objects.text, objects.text_offsets, order),
        attributes=_take_bytes(objects.attributes, objects.attribute_offsets, order),
        ts=ts,
        ts_is_arrival=ts_is_arrival,
    )


def _lay_terms(
    rows: StoredRows, order: NDArray[np.uint32]
) -> tuple[
    NDArray[np.uint32],
    NDArray[np.uint32],
    NDArray[np.uint64],
    NDArray[np.uint32],
    NDArray[np.uint32],
]:
    """Returns (term_offsets, terms, vocabulary, posting_offsets, postings)."""
    total = len(rows.terms)
    if total > _LOW:
        raise ValueError(f"slice: {total} terms of objects, more than a slice can hold")
    numbers = np.empty(total, np.uint32)
    distinct = number_terms(rows.terms, numbers, *secret())
    if len(distinct) > VOCABULARY_MAX:
        raise ValueError(f"slice: {len(distinct)} distinct terms, at most {VOCABULARY_MAX}")
    vocabulary = np.sort(distinct)
    ranks = np.empty(len(distinct), np.uint32)
    done = rank_terms(distinct, vocabulary, ranks, *secret())
    required(done, "rank_terms: a term is missing")
    term_offsets = np.empty(len(rows) + 1, np.uint32)
    terms = np.empty(total, np.uint32)
    posting_offsets = np.zeros(len(vocabulary) + 1, np.uint32)
    lay_terms(
        order, rows.term_offsets, numbers, rows.counts, ranks,
        term_offsets, terms, posting_offsets[1:],
    )  # fmt: skip
    postings = np.empty(total, np.uint32)
    fill_postings(term_offsets, terms, posting_offsets, postings)
    return term_offsets, terms, vocabulary, posting_offsets, postings


def _long_counts(
    rows: StoredRows, order: NDArray[np.uint32], terms: NDArray[np.uint32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Returns (places, counts) of the terms whose count does not fit its word."""
    if len(rows.counts) == 0 or rows.counts.max() < COUNT_LONG:
        return np.empty(0, np.int64), np.empty(0, np.int32)
    places = np.flatnonzero(terms >> np.uint32(TERM_BITS) == COUNT_LONG)
    old = np.concatenate(
        [np.arange(rows.term_offsets[r], rows.term_offsets[r + 1]) for r in order.tolist()]
    )
    return places, rows.counts[old[places]].astype(np.int32)


def _session_table(
    sessions: NDArray[np.uint64], numbers: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint32]]:
    """Returns (sessions, number_bases, row of each object in them)."""
    bases = numbers & ~_LOW
    # Most slices have few sessions, and no numbers beyond 2^32.
    if not bases.any():
        table, rows = np.unique(sessions, return_inverse=True)
        return table, np.zeros(len(table), np.uint64), rows.astype(np.uint32)
    pairs, rows = np.unique(np.stack([sessions, bases], 1), axis=0, return_inverse=True)
    table, table_bases = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    return table, table_bases, rows.reshape(-1).astype(np.uint32)


def narrow_times(
    ts: NDArray[np.int64], arrivals_ms: NDArray[np.int64]
) -> tuple[NDArray[np.int32] | NDArray[np.int64] | None, bool]:
    """Returns event times in their shortest form, as (`ts`, `ts_is_arrival`) of a slice."""
    if (ts == MISSING_TS).all():
        return None, False
    if (ts == arrivals_ms).all():
        return None, True
    # Times lie within 2^53 of each other, except the missing one.
    deltas = ts - arrivals_ms
    if (ts != MISSING_TS).all() and (np.abs(deltas) < 1 << 31).all():
        return deltas.astype(np.int32), False
    return ts, False


def _take_bytes(
    data: Bytes, offsets: NDArray[np.int64], order: NDArray[np.uint32]
) -> tuple[Bytes, NDArray[np.uint32]] | None:
    if offsets[-1] == offsets[0]:
        return None
    if int(offsets[-1] - offsets[0]) > _LOW:
        raise ValueError("slice: 4 GB of one column, more than a slice can hold")
    taken = np.empty(offsets[-1] - offsets[0], np.uint8)
    taken_offsets = np.empty(len(order) + 1, np.uint32)
    gather_pieces(data, offsets, order, taken_offsets, taken)
    return taken, taken_offsets
