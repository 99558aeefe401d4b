"""Memory of standing queries, part by part: what an evaluator and a router keep of each.

usage: python benchmarks/bench_memory.py [--queries N …] [--slots N]

The workload is that of `bench_pipeline`: range queries over an even map, sent to the slots in
records of 1,000 registrations. A separate process creates the queries, and they arrive here as at
slots, so that the growth of this process is the memory that it keeps. All figures but the last are
bytes for each query.

    evaluator  `resident`: growth of the process; `accounted`: its `bytes_total` of all slots;
               the parts of the index (`postings`, `keys`: table and filter, `rows`: life, region
               and terms, `vocabulary`) and `names` (handles, revisions, ids); `copies`: number of
               slots of a query; `slot_kilobytes`: memory of a slot without queries
    router     memory of the owner of a registry partition (`LiveQueries`)
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import numpy as np

from sirocco.loadgen.clusters import ClusteredWorkload
from sirocco.model.query import parse_query
from sirocco.protocol.contract.effects import Append
from sirocco.protocol.contract.messages import Change, Installed
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.router.queries.install_records import Installs, routed_queries
from sirocco.protocol.router.queries.live_queries import LiveQueries
from sirocco.runtime.first_map import first_map
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.map.map_bytes import from_bytes
from sirocco.schemes.map.routing import compile_map

SEED = 20260101
BATCH = 1_000
PARTIALS = 4

# The result of one registration batch: the records of slots, and the entries of its owner.
InstallsOfSlots = list[tuple[int, Installed]]
Owned = tuple[list[int], list[int], list[int], list[int], list[tuple[int, ...]]]


def produced(queries: int, slots: int) -> Iterator[tuple[InstallsOfSlots, Owned]]:
    """Yields the result of each batch of registrations, the first for warming up."""
    settings = ClusterSettings(slots=slots)
    routing = compile_map(from_bytes(first_map(settings, "")))
    revisions = count()
    made = ClusteredWorkload(SEED).queries(queries)
    while members := list(islice(made, BATCH)):
        parsed = [parse_query(one) for one in members]
        changes = [
            Change(
                handle=int.from_bytes(os.urandom(8)),
                query=one,
                subscriber="bench",
                start_ms=0,
                expected_revision=-1,
                digest=1 + row,
            )
            for row, one in enumerate(parsed)
        ]
        rows, places = routed_queries(changes, routing)
        numbers = [next(revisions) for _ in changes]
        installs = Installs(0, 0)
        installs.install(list(zip(numbers, changes, strict=True)), rows, places)
        reported = [
            (effect.partition, effect.message)
            for effect in installs.effects()
            if isinstance(effect, Append) and isinstance(effect.message, Installed)
        ]
        handles = [change.handle for change in changes]
        digests = [change.digest for change in changes]
        yield reported, (handles, numbers, digests, rows.expires_ms.tolist(), places)


def received(queries: int, slots: int) -> Iterator[tuple[InstallsOfSlots, Owned]]:
    """Yields the same, created by another process."""
    command = (sys.executable, __file__, "--produce", str(queries), "--slots", str(slots))
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(-(-queries // BATCH)):
            yield pickle.load(process.stdout)


def resident_bytes() -> int:
    """Returns the resident memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def evaluator(queries: int, slots: int) -> dict[str, object]:
    """Returns the memory of an evaluator that owns all slots."""
    warm_up(slots)
    empty = resident_bytes()
    owned = [Slot(number, PARTIALS) for number in range(slots)]
    for slot in owned:
        slot.open(0, 0, 1, 0)
    before = resident_bytes()
    for reported, _ in received(queries, slots):
        for number, message in reported:
            owned[number].take([(owned[number].offset, message)])
    grown = resident_bytes() - before
    standing = [slot.standing for slot in owned]
    ranges = [one.ranges for one in standing]
    parts = {
        "resident": grown,
        "accounted": sum(one.bytes_total for one in standing),
        "postings": sum(32 * one.statistics().postings for one in ranges),
        "keys": sum(one._table.bytes_total - 32 * one.statistics().postings for one in ranges),
        "rows": sum(one._rows.bytes_total for one in ranges),
        "vocabulary": sum(one.vocabulary.bytes_total for one in ranges),
        "names": sum(one.plain_names.bytes_total for one in standing),
    }
    row: dict[str, object] = {name: round(size / queries, 1) for name, size in parts.items()}
    row["copies"] = round(sum(len(one) for one in standing) / queries, 3)
    row["slot_kilobytes"] = round((before - empty) / slots / 1_000)
    return row


def router(queries: int, slots: int) -> dict[str, object]:
    """Returns the memory of the owner of all registry partitions."""
    before = resident_bytes()
    live = LiveQueries()
    for _, (handles, revisions, digests, expires_ms, places) in received(queries, slots):
        columns = np.array(handles, np.uint64), np.array(expires_ms, np.int64)
        live.put(columns[0], revisions, digests, columns[1], places)
    return {"resident": round((resident_bytes() - before) / queries, 1)}


def warm_up(slots: int) -> None:
    """Loads everything that the first queries load."""
    owned = [Slot(number, PARTIALS) for number in range(slots)]
    for reported, _ in produced(BATCH, slots):
        for number, message in reported:
            owned[number].open(0, 0, 1, 0)
            owned[number].take([(0, message)])


def measure(service: str, queries: int, slots: int) -> None:
    """Prints a row, measured in this process."""
    row = evaluator(queries, slots) if service == "evaluator" else router(queries, slots)
    print(json.dumps({"case": service, "queries": queries, "slots": slots} | row), flush=True)


def main() -> int:
    """Measures each case in a process of its own, since a process does not shrink again."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queries", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--only", choices=("evaluator", "router"), help=argparse.SUPPRESS)
    parser.add_argument("--produce", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.produce is not None:
        for batch in produced(asked.produce, asked.slots):
            pickle.dump(batch, sys.stdout.buffer)
    elif asked.only is not None:
        measure(asked.only, asked.queries[0], asked.slots)
    else:
        for service in ("evaluator", "router"):
            for queries in asked.queries:
                options = ("--only", service, "--slots", str(asked.slots))
                command = (sys.executable, __file__, "--queries", str(queries), *options)
                subprocess.run(command, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
