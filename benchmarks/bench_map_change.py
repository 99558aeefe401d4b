"""How long a change of the map takes while many queries stand, and what it copies.

usage: python benchmarks/bench_map_change.py [--queries N ...] [--changes N]

A uniform grid of 64 leaves on 16 slots, two evaluators, all in one process on the memory log.
Small queries are spread evenly. One leaf after the other moves to another slot; nothing is
published meanwhile. Medians of all moves, and the least and greatest duration:

    prepare_s   from the proposal until the map is in force: all queries are in their slots by then
    retire_s    from then until the change is over
    change_s    both together
    cpu_s       CPU time of the process meanwhile
    copied      queries that were read again and sent to slots
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from sirocco_client import Client, query_from_json

from sirocco.protocol.contract.map_change import ChangePhase
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.map.map_bytes import from_bytes, to_bytes
from sirocco.services.coordinator.service import CoordinatorService
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.router.service import RouterService

LEAVES, SLOTS = 64, 16
QUERY_DEGREES = 0.5
WAIT_S = 300.0
LOOK_S = 0.002
# As many as one client registers in a few seconds.
BATCH = 100_000


@dataclass(frozen=True, slots=True)
class Change:
    """One change: seconds until the map is in force and until it is over, CPU, copied queries."""

    prepare_s: float
    retire_s: float
    cpu_s: float
    copied: int


def main() -> int:
    """Measures each number of queries in a cluster of its own; prints a row."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queries", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--changes", type=int, default=5)
    asked = parser.parse_args()
    for queries in asked.queries:
        measure(queries, asked.changes)
    return 0


def measure(queries: int, changes: int) -> None:
    """Prints the row of one number of queries."""
    # With the usual balancing, and far too few objects for a decision: all changes are ours.
    settings = ClusterSettings(
        slots=SLOTS, leaves=LEAVES, scheme="uniform-grid", balance_objects_min=1 << 40
    )
    cluster = EmbeddedCluster(settings, evaluators=2)
    with cluster, Client(cluster.router_address) as client:
        begin_s = time.monotonic()
        register(client, queries)
        registered_s = time.monotonic() - begin_s
        services = cluster.services
        (coordinator,) = [one for one in services if isinstance(one, CoordinatorService)]
        routers = [one for one in services if isinstance(one, RouterService)]
        moves = [moved(client, coordinator, routers, 9 * row + 1) for row in range(changes)]
    each = np.array([(one.prepare_s, one.retire_s, one.prepare_s + one.retire_s) for one in moves])
    low, middle, high = each.min(0), np.median(each, 0), each.max(0)
    row: dict[str, object] = {"queries": queries, "changes": changes}
    for column, name in enumerate(("prepare_s", "retire_s", "change_s")):
        row[name] = round(float(middle[column]), 3)
    row["change_s_least"], row["change_s_most"] = round(float(low[2]), 3), round(float(high[2]), 3)
    row["cpu_s"] = round(float(np.median([one.cpu_s for one in moves])), 3)
    row["copied"] = int(np.median([one.copied for one in moves]))
    row["registered_per_s"] = round(queries / registered_s)
    print(json.dumps(row), flush=True)


def moved(
    client: Client, coordinator: CoordinatorService, routers: list[RouterService], leaf: int
) -> Change:
    """Moves one leaf to another slot; returns how long that takes."""
    view = coordinator.machine.view
    now = from_bytes(view.partition_map)
    slots = now.slot_of_leaf.copy()
    slots[leaf] = (slots[leaf] + 5) % now.slots
    copied = copied_total(routers)
    begin_s, begin_cpu_s = time.monotonic(), time.process_time()
    client.propose_map(to_bytes(replace(now, version=now.version + 1, slot_of_leaf=slots)))
    await_until(lambda: coordinator.machine.view.map_version > now.version)
    in_force_s = time.monotonic()
    await_until(lambda: coordinator.machine.cluster_state.phase is ChangePhase.NONE)
    over_s = time.monotonic()
    cpu_s = time.process_time() - begin_cpu_s
    more = copied_total(routers) - copied
    return Change(in_force_s - begin_s, over_s - in_force_s, cpu_s, more)


def copied_total(routers: list[RouterService]) -> int:
    """Returns how many queries the routers have copied so far."""
    return sum(router.machine.copied_total for router in routers)


def await_until(holds: Callable[[], bool]) -> None:
    """Waits until something holds."""
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the change of the map did not end")
        time.sleep(LOOK_S)


def register(client: Client, count: int) -> None:
    """Registers small queries, spread evenly."""
    for begin in range(0, count, BATCH):
        rng = np.random.default_rng(begin)
        size = min(BATCH, count - begin)
        places = rng.uniform((-179, -89), (179, 89), (size, 2)).tolist()
        queries = (
            query_from_json(
                {
                    "id": f"query-{begin + number}",
                    "kind": "range",
                    "mode": "continuous",
                    "text": f"word{number % 5_000} AND fire",
                    "region": {
                        "rect": {
                            "west": lon,
                            "south": lat,
                            "east": lon + QUERY_DEGREES,
                            "north": lat + QUERY_DEGREES,
                        }
                    },
                },
                f"subscriber-{number % 8}",
            )
            for number, (lon, lat) in enumerate(places)
        )
        for result in client.register_many(queries):
            if result.error is not None:
                raise result.error


if __name__ == "__main__":
    raise SystemExit(main())
