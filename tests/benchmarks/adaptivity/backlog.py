"""What waits in front of evaluators: first come, first served, by ticks of arrival.

Row k holds what was offered in tick k, by slot. Rows are let in one after the other, as the fronts
have room, and can be served in the tick behind. What waits for a slot goes with the slot.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

# Rows that are looked at together while a backlog is worked off.
CHUNK = 256

# From 1 ms to 1,000 s, twenty a decade; 100 ms and 1 s are borders of bins.
BINS_PER_DECADE = 20
EDGES_S = 10.0 ** (np.arange(-3 * BINS_PER_DECADE, 3 * BINS_PER_DECADE + 1) / BINS_PER_DECADE)
_EDGES_S = EDGES_S.tolist()

Served = tuple[float, NDArray[np.float64]]


class Backlog:
    """The rows of all slots.

    Args:
        rows: Ticks that there will be.
        slots: How many.
        tick_s: How long a tick is.

    Attributes:
        delays: f8[seconds, bins], objects by the second in which they were offered and by how
            long they took, see `EDGES_S`; the last bin has those that still wait at the end.
    """

    def __init__(self, rows: int, slots: int, tick_s: float) -> None:
        self._tick_s = tick_s
        self._objects = np.zeros((rows, slots))
        self._work = np.zeros((rows, slots))
        # First row of each slot that may hold anything; all before are served.
        self._heads = np.zeros(slots, np.int64)
        self._let_in = np.zeros(rows + 1)
        self.rows = 0
        seconds = int(np.ceil(rows * tick_s)) + 1
        self.delays = np.zeros((seconds, len(EDGES_S) + 1))

    @property
    def waiting(self) -> float:
        """Objects that were let in and are not served."""
        return float(self._objects[: self.rows].sum())

    def under_way(self) -> float:
        """Objects let in since the oldest that some slot has not taken (`router.admission`)."""
        oldest = int(self._heads.min())
        return float(self._let_in[self.rows] - self._let_in[min(oldest, self.rows)])

    def let_in(self, objects: NDArray[np.float64], work_s: NDArray[np.float64]) -> None:
        """Takes the next row.

        Args:
            objects: f8[slots].
            work_s: f8[slots], CPU seconds.
        """
        self._objects[self.rows], self._work[self.rows] = objects, work_s
        self._let_in[self.rows + 1] = self._let_in[self.rows] + objects.sum()
        self.rows += 1

    def is_behind(self, slots: NDArray[np.int64], row: int) -> bool:
        """Whether anything waits from before the row."""
        return bool((self._heads[slots] < row).any())

    def head(self, slot: int) -> int:
        """Returns the first row that the slot has not served."""
        return int(self._heads[slot])

    def serve(self, slots: NDArray[np.int64], begin_s: float, budget_s: float) -> Served:
        """Serves the slots of one evaluator in the order of arrival.

        Args:
            slots: Those that it has and may serve.
            begin_s: When it begins.
            budget_s: CPU seconds that it has.

        Returns:
            CPU seconds that it used, and f8[slots] the objects that are done.
        """
        done, used_s = np.zeros(len(slots)), 0.0
        if not len(slots):
            return used_s, done
        row = int(self._heads[slots].min())
        if row == self.rows - 1 and (only := self._served_row(row, slots, begin_s, budget_s)):
            return only
        while row < self.rows and used_s < budget_s:
            end = min(row + CHUNK, self.rows)
            work = self._work[row:end, slots]
            ends_s = used_s + np.cumsum(work.sum(1))
            whole = int(np.searchsorted(ends_s, budget_s, side="right"))
            if whole:
                rows = np.arange(row, row + whole)
                objects = self._objects[row : row + whole, slots]
                done += objects.sum(0)
                self._note(rows, objects.sum(1), begin_s + ends_s[:whole])
                self._clear(row, row + whole, slots)
                used_s = float(ends_s[whole - 1])
            row += whole
            self._heads[slots] = np.maximum(self._heads[slots], row)
            if row < end:
                left_s = float(work[whole].sum())
                part = min(1.0, (budget_s - used_s) / left_s)
                objects = part * self._objects[row, slots]
                done += objects
                self._note(np.array([row]), objects.sum(keepdims=True), np.array([begin_s + budget_s]))
                self._objects[row, slots] -= objects
                self._work[row, slots] *= 1 - part
                used_s = budget_s
        return used_s, done

    def _served_row(
        self, row: int, slots: NDArray[np.int64], begin_s: float, budget_s: float
    ) -> Served | None:
        """Serves the newest row where that is all there is; None if it takes longer than that."""
        used_s = float(self._work[row, slots].sum())
        if used_s > budget_s:
            return None
        done = self._objects[row, slots]
        self._clear(row, row + 1, slots)
        self._heads[slots] = self.rows
        delay_s = begin_s + used_s - (row + 0.5) * self._tick_s
        self.delays[int(row * self._tick_s), bisect_right(_EDGES_S, delay_s)] += done.sum()
        return used_s, done

    def end(self) -> None:
        """Notes what still waits as delayed for ever."""
        left = self._objects[: self.rows].sum(1)
        rows = np.flatnonzero(left > 0)
        np.add.at(self.delays, ((rows * self._tick_s).astype(np.int64), -1), left[rows])

    def note_outside(self, row: int, objects: float) -> None:
        """Notes objects of a row that were never let in."""
        self.delays[int(row * self._tick_s), -1] += objects

    def _clear(self, begin: int, end: int, slots: NDArray[np.int64]) -> None:
        self._objects[begin:end, slots] = 0.0
        self._work[begin:end, slots] = 0.0

    def _note(
        self, rows: NDArray[np.int64], objects: NDArray[np.float64], ends_s: NDArray[np.float64]
    ) -> None:
        arrived_s = (rows + 0.5) * self._tick_s
        bins = np.searchsorted(EDGES_S, ends_s - arrived_s, side="right")
        bins = np.minimum(bins, len(EDGES_S) - 1)
        np.add.at(self.delays, ((rows * self._tick_s).astype(np.int64), bins), objects)


def share_above(delays: NDArray[np.float64], seconds: float) -> float:
    """Returns the share of objects that took longer; those still waiting did."""
    total = float(delays.sum())
    late = float(delays[np.searchsorted(EDGES_S, seconds * (1 + 1e-9)) :].sum())
    return late / total if total else 0.0


def quantile_s(delays: NDArray[np.float64], share: float) -> float:
    """Returns the upper end of the bin in which the quantile lies; infinite: still waiting."""
    total = np.cumsum(delays)
    if total[-1] <= 0:
        return 0.0
    place = int(np.searchsorted(total, share * total[-1] * (1 - 1e-12)))
    return float(EDGES_S[place]) if place < len(EDGES_S) else float("inf")
