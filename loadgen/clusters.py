"""The reference matching workload as JSON members: clustered places, Zipf words, small regions.

The shape is that of the benchmark's flat files: Gaussian clusters with Zipf weights and a uniform
rest, ten distinct words an object (Poisson), one to three a query, query sides of half to twice the
mean side. The unit square is mapped to the whole world.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.loadgen.lines import texts_of
from sirocco.loadgen.phrases import Dictionary, WeightedDraw, offsets_of
from sirocco.model.objects import MISSING_TS, Bytes, ObjectColumns, Offsets

# Objects drawn at a time; part of a seed's meaning: the stream does not depend on how it is read.
_CHUNK_ROWS = 16_384

_WORLD_DEG = (360.0, 180.0)


@dataclass(frozen=True, slots=True)
class ClusteredShape:
    """Figures of a clustered workload; the defaults are those of the reference workload.

    Attributes:
        clusters: Number of Gaussian clusters.
        uniform_share: Share of uniformly distributed places.
        vocabulary: Number of words.
        words_mean: Distinct words an object, Poisson, at least one.
        side: Mean side of a query's region as a share of the world's side.
        arrivals_per_s: Objects a second of event time; None: no event times.
    """

    clusters: int = 200
    uniform_share: float = 0.10
    vocabulary: int = 200_000
    words_mean: float = 10.0
    side: float = 0.00125
    arrivals_per_s: float | None = None


class ClusteredWorkload:
    """Objects and matching queries; the same for the same seed and shape.

    Args:
        seed: For all random draws.
        shape: Figures of the workload.
        start_ms: Event time of the first object, if objects have one.
    """

    def __init__(
        self, seed: int, shape: ClusteredShape | None = None, *, start_ms: int = 1_767_225_600_000
    ) -> None:
        self.shape = shape or ClusteredShape()
        self._start_ms = start_ms
        frame, self._object_seed, self._query_seed = np.random.SeedSequence(seed).spawn(3)
        generator = np.random.default_rng(frame)
        count = self.shape.clusters
        self._cluster_draw = WeightedDraw(1 / np.arange(1, count + 1))
        self._centres = generator.random((count, 2))
        self._spreads = np.exp(generator.uniform(np.log(0.002), np.log(0.05), count))
        # Words are numbered independently of their rank.
        ranks = generator.permutation(self.shape.vocabulary) + 1
        self._word_draw = WeightedDraw(1 / ranks)
        self._dictionary = Dictionary.numbered(self.shape.vocabulary)

    def objects(self, count: int, batch_rows: int = 4_096) -> Iterator[ObjectColumns]:
        """Yields batches of objects, ids from 1."""
        generator = np.random.default_rng(self._object_seed)
        done = 0
        while done < count:
            chunk = self._chunk(generator, done)
            kept = min(count - done, len(chunk))
            for start in range(0, kept, batch_rows):
                yield chunk.slice(start, min(start + batch_rows, kept))
            done += kept

    def queries(self, count: int) -> Iterator[dict[str, Any]]:
        """Yields the JSON members of continuous range queries, ids `q1`, `q2`, …"""
        generator = np.random.default_rng(self._query_seed)
        done = 0
        while done < count:
            yield from self._query_chunk(generator, done, count)
            done += _CHUNK_ROWS

    def _chunk(self, generator: np.random.Generator, done: int) -> ObjectColumns:
        rows = _CHUNK_ROWS
        places = self._places(generator, rows)
        counts = np.maximum(1, generator.poisson(self.shape.words_mean, rows)).astype(np.int64)
        words, ends = self._words(generator, counts)
        text, text_offsets = self._dictionary.join(words, ends)
        empty, no_offsets = _no_bytes(rows)
        ids = np.arange(done + 1, done + rows + 1, dtype=np.uint64)
        return ObjectColumns(
            ids=ids,
            names=empty,
            name_offsets=no_offsets,
            lon=places[:, 0] * _WORLD_DEG[0] - 180,
            lat=places[:, 1] * _WORLD_DEG[1] - 90,
            ts=self._times(ids),
            text=text,
            text_offsets=text_offsets,
            attributes=empty,
            attribute_offsets=no_offsets,
        )

    def _times(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        rate = self.shape.arrivals_per_s
        if rate is None:
            return np.full(len(ids), MISSING_TS, np.int64)
        return self._start_ms + ((ids.astype(np.float64) - 1) * (1000 / rate)).astype(np.int64)

    def _query_chunk(
        self, generator: np.random.Generator, done: int, count: int
    ) -> Iterator[dict[str, Any]]:
        rows = _CHUNK_ROWS
        centres = self._places(generator, rows)
        half = self.shape.side * generator.uniform(0.4, 1.6, rows)[:, None] / 2
        low = np.clip(centres - half, 0, 1) * _WORLD_DEG - (180, 90)
        high = np.clip(centres + half, 0, 1) * _WORLD_DEG - (180, 90)
        words, ends = self._words(generator, generator.integers(1, 4, rows))
        text, offsets = self._dictionary.join(words, ends)
        texts = texts_of(text, offsets)
        boxes = np.hstack([low, high]).tolist()
        for row in range(min(rows, count - done)):
            west, south, east, north = boxes[row]
            yield {
                "id": f"q{done + row + 1}",
                "kind": "range",
                "mode": "continuous",
                "region": {"rect": {"west": west, "south": south, "east": east, "north": north}},
                "text": texts[row],
            }

    def _places(self, generator: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draws f8[count, 2] in the unit square; places outside are drawn again."""
        uniform = generator.random(count) < self.shape.uniform_share
        cluster = self._cluster_draw.draw(generator, count)
        places = np.empty((count, 2))
        missing = np.arange(count)
        while len(missing):
            chosen = cluster[missing]
            near = self._centres[chosen] + (
                generator.standard_normal((len(missing), 2)) * self._spreads[chosen][:, None]
            )
            anywhere = generator.random((len(missing), 2))
            drawn = np.where(uniform[missing][:, None], anywhere, near)
            places[missing] = drawn
            missing = missing[((drawn < 0) | (drawn >= 1)).any(axis=1)]
        return places

    def _words(
        self, generator: np.random.Generator, counts: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], Offsets]:
        """Draws `counts[i]` distinct words for row i, as (words, offsets)."""
        vocabulary = self.shape.vocabulary
        offsets = offsets_of(counts)
        rows = np.repeat(np.arange(len(counts), dtype=np.int64) * vocabulary, counts)
        keys = rows + self._word_draw.draw(generator, len(rows))
        while True:
            keys.sort()
            repeated = np.flatnonzero(keys[1:] == keys[:-1])
            if not len(repeated):
                return keys - rows, offsets
            drawn = self._word_draw.draw(generator, len(repeated))
            keys[repeated] = rows[repeated] + drawn


def _no_bytes(rows: int) -> tuple[Bytes, Offsets]:
    return np.empty(0, np.uint8), np.zeros(rows + 1, np.int64)
