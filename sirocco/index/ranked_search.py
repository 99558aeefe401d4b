"""What a slot knows for a ranked query (Pastri 3: TkSKQ), so that mergers can rank exactly.

The score weighs a textual part (BM25), which needs counts over all slots, a spatial and a temporal
one, which are known here. BM25 grows with the frequency of each keyword and falls with the length
of the text for any counts, so an object that is behind k others in all of that cannot be among the
k best, and the greatest BM25 of all is not lost with it either.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sirocco.index.active_slice import ActiveView
from sirocco.index.compile import compile_queries
from sirocco.index.store import StoreView
from sirocco.index.store_condition import ALL_TIME, Bounds, Condition, compile_condition
from sirocco.index.store_search import Hits, filtered_rows, gather, scan_range
from sirocco.index.stored_rows import StoredRows
from sirocco.kernels.slice_counts import (
    distances_from,
    keyword_counts_active,
    keyword_counts_sealed,
    mark_contenders,
)
from sirocco.model.query import RankedQuery
from sirocco.model.text import term_hash

__all__ = ["RankedPart", "RankedSearch"]

# Two known parts that differ by less may be equal when the whole scores are rounded to 1e-9.
_MARGIN = 2e-9


@dataclass(frozen=True, slots=True, eq=False)
class RankedPart:
    """What a slot knows; m keywords in the query's order, c candidates.

    Attributes:
        objects_total: objects of the window within the radius.
        tokens_total: sum of their lengths.
        holders: i8[m], how many of them hold each keyword.
        candidates: c rows, the objects that may be among the k best; None for none.
        distances_m: f8[c], rounded to 1 mm.
        frequencies: u2[c, m], how often each holds each keyword.
    """

    objects_total: int
    tokens_total: int
    holders: NDArray[np.int64]
    candidates: StoredRows | None
    distances_m: NDArray[np.float64]
    frequencies: NDArray[np.uint16]


@dataclass(frozen=True, slots=True, eq=False)
class _Candidates:
    """Objects with a keyword, of one slice."""

    hits: Hits
    frequencies: NDArray[np.uint16]
    lengths: NDArray[np.int32]
    distances_m: NDArray[np.float64]
    arrivals_ms: NDArray[np.int64]
    keys: NDArray[np.uint64]


class RankedSearch:
    """A ranked query, ready to be asked of views.

    The attribute filter decides who may be ranked; the counts that BM25 needs are over all objects
    of the window within the radius.
    """

    def __init__(self, query: RankedQuery) -> None:
        rows = compile_queries([replace(query, where=None, ttl_ms=None)], [0])
        hashes = np.array([term_hash(term) for term in query.keywords], np.uint64)
        one_each = np.arange(len(hashes) + 1, dtype=np.int64)
        any_keyword = replace(
            rows,
            conj_offsets=np.array([0, len(hashes)], np.int64),
            pos_offsets=one_each,
            pos_terms=hashes,
            neg_offsets=np.zeros(len(hashes) + 1, np.int64),
        )
        self._query = query
        self._hashes = hashes
        self._near: Condition = compile_condition(rows)
        self._held: Condition = compile_condition(any_keyword)

    def search(self, view: StoreView, now_ms: int, bounds: Bounds = ALL_TIME) -> RankedPart:
        """Asks a view; ages count from `now_ms`."""
        objects = tokens = 0
        for hits in scan_range(view, self._near, bounds):
            objects += len(hits)
            tokens += int(hits.source.lengths[hits.rows].sum())
        held = [self._look_at(hits) for hits in scan_range(view, self._held, bounds)]
        holders = np.zeros(len(self._hashes), np.int64)
        for one in held:
            holders += np.count_nonzero(one.frequencies, axis=0)
        if self._query.where is not None:
            held = [self._filtered(one) for one in held]
        candidates, distances_m, frequencies = self._contenders(held, now_ms)
        return RankedPart(objects, tokens, holders, candidates, distances_m, frequencies)

    def _look_at(self, hits: Hits) -> _Candidates:
        source, rows = hits.source, hits.rows
        frequencies = np.empty((len(rows), len(self._hashes)), np.uint16)
        if isinstance(source, ActiveView):
            keyword_counts_active(
                source.term_offsets, source.terms, source.counts, rows, self._hashes, frequencies
            )
            sessions, numbers = source.sessions[rows], source.numbers[rows]
        else:
            keyword_counts_sealed(
                source.term_offsets,
                source.terms,
                source.long_places,
                source.long_counts,
                rows,
                source.numbers_of(self._hashes),
                frequencies,
            )
            sessions, numbers = source.event_keys(rows)
        distances_m = np.empty(len(rows))
        distances_from(
            source.lon[rows], source.lat[rows], self._query.lon, self._query.lat, distances_m
        )
        keys = np.stack([source.ids[rows], sessions, numbers], axis=1)
        return _Candidates(
            hits, frequencies, source.lengths[rows], distances_m, source.arrivals_ms[rows], keys
        )

    def _filtered(self, one: _Candidates) -> _Candidates:
        assert self._query.where is not None
        kept = filtered_rows(one.hits.source, one.hits.rows, self._query.where)
        return _taken(one, np.flatnonzero(np.isin(one.hits.rows, kept)))

    def _contenders(
        self, held: list[_Candidates], now_ms: int
    ) -> tuple[StoredRows | None, NDArray[np.float64], NDArray[np.uint16]]:
        """Those that may be among the k best: their rows, distances and frequencies."""
        if not sum(len(one.hits) for one in held):
            return None, np.empty(0), np.empty((0, len(self._hashes)), np.uint16)
        query, weights = self._query, self._query.weights
        distances_m = np.concatenate([one.distances_m for one in held])
        arrivals_ms = np.concatenate([one.arrivals_ms for one in held])
        keys = np.concatenate([one.keys for one in held])
        known = weights.space * (1 - distances_m / query.radius_m)
        known += weights.time * np.exp2(-(now_ms - arrivals_ms) / query.half_life_ms)
        order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0], -known))
        contenders = np.empty(len(order), np.int64)
        count = mark_contenders(
            np.concatenate([one.frequencies for one in held])[order],
            np.concatenate([one.lengths for one in held])[order],
            known[order],
            _MARGIN,
            query.k,
            contenders,
        )
        chosen = np.sort(order[contenders[:count]])
        ends = np.cumsum([0, *(len(one.hits) for one in held)])
        kept = []
        for one, begin, end in zip(held, ends[:-1], ends[1:], strict=True):
            mine = chosen[(chosen >= begin) & (chosen < end)] - begin
            if len(mine):
                kept.append(_taken(one, mine))
        return (
            gather([one.hits for one in kept]),
            np.concatenate([one.distances_m for one in kept]),
            np.concatenate([one.frequencies for one in kept]),
        )


def _taken(one: _Candidates, places: NDArray[np.int64]) -> _Candidates:
    return _Candidates(
        Hits(one.hits.source, one.hits.rows[places]),
        one.frequencies[places],
        one.lengths[places],
        one.distances_m[places],
        one.arrivals_ms[places],
        one.keys[places],
    )
