"""Rows whose lifetimes begin at a time, and not with their place in the log.

Such a row is in its index like any other. While objects may come that arrive before it begins, it
sleeps through these: its born position is then behind all that there are, so that the index passes
it over, in matches, lists and sets alike. Where no row waits nothing is done at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import numpy as np
import numpy.typing as npt

from sirocco.index.standing.row_store import RowStore
from sirocco.kernels.standing.pyramid import ROW_WORDS, STATE_FREE, STATE_MASK

__all__ = ["Beginnings"]

_BORN = 0
_NEVER = np.iinfo(np.int64).max


class Living(Protocol):
    """An index whose rows are born at positions."""

    @property
    def row_store(self) -> RowStore:
        """Its rows."""

    def settle(self, rows: npt.NDArray[np.int32], position: int) -> None:
        """Lets rows that every object from a position on meets go unchecked."""


class Beginnings:
    """The rows of one index that have not begun: 12 bytes each, as long as they stand there."""

    __slots__ = ("_begins_ms", "_index", "_rows")

    def __init__(self, index: Living) -> None:
        self._index = index
        self._rows = np.empty(0, np.int32)
        self._begins_ms = np.empty(0, np.int64)

    def __len__(self) -> int:
        """How many rows wait."""
        return len(self._rows)

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        """i4[k], those that wait."""
        return self._rows

    @property
    def begins_ms(self) -> npt.NDArray[np.int64]:
        """i8[k], when each begins, ascending."""
        return self._begins_ms

    def begun(self, arrivals_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
        """i8[n], how many of them have begun when each of n objects arrives."""
        return np.searchsorted(self._begins_ms, arrivals_ms, side="right")

    def add(self, rows: npt.NDArray[np.int32], begins_ms: npt.NDArray[np.int64]) -> None:
        """Has rows wait that were just inserted; `begins_ms` i8[k]."""
        if len(rows) == 0:
            return
        joined = np.concatenate([self._begins_ms, begins_ms]).astype(np.int64)
        order = np.argsort(joined, kind="stable")
        self._begins_ms = joined[order]
        self._rows = np.concatenate([self._rows, rows]).astype(np.int32)[order]

    @contextmanager
    def asleep(self, arrival_ms: int) -> Iterator[None]:
        """Meanwhile objects of that arrival pass over all rows that begin later."""
        late = self._rows[np.searchsorted(self._begins_ms, arrival_ms, side="right") :]
        if len(late) == 0:
            yield
            return
        store = self._index.row_store
        born = late.astype(np.int64) * ROW_WORDS + _BORN
        positions = store.words[born].copy()
        store.check(late, _NEVER)
        store.words[born] = _NEVER
        try:
            yield
        finally:
            store.words[born] = positions

    def pass_by(self, time_ms: int, position: int) -> None:
        """Forgets rows that have begun, or are free.

        Args:
            time_ms: no object comes any more that arrived earlier.
            position: every object at a lower position has been matched.
        """
        is_free = self._index.row_store.state[self._rows] & STATE_MASK == STATE_FREE
        is_over = self._begins_ms <= time_ms
        # Whoever slept is compared with each object until it is said that this is over.
        self._index.settle(self._rows[is_over & ~is_free], position)
        waits = ~(is_over | is_free)
        self._rows, self._begins_ms = self._rows[waits], self._begins_ms[waits]
