"""Loads are balanced while a hot spot moves: slots and the map change, and nothing is lost.

At the end every notification is compared with the oracle.
"""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sirocco_client import Balance, Client

from sirocco.protocol.coordinator.arrival_rates import routed_totals
from sirocco.protocol.coordinator.balance_rounds import joined_loads
from sirocco.protocol.evaluator.load.leaf_reports import loads_of
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.evaluator.service import EvaluatorService
from sirocco.services.router.service import RouterService
from tests.end_to_end.under_load import WAIT_S, Traffic

SEED = "20261121-balance"

SPOT_SHARE = 0.9

WORDS = tuple(f"word{number}" for number in range(100))

Box = tuple[float, float, float, float]

# Rounds of a quarter of a second: minutes in a real cluster become seconds.
BALANCED = ClusterSettings(
    slots=16,
    leaves=32,
    intake_partitions=2,
    registry_partitions=2,
    balance_interval_ms=250,
    balance_cooldown_ms=200,
    balance_objects_min=20,
)


class HotSpots(Traffic):
    """Most objects come from a few places, which change from time to time.

    Attributes:
        spots: boxes, in degrees.
    """

    # Enough to differ from chance within a round.
    objects_per_s = 1_000.0

    spots: tuple[Box, ...] = ((-71.3, 33.7, -68.3, 36.7),)

    def _object(self) -> dict[str, Any]:
        one = super()._object()
        if self._rng.random() < SPOT_SHARE:
            west, south, east, north = self._rng.choice(self.spots)
            one["lon"] = self._rng.uniform(west, east)
            one["lat"] = self._rng.uniform(south, north)
        return one


def spots_of_one_owner(client: Client) -> tuple[Box, ...]:
    """Returns the inner parts of leaves in different slots of one evaluator."""
    found = client.describe(leaves=True)
    owner_of = {each.partition: each.member for each in found.ownerships if each.topic == "slots"}
    by_owner: dict[str, dict[int, Box]] = {}
    for leaf in found.leaves:
        if not leaf.is_text:
            width, height = (leaf.east - leaf.west) / 4, (leaf.north - leaf.south) / 4
            inner = (leaf.west + width, leaf.south + height, leaf.east - width, leaf.north - height)
            by_owner.setdefault(owner_of[leaf.slot], {})[leaf.slot] = inner
    return tuple(max(by_owner.values(), key=len).values())


def _somewhere(rng: Random, number: int) -> dict[str, Any]:
    words = " ".join(rng.choices(WORDS, k=4))
    lon, lat = rng.uniform(-179, 179), rng.uniform(-89, 89)
    return {"id": number, "lon": lon, "lat": lat, "text": words}


def _sent_and_counted(cluster: EmbeddedCluster) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the objects that routers sent to each leaf, and those counted by evaluators."""
    routers = [each for each in cluster.services if isinstance(each, RouterService)]
    evaluators = [each for each in cluster.services if isinstance(each, EvaluatorService)]
    view = routers[0].machine.holdings.view
    partition_map = view.map_in_force
    assert partition_map is not None
    arrivals = {each.member: each.machine.intake.arrivals.report() for each in routers}
    sent = routed_totals(partition_map, tuple(arrivals), arrivals)
    assert sent is not None
    reports = {}
    for each in evaluators:
        counted = each.worker.look(each.machine.leaf_counts_so_far).result()
        assert counted is not None
        reports[each.member] = loads_of(counted)
    owners = tuple(view.owners["slots", slot].member for slot in range(partition_map.slots))
    loads, missing = joined_loads(partition_map, owners, reports)
    assert not missing
    return sent.objects, loads.objects


def await_balance(client: Client, traffic: Traffic, moves: int, changes: int) -> Balance:
    """Waits until this many slots have moved and this many maps have come into force."""
    deadline_s = time.monotonic() + WAIT_S
    while True:
        found = client.balance()
        if found.moves_total >= moves and found.map_changes_total >= changes:
            return found
        assert time.monotonic() < deadline_s, f"seed {SEED}: {found}"
        assert not traffic._failures, traffic._failures
        time.sleep(0.1)


def test_moving_hot_spots_move_slots_and_change_the_map() -> None:
    # SWARM's balancer uses both ways, and requests the details of leaves.
    settings = replace(BALANCED, scheme="swarm")
    cluster = EmbeddedCluster(settings, routers=2, evaluators=4, mergers=2)
    with (
        cluster,
        Client(cluster.router_address) as client,
        HotSpots((cluster.router_address,), "hot", SEED) as traffic,
    ):
        # One leaf has nearly all the load: it has to be split.
        found = await_balance(client, traffic, moves=0, changes=1)
        assert found.is_on
        assert found.balancer == "swarm"
        assert len(found.slots) == BALANCED.slots
        assert sum(slot.share for slot in found.slots) == pytest.approx(1.0)
        traffic.await_progress()
        # Several slots of one evaluator share it: they can be separated.
        traffic.spots = spots_of_one_owner(client)
        await_balance(client, traffic, moves=found.moves_total + 1, changes=1)
        traffic.await_progress()
        traffic.finish()
        assert client.map_change().map_version > 1


@pytest.mark.parametrize("scheme", ["qt-tree", "a-grid", "swarm", "kdt-tree", "text-frequency"])
def test_routers_and_evaluators_count_the_same_of_every_leaf(scheme: str) -> None:
    """Checks that loads combine the routers' arrivals and the evaluators' matches."""
    # One round, longer than the test.
    settings = replace(BALANCED, scheme=scheme, balance_interval_ms=600_000)
    rng = Random(SEED)
    with (
        EmbeddedCluster(settings, routers=2, evaluators=2) as cluster,
        Client(cluster.router_address) as client,
    ):
        with client.publisher() as publisher:
            publisher.publish_many([_somewhere(rng, number) for number in range(2_000)])
        deadline_s = time.monotonic() + WAIT_S
        sent, counted = _sent_and_counted(cluster)
        while counted.sum() != sent.sum() or sent.sum() < 2_000:
            assert time.monotonic() < deadline_s, f"{sent.sum()} sent, {counted.sum()} counted"
            time.sleep(0.05)
            sent, counted = _sent_and_counted(cluster)
        assert counted.tolist() == sent.tolist()


def test_evaluators_that_leave_hand_everything_over_at_once() -> None:
    cluster = EmbeddedCluster(BALANCED, routers=1, evaluators=4, mergers=1)
    with (
        cluster,
        Client(cluster.router_address) as client,
        HotSpots((cluster.router_address,), "drain", SEED) as traffic,
    ):
        # Meanwhile SSTD's balancer splits a leaf, by a sample of the arrivals.
        await_balance(client, traffic, moves=0, changes=1)
        evaluators = [each for each in cluster.services if isinstance(each, EvaluatorService)]
        for leaving in evaluators[:2]:
            assert leaving.stop()
            # Not the slots of an ending process, which others would find orphaned: none are left.
            assert not leaving.machine.holdings.held
            cluster.services.remove(leaving)
            traffic.await_progress()
        owners = {each[2] for each in traffic.owners() if each[0] == "slots"}
        assert owners == {each.member for each in evaluators[2:]}
        traffic.finish()
