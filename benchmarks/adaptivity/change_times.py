"""The duration of a change by the protocol, whatever is moved: measured on a real small cluster.

All services run in this process on the memory log. Slots move and maps follow each other as the
coordinator decides, with few and with many standing queries. Intervals and messages of the protocol
do not depend on the number of queries; copying during a change of the map does. CPU times of the
evaluators' work are measured separately (`costs`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sirocco_client import Client, query_from_json

from sirocco.protocol.contract.effects import SaveRequest
from sirocco.protocol.contract.map_change import ChangePhase
from sirocco.protocol.evaluator.drain import offsets, unsaved
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.map.map_bytes import from_bytes, to_bytes
from sirocco.services.coordinator.peers import Evaluators
from sirocco.services.coordinator.service import CoordinatorService
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.evaluator.service import EvaluatorService
from sirocco.services.router.service import RouterService

FEW, MANY = 500, 100_000
CHANGES = 4
# Leaves that change at a time, of 64: queries are looked at in both, and copied in proportion.
ONE_LEAF, HALF = 1, 32
ASKS = 50
WAIT_S = 60.0
LOOK_S = 0.001
QUERY_DEGREES = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Settling:
    """Seconds on the clock; the median of some changes.

    Attributes:
        save_s: Until checkpoints of slots to move are safe, with few queries.
        grant_s: From the machine's decision until the former owner stops.
        begin_s: From then until the next owner matches, with few queries.
        prepare_s: From the proposal of a map until it is in force, with few queries.
        retire_s: From then until the change is over.
        look_s: For each standing query of the cluster: owners of the registry find which are in
            leaves that change.
        copy_s: For each of these, until all are in their slots of the map: owners read their
            definitions again and send each to all of its slots.
        ask_s: Until the evaluators' loops have answered the coordinator; measured at a low rate.
    """

    save_s: float
    grant_s: float
    begin_s: float
    prepare_s: float
    retire_s: float
    look_s: float
    copy_s: float
    ask_s: float


def measure(few: int = FEW, many: int = MANY) -> Settling:
    """Measures for half a minute."""
    # With the usual balancing, and far too few objects for a decision: all changes are ours.
    settings = ClusterSettings(slots=16, leaves=64, scheme="swarm", balance_objects_min=1 << 40)
    cluster = EmbeddedCluster(settings, evaluators=2)
    with cluster, Client(cluster.router_address) as client:
        small = _Small(cluster, client)
        _register(client, 0, few)
        moves = [small.move() for _ in range(CHANGES)]
        asks = [small.ask() for _ in range(ASKS)]
        maps = [small.change(ONE_LEAF)[:2] for _ in range(CHANGES)]
        _register(client, few, many)
        one = [small.change(ONE_LEAF) for _ in range(CHANGES)]
        half = [small.change(HALF) for _ in range(CHANGES)]
    save_s, grant_s, begin_s = np.median(moves, 0).tolist()
    prepare_s, retire_s = np.median(maps, 0).tolist()
    look_s, copy_s = _shares(prepare_s + retire_s, many, np.array(one), np.array(half))
    ask_s = float(np.median(asks))
    return Settling(
        save_s=save_s,
        grant_s=grant_s,
        begin_s=begin_s,
        prepare_s=prepare_s,
        retire_s=retire_s,
        look_s=look_s,
        copy_s=copy_s,
        ask_s=ask_s,
    )


def _shares(
    least_s: float, queries: int, one: NDArray[np.float64], half: NDArray[np.float64]
) -> tuple[float, float]:
    """Returns the seconds for each standing query, and for each that is copied.

    Args:
        least_s: A change with few queries.
        queries: Standing ones in both.
        one, half: f8[changes, 3], changes of one leaf and of half of them, see `_Small.change`.
    """
    few_s, many_s = (float(np.median(each[:, :2].sum(1))) for each in (one, half))
    few, many = (float(np.median(each[:, 2])) for each in (one, half))
    copy_s = max(many_s - few_s, 0.0) / max(many - few, 1.0)
    return max(few_s - least_s - few * copy_s, 0.0) / queries, copy_s


class _Small:
    """A running cluster and its changes."""

    def __init__(self, cluster: EmbeddedCluster, client: Client) -> None:
        self._client = client
        services = cluster.services
        self._evaluators = [each for each in services if isinstance(each, EvaluatorService)]
        (self._coordinator,) = [each for each in services if isinstance(each, CoordinatorService)]
        self._routers = [each for each in services if isinstance(each, RouterService)]
        self._moved: set[int] = set()
        self._addresses = {each.member: each.address for each in self._evaluators}
        self._asked = Evaluators(lambda: self._addresses)

    def move(self) -> tuple[float, float, float]:
        """Moves a slot; returns the seconds of saving, granting, beginning."""
        giver = max(self._evaluators, key=lambda each: len(each.machine.slots))
        (taker,) = [each for each in self._evaluators if each is not giver]
        # A slot saved a moment ago would take no time.
        slot = min(giver.machine.slots.keys() - self._moved)
        self._moved.add(slot)
        begin_s = time.monotonic()
        wanted = offsets(giver.machine, (slot,))
        giver.worker.post(SaveRequest(tuple(wanted)))
        _await(lambda: not unsaved(giver.machine, wanted))
        saved_s = time.monotonic()
        self._coordinator.worker.rebalance({slot: (giver.member, taker.member)}).result(WAIT_S)
        _await(lambda: slot not in giver.machine.slots)
        lost_s = time.monotonic()
        _await(lambda: slot in taker.machine.searchable)
        return saved_s - begin_s, lost_s - saved_s, time.monotonic() - lost_s

    def ask(self) -> float:
        """Asks both evaluators for their counts so far; returns the seconds."""
        begin_s = time.monotonic()
        reported = self._asked.loads(self._addresses, ends_round=False)
        if len(reported) != len(self._addresses):
            raise TimeoutError("an evaluator of the small cluster did not answer")
        return time.monotonic() - begin_s

    def change(self, leaves: int) -> tuple[float, float, int]:
        """Moves leaves to other slots; returns seconds until in force, until over, and copies."""
        view = self._coordinator.machine.view
        now = from_bytes(view.partition_map)
        slots = now.slot_of_leaf.copy()
        slots[:leaves] = (slots[:leaves] + 1) % now.slots
        copied = self._copied()
        begin_s = time.monotonic()
        self._client.propose_map(
            to_bytes(replace(now, version=now.version + 1, slot_of_leaf=slots))
        )
        _await(lambda: self._coordinator.machine.view.map_version > now.version)
        switched_s = time.monotonic()
        _await(lambda: self._coordinator.machine.cluster_state.phase is ChangePhase.NONE)
        over_s = time.monotonic()
        return switched_s - begin_s, over_s - switched_s, self._copied() - copied

    def _copied(self) -> int:
        return sum(each.machine.copied_total for each in self._routers)


def _await(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not holds():
        if time.monotonic() > deadline_s:
            raise TimeoutError("the small cluster did not get there")
        time.sleep(LOOK_S)


def _register(client: Client, begin: int, end: int) -> None:
    rng = np.random.default_rng(begin)
    places = rng.uniform((-179, -89), (179, 89), (end - begin, 2)).tolist()
    queries = (
        query_from_json(
            {
                "id": f"query-{number}",
                "kind": "range",
                "mode": "continuous",
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
        for number, (lon, lat) in enumerate(places, begin)
    )
    for result in client.register_many(queries):
        if result.error is not None:
            raise result.error
