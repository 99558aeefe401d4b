"""The condition of a search over stored objects, in the form for the kernels of slices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.compile import WORLD, compile_queries, region_of, with_numbers
from sirocco.index.base.query_rows import (
    NEVER_MS,
    SHAPE_BOX,
    SHAPE_CIRCLE,
    SHAPE_POLYGON,
    QueryRows,
)
from sirocco.index.store.text_check import TextCheck, stored_conjunctions
from sirocco.kernels.store.slice_region import SHAPE_WORLD, WORDS_HEADER
from sirocco.model.attributes import Filter
from sirocco.model.expression import Conjunction
from sirocco.model.geometry import Circle, Polygon
from sirocco.model.query import Query, RankedQuery
from sirocco.model.term_hashing import WIRE_TERMS, TermHashing

__all__ = ["ALL_TIME", "ANY_OBJECT", "Bounds", "Condition", "compile_condition", "condition_of"]

_LEAST = -(1 << 63)
_GREATEST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Bounds:
    """The searched part of a slot's objects.

    Attributes:
        arrival_from_ms, arrival_to_ms: bounds of arrivals, both inclusive, epoch ms.
        seq_before: bound of numbers within the slot, exclusive.
    """

    arrival_from_ms: int = _LEAST
    arrival_to_ms: int = _GREATEST
    seq_before: int = _GREATEST


ALL_TIME = Bounds()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Condition:
    """A region, a text and a filter; see `slice_region` and `slice_text` for the columns.

    Attributes:
        words: i8, values: f8, quads: f4: the region, and the bounds of the conjunctions.
        hashes: u8, terms of all conjunctions.
        expires_ms: objects with this or a later arrival do not count.
        where: filter on attributes; None for any.
        text: what `hashes` leave open; None for nothing.
    """

    words: NDArray[np.int64]
    values: NDArray[np.float64]
    quads: NDArray[np.float32]
    hashes: NDArray[np.uint64]
    expires_ms: int = NEVER_MS
    where: Filter | None = None
    text: TextCheck | None = None

    @property
    def is_exact(self) -> bool:
        """Whether kernels decide all of it: no object has to be looked at by itself."""
        return self.where is None and self.text is None

    @property
    def conjunctions(self) -> int:
        """Number of conjunctions of the text; 0: any text."""
        return int(self.words[3])

    def within(self, bounds: Bounds) -> Bounds:
        """Returns the bounds limited by the end of the condition's lifetime."""
        if self.expires_ms > bounds.arrival_to_ms:
            return bounds
        return Bounds(bounds.arrival_from_ms, self.expires_ms - 1, bounds.seq_before)


def compile_condition(
    query: QueryRows,
    where: Filter | None = None,
    row: int = 0,
    hashing: TermHashing = WIRE_TERMS,
) -> Condition:
    """Compiles one query.

    Args:
        query: of any kind, see `compile_queries`; its terms numbered by `hashing`.
        where: its filter on attributes.
        row: index of the query.
        hashing: numbers the terms of the store.
    """
    (heads, hashes), text = _text(query, row), None
    if query.has_words and (conjunctions := _conjunctions(query, row)):
        stored = stored_conjunctions(conjunctions)
        if stored is not None:
            heads, hashes = _numbered(stored, hashing)
            text = TextCheck(conjunctions, hashing)
    first, last = query.box_offsets[row : row + 2].tolist()
    boxes = _with_twins(query.boxes[first:last].tolist())
    shape = int(query.shape[row])
    ring_starts, vertices = [0], _NO_VALUES
    if shape == SHAPE_POLYGON:
        first, last = query.polygon_offsets[row : row + 2].tolist()
        rings = query.ring_offsets[first : last + 1]
        vertices = query.vertices[rings[0] : rings[-1]].ravel()
        ring_starts = (rings - rings[0]).tolist()
    elif shape != SHAPE_CIRCLE and _is_world(boxes):
        shape = SHAPE_WORLD
    header = [shape, len(boxes), len(ring_starts) - 1, len(heads) // 2]
    words = np.array([*header, WORDS_HEADER + len(ring_starts), *ring_starts, *heads], np.int64)
    values = np.array([*chain.from_iterable(boxes), *query.circles[row].tolist()])
    if len(vertices):
        values = np.concatenate([values, vertices])
    return Condition(
        words=words,
        values=values,
        quads=_quads(boxes),
        hashes=hashes,
        expires_ms=int(query.expires_ms[row]),
        where=where,
        text=text,
    )


def condition_of(query: Query, hashing: TermHashing = WIRE_TERMS) -> Condition:
    """Compiles a query for one search: faster than by way of columns.

    Args:
        query: of any kind.
        hashing: numbers the terms of the store.
    """
    region = region_of(query)
    if isinstance(region, Polygon) or query.ttl_ms is not None:
        rows = with_numbers(compile_queries([query], [0]), hashing)
        return compile_condition(rows, query.where, hashing=hashing)
    boxes, circle, shape = [list(WORLD)], (0.0, 0.0, 0.0), SHAPE_BOX
    if isinstance(region, Circle):
        boxes, shape = region.boxes().tolist(), SHAPE_CIRCLE
        circle = region.lon, region.lat, region.radius_m
    elif region is not None:
        boxes = [list(box) for box in region.box_rows()]
    boxes = _with_twins(boxes)
    if shape == SHAPE_BOX and _is_world(boxes):
        shape = SHAPE_WORLD
    heads, hashes, text = [0], _NO_HASHES, None
    if not isinstance(query, RankedQuery) and query.expression is not None:
        conjunctions = query.expression.conjunctions
        stored = stored_conjunctions(conjunctions)
        if stored is not None:
            text = TextCheck(conjunctions, hashing)
        heads, hashes = _numbered(conjunctions if stored is None else stored, hashing)
    header = [shape, len(boxes), 0, len(heads) // 2, WORDS_HEADER + 1, 0]
    return Condition(
        words=np.array(header + heads, np.int64),
        values=np.array([*chain.from_iterable(boxes), *circle]),
        quads=_quads(boxes),
        hashes=hashes,
        where=query.where,
        text=text,
    )


_NO_VALUES = np.empty(0)
_NO_HASHES = np.empty(0, np.uint64)


def _text(query: QueryRows, row: int) -> tuple[list[int], NDArray[np.uint64]]:
    """Returns (heads, hashes); only one head if a conjunction has no terms."""
    first, last = query.conj_offsets[row : row + 2].tolist()
    positive = query.pos_offsets[first : last + 1].tolist()
    negative = query.neg_offsets[first : last + 1].tolist()
    heads, parts, end = [0], [], 0
    for wanted, wanted_end, refused, refused_end in zip(
        positive[:-1], positive[1:], negative[:-1], negative[1:], strict=True
    ):
        if wanted == wanted_end:
            return [0], _NO_HASHES
        end += wanted_end - wanted
        parts.append(query.pos_terms[wanted:wanted_end])
        heads.append(end)
        if refused < refused_end:
            end += refused_end - refused
            parts.append(query.neg_terms[refused:refused_end])
        heads.append(end)
    return heads, np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)


def _conjunctions(query: QueryRows, row: int) -> list[Conjunction]:
    """Returns the words of a query's text; none where one is unknown, or any text will do."""
    first, last = query.conj_offsets[row : row + 2].tolist()
    found = []
    for i in range(first, last):
        wanted = query.pos_word_rows[query.pos_offsets[i] : query.pos_offsets[i + 1]]
        refused = query.neg_word_rows[query.neg_offsets[i] : query.neg_offsets[i + 1]]
        if not len(wanted) or (wanted < 0).any() or (refused < 0).any():
            return []
        found.append(Conjunction(_words(query, wanted), _words(query, refused)))
    return found


def _words(query: QueryRows, rows: NDArray[np.int32]) -> tuple[str, ...]:
    offsets = query.word_offsets
    return tuple(
        query.words[offsets[row] : offsets[row + 1]].tobytes().decode() for row in rows.tolist()
    )


def _numbered(
    conjunctions: Sequence[Conjunction], hashing: TermHashing
) -> tuple[list[int], NDArray[np.uint64]]:
    """Returns (heads, hashes) of conjunctions, as `_text` does."""
    heads, words = [0], list[str]()
    for one in conjunctions:
        if not one.positive:
            return [0], _NO_HASHES
        words += one.positive
        heads.append(len(words))
        words += one.negative
        heads.append(len(words))
    return heads, hashing.numbers(words)


def _with_twins(boxes: list[list[float]]) -> list[list[float]]:
    """Adds the opposite border to boxes that touch longitude ±180."""
    twins = [
        [-side, south, -side, north]
        for west, south, east, north in boxes
        if west <= -180.0 or east >= 180.0
        for side in (-180.0, 180.0)
        if side in (west, east) and -side not in (west, east)
    ]
    return boxes + [twin for twin in twins if twin not in boxes] if twins else boxes


def _is_world(boxes: list[list[float]]) -> bool:
    return any(
        west <= -180 and south <= -90 and east >= 180 and north >= 90
        for west, south, east, north in boxes
    )


def _quads(boxes: list[list[float]]) -> NDArray[np.float32]:
    """Returns f4[4 · b]: (east, north, −west, −south) of each box, rounded up."""
    quads = [(east, north, -west, -south) for west, south, east, north in boxes]
    # One step even without rounding: the objects admitted by it are checked exactly.
    return np.nextafter(np.array(quads, np.float32).ravel(), np.float32(np.inf))


def _anything() -> Condition:
    boxes = [[-180.0, -90.0, 180.0, 90.0]]
    words = np.array([SHAPE_WORLD, 1, 0, 0, WORDS_HEADER + 1, 0, 0], np.int64)
    return Condition(
        words=words,
        values=np.array([*boxes[0], 0.0, 0.0, 0.0]),
        quads=_quads(boxes),
        hashes=_NO_HASHES,
    )


ANY_OBJECT = _anything()
