"""Compiled continuous range queries as columns: the input of the index."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from sirocco.kernels.base.sorting import sorted_distinct

__all__ = [
    "FLAG_RESIDUAL",
    "NEVER_MS",
    "SHAPE_BOX",
    "SHAPE_CIRCLE",
    "SHAPE_POLYGON",
    "TEXT_COLUMNS",
    "QueryRows",
]

SHAPE_BOX = 0
SHAPE_CIRCLE = 1
SHAPE_POLYGON = 2

FLAG_RESIDUAL = 1
"""Bit 0 of `flags`: the caller checks something more (a `where` filter) after a hit."""

FIXED_BYTES = 96
"""What a query takes at least: its columns of one entry, and those that records add."""

NEVER_MS = np.iinfo(np.int64).max
"""Expiry of a query without a lifetime."""


TEXT_COLUMNS = (
    "conj_offsets", "pos_offsets", "pos_terms", "neg_offsets", "neg_terms", "words",
    "word_offsets", "pos_word_rows", "neg_word_rows",
)  # fmt: skip
"""The columns that describe the texts of queries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRows:
    """Columns of n continuous range queries.

    A query's text is a disjunction of conjunctions: query i has the conjunctions `conj_offsets[i] :
    conj_offsets[i + 1]`; conjunction c holds if all of its positive terms and none of its negative
    terms are in the object. A conjunction without positive terms is a query without text (it has no
    negative terms either).

    Attributes:
        conj_offsets: i8[n + 1]; every query has at least one conjunction.
        pos_offsets: i8[c + 1] into `pos_terms`.
        pos_terms: u8[p], wire hashes, distinct within a conjunction.
        neg_offsets: i8[c + 1] into `neg_terms`.
        neg_terms: u8[m], wire hashes.
        box_offsets: i8[n + 1]; every query has one or more boxes, for a circle or polygon its
            bounding boxes.
        boxes: f8[b, 4], degrees, rows (west, south, east, north), closed, west ≤ east.
        shape: u1[n], SHAPE_BOX, SHAPE_CIRCLE or SHAPE_POLYGON.
        circles: f8[n, 3], (lon, lat, radius_m); used if the shape is a circle.
        polygon_offsets: i8[n + 1] into the rings; empty ranges if the shape is not a polygon.
        ring_offsets: i8[r + 1] into `vertices`.
        vertices: f8[v, 2], (lon, lat).
        expires_ms: i8[n], first arrival time at which the query is dead; NEVER_MS for never.
        flags: u1[n], see FLAG_RESIDUAL.
        words: u1, UTF-8, distinct words, one after another; word_offsets: i8[w + 1].
        pos_word_rows, neg_word_rows: i4[p], i4[m], word of each term, -1 if unknown; both are empty
            if all are unknown (queries of an earlier version).
    """

    conj_offsets: npt.NDArray[np.int64]
    pos_offsets: npt.NDArray[np.int64]
    pos_terms: npt.NDArray[np.uint64]
    neg_offsets: npt.NDArray[np.int64]
    neg_terms: npt.NDArray[np.uint64]
    box_offsets: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.float64]
    shape: npt.NDArray[np.uint8]
    circles: npt.NDArray[np.float64]
    polygon_offsets: npt.NDArray[np.int64]
    ring_offsets: npt.NDArray[np.int64]
    vertices: npt.NDArray[np.float64]
    expires_ms: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]
    words: npt.NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    word_offsets: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    pos_word_rows: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    neg_word_rows: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def __len__(self) -> int:
        """Returns the number of queries."""
        return len(self.shape)

    @property
    def bytes_total(self) -> int:
        """Bytes of all columns together."""
        return sum(int(getattr(self, name).nbytes) for name in self.__slots__)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """i8[n], approximate bytes of each query, here and in records."""
        terms = np.diff(self.pos_offsets[self.conj_offsets])
        terms += np.diff(self.neg_offsets[self.conj_offsets])
        conjunctions, boxes = np.diff(self.conj_offsets), np.diff(self.box_offsets)
        rings = np.diff(self.polygon_offsets)
        vertices = np.diff(self.ring_offsets[self.polygon_offsets])
        entries = 8 * (conjunctions + rings) + 32 * boxes + 16 * vertices + FIXED_BYTES
        if not self.has_words:
            return np.asarray(entries + 8 * terms)
        # A term's word takes half of the memory of its hash.
        return np.asarray(entries + 12 * terms + self._bytes_of_words)

    @property
    def _bytes_of_words(self) -> npt.NDArray[np.int64]:
        """i8[n], bytes of the distinct words of each query."""
        owners = np.concatenate(
            [
                np.repeat(np.arange(len(self)), np.diff(offsets[self.conj_offsets]))
                for offsets in (self.pos_offsets, self.neg_offsets)
            ]
        )
        rows = np.concatenate([self.pos_word_rows, self.neg_word_rows]).astype(np.int64)
        used = sorted_distinct(owners[rows >= 0] * (len(self.word_offsets) + 1) + rows[rows >= 0])
        owners, rows = np.divmod(used, len(self.word_offsets) + 1)
        lengths = np.diff(self.word_offsets)[rows] + 4
        return np.bincount(owners, lengths, len(self)).astype(np.int64)

    @classmethod
    def from_columns(cls, columns: Mapping[str, npt.NDArray[Any]], prefix: str = "") -> Self:
        """Creates queries from columns by name; earlier versions have no words."""
        names = [name for name in cls.__slots__ if prefix + name in columns]
        return cls(**{name: columns[prefix + name] for name in names})

    @property
    def has_words(self) -> bool:
        """Whether the words of terms are known."""
        is_positive = len(self.pos_word_rows) == len(self.pos_terms)
        return is_positive and len(self.neg_word_rows) == len(self.neg_terms)

    @classmethod
    def of_boxes(
        cls,
        boxes: npt.NDArray[np.float64],
        term_offsets: npt.NDArray[np.int64],
        terms: npt.NDArray[np.uint64],
    ) -> QueryRows:
        """Creates queries of one box and one conjunction of positive terms each, without end.

        Args:
            boxes: f8[n, 4], rows (west, south, east, north).
            term_offsets: i8[n + 1] into `terms`.
            terms: u8[t], wire hashes.
        """
        n = len(boxes)
        one_each = np.arange(n + 1, dtype=np.int64)
        none: npt.NDArray[Any] = np.zeros(n + 1, np.int64)
        return cls(
            conj_offsets=one_each,
            pos_offsets=term_offsets,
            pos_terms=terms,
            neg_offsets=none,
            neg_terms=np.empty(0, np.uint64),
            box_offsets=one_each,
            boxes=boxes,
            shape=np.zeros(n, np.uint8),
            circles=np.zeros((n, 3), np.float64),
            polygon_offsets=none,
            ring_offsets=np.zeros(1, np.int64),
            vertices=np.empty((0, 2), np.float64),
            expires_ms=np.full(n, NEVER_MS, np.int64),
            flags=np.zeros(n, np.uint8),
        )
