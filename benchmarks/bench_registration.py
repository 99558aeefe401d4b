"""Registrations, updates and removals of one client in bulk, on the memory log and on Kafka.

usage: python benchmarks/bench_registration.py [--log memory|kafka|all] [--queries N]
                                               [--rounds N] [--batch N]

One cluster with one process of each service (memory: everything in one process), 8 slots. Queries
are those of `bench_pipeline`: rectangles with 1 to 3 words that must all be held, one of a thousand
without text or region. They stand before the first object is published. Each round registers
--queries new ones, updates them (another rectangle), and removes them; the first round is not
counted. `per_s` is the median over rounds of changes a second until all are acknowledged, `cpu_us`
CPU time in microseconds for each change: of all processes together, and by process (memory:
everything, the client included).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice

import bench_pipeline as pipeline  # type: ignore[import-not-found]
from sirocco_client import Client, Rectangle, RegistrationResult, query_from_json
from sirocco_client.calls.bulk import BATCH_ROWS
from sirocco_client.queries.query import RangeQuery

from sirocco.loadgen.clusters import ClusteredWorkload

CHANGES = ("register", "update", "remove")


def queries_without_end() -> Iterator[RangeQuery]:
    """Yields the queries of the workload."""
    for members in ClusteredWorkload(pipeline.SEED).queries(sys.maxsize):
        query = query_from_json(members, pipeline.SUBSCRIBER)
        assert isinstance(query, RangeQuery)
        yield query


def moved(query: RangeQuery) -> RangeQuery:
    """Returns the next version of a query: its rectangle moves by a tenth of a degree."""
    region = query.region
    if not isinstance(region, Rectangle):
        return replace(query, text="moved")
    south = min(region.south + 0.1, 80.0)
    return replace(query, region=replace(region, south=south, north=max(south, region.north)))


class Rounds:
    """The rounds on one cluster; collects the time and the CPU time of each change."""

    def __init__(self, cluster: pipeline.Cluster, client: Client, batch: int) -> None:
        self._cluster = cluster
        self._client = client
        self._batch = batch
        self.seconds: dict[str, list[float]] = {change: [] for change in CHANGES}
        self.cpu_s: dict[str, list[dict[str, float]]] = {change: [] for change in CHANGES}

    def run(self, queries: list[RangeQuery]) -> None:
        """Registers, updates and removes some queries."""
        client, batch = self._client, self._batch
        self._timed("register", client.register_many(queries, batch=batch))
        self._timed("update", client.update_many(map(moved, queries), batch=batch))
        names = [query.id for query in queries]
        self._timed("remove", client.unregister_many(names, batch=batch))

    def _timed(self, change: str, results: Iterable[RegistrationResult]) -> None:
        cpu: dict[str, float] = {}
        begin_s, own_s = time.monotonic(), time.process_time()
        with pipeline.used_cpu(self._cluster, cpu):
            for result in results:
                assert result.error is None, result.error
        if "all" not in cpu:
            cpu["client"] = time.process_time() - own_s
        self.seconds[change].append(time.monotonic() - begin_s)
        self.cpu_s[change].append(cpu)


def measure(kind: str, count: int, rounds: int, batch: int) -> None:
    """Prints a row for each change."""
    drawn = queries_without_end()
    with ExitStack() as stack:
        made = pipeline.MemoryCluster if kind == "memory" else pipeline.KafkaCluster
        cluster = made(stack, store=True, slots=8)
        client = stack.enter_context(Client(cluster.router))
        all_rounds = Rounds(cluster, client, batch)
        for _ in range(rounds + 1):
            all_rounds.run(list(islice(drawn, count)))
        for change in CHANGES:
            seconds, cpu_s = all_rounds.seconds[change][1:], all_rounds.cpu_s[change][1:]
            by_process = {
                name: round(statistics.median(each[name] for each in cpu_s) / count * 1e6, 1)
                for name in cpu_s[0]
            }
            row = {
                "log": kind,
                "change": change,
                "queries": count,
                "batch": batch,
                "per_s": round(count / statistics.median(seconds)),
                "cpu_us": round(sum(by_process.values()), 1),
            }
            print(json.dumps(row), flush=True)
            if "all" not in by_process:
                used = {f"cpu_us_{name}": each for name, each in by_process.items()}
                print(json.dumps({"log": kind, "change": change, **used}), flush=True)


def main() -> int:
    """Runs the requested logs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--log", choices=("memory", "kafka", "all"), default="all")
    parser.add_argument("--queries", type=int, default=100_000, help="of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=BATCH_ROWS, help="queries a request")
    asked = parser.parse_args()
    # Of services alone, which this process is on the memory log.
    from sirocco.runtime.process.process_tuning import tune  # noqa: PLC0415

    tune()
    for kind in ("memory", "kafka") if asked.log == "all" else (asked.log,):
        measure(kind, asked.queries, asked.rounds, asked.batch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
