"""PS2Stream's load (Definition 1) with constants fitted to the measurements.

A slot's measured time is right only on a quiet machine. Its counts are always right, and so are
constants fitted to all slots of all schemes together: the seconds of an object that is received, of
a pair that matches, and of a query that is inserted. Load = these times the counts.

Deviation: the paper charges every pair of an object and a query of the worker (c1). With an index
an object meets only the queries that it matches, and some that it nearly matches, so we charge
matches.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from benchmarks.schemes.figures import Figures, Row, ratio
from benchmarks.schemes.loads import INSERTIONS_PER_OBJECT


def settle(figures: Figures) -> None:
    """Adds the members `load_*` to all rows with slots: capacity, imbalance, work, busiest.

    Constants are those of a workload and a case: texts and matches differ between these.
    """
    figures.rows["constants"] = []
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for kind in ("loads", "sweeps"):
        for row in figures.all(kind):
            groups[kind, row["workload"], row["case"]].append(row)
    for (_, workload, case), rows in groups.items():
        counts = np.concatenate([_counts(row) for row in rows])
        seconds = np.concatenate([_seconds(row) for row in rows])
        object_s, match_s = fit(counts, seconds)
        query_s = _sum(rows, "insert_s") / max(1.0, _sum(rows, "queries"))
        error = float(np.abs(counts @ [object_s, match_s] - seconds).sum() / seconds.sum())
        figures.add(
            "constants",
            workload=workload,
            case=case,
            object_us=1e6 * object_s,
            match_us=1e6 * match_s,
            query_us=1e6 * query_s,
            error=error,
        )
        for row in rows:
            _add_load(row, object_s, match_s, query_s)


def fit(counts: NDArray[np.float64], seconds: NDArray[np.float64]) -> tuple[float, float]:
    """Returns seconds of an object and of a match, least squares, none negative.

    Args:
        counts: f8[n, 2], objects and matches of each slot.
        seconds: f8[n].
    """
    found = np.linalg.lstsq(counts, seconds, rcond=None)[0]
    for other in (1, 0):
        if found[1 - other] < 0:
            # One of them cannot be determined; all of the time is the other's.
            column = counts[:, other]
            found = np.zeros(2)
            found[other] = seconds @ column / max(1.0, float(column @ column))
    return float(found[0]), float(found[1])


def _add_load(row: Row, object_s: float, match_s: float, query_s: float) -> None:
    slots = row["by_slot"]
    objects = sum(slots["homes"])
    queries = sum(slots["queries"]) / row["query_copies"]
    inserted = INSERTIONS_PER_OBJECT * objects / queries
    load = _counts(row) @ [object_s, match_s] + query_s * inserted * np.array(slots["queries"])
    row["load_work_s"] = float(load.sum())
    row["load_capacity"] = objects / float(load.max())
    row["load_max_over_mean"] = float(load.max() / load.mean())
    row["load_imbalance"] = ratio(
        float(load.max()), float(np.where(slots["objects"], load, 0).min())
    )


def _counts(row: Row) -> NDArray[np.float64]:
    slots = row["by_slot"]
    return np.array([slots["objects"], slots["matches"]], np.float64).T


def _seconds(row: Row) -> NDArray[np.float64]:
    slots = row["by_slot"]
    return np.asarray(np.add(slots["match_s"], slots["send_s"]), np.float64)


def _sum(rows: list[Row], member: str) -> float:
    return float(sum(sum(row["by_slot"][member]) for row in rows))
