"""The matching workload: clustered places, Zipf words, small rectangles with one to three terms.

Either read from flat files or generated here from a seed: 200 Gaussian clusters of Zipf weights and
a tenth of uniform background in the unit square; a vocabulary of 200,000 terms with Zipf
frequencies; ten terms an object (Poisson), one to three a query; query sides of half to twice
`side`.

Files (little endian, C order): `obj_xy.f32` f4[n, 2]; `obj_off.i64` i8[n + 1] and `obj_terms.i32`
i4[t], ascending within an object; `q_rect.f32` f4[q, 4] rows (x_min, y_min, x_max, y_max);
`q_off.i64` and `q_terms.i32`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sirocco.kernels.base.sorting import sorted_distinct

__all__ = ["MatchWorkload", "WorkloadError", "load_workload", "make_workload", "wire_hashes"]

VOCABULARY = 200_000
_CLUSTERS = 200
_BACKGROUND = 0.10
_TERMS_MEAN = 10
# Redrawing repeated terms sorts all rows of a chunk: small chunks sort in the cache.
_CHUNK = 100_000


class WorkloadError(ValueError):
    """A workload cannot be read; the message names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchWorkload:
    """Objects and queries with integer term ids.

    Attributes:
        lon, lat: f8[n], in the unit square, exact in f4.
        object_offsets: i8[n + 1] into object_terms: i4[t].
        boxes: f8[q, 4], rows (west, south, east, north).
        query_offsets: i8[q + 1] into query_terms: i4[u].
    """

    lon: npt.NDArray[np.float64]
    lat: npt.NDArray[np.float64]
    object_offsets: npt.NDArray[np.int64]
    object_terms: npt.NDArray[np.int32]
    boxes: npt.NDArray[np.float64]
    query_offsets: npt.NDArray[np.int64]
    query_terms: npt.NDArray[np.int32]


def wire_hashes(terms: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """Returns u8[t]: a 64-bit hash for each integer term, as words have on the wire."""
    h = (terms.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    h ^= h >> np.uint64(31)
    hashes: npt.NDArray[np.uint64] = h * np.uint64(0xD6E8FEB86659FD93)
    return hashes


def load_workload(directory: Path, queries: int, objects: int | None) -> MatchWorkload:
    """Reads the first `queries` queries and `objects` objects (all if None) of flat files.

    Raises:
        WorkloadError: A file is missing or shorter than requested.
    """
    object_offsets, object_terms = _read_lists(directory, "obj", objects)
    n = len(object_offsets) - 1
    xy = _read(directory / "obj_xy.f32", "<f4", 2 * n).reshape(-1, 2).astype(np.float64)
    query_offsets, query_terms = _read_lists(directory, "q", queries)
    boxes = _read(directory / "q_rect.f32", "<f4", 4 * queries).reshape(-1, 4)
    return MatchWorkload(
        lon=np.ascontiguousarray(xy[:, 0]),
        lat=np.ascontiguousarray(xy[:, 1]),
        object_offsets=object_offsets,
        object_terms=object_terms,
        boxes=boxes.astype(np.float64),
        query_offsets=query_offsets,
        query_terms=query_terms,
    )


def _read(path: Path, dtype: str, count: int) -> npt.NDArray[Any]:
    try:
        values = np.fromfile(path, dtype, count)
    except OSError as error:
        raise WorkloadError(f"workload: {path}: {error.strerror}") from error
    if count >= 0 and len(values) < count:
        raise WorkloadError(f"workload: {path}: {len(values)} values, {count} wanted")
    return values


def _read_lists(
    directory: Path, prefix: str, rows: int | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Reads offsets and terms of the first rows."""
    path = directory / f"{prefix}_off.i64"
    offsets = _read(path, "<i8", -1 if rows is None else rows + 1)
    if len(offsets) == 0 or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise WorkloadError(f"workload: {path}: not offsets that begin with 0 and ascend")
    return offsets, _read(directory / f"{prefix}_terms.i32", "<i4", int(offsets[-1]))


def make_workload(queries: int, objects: int, seed: int, side: float = 0.001) -> MatchWorkload:
    """Generates a workload; equal arguments give equal workloads.

    Args:
        queries, objects: how many.
        seed: of all random numbers.
        side: mean side of the rectangles is 1.25 times it; the square has side 1.
    """
    rng = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, _CLUSTERS + 1)
    clusters = _Clusters(
        weights / weights.sum(),
        rng.random((_CLUSTERS, 2)),
        np.exp(rng.uniform(np.log(0.002), np.log(0.05), _CLUSTERS)),
    )
    frequencies = np.cumsum(1.0 / np.arange(1, VOCABULARY + 1))
    frequencies /= frequencies[-1]
    # Terms are numbered independently of their rank.
    by_rank = rng.permutation(VOCABULARY).astype(np.int32)
    xy = _places(rng, clusters, objects).astype(np.float32).astype(np.float64)
    counts = np.maximum(1, rng.poisson(_TERMS_MEAN, objects))
    object_offsets, object_terms = _terms(rng, counts, frequencies, by_rank)
    centres = _places(rng, clusters, queries)
    half = (side * rng.uniform(0.5, 2.0, queries) / 2)[:, None]
    boxes = np.concatenate([centres - half, centres + half], 1).clip(0, 1).astype(np.float32)
    query_offsets, query_terms = _terms(rng, rng.integers(1, 4, queries), frequencies, by_rank)
    return MatchWorkload(
        lon=np.ascontiguousarray(xy[:, 0]),
        lat=np.ascontiguousarray(xy[:, 1]),
        object_offsets=object_offsets,
        object_terms=object_terms,
        boxes=boxes.astype(np.float64),
        query_offsets=query_offsets,
        query_terms=query_terms,
    )


@dataclass(frozen=True, slots=True)
class _Clusters:
    """Gaussian clusters: weights f8[c], centres f8[c, 2], standard deviations f8[c]."""

    weights: npt.NDArray[np.float64]
    centres: npt.NDArray[np.float64]
    spreads: npt.NDArray[np.float64]


def _places(rng: np.random.Generator, clusters: _Clusters, n: int) -> npt.NDArray[np.float64]:
    """Draws f8[n, 2]; places outside the unit square are drawn again."""
    out = np.empty((n, 2))
    todo = np.arange(n)
    background = rng.random(n) < _BACKGROUND
    cluster = rng.choice(len(clusters.weights), n, p=clusters.weights)
    while len(todo):
        which = cluster[todo]
        near = rng.standard_normal((len(todo), 2)) * clusters.spreads[which][:, None]
        anywhere = rng.random((len(todo), 2))
        drawn = np.where(background[todo][:, None], anywhere, near + clusters.centres[which])
        out[todo] = drawn
        single = drawn.astype(np.float32)
        todo = todo[((single < 0) | (single >= 1)).any(1)]
    return out


def _terms(
    rng: np.random.Generator,
    counts: npt.NDArray[np.int64],
    frequencies: npt.NDArray[np.float64],
    by_rank: npt.NDArray[np.int32],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Draws `counts[i]` distinct terms for row i; returns offsets and terms, ascending in a row."""
    parts = []
    for begin in range(0, len(counts), _CHUNK):
        wanted = counts[begin : begin + _CHUNK]
        missing = np.repeat(np.arange(len(wanted)), wanted)
        held = np.empty(0, np.int64)
        while len(missing):
            rank = np.searchsorted(frequencies, rng.random(len(missing)), side="right")
            drawn = missing * VOCABULARY + by_rank[rank.clip(0, VOCABULARY - 1)]
            held = sorted_distinct(np.concatenate([held, drawn]))
            short = wanted - np.bincount(held // VOCABULARY, minlength=len(wanted))
            missing = np.repeat(np.arange(len(wanted)), short)
        parts.append((held % VOCABULARY).astype(np.int32))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return offsets, np.concatenate(parts) if parts else np.empty(0, np.int32)
