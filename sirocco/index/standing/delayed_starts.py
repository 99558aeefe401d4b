"""Rows whose lifetimes begin at a time instead of their position in the log.

Such a row is in its index like any other. For objects that arrive before its start, it sleeps: its
born position is then after all existing positions, so that the index skips it in matches, lists and
sets. Without waiting rows this costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sirocco.index.standing.row_store import RowStore
from sirocco.kernels.standing.pyramid import BORN, ROW_WORDS, STATE_FREE, STATE_MASK

__all__ = ["DelayedStarts"]

_NEVER = np.iinfo(np.int64).max


class RowsToStart(Protocol):
    """An index whose rows have born positions."""

    @property
    def row_store(self) -> RowStore:
        """The rows of the index."""

    def settle(self, rows: npt.NDArray[np.int32], position: int) -> None:
        """Ends individual checks of rows that every object from a position on can match."""


class DelayedStarts:
    """The rows of one index that have not started: 12 bytes each while they wait."""

    __slots__ = ("_index", "_rows", "_starts_ms")

    def __init__(self, index: RowsToStart) -> None:
        self._index = index
        self._rows = np.empty(0, np.int32)
        self._starts_ms = np.empty(0, np.int64)

    def __len__(self) -> int:
        """Number of waiting rows."""
        return len(self._rows)

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        """i4[k], the waiting rows."""
        return self._rows

    @property
    def begins_ms(self) -> npt.NDArray[np.int64]:
        """i8[k], start of each, ascending."""
        return self._starts_ms

    def begun(self, arrivals_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        """Returns i8[n], how many rows have started when each of n objects arrives."""
        return np.searchsorted(self._starts_ms, arrivals_ms, side="right")

    def add(self, rows: npt.NDArray[np.int32], begins_ms: npt.NDArray[np.int64]) -> None:
        """Adds waiting rows that were just inserted; `begins_ms` i8[k]."""
        if len(rows) == 0:
            return
        joined = np.concatenate([self._starts_ms, begins_ms]).astype(np.int64)
        order = np.argsort(joined, kind="stable")
        self._starts_ms = joined[order]
        self._rows = np.concatenate([self._rows, rows]).astype(np.int32)[order]

    @contextmanager
    def hidden(self, arrival_ms: int) -> Iterator[None]:
        """In the context, objects of this arrival skip all rows that start later."""
        later = self._rows[np.searchsorted(self._starts_ms, arrival_ms, side="right") :]
        if len(later) == 0:
            yield
            return
        store = self._index.row_store
        born = later.astype(np.int64) * ROW_WORDS + BORN
        positions = store.words[born].copy()
        store.check(later, _NEVER)
        store.words[born] = _NEVER
        try:
            yield
        finally:
            store.words[born] = positions

    def forget_started(self, time_ms: int, position: int) -> None:
        """Forgets rows that have started, or are free.

        Args:
            time_ms: no object with an earlier arrival follows.
            position: every object at a lower position has been matched.
        """
        is_free = self._index.row_store.state[self._rows] & STATE_MASK == STATE_FREE
        has_started = self._starts_ms <= time_ms
        # A row that slept is compared with each object until it is settled.
        self._index.settle(self._rows[has_started & ~is_free], position)
        waits = ~(has_started | is_free)
        self._rows, self._starts_ms = self._rows[waits], self._starts_ms[waits]
