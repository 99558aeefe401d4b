"""One of the two processes: a whole cluster of one checkout, which runs passes on request.

Each line of the input names a pass; each line of the output is its CPU time in microseconds for a
query, an object or a search, by part of the system. `matching` is of a range index alone, made at
its first pass. `searches` are of several kinds, each with its share of the CPU time; `clock` is
the time from the call to the decoded answer.
"""

# ruff: noqa: E402 -- the packages are found before they are imported
from __future__ import annotations

import importlib
import json
import os
import re
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain, islice
from pathlib import Path
from typing import Any

from sirocco_client import Client, query_from_json

import sirocco

# Earlier checkouts have `services` and `loadgen` beside `sirocco`, not in it.
_PACKAGE = Path(sirocco.__path__[0])
if not (_PACKAGE / "loadgen").exists():
    sirocco.__path__.append(str(_PACKAGE.parent))

from sirocco.loadgen.clusters import ClusteredWorkload
from sirocco.loadgen.match_bench import UNIT_SQUARE, MatchRun, insert_all
from sirocco.loadgen.match_workload import make_workload

# The comparing checkout, after everything that belongs to the measured one.
sys.path.append(str(Path(__file__).resolve().parents[1]))
import bench_pipeline as pipeline  # type: ignore[import-not-found]
from drawn_searches import DrawnSearches, settle  # type: ignore[import-not-found]

# Number of standing queries before the first pass, so that it is like the others.
STANDING = 20_000
# So many are in the index of `matching`.
MATCHED_QUERIES = 300_000

# Kinds of searches, and so many of each before the first pass: the first ones load kernels.
SEARCHED = ("range", "knn", "ranked", "terms")
WARM_UP = 30

# Removes member and number from the names of threads.
_MEMBER = re.compile(r"-[0-9a-f.]+-|_\d+$")
# The front has a loop, and threads that read queries.
_FRONT = {"grpc", "queries"}


def cpu_us() -> Counter[str]:
    """Returns the CPU time so far of the living threads, by part; `all` is the whole process."""
    # Of floats, which `Counter` is not declared for.
    used: Any = Counter({"all": time.process_time() * 1e6})
    for thread in threading.enumerate():
        part = _MEMBER.sub(" ", thread.name).strip()
        try:
            spent_ns = Path(f"/proc/self/task/{thread.native_id}/schedstat").read_text().split()[0]
        except OSError:
            continue
        used["front" if part in _FRONT else part] += int(spent_ns) / 1e3
    return used


def tune() -> None:
    """Configures the interpreter as services do; the module depends on the checkout."""
    for name in ("sirocco.runtime.process.process_tuning", "sirocco.runtime.interpreter"):
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        module.tune()
        return
    raise SystemExit("this checkout has no settings of the interpreter")


def matching(queries: int, objects: int) -> Iterator[Counter[str]]:
    """Yields the CPU time of passes of the reference workload by a range index."""
    work = make_workload(queries, objects, pipeline.SEED)
    try:
        index = importlib.import_module("sirocco.index.standing.range_index")
    except ModuleNotFoundError:
        index = importlib.import_module("sirocco.index.range_index")
    filled = index.RangeIndex(UNIT_SQUARE)
    insert_all(filled, work)
    run = MatchRun(filled, work)
    run.once(on_wire=False), run.once(on_wire=True)
    while True:
        used: Any = Counter()
        for name, on_wire in (("term ids", False), ("all", True)):
            before = time.process_time()
            run.once(on_wire)
            used[name] = (time.process_time() - before) * 1e6
        yield used


def searching(client: Client, objects: int, count: int) -> Iterator[Counter[str]]:
    """Yields the CPU time of passes of `count` searches of each kind, for objects of the set-up."""
    drawn = DrawnSearches(pipeline.SEED)
    for batch in ClusteredWorkload(pipeline.SEED).objects(objects):
        drawn.remember(batch)
    kinds = {kind: drawn.queries(kind) for kind in SEARCHED}
    for query in chain.from_iterable(islice(each, WARM_UP) for each in kinds.values()):
        client.search(query)
    settle()
    while True:
        wanted = {kind: list(islice(each, count)) for kind, each in kinds.items()}
        used: Any = Counter()
        before, begin_s = cpu_us(), time.perf_counter()
        for kind, searches in wanted.items():
            begin_cpu_s = time.process_time()
            for query in searches:
                client.search(query)
            used[kind] = (time.process_time() - begin_cpu_s) * 1e6
        used["clock"] = (time.perf_counter() - begin_s) * 1e6
        used.update(cpu_us())
        used.subtract(before)
        yield used


def main(queries: int, objects: int, searches: int) -> None:
    """Runs passes until the input ends."""
    tune()
    matches = matching(MATCHED_QUERIES, objects)
    workload = ClusteredWorkload(pipeline.SEED)
    batches = pipeline.columns_of(workload, objects, pipeline.BATCH)
    drawn = (query_from_json(one, pipeline.SUBSCRIBER) for one in workload.queries(sys.maxsize))
    with ExitStack() as stack:
        cluster = pipeline.MemoryCluster(stack, store=True, slots=8)
        client = stack.enter_context(Client(cluster.router))
        reported = client.subscribe(pipeline.SUBSCRIBER, credit=1_000_000)
        one = pipeline.Bench(
            cluster=cluster,
            client=client,
            subscription=stack.enter_context(reported),
            queries=STANDING,
            registered_per_s=0.0,
            bytes_per_query=0.0,
        )
        searched = searching(client, objects, searches)
        one.subscription.open()
        threading.Thread(target=one.receive, name="receive", daemon=True).start()
        alone = {
            "matching": (matches, objects),
            "searches": (searched, searches * len(SEARCHED)),
        }
        for name in chain(["set-up"], map(str.strip, sys.stdin)):
            if name in alone:
                passes, count = alone[name]
                used = next(passes)
                print(json.dumps({part: us / count for part, us in used.items()}), flush=True)
                continue
            count = {"set-up": STANDING, "registration": queries, "publishing": objects}[name]
            wanted = [] if name == "publishing" else list(islice(drawn, count))
            before = cpu_us()
            for result in client.register_many(wanted):
                assert result.error is None, result.error
            if name != "registration":
                one.publish(batches, None)
            used = cpu_us()
            used.subtract(before)
            print(json.dumps({part: spent / count for part, spent in used.items()}), flush=True)


if __name__ == "__main__":
    status = 1
    try:
        main(*map(int, sys.argv[1:]))
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        # An orderly shutdown is not needed.
        os._exit(status)
