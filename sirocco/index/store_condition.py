"""What a search asks of stored objects, as the kernels of slices read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sirocco.index.query_rows import NEVER_MS, SHAPE_CIRCLE, SHAPE_POLYGON, QueryRows
from sirocco.kernels.slice_region import SHAPE_WORLD, WORDS_HEADER
from sirocco.model.attributes import Filter

__all__ = ["ALL_TIME", "ANY_OBJECT", "Bounds", "Condition", "compile_condition"]

Floats: TypeAlias = NDArray[np.float64]

_LEAST = -(1 << 63)
_GREATEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which stretch of a slot's objects is searched.

    Attributes:
        arrival_from_ms, arrival_upto_ms: bounds of arrivals, both inclusive.
        seq_before: bound of numbers within the slot, exclusive.
    """

    arrival_from_ms: int = _LEAST
    arrival_upto_ms: int = _GREATEST
    seq_before: int = _GREATEST


ALL_TIME = Bounds()


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A region, a text and a filter; see `slice_region` and `slice_text` for the columns.

    Attributes:
        words: i8, values: f8, quads: f4: the region, and the bounds of the conjunctions.
        hashes: u8, terms of all conjunctions.
        expires_ms: objects that arrive then or later do not count.
        where: what attributes have to be like; None for anything.
    """

    words: NDArray[np.int64]
    values: Floats
    quads: NDArray[np.float32]
    hashes: NDArray[np.uint64]
    expires_ms: int = NEVER_MS
    where: Filter | None = None

    @property
    def conjunctions(self) -> int:
        """How many conjunctions the text has; 0: any text."""
        return int(self.words[3])

    @property
    def is_world(self) -> bool:
        """Whether the region is the whole world."""
        return bool(self.words[0] == SHAPE_WORLD)

    def within(self, bounds: Bounds) -> Bounds:
        """Returns the bounds with the end of the condition's lifetime."""
        if self.expires_ms > bounds.arrival_upto_ms:
            return bounds
        return Bounds(bounds.arrival_from_ms, self.expires_ms - 1, bounds.seq_before)


def compile_condition(query: QueryRows, where: Filter | None = None, row: int = 0) -> Condition:
    """Compiles one query.

    Args:
        query: of any kind, see `compile_queries`.
        where: its filter on attributes.
        row: which of the queries.
    """
    conj = slice(int(query.conj_offsets[row]), int(query.conj_offsets[row + 1]) + 1)
    positive, negative = query.pos_offsets[conj], query.neg_offsets[conj]
    heads, hashes = _text(query, positive, negative)
    boxes = _with_twins(query.boxes[query.box_offsets[row] : query.box_offsets[row + 1]])
    shape = int(query.shape[row])
    rings = query.ring_offsets[query.polygon_offsets[row] : query.polygon_offsets[row + 1] + 1]
    if shape != SHAPE_POLYGON:
        rings = np.zeros(1, np.int64)
    vertices = query.vertices[rings[0] : rings[-1]]
    if shape not in (SHAPE_CIRCLE, SHAPE_POLYGON) and _is_world(boxes):
        shape = SHAPE_WORLD
    conjunctions = (len(heads) - 1) // 2
    words = np.concatenate(
        [
            [shape, len(boxes), len(rings) - 1, conjunctions, WORDS_HEADER + len(rings)],
            rings - rings[0],
            heads,
        ]
    ).astype(np.int64)
    values = np.concatenate([boxes.ravel(), query.circles[row], vertices.ravel()])
    return Condition(words, values, _quads(boxes), hashes, int(query.expires_ms[row]), where)


def _text(
    query: QueryRows, positive: NDArray[np.int64], negative: NDArray[np.int64]
) -> tuple[list[int], NDArray[np.uint64]]:
    """Returns (heads, hashes); no heads but one where a conjunction asks for no term."""
    heads, parts, end = [0], [], 0
    for i in range(len(positive) - 1):
        wanted = query.pos_terms[positive[i] : positive[i + 1]]
        refused = query.neg_terms[negative[i] : negative[i + 1]]
        if len(wanted) == 0:
            return [0], np.empty(0, np.uint64)
        heads += [end + len(wanted), end + len(wanted) + len(refused)]
        end = heads[-1]
        parts += [wanted, refused]
    return heads, np.concatenate(parts)


def _with_twins(boxes: Floats) -> Floats:
    """Adds to boxes that touch one of the longitudes ±180 their border at the other."""
    twins = [
        (-side, south, -side, north)
        for west, south, east, north in boxes.tolist()
        for side in (-180.0, 180.0)
        if side in (west, east) and -side not in (west, east)
    ]
    known = {tuple(box) for box in boxes.tolist()} if twins else set()
    fresh = [twin for twin in twins if twin not in known]
    return np.concatenate([boxes, fresh]) if fresh else np.ascontiguousarray(boxes)


def _is_world(boxes: Floats) -> bool:
    return any(
        west <= -180 and south <= -90 and east >= 180 and north >= 90
        for west, south, east, north in boxes.tolist()
    )


def _quads(boxes: Floats) -> NDArray[np.float32]:
    """Returns f4[4 · b]: (east, north, −west, −south) of each box, rounded towards more."""
    signed = (boxes * (-1.0, -1.0, 1.0, 1.0))[:, [2, 3, 0, 1]].ravel()
    rounded = signed.astype(np.float32)
    too_little = rounded < signed
    rounded[too_little] = np.nextafter(rounded[too_little], np.float32(np.inf))
    return rounded


def _anything() -> Condition:
    boxes = np.array([[-180.0, -90.0, 180.0, 90.0]])
    words = np.array([SHAPE_WORLD, 1, 0, 0, WORDS_HEADER + 1, 0, 0], np.int64)
    return Condition(
        words, np.concatenate([boxes.ravel(), np.zeros(3)]), _quads(boxes), np.empty(0, np.uint64)
    )


ANY_OBJECT = _anything()
