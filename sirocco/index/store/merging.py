"""Merging of consecutive sealed slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.store.sealing import narrow_times, tree_levels
from sirocco.index.store.slices import TERM_BITS, VOCABULARY_MAX, SealedSlice, event_times
from sirocco.kernels.store.slice_curve import curve_keys
from sirocco.kernels.store.slice_merge import (
    copy_pieces,
    merge_keys,
    merge_vocabularies,
    scatter_four,
    scatter_lengths,
    scatter_long,
    scatter_terms,
)
from sirocco.kernels.store.slice_seal import (
    BLOCK_ROWS,
    COUNT_LONG,
    fill_postings,
    lay_boxes,
    sum_lengths,
)
from sirocco.model.objects import Bytes

__all__ = ["MergeJob", "choose_merge", "merge_slices"]

# Offsets within a slice have 32 bits; half of the range is a safety margin.
_FLAT_MAX = 1 << 31
# Weight of the number of slices removed by a merge against the rows written, found by simulation.
# Each object is then merged 1 to 3 times in its life, however long.
_SLICES_WEIGHT = 2.0


def choose_merge(
    slices: Sequence[SealedSlice], slices_max: int, rows_max: int
) -> tuple[SealedSlice, ...] | None:
    """Chooses neighbours to merge, once there are too many slices.

    Args:
        slices: in the order of the log.
        slices_max: maximum number of slices that are not full; full ones have half of `rows_max`
            rows.
        rows_max: rows of a merged slice.

    Returns:
        Two or more neighbours, without a gap between them; None if nothing is to be done.
    """
    sizes = [len(s) for s in slices]
    is_full = [2 * size >= rows_max for size in sizes]
    if len(slices) - sum(is_full) <= slices_max:
        return None
    best: tuple[float, int, int] | None = None
    for i in range(len(slices)):
        rows = terms = content = vocabulary = 0
        for j in range(i, len(slices)):
            if is_full[j] or (j > i and slices[j - 1].last_seq + 1 != slices[j].first_seq):
                break
            rows += sizes[j]
            terms += len(slices[j].terms)
            content += slices[j].content_bytes
            vocabulary += len(slices[j].vocabulary)
            if rows > rows_max or max(terms, content) > _FLAT_MAX or vocabulary > VOCABULARY_MAX:
                break
            if j > i:
                cost = rows / (j - i) ** _SLICES_WEIGHT
                if best is None or cost <= best[0]:
                    best = cost, i, j + 1
    return None if best is None else tuple(slices[best[1] : best[2]])


class MergeJob:
    """A merge of some slices; `run` may be called in any thread.

    Attributes:
        sources: neighbours in the order of the log.
        merged: the result, None before `run`.
    """

    __slots__ = ("merged", "sources")

    def __init__(self, sources: tuple[SealedSlice, ...]) -> None:
        self.sources = sources
        self.merged: SealedSlice | None = None

    def run(self) -> None:
        """Merges; changes nothing else."""
        self.merged = merge_slices(self.sources)


def merge_slices(sources: Sequence[SealedSlice]) -> SealedSlice:
    """Returns the slice of all rows of two or more neighbours, as if sealed at once."""
    merge = _Merge(sources)
    lon, lat = merge.longs("lon", np.float64), merge.longs("lat", np.float64)
    arrivals_ms, lengths = merge.longs("arrivals_ms", np.int64), merge.fours("lengths", np.int32)
    sessions, number_bases, session_rows = merge.session_table()
    vocabulary, term_offsets, terms, posting_offsets = merge.terms()
    postings = np.empty(len(terms), np.uint32)
    fill_postings(term_offsets, terms, posting_offsets, postings)
    long_places, long_counts = merge.long_counts(terms)
    levels = tree_levels(merge.rows)
    boxes = np.empty(4 * levels[-1], np.float32)
    lay_boxes(lon, lat, levels, boxes)
    block_lengths = np.empty(-(-merge.rows // BLOCK_ROWS) + 1, np.int64)
    sum_lengths(lengths, block_lengths)
    ts, ts_is_arrival = merge.event_times(arrivals_ms)
    return SealedSlice(
        first_seq=sources[0].first_seq,
        last_seq=sources[-1].last_seq,
        arrival_first_ms=min(s.arrival_first_ms for s in sources),
        arrival_last_ms=max(s.arrival_last_ms for s in sources),
        lon=lon,
        lat=lat,
        arrivals_ms=arrivals_ms,
        ids=merge.longs("ids", np.uint64),
        session_rows=session_rows,
        numbers=merge.fours("numbers", np.uint32),
        seqs=merge.fours("seqs", np.uint32, [s.first_seq - sources[0].first_seq for s in sources]),
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
        names=merge.bytes_of(lambda s: s.names),
        text=merge.bytes_of(lambda s: s.text),
        attributes=merge.bytes_of(lambda s: s.attributes),
        ts=ts,
        ts_is_arrival=ts_is_arrival,
    )


class _Merge:
    """Columns of several slices, combined in the order of the curve."""

    def __init__(self, sources: Sequence[SealedSlice]) -> None:
        self.sources = sources
        bounds = np.cumsum([0, *map(len, sources)])
        self.rows = int(bounds[-1])
        keys = np.empty(self.rows, np.uint64)
        for source, begin, end in zip(sources, bounds[:-1], bounds[1:], strict=True):
            curve_keys(source.lon, source.lat, keys[begin:end])
        places = np.empty(self.rows, np.uint32)
        merge_keys(keys, bounds, places)
        # Of each source, the places of its rows.
        self.places = [places[begin:end] for begin, end in pairwise(bounds.tolist())]

    def longs(self, name: str, dtype: type[np.generic]) -> NDArray[Any]:
        """Returns a column of eight bytes per row."""
        out = np.empty(self.rows, dtype)
        for source, places in zip(self.sources, self.places, strict=True):
            scatter_long(getattr(source, name).view(np.uint64), places, out.view(np.uint64))
        return out

    def fours(
        self, name: str, dtype: type[np.generic], added: Sequence[int] | None = None
    ) -> NDArray[Any]:
        """Returns a column of four bytes per row; `added`: the increment for each source."""
        out = np.empty(self.rows, dtype)
        more = added or [0] * len(self.sources)
        for source, places, plus in zip(self.sources, self.places, more, strict=True):
            column = getattr(source, name).view(np.uint32)
            scatter_four(column, places, plus, out.view(np.uint32))
        return out

    def session_table(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64], NDArray[np.uint32]]:
        """Returns (sessions, number_bases, session_rows)."""
        pairs = np.concatenate(
            [np.stack([s.sessions, s.number_bases], 1) for s in self.sources], axis=0
        )
        table, rows = np.unique(pairs, axis=0, return_inverse=True)
        out = np.empty(self.rows, np.uint32)
        end = 0
        for source, places in zip(self.sources, self.places, strict=True):
            begin, end = end, end + len(source.sessions)
            own = rows.reshape(-1)[begin:end].astype(np.uint32)
            scatter_four(own[source.session_rows], places, 0, out)
        return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1]), out

    def terms(
        self,
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint32], NDArray[np.uint32]]:
        """Returns (vocabulary, term_offsets, terms, rows with each term after a zero)."""
        bounds = np.cumsum([0, *(len(s.vocabulary) for s in self.sources)])
        hashes = np.concatenate([s.vocabulary for s in self.sources])
        vocabulary, numbers = np.empty_like(hashes), np.empty(len(hashes), np.uint32)
        count = merge_vocabularies(hashes, bounds, vocabulary, numbers)
        offsets = self._offsets([s.term_offsets for s in self.sources])
        terms = np.empty(offsets[-1], np.uint32)
        frequencies = np.zeros(count + 1, np.uint32)
        for source, places, first in zip(self.sources, self.places, bounds, strict=False):
            scatter_terms(
                source.term_offsets, source.terms, places, numbers, first,
                offsets, terms, frequencies[1:],
            )  # fmt: skip
        return vocabulary[:count].copy(), offsets, terms, frequencies

    def long_counts(self, terms: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Returns (long_places, long_counts) of the merged slice."""
        if not any(len(s.long_places) for s in self.sources):
            return np.empty(0, np.int64), np.empty(0, np.int32)
        counts = []
        new_rows = []
        for source, places in zip(self.sources, self.places, strict=True):
            ends = source.term_offsets[1:]
            new_rows.append(places[np.searchsorted(ends, source.long_places, side="right")])
            counts.append(source.long_counts)
        # Words keep their order within a row, so the new places follow the order of the rows.
        order = np.argsort(np.concatenate(new_rows), kind="stable")
        return (
            np.flatnonzero(terms >> np.uint32(TERM_BITS) == COUNT_LONG),
            np.concatenate(counts)[order],
        )

    def event_times(
        self, arrivals_ms: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32] | NDArray[np.int64] | None, bool]:
        """Returns (ts, ts_is_arrival)."""
        forms = {(s.ts is None, s.ts_is_arrival) for s in self.sources}
        if forms in ({(True, True)}, {(True, False)}):
            return None, self.sources[0].ts_is_arrival
        out = np.empty(self.rows, np.int64)
        for source, places in zip(self.sources, self.places, strict=True):
            scatter_long(event_times(source).view(np.uint64), places, out.view(np.uint64))
        return narrow_times(out, arrivals_ms)

    def bytes_of(
        self, column: Callable[[SealedSlice], tuple[Bytes, NDArray[np.uint32]] | None]
    ) -> tuple[Bytes, NDArray[np.uint32]] | None:
        """Returns a byte column with its offsets; None if all rows are empty."""
        columns = [column(source) for source in self.sources]
        if all(one is None for one in columns):
            return None
        none = [np.zeros(len(source) + 1, np.uint32) for source in self.sources]
        own = [none[i] if one is None else one[1] for i, one in enumerate(columns)]
        offsets = self._offsets(own)
        data = np.empty(offsets[-1], np.uint8)
        for one, places in zip(columns, self.places, strict=True):
            if one is not None:
                copy_pieces(one[0], one[1], places, offsets, data)
        return data, offsets

    def _offsets(self, columns: Sequence[NDArray[np.uint32]]) -> NDArray[np.uint32]:
        """Returns the merged offsets of pieces at these offsets in the sources."""
        offsets = np.zeros(self.rows + 1, np.uint32)
        for own, places in zip(columns, self.places, strict=True):
            scatter_lengths(own, places, offsets)
        return np.cumsum(offsets, dtype=np.uint32)
