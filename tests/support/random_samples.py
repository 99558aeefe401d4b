"""Random samples of all sizes and shapes."""

from __future__ import annotations

import numpy as np

from sirocco.schemes.workload.sample import QueryKind, Sample, SampleQueries, no_queries

WORDS = np.random.default_rng(12).integers(0, 2**64, 120, np.uint64, endpoint=False)


def csr(rows):
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return offsets, np.concatenate([np.empty(0, np.uint64), *rows])


def words(rng, count, most):
    """Returns terms of `count` texts; common words are more likely."""
    weights = 1 / np.arange(1, len(WORDS) + 1)
    weights /= weights.sum()
    lengths = rng.integers(0, most + 1, count)
    return [rng.choice(WORDS, n, replace=False, p=weights) for n in lengths]


def random_sample(rng, objects=400, queries=60, kinds=tuple(QueryKind), side=40.0):
    centre = rng.uniform((-150, -60), (150, 60), (5, 2))
    places = centre[rng.integers(5, size=objects)] + rng.standard_normal((objects, 2)) * 5
    places = np.clip(places, (-180, -90), (180, 90))
    offsets, terms = csr(words(rng, objects, 8))
    asked = no_queries()
    if queries:
        at = centre[rng.integers(5, size=queries)] + rng.standard_normal((queries, 2)) * 5
        half = rng.uniform(0, side, (queries, 2)) / 2
        boxes = np.concatenate([at - half, at + half], 1)
        boxes = np.clip(boxes, (-180, -90, -180, -90), (180, 90, 180, 90))
        query_offsets, query_terms = csr(words(rng, queries, 3))
        chosen = rng.choice(np.array(kinds, np.uint8), queries)
        asked = SampleQueries(chosen, boxes, query_offsets, query_terms, rng.uniform(0, 3, queries))
    keys = rng.integers(0, 2**64, objects, np.uint64, endpoint=False)
    return Sample(places[:, 0].copy(), places[:, 1].copy(), offsets, terms, keys, asked)


def sample_at(lon, lat, texts, queries=None):
    """Returns a sample of given places and texts (lists of small numbers for words)."""
    offsets, terms = csr([np.array(text, np.uint64) for text in texts])
    keys = np.arange(len(lon), dtype=np.uint64)
    places = (np.array(lon, np.float64), np.array(lat, np.float64))
    return Sample(*places, offsets, terms, keys, queries or no_queries())
