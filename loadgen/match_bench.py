"""Measures the range index alone: one thread, batches as in the service."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.range_index import Grid, RangeIndex
from sirocco.loadgen.match_workload import MatchWorkload, load_workload, make_workload, wire_hashes

__all__ = ["UNIT_SQUARE", "MatchRun", "insert_all", "run_match_bench"]

# About the objects that a router appends to a slot at once, and that a poll returns.
BATCH = 1_000
_PASSES = 3
_OBJECTS_MADE = 200_000

# The extent of the workload with 512 × 512 cells at the bottom.
UNIT_SQUARE = Grid(0.0, 0.0, 1.0, 1.0, finest_level=9)


def _batches(n: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, n, BATCH):
        yield begin, min(begin + BATCH, n)


def insert_all(index: RangeIndex, work: MatchWorkload) -> float:
    """Inserts all queries of a workload in batches; returns the seconds taken."""
    hashes = wire_hashes(work.query_terms)
    seconds = 0.0
    for begin, end in _batches(len(work.boxes)):
        offsets = work.query_offsets[begin : end + 1]
        batch = QueryRows.of_boxes(
            work.boxes[begin:end], offsets - offsets[0], hashes[offsets[0] : offsets[-1]]
        )
        started = time.perf_counter()
        index.insert(batch, 0)
        seconds += time.perf_counter() - started
    return seconds


class MatchRun:
    """Passes of a workload's objects through an index that holds its queries."""

    def __init__(self, index: RangeIndex, work: MatchWorkload) -> None:
        """Prepares columns; `index` must hold all its queries already."""
        self._index = index
        self._work = work
        self._hashes = wire_hashes(work.object_terms)
        self._ids = index.vocabulary.look_up(self._hashes)
        n = len(work.lon)
        self._arrival_ms: npt.NDArray[np.int64] = np.zeros(n, np.int64)
        self._positions: npt.NDArray[np.int64] = np.arange(1, n + 1, dtype=np.int64)

    def once(self, on_wire: bool) -> tuple[float, int]:
        """Matches all objects; returns (seconds, pairs found).

        Args:
            on_wire: terms are wire hashes, as in the service; else term ids.
        """
        work = self._work
        offsets = work.object_offsets
        pairs = 0
        started = time.perf_counter()
        for begin, end in _batches(len(work.lon)):
            own = offsets[begin : end + 1]
            first, last = own[0], own[-1]
            place = work.lon[begin:end], work.lat[begin:end], own - first
            life = self._arrival_ms[begin:end], self._positions[begin:end]
            if on_wire:
                pairs += len(self._index.match(*place, self._hashes[first:last], *life))
            else:
                pairs += len(self._index.match_ids(*place, self._ids[first:last], *life))
        return time.perf_counter() - started, pairs


def _peak_rss_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def run_match_bench(
    workload: Path | None, queries: int, objects: int | None, seed: int
) -> dict[str, object]:
    """Measures insertion and matching of standing range queries.

    Args:
        workload: directory of flat files (see `workload`); None generates a workload.
        queries: how many to insert; at least 1.
        objects: how many to match; None takes all of the files, or 200,000 generated ones.
        seed: of a generated workload.

    Returns:
        `inserts_per_s`, `objects_per_s` (term ids, best of three passes), `matches`,
        `bytes_per_query`, `peak_rss_bytes`; besides `queries`, `objects`, `matches_per_s` and
        `objects_per_s_wire` (wire hashes, as the service gets them).

    Raises:
        WorkloadError: A file cannot be read, or holds less than requested.
        ValueError: A number is not positive.
    """
    if queries < 1:
        raise ValueError("queries: must be at least 1")
    if objects is not None and objects < 1:
        raise ValueError("objects: must be at least 1")
    if workload is None:
        work = make_workload(queries, objects or _OBJECTS_MADE, seed)
    else:
        work = load_workload(workload, queries, objects)
    index = RangeIndex(UNIT_SQUARE)
    insert_s = insert_all(index, work)
    run = MatchRun(index, work)
    n = len(work.lon)
    ids = [run.once(on_wire=False) for _ in range(_PASSES)]
    wire = [run.once(on_wire=True) for _ in range(_PASSES)]
    counts = {pairs for _, pairs in ids + wire}
    if len(counts) != 1:
        raise RuntimeError(f"passes over the same objects found different pairs: {counts}")
    matches = counts.pop()
    best_s = min(seconds for seconds, _ in ids)
    return {
        "queries": queries,
        "objects": n,
        "inserts_per_s": round(queries / insert_s),
        "objects_per_s": round(n / best_s),
        "objects_per_s_wire": round(n / min(seconds for seconds, _ in wire)),
        "matches": matches,
        "matches_per_s": round(matches / best_s),
        "bytes_per_query": round(index.bytes_total / queries, 1),
        "peak_rss_bytes": _peak_rss_bytes(),
    }
