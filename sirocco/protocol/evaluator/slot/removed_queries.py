"""Removed queries of a slot: an older registration of them may still arrive again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sirocco.index.base.handle_table import HandleTable
from sirocco.kernels.base.sorting import sorted_distinct
from sirocco.protocol.contract.effects import State

# The registry partition of a query whose lifetime ended, and of one that is not here.
UNKNOWN = -1

# The revision of a query that is not here.
NO_REMOVAL = -1

_ROOM_MIN = 64


class RemovedQueries:
    """Handle → the registry partition and the offset of the newest removal; columns."""

    def __init__(self) -> None:
        self._table = HandleTable()
        self._handles = np.empty(_ROOM_MIN, np.uint64)
        self._sources = np.empty(_ROOM_MIN, np.int64)
        self._revisions = np.empty(_ROOM_MIN, np.int64)
        # Rows in use.
        self._end = 0

    def __len__(self) -> int:
        return len(self._table)

    def find(self, handles: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the registry partitions and offsets of removals, i8[n] each.

        `UNKNOWN` and `NO_REMOVAL` where none is known.
        """
        rows = self._table.get(handles)
        is_here = rows >= 0
        sources, revisions = (np.full(len(handles), -1, np.int64) for _ in range(2))
        sources[is_here] = self._sources[rows[is_here]]
        revisions[is_here] = self._revisions[rows[is_here]]
        return sources, revisions

    def put(self, handles: NDArray[np.uint64], source: int, revisions: NDArray[np.int64]) -> None:
        """Notes removals of a registry partition.

        The greatest offset counts: a repeated older removal must not let older versions in.
        """
        if len(sorted_distinct(handles)) < len(handles):
            for row in range(len(handles)):
                self.put(handles[row : row + 1], source, revisions[row : row + 1])
            return
        known = self.find(handles)[1]
        self._set(handles, np.full(len(handles), source), np.maximum(known, revisions))

    def put_expired(self, handles: NDArray[np.uint64], revisions: NDArray[np.int64]) -> None:
        """Notes distinct queries whose lifetime ended, until the registry has removed them."""
        self._set(handles, self.find(handles)[0], revisions)

    def _set(
        self,
        handles: NDArray[np.uint64],
        sources: NDArray[np.int64],
        revisions: NDArray[np.int64],
    ) -> None:
        rows = self._table.get(handles)
        is_here = rows >= 0
        self._sources[rows[is_here]] = sources[is_here]
        self._revisions[rows[is_here]] = revisions[is_here]
        if is_here.all():
            return
        new = handles[~is_here]
        begin, self._end = self._end, self._end + len(new)
        if self._end > len(self._handles):
            room = 2 * self._end
            self._handles = _extended(self._handles, begin, room)
            self._sources = _extended(self._sources, begin, room)
            self._revisions = _extended(self._revisions, begin, room)
        own = slice(begin, self._end)
        self._handles[own], self._sources[own] = new, sources[~is_here]
        self._revisions[own] = revisions[~is_here]
        self._table.put(new, np.arange(begin, self._end, dtype=np.int32))

    def forget_expired(self, handles: NDArray[np.uint64]) -> None:
        """Forgets those whose lifetime ended among some queries, which are registered again."""
        rows = self._table.get(handles)
        rows = rows[rows >= 0]
        again = rows[self._sources[rows] == UNKNOWN]
        if len(again):
            is_kept = np.ones(self._end, np.bool_)
            is_kept[again] = False
            self._keep(is_kept)

    def forget_below(self, source: int, floor: int) -> None:
        """Forgets the removals of a registry partition below an offset."""
        _, sources, revisions = self._columns
        is_kept = (sources != source) | (revisions >= floor)
        if not is_kept.all():
            self._keep(is_kept)

    @property
    def _columns(self) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
        end = self._end
        return self._handles[:end], self._sources[:end], self._revisions[:end]

    def _keep(self, is_kept: NDArray[np.bool_]) -> None:
        handles, sources, revisions = self._columns
        self._handles, self._sources = handles[is_kept], sources[is_kept]
        self._revisions = revisions[is_kept]
        self._end = len(self._handles)
        self._table = HandleTable(self._end)
        self._table.put(self._handles, np.arange(self._end, dtype=np.int32))

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns the state for a checkpoint."""
        handles, sources, revisions = self._columns
        return {"removed": handles.copy(), "removed_by": np.stack([sources, revisions], axis=1)}

    def restore(self, state: State) -> None:
        """Takes the state of a checkpoint."""
        pairs = np.asarray(state["removed_by"], np.int64).reshape(-1, 2)
        self._handles = np.asarray(state["removed"], np.uint64)
        self._sources, self._revisions = pairs[:, 0].copy(), pairs[:, 1].copy()
        self._end = len(self._handles)
        self._keep(np.ones(self._end, np.bool_))


def _extended(column: NDArray[Any], used: int, room: int) -> NDArray[Any]:
    larger = np.empty(room, column.dtype)
    larger[:used] = column[:used]
    return larger
