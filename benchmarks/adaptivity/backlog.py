"""The queues of evaluators: first come, first served, by ticks of arrival.

Row k holds the objects offered in tick k, by slot. Rows are admitted one after the other, as the
fronts have room, and can be served in the next tick. A slot's waiting objects move with the slot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.adaptivity.ticks import serve

# From 1 ms to 1,000 s, twenty a decade; 100 ms and 1 s are borders of bins.
BINS_PER_DECADE = 20
EDGES_S = 10.0 ** (np.arange(-3 * BINS_PER_DECADE, 3 * BINS_PER_DECADE + 1) / BINS_PER_DECADE)


class Backlog:
    """The rows of all slots.

    Args:
        rows: Number of ticks.
        slots: Number of slots.
        tick_s: Length of a tick.

    Attributes:
        delays: f8[seconds, bins], objects by the second in which they were offered and by their
            delay, see `EDGES_S`; the last bin has those that still wait at the end.
    """

    def __init__(self, rows: int, slots: int, tick_s: float) -> None:
        self._tick_s = tick_s
        self._objects = np.zeros((rows, slots))
        self._work = np.zeros((rows, slots))
        # First row of each slot that may hold objects; all earlier ones are served.
        self._heads = np.zeros(slots, np.int64)
        self._let_in = np.zeros(rows + 1)
        self.rows = 0
        seconds = int(np.ceil(rows * tick_s)) + 1
        self.delays = np.zeros((seconds, len(EDGES_S) + 1))

    @property
    def waiting(self) -> float:
        """Objects that were admitted and are not served."""
        return float(self._objects[: self.rows].sum())

    def waiting_by_slot(self) -> NDArray[np.float64]:
        """Returns f8[slots], the objects that were admitted and are not served."""
        waiting: NDArray[np.float64] = self._objects[int(self._heads.min()) : self.rows].sum(0)
        return waiting

    def under_way(self) -> float:
        """Objects admitted since the oldest that some slot has not taken (`router.admission`)."""
        oldest = int(self._heads.min())
        return float(self._let_in[self.rows] - self._let_in[min(oldest, self.rows)])

    def let_in(self, objects: NDArray[np.float64], work_s: NDArray[np.float64]) -> None:
        """Adds the next row.

        Args:
            objects: f8[slots].
            work_s: f8[slots], CPU seconds.
        """
        self._objects[self.rows], self._work[self.rows] = objects, work_s
        self._let_in[self.rows + 1] = self._let_in[self.rows] + objects.sum()
        self.rows += 1

    def head(self, slot: int) -> int:
        """Returns the first row that the slot has not served."""
        return int(self._heads[slot])

    def serve(
        self,
        served_by: NDArray[np.int64],
        begin_s: NDArray[np.float64],
        budget_s: NDArray[np.float64],
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Serves the slots of all evaluators in the order of arrival.

        Args:
            served_by: i8[slots], the evaluator that may serve each, -1 for none.
            begin_s: f8[evaluators], when each begins.
            budget_s: f8[evaluators], CPU seconds of each.

        Returns:
            f8[evaluators], CPU seconds used; f8[slots], the finished objects.
        """
        done, used_s = np.empty(len(served_by)), np.empty(len(budget_s))
        serve(
            *(self._objects, self._work, self._heads, self.rows, served_by, begin_s, budget_s),
            *(self._tick_s, EDGES_S, self.delays, done, used_s),
        )
        return used_s, done

    def end(self) -> None:
        """Counts the objects that still wait as delayed for ever."""
        left = self._objects[: self.rows].sum(1)
        rows = np.flatnonzero(left > 0)
        np.add.at(self.delays[:, -1], (rows * self._tick_s).astype(np.int64), left[rows])

    def note_outside(self, row: int, objects: float) -> None:
        """Counts objects of a row that were never admitted."""
        self.delays[int(row * self._tick_s), -1] += objects


def share_above(delays: NDArray[np.float64], seconds: float) -> float:
    """Returns the share of objects with longer delays; those still waiting count."""
    total = float(delays.sum())
    late = float(delays[np.searchsorted(EDGES_S, seconds * (1 + 1e-9)) :].sum())
    return late / total if total else 0.0


def quantile_s(delays: NDArray[np.float64], share: float) -> float:
    """Returns the upper end of the quantile's bin; infinite: still waiting."""
    total = np.cumsum(delays)
    if total[-1] <= 0:
        return 0.0
    place = int(np.searchsorted(total, share * total[-1] * (1 - 1e-12)))
    return float(EDGES_S[place]) if place < len(EDGES_S) else float("inf")
