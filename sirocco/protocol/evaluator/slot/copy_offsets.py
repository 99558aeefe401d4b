"""The registry offsets at which queries of a slot were copied there, for changes of the map."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sirocco.protocol.contract.messages import NOT_COPIED

Rows = NDArray[np.int32]


class CopyOffsets:
    """The greatest such offset of each query, by rows of one family's table.

    Eight bytes a row from the first copy on: a map may change every few minutes, and each time all
    queries are copied.
    """

    def __init__(self) -> None:
        self._places = np.empty(0, np.int64)

    def enter(self, rows: Rows, place: int) -> None:
        """Notes queries in new rows, from a copy, or because they changed (`NOT_COPIED`)."""
        if place != NOT_COPIED:
            self._make_room(rows)
        self._places[rows[rows < len(self._places)]] = place

    def renew(self, rows: Rows, place: int) -> None:
        """Notes that queries already here were copied as well."""
        self._make_room(rows)
        self._places[rows] = np.maximum(self._places[rows], place)

    def of(self, rows: Rows) -> NDArray[np.int64]:
        """Returns the offsets of queries; `NOT_COPIED` (-1) where there is none."""
        places = np.full(len(rows), NOT_COPIED, np.int64)
        is_known = (rows >= 0) & (rows < len(self._places))
        places[is_known] = self._places[rows[is_known]]
        return places

    def _make_room(self, rows: Rows) -> None:
        needed = int(rows.max(initial=-1)) + 1
        if needed > len(self._places):
            more = np.full(max(needed, 2 * len(self._places)) - len(self._places), NOT_COPIED)
            self._places = np.concatenate([self._places, more])
