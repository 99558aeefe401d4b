"""Ranked queries by the simplest rules: all candidates among some rows, and their order."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.stored_rows import StoredRows
from sirocco.index.store.ranked_search import RankedPart
from sirocco.index.store.store_condition import Bounds
from sirocco.model.query import RankedQuery
from sirocco.model.text import term_hash
from sirocco.protocol.contract.columns import NO_EVENTS, EventColumns
from sirocco.protocol.contract.messages import NO_OBJECTS
from sirocco.protocol.search.ranked_merge import Candidates, best

Listed = list[tuple[int, int, int, float]]


def all_candidates(query: RankedQuery, rows: StoredRows, bounds: Bounds) -> Candidates:
    """Returns a slot's result without exclusions; a filter accepts objects with attribute `a`."""
    hashes = [term_hash(word) for word in query.keywords]
    metres = distances(query, rows)
    counts = metres <= query.radius_m
    counts &= rows.arrivals_ms >= bounds.arrival_from_ms
    counts &= rows.arrivals_ms <= bounds.arrival_to_ms
    counts &= rows.seqs < bounds.seq_before
    often = np.zeros((len(rows), len(hashes)), np.uint16)
    for row in range(len(rows)):
        own = slice(int(rows.term_offsets[row]), int(rows.term_offsets[row + 1]))
        held = dict(zip(rows.terms[own].tolist(), rows.counts[own].tolist(), strict=True))
        often[row] = [held.get(one, 0) for one in hashes]
    kept = counts & often.any(axis=1)
    if query.where is not None:
        data, offsets = rows.objects.attributes.tobytes(), rows.objects.attribute_offsets
        has_a = [b'"a"' in data[offsets[r] : offsets[r + 1]] for r in range(len(rows))]
        kept &= np.array(has_a, np.bool_)
    chosen = rows.take(np.flatnonzero(kept))
    return Candidates(
        slot=0,
        total=int(counts.sum()),
        tokens=int(rows.lengths[counts].sum()),
        holders=(often[counts] > 0).sum(axis=0).astype(np.uint64),
        objects=chosen.objects,
        events=EventColumns(chosen.sessions, chosen.numbers, chosen.arrivals_ms),
        lengths=chosen.lengths.astype(np.uint32),
        distances_m=metres[kept],
        frequencies=often[kept],
    )


def distances(query: RankedQuery, rows: StoredRows) -> NDArray[np.float64]:
    """Returns haversine distances by the library, rounded to 1 mm."""
    out = []
    for lon, lat in zip(rows.objects.lon.tolist(), rows.objects.lat.tolist(), strict=True):
        a = math.sin(math.radians(lat - query.lat) / 2) ** 2
        a += (
            math.cos(math.radians(query.lat))
            * math.cos(math.radians(lat))
            * math.sin(math.radians(lon - query.lon) / 2) ** 2
        )
        out.append(round(2 * 6_371_008.8 * math.asin(math.sqrt(min(1.0, a))), 3))
    return np.array(out)


def candidates_in(part: RankedPart) -> Candidates:
    """Returns a slot's result, as mergers hold it."""
    rows = part.candidates
    return Candidates(
        slot=0,
        total=part.objects_total,
        tokens=part.tokens_total,
        holders=part.holders.astype(np.uint64),
        objects=NO_OBJECTS if rows is None else rows.objects,
        events=NO_EVENTS
        if rows is None
        else EventColumns(rows.sessions, rows.numbers, rows.arrivals_ms),
        lengths=np.empty(0, np.uint32) if rows is None else rows.lengths.astype(np.uint32),
        distances_m=part.distances_m,
        frequencies=part.frequencies,
    )


def listed(query: RankedQuery, now_ms: int, found: Candidates) -> Listed:
    """Returns the list as mergers build it: (id, session, number, score), best first."""
    rows, scores = best(query, now_ms, found)
    return list(
        zip(
            found.objects.ids[rows].tolist(),
            found.events.sessions[rows].tolist(),
            found.events.numbers[rows].tolist(),
            scores.tolist(),
            strict=True,
        )
    )


def event_keys(found: Candidates) -> list[tuple[int, int]]:
    """Returns (session, number) of each candidate."""
    return list(zip(found.events.sessions.tolist(), found.events.numbers.tolist(), strict=True))
