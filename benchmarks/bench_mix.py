"""PS2Stream's mix: of twelve messages ten are objects, one inserts a query and one deletes one.

usage: python benchmarks/bench_mix.py [--log memory|kafka|all] [--queries N …] [--objects N]
                                      [--batch N] [--chunk N]

The cluster and the workload are those of `bench_pipeline`. --queries stand before the first object.
Then --objects are published as fast as they are taken while one client inserts a tenth as many new
queries and another deletes as many of those that have stood longest; each is at most --chunk
changes (and ten times as many objects) ahead of the slowest of the three. `objects_per_s` is over
the time until the last object is processed and notified and the last change acknowledged. `load` is
that of the machine when the mix begins: other work beside it makes all figures worse.

`cpu_us` are microseconds of CPU time for each object with its tenth of an insertion and a deletion.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import bench_pipeline as pipeline  # type: ignore[import-not-found]
from bench_registration import queries_without_end  # type: ignore[import-not-found]
from sirocco_client import Client, RegistrationResult
from sirocco_client.queries.query import RangeQuery

from sirocco.loadgen.clusters import ClusteredWorkload

# Objects for each insertion, and for each deletion (PS2Stream 6.1).
OBJECTS_EACH = 10
SLOTS = 8
# Of a change that waits for the two others.
WAIT_S = 300.0


class Chunks:
    """Keeps the parts of the mix together: nobody begins a chunk before all ended the one before.

    Args:
        parts: how many there are.
    """

    def __init__(self, parts: int) -> None:
        self._changed = threading.Condition()
        self._done = [0] * parts
        self._failure: BaseException | None = None

    def begin(self, chunk: int) -> None:
        """Waits until every part has ended the chunk before the last."""
        with self._changed:
            fits = self._changed.wait_for(
                lambda: self._failure is not None or min(self._done) >= chunk - 1, WAIT_S
            )
        if self._failure is not None:
            raise RuntimeError("another part of the mix failed") from self._failure
        if not fits:
            raise TimeoutError(f"chunk {chunk}: the parts of the mix have ended {self._done}")

    def end(self, part: int) -> None:
        """Notes that a part has ended its next chunk."""
        with self._changed:
            self._done[part] += 1
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Ends all parts."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()


class Mix:
    """The three parts, each in a thread of its own.

    Attributes:
        standing: ids of the standing queries, the oldest first.
    """

    def __init__(
        self, one: pipeline.Bench, standing: list[str], news: Iterator[RangeQuery], chunk: int
    ) -> None:
        self._one = one
        self.standing = standing
        self._news = news
        self._chunk = chunk
        self._changes_end_s = 0.0

    def run(self, batches: list[object], batch: int) -> tuple[float, float]:
        """Publishes batches and makes the changes that belong to them; returns begin and end."""
        objects = len(batches) * batch
        count = objects // OBJECTS_EACH
        chunks = Chunks(3)
        news = list(islice(self._news, count))
        old, self.standing = self.standing[:count], self.standing[count:]
        self.standing += [query.id for query in news]
        with Client(self._one.cluster.router) as second:
            register = self._one.client.register_many
            threads = [
                self._thread(chunks, 1, lambda part: register(part, batch=self._chunk), news),
                self._thread(chunks, 2, second.unregister_many, old),
            ]
            begin_s = time.monotonic()
            for thread in threads:
                thread.start()
            per_chunk = self._chunk * OBJECTS_EACH // batch
            self._one.publish(_in_chunks(batches, per_chunk, chunks), None)
            for thread in threads:
                thread.join(WAIT_S)
            # What failed after the last batch was sent.
            chunks.begin(0)
        return begin_s, max(self._one.last_s, self._changes_end_s)

    def _thread(
        self,
        chunks: Chunks,
        part: int,
        change: Callable[[list[Any]], Iterable[RegistrationResult]],
        wanted: list[Any],
    ) -> threading.Thread:
        def run() -> None:
            try:
                for number, begin in enumerate(range(0, len(wanted), self._chunk)):
                    chunks.begin(number)
                    for result in change(wanted[begin : begin + self._chunk]):
                        if result.error is not None:
                            raise result.error
                    chunks.end(part)
                self._changes_end_s = max(self._changes_end_s, time.monotonic())
            except BaseException as error:
                chunks.fail(error)

        return threading.Thread(target=run, daemon=True)


def _in_chunks(batches: list[object], each: int, chunks: Chunks) -> Iterator[object]:
    for number, begin in enumerate(range(0, len(batches), each)):
        chunks.begin(number)
        yield from batches[begin : begin + each]
        chunks.end(0)


def measure(kind: str, queries: int, objects: int, batch: int, chunk: int) -> None:
    """Prints the rows of one cluster."""
    with pipeline.bench(kind, queries, store=True, slots=SLOTS) as one:
        drawn = queries_without_end()
        standing = [query.id for query in islice(drawn, queries)]
        mix = Mix(one, standing, drawn, chunk)
        workload = ClusteredWorkload(pipeline.SEED)
        # Kernels and connections that only changes use.
        mix.run(pipeline.columns_of(workload, chunk * OBJECTS_EACH, batch), batch)
        batches = pipeline.columns_of(workload, objects, batch)
        matches, load = one.matches, os.getloadavg()[0]
        one.notified = pipeline.LatencyHistogram()
        cpu: dict[str, float] = {}
        own_s = time.process_time()
        with pipeline.used_cpu(one.cluster, cpu):
            begin_s, end_s = mix.run(batches, batch)
        if "all" not in cpu:
            cpu["client"] = time.process_time() - own_s
        notified = one.notified.summary_ms()
        pipeline.say(
            log=kind,
            queries=queries,
            objects=objects,
            changes=2 * (objects // OBJECTS_EACH),
            objects_per_s=round(objects / (end_s - begin_s)),
            matches=one.matches - matches,
            notified_ms_p50=notified["p50"],
            notified_ms_p99=notified["p99"],
            load=round(load, 1),
        )
        used = {f"cpu_us_{name}": round(each / objects * 1e6, 2) for name, each in cpu.items()}
        pipeline.say(log=kind, queries=queries, **used)


def main() -> int:
    """Runs the requested cases."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--log", choices=("memory", "kafka", "all"), default="kafka")
    parser.add_argument("--queries", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--objects", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=1_000, help="objects a request")
    parser.add_argument("--chunk", type=int, default=4_000, help="changes of a kind")
    asked = parser.parse_args()
    # Here, since this process is a service only on the memory log.
    from sirocco.runtime.process.process_tuning import tune  # noqa: PLC0415

    tune()
    for kind in ("memory", "kafka") if asked.log == "all" else (asked.log,):
        for queries in asked.queries:
            measure(kind, queries, asked.objects, asked.batch, asked.chunk)
    return 0


if __name__ == "__main__":
    sys.exit(main())
