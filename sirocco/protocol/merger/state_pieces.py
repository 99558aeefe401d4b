"""The columns of a checkpoint, made some rows at a time.

Steps, versions and lists are as many as clients register. Columns of all at once take a third of a
second for 100,000 queries, for which other Kafka partitions and the lease would wait. So each part
of the state yields pieces, each with the columns of some rows, and the pieces are joined, also some
bytes at a time. Nothing may change the state meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.effects import State

# The weight of a piece (in what a step of a query takes, some 0.1 ms), and its columns.
Piece: TypeAlias = tuple[int, State]

# Yields the weight of what was done since the last time.
InTurns: TypeAlias = Generator[int, None, State]

# What takes as long as a step: rows, and bytes of pieces that are joined.
ROWS_A_STEP = 16
_JOINED_BYTES_A_STEP = 256 << 10

# Columns that count from the begin of their piece.
_OFFSETS = frozenset(
    {
        "knn.offsets",
        "knn.name_offsets",
        "steps.id_offsets",
        "steps.subscribers.offsets",
        "steps.specs.offsets",
        "terms.rows",
        "terms.offsets",
        "ranked.rows",
        "ranked.keywords",
        "ranked.objects.name_offsets",
        "ranked.objects.text_offsets",
        "ranked.objects.attribute_offsets",
        "versions.offsets",
        "over.queries_offsets",
        "over.subscribers_offsets",
        "over.ready_queries_offsets",
        "over.ready_subscribers_offsets",
    }
)

# Columns whose rows are along the second axis.
_BY_COLUMN = frozenset({"versions.told"})

_Row = TypeVar("_Row")


def weight_of_rows(rows: int) -> int:
    """Returns how much of a turn a piece with so many rows takes."""
    return 1 + rows // ROWS_A_STEP


def in_pieces(rows: Iterable[_Row], rows_max: int) -> Iterator[list[_Row]]:
    """Yields rows, so many at a time; a list without any where there are none."""
    iterator = iter(rows)
    piece = list(islice(iterator, rows_max))
    yield piece
    while piece := list(islice(iterator, rows_max)):
        yield piece


def weighed_pieces(
    rows: Iterable[tuple[int, _Row]], rows_max: int
) -> Iterator[tuple[int, list[_Row]]]:
    """Yields rows, which count as many each, so many at a time, and how many these count."""
    piece: list[_Row] = []
    count = 0
    for size, row in rows:
        piece.append(row)
        count += size
        if count >= rows_max:
            yield count, piece
            piece, count = [], 0
    yield count, piece


def joined_in_turns(pieces: Iterable[Piece], bytes_max: int) -> InTurns:
    """Joins pieces of columns.

    Args:
        pieces: of one part of the state.
        bytes_max: so many are copied at a time.
    """
    parts: dict[str, list[NDArray[Any]]] = {}
    for weight, piece in pieces:
        for name, column in piece.items():
            parts.setdefault(name, []).append(column)
        yield weight
    state: dict[str, NDArray[Any]] = {}
    for name in list(parts):
        state[name] = yield from _joined(name, parts.pop(name), bytes_max)
    return state


def _joined(
    name: str, parts: list[NDArray[Any]], bytes_max: int
) -> Generator[int, None, NDArray[Any]]:
    if len(parts) == 1:
        return parts[0]
    axis, is_offsets = int(name in _BY_COLUMN), name in _OFFSETS
    shape = list(parts[0].shape)
    shape[axis] = is_offsets + sum(part.shape[axis] - is_offsets for part in parts)
    joined = np.empty(shape, np.result_type(*parts))
    if is_offsets:
        joined[0] = 0
    at, copied, base = int(is_offsets), 0, 0
    parts.reverse()
    while parts:
        part = parts.pop()
        if is_offsets:
            part = part[1:] + base
            base = int(part[-1]) if len(part) else base
        end = at + part.shape[axis]
        if axis:
            joined[:, at:end] = part
        else:
            joined[at:end] = part
        at, copied = end, copied + part.nbytes
        if copied >= bytes_max:
            yield 1 + copied // _JOINED_BYTES_A_STEP
            copied = 0
    return joined


def at_once(turns: InTurns) -> State:
    """Returns what is made in turns, in one."""
    while True:
        try:
            next(turns)
        except StopIteration as end:
            state: State = end.value
            return state
