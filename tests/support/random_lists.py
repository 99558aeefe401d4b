"""Seeded random steps and lists, as records carry them beside objects and queries."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.model.objects import pack_bytes
from sirocco.protocol.contract.columns import NO_ROW, ListColumns, StepColumns
from sirocco.protocol.contract.positions import NO_TIME_MS

TERMS = ["coffee", "東京", "é", "", "x" * 40]


def random_offsets(rng: np.random.Generator, rows: int, most: int) -> NDArray[np.int64]:
    lengths = rng.integers(0, most, rows, endpoint=True)
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int64)


def random_texts(
    rng: np.random.Generator, rows: int
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    return pack_bytes([str(rng.choice(TERMS)).encode() for _ in range(rows)])


def random_steps(
    rng: np.random.Generator, count: int, *, queries: int, intervals: int, objects: int
) -> StepColumns:
    entry_offsets = random_offsets(rng, count, 4)
    terms, term_offsets = random_texts(rng, int(entry_offsets[-1]))
    holder_offsets = random_offsets(rng, count, 3)
    candidate_offsets = random_offsets(rng, count, 3 if objects else 0)
    candidates = int(candidate_offsets[-1])
    frequencies = int((np.diff(holder_offsets) * np.diff(candidate_offsets)).sum())
    return StepColumns(
        queries=rng.integers(0, queries, count).astype(np.uint32),
        at_ms=rng.integers(0, 1 << 41, count),
        positions=rng.integers(0, 1 << 60, count),
        interval_rows=rng.integers(0, intervals, count).astype(np.uint32),
        entry_offsets=entry_offsets,
        terms=terms,
        term_offsets=term_offsets,
        counts=rng.integers(0, 1 << 64, int(entry_offsets[-1]), np.uint64),
        totals=rng.integers(0, 1 << 64, (count, 2), np.uint64),
        holder_offsets=holder_offsets,
        holders=rng.integers(0, 1 << 64, int(holder_offsets[-1]), np.uint64),
        candidate_offsets=candidate_offsets,
        candidates=rng.integers(0, max(objects, 1), candidates).astype(np.uint32),
        token_counts=rng.integers(0, 1 << 32, candidates, np.uint32),
        distances_m=rng.uniform(0, 2e7, candidates),
        frequencies=rng.integers(0, 1 << 16, frequencies, np.uint16),
        # An empty column means zeros.
        slot_counts=rng.integers(1, 5, count).astype(np.uint32)
        if count and rng.random() < 0.5
        else None,
    )


def random_lists(
    rng: np.random.Generator, count: int, *, queries: int, objects: int
) -> ListColumns:
    entry_offsets, removed_offsets = random_offsets(rng, count, 5), random_offsets(rng, count, 2)
    entries, removed = int(entry_offsets[-1]), int(removed_offsets[-1])
    names, name_offsets = random_texts(rng, entries)
    removed_names, removed_name_offsets = random_texts(rng, removed)
    is_new = (rng.random(entries) < 0.5) & (objects > 0)
    partial = rng.random(count) < rng.choice([0.0, 0.5])
    at_ms = np.where(rng.random(count) < 0.5, NO_TIME_MS, rng.integers(0, 1 << 41, count))
    return ListColumns(
        queries=rng.integers(0, queries, count).astype(np.uint32),
        at_ms=at_ms.astype(np.int64),
        entry_offsets=entry_offsets,
        values=rng.normal(size=entries),
        names=names,
        name_offsets=name_offsets,
        ids=rng.integers(0, 1 << 64, entries, np.uint64),
        sessions=rng.integers(0, 1 << 64, entries, np.uint64),
        numbers=rng.integers(0, 1 << 64, entries, np.uint64),
        objects=np.where(is_new, rng.integers(0, max(objects, 1), entries), NO_ROW).astype(
            np.uint32
        ),
        removed_offsets=removed_offsets,
        removed_ids=rng.integers(0, 1 << 64, removed, np.uint64),
        removed_names=removed_names,
        removed_name_offsets=removed_name_offsets,
        # A column of zeros is left out.
        partial=partial if partial.any() else None,
    )
