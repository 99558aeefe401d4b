"""One tick of all evaluators: waiting objects are served in order of arrival while time is left."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def serve(
    objects: Any,
    work: Any,
    heads: Any,
    rows: int,
    served_by: Any,
    begin_s: Any,
    budget_s: Any,
    tick_s: float,
    edges_s: Any,
    delays: Any,
    done: Any,
    used_s: Any,
) -> None:
    """Serves all slots.

    Serves all slots.

    Args:
        objects: f8[rows, slots], waiting, by the tick in which they were offered; reduced.
        work: f8[rows, slots], CPU seconds that they take; reduced.
        heads: i8[slots], first row that may hold objects of a slot; advanced.
        rows: Present number of rows.
        served_by: i8[slots], evaluator that may serve it, -1 for none.
        begin_s: f8[evaluators], when each begins.
        budget_s: f8[evaluators], CPU seconds of each.
        tick_s: Seconds of a tick.
        edges_s: f8[bins - 1], borders of the bins of delays.
        delays: f8[seconds, bins], objects by the second in which they were offered; added to.
        done: f8[slots], overwritten: finished objects.
        used_s: f8[evaluators], overwritten: CPU seconds spent.
    """
    slots = served_by.shape[0]
    done[:] = 0.0
    for evaluator in range(budget_s.shape[0]):
        left_s, row = budget_s[evaluator], rows
        for slot in range(slots):
            if served_by[slot] == evaluator:
                row = min(row, heads[slot])
        while row < rows and left_s > 0.0:
            needed_s = 0.0
            for slot in range(slots):
                if served_by[slot] == evaluator:
                    needed_s += work[row, slot]
            part = 1.0 if needed_s <= left_s else left_s / needed_s
            served = 0.0
            for slot in range(slots):
                if served_by[slot] != evaluator or heads[slot] > row:
                    continue
                own = part * objects[row, slot]
                served += own
                done[slot] += own
                if part < 1.0:
                    objects[row, slot] -= own
                    work[row, slot] *= 1.0 - part
                else:
                    objects[row, slot] = work[row, slot] = 0.0
                    heads[slot] = row + 1
            left_s -= part * needed_s
            if served > 0.0:
                delay_s = begin_s[evaluator] + budget_s[evaluator] - left_s - (row + 0.5) * tick_s
                delays[int(row * tick_s), np.searchsorted(edges_s, delay_s, side="right")] += served
            if part < 1.0:
                break
            row += 1
        used_s[evaluator] = budget_s[evaluator] - max(left_s, 0.0)
