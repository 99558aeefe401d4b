"""Measures the range index against a plain kernel; prints one JSON object per case.

usage: python benchmarks/bench_match.py [--workload DIR] [--queries N …] [--objects M]
                                              [--seed S]

`ratio` is objects per second relative to the plain kernel of `plain_kernel.py` on the same
objects and queries; its passes alternate with those of the index, as machines drift. Cases:

- `reference`: term ids and wire hashes, equal numbers of pairs are required; other cases are
  measured with the first number of queries only;
- `churn`: 50 queries inserted and 50 removed with every 1,000 objects, that is every tenth event;
- `side_1_percent`, `side_10_percent`: regions of 1 % and 10 % of the side of the space, with a
  tenth and a hundredth of the queries, so that pairs stay countable;
- `or`: every query is a disjunction of two conjunctions.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from plain_kernel import PlainIndex  # type: ignore[import-not-found]

from sirocco.index.base.query_rows import QueryRows
from sirocco.index.standing.range_index import RangeIndex
from sirocco.loadgen.match_bench import BATCH, UNIT_SQUARE, MatchRun, insert_all
from sirocco.loadgen.match_workload import MatchWorkload, load_workload, make_workload, wire_hashes

PASSES = 3
CHURN = 50


class PlainRun:
    """The plain kernel over a workload, in the same batches."""

    def __init__(self, work: MatchWorkload) -> None:
        self.work = work
        frequency = np.bincount(work.query_terms, minlength=200_000).astype(np.int32)
        self.boxes = work.boxes.astype(np.float32)
        self.xy = np.stack([work.lon, work.lat], 1).astype(np.float32)
        self.index = PlainIndex(len(work.boxes), frequency)
        warm = PlainIndex(10, frequency)
        warm.insert(self.boxes[:1], work.query_offsets[:2], work.query_terms)
        warm.match(self.xy[:1], work.object_offsets[:2], work.object_terms)

    def insert_all(self) -> float:
        work, started = self.work, time.perf_counter()
        for begin in range(0, len(work.boxes), BATCH):
            own = work.query_offsets[begin : begin + BATCH + 1]
            terms = work.query_terms[own[0] : own[-1]]
            self.index.insert(self.boxes[begin : begin + BATCH], own - own[0], terms)
        return time.perf_counter() - started

    def once(self) -> tuple[float, int]:
        work, pairs, started = self.work, 0, time.perf_counter()
        for begin in range(0, len(self.xy), BATCH):
            own = work.object_offsets[begin : begin + BATCH + 1]
            terms = work.object_terms[own[0] : own[-1]]
            pairs += self.index.match(self.xy[begin : begin + BATCH], own - own[0], terms)
        return time.perf_counter() - started, pairs


def report(case: str, work: MatchWorkload, **figures: object) -> None:
    row = {"case": case, "queries": len(work.boxes), "objects": len(work.lon), **figures}
    print(json.dumps(row), flush=True)


def reference(case: str, work: MatchWorkload, plain: PlainRun | None) -> RangeIndex:
    """Measures insertion and matching, with the plain kernel's passes in between."""
    index = RangeIndex(UNIT_SQUARE)
    insert_s = insert_all(index, work)
    run = MatchRun(index, work)
    n, q = len(work.lon), len(work.boxes)
    figures: dict[str, object] = {}
    if plain is not None:
        figures["plain_inserts_per_s"] = round(q / plain.insert_all())
    ids: list[float] = []
    wire: list[float] = []
    plain_s: list[float] = []
    counts: set[int] = set()
    for _ in range(PASSES):
        for times, once in ((ids, lambda: run.once(False)), (wire, lambda: run.once(True))):
            seconds, pairs = once()
            times.append(seconds)
            counts.add(pairs)
        if plain is not None:
            seconds, pairs = plain.once()
            plain_s.append(seconds)
            counts.add(pairs)
    assert len(counts) == 1, f"different numbers of pairs: {counts}"
    matches = counts.pop()
    if plain is not None:
        figures |= {
            "plain_objects_per_s": round(n / min(plain_s)),
            "ratio": round(min(plain_s) / min(ids), 2),
        }
    report(
        case,
        work,
        inserts_per_s=round(q / insert_s),
        objects_per_s=round(n / min(ids)),
        wire_ratio=round(min(ids) / min(wire), 2),
        matches=matches,
        matches_per_s=round(matches / min(ids)),
        bytes_per_query=round(index.bytes_total / q, 1),
        **figures,
    )
    return index


def changes(work: MatchWorkload) -> Iterator[QueryRows]:
    """Yields the workload's queries in small batches, repeatedly."""
    hashes = wire_hashes(work.query_terms)
    while True:
        for begin in range(0, len(work.boxes) - CHURN, CHURN):
            own = work.query_offsets[begin : begin + CHURN + 1]
            boxes = work.boxes[begin : begin + CHURN]
            yield QueryRows.of_boxes(boxes, own - own[0], hashes[own[0] : own[-1]])


def churn(index: RangeIndex, work: MatchWorkload) -> None:
    """Matches while queries start and end; removes the oldest, inserts them again."""
    hashes = wire_hashes(work.object_terms)
    n = len(work.lon)
    positions = np.arange(1, n + 1, dtype=np.int64)
    arrival_ms = np.zeros(n, np.int64)
    fresh = changes(work)
    oldest = np.arange(len(work.boxes), dtype=np.int32)
    pairs, changing_s, started = 0, 0.0, time.perf_counter()
    for step, begin in enumerate(range(0, n, BATCH)):
        end = min(begin + BATCH, n)
        own = work.object_offsets[begin : end + 1]
        found = index.match(
            work.lon[begin:end], work.lat[begin:end], own - own[0], hashes[own[0] : own[-1]],
            arrival_ms[begin:end], positions[begin:end],
        )  # fmt: skip
        pairs += len(found)
        changed = time.perf_counter()
        at = step * CHURN % (len(oldest) - CHURN)
        index.remove(oldest[at : at + CHURN], end)
        oldest[at : at + CHURN] = index.insert(next(fresh), end)
        index.reclaim(end)
        changing_s += time.perf_counter() - changed
    seconds = time.perf_counter() - started
    report(
        "churn",
        work,
        objects_per_s=round(n / seconds),
        changes_per_s=round(2 * CHURN * (n / BATCH) / changing_s),
        matches=pairs,
        matches_per_s=round(pairs / seconds),
        bytes_per_query=round(index.bytes_total / index.live_queries, 1),
    )


def disjunctions(work: MatchWorkload) -> None:
    """Measures queries of two conjunctions: those of neighbours, in the box of the first."""
    q = len(work.boxes) // 2
    index = RangeIndex(UNIT_SQUARE)
    hashes = wire_hashes(work.query_terms)
    seconds = 0.0
    for begin in range(0, q, BATCH):
        end = min(begin + BATCH, q)
        own = work.query_offsets[2 * begin : 2 * end + 1]
        singles = QueryRows.of_boxes(
            np.ascontiguousarray(work.boxes[2 * begin : 2 * end : 2]),
            np.arange(end - begin + 1, dtype=np.int64), np.empty(0, np.uint64),
        )  # fmt: skip
        batch = dataclasses.replace(
            singles,
            conj_offsets=np.arange(0, 2 * (end - begin) + 1, 2, dtype=np.int64),
            pos_offsets=own - own[0],
            pos_terms=hashes[own[0] : own[-1]],
            neg_offsets=np.zeros(2 * (end - begin) + 1, np.int64),
        )
        started = time.perf_counter()
        index.insert(batch, 0)
        seconds += time.perf_counter() - started
    run = MatchRun(index, work)
    passes = [run.once(on_wire=False) for _ in range(PASSES)]
    best_s, matches = min(passes)
    report(
        "or",
        dataclasses.replace(work, boxes=work.boxes[:q]),
        inserts_per_s=round(q / seconds),
        objects_per_s=round(len(work.lon) / best_s),
        matches=matches,
        matches_per_s=round(matches / best_s),
        bytes_per_query=round(index.bytes_total / q, 1),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workload", type=Path, help="flat files; without, one is made")
    parser.add_argument("--queries", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--objects", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=20260101)
    options = parser.parse_args()
    objects, seed = options.objects, options.seed

    def work_of(queries: int) -> MatchWorkload:
        if options.workload is not None:
            return load_workload(options.workload, queries, objects)
        return make_workload(queries, objects, seed)

    queries, *others = options.queries
    for each in others:
        work = work_of(each)
        reference("reference", work, PlainRun(work))
    work = work_of(queries)
    index = reference("reference", work, PlainRun(work))
    churn(index, work)
    del index
    disjunctions(work)
    few = max(1, objects // 10)
    reference("side_1_percent", make_workload(max(1, queries // 10), few, seed, 0.01), None)
    reference("side_10_percent", make_workload(max(1, queries // 100), few, seed, 0.1), None)


if __name__ == "__main__":
    main()
