"""Maps are proposed to a running system under load: nothing is lost or doubled.

They follow each other, each of another scheme, spatial and by keyword; queries are registered
while each change is under way. At the end every notification is compared with the oracle.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sirocco_client import Client, FailedPrecondition, InvalidArgument

from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from sirocco.runtime.first_map import first_map
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.map.map_bytes import from_bytes, to_bytes
from sirocco.services.embedded import EmbeddedCluster
from tests.end_to_end.under_load import WAIT_S, Traffic, cluster_of_two

SEED = "20261121-maps"

SCHEMES = ("uniform-grid", "text-frequency", "qt-tree")

SLOTS = 16


def proposals(directory: Path, slots: int) -> list[bytes]:
    """Returns a map of each scheme, by a sample of the objects, with other owners each."""
    sample = directory / "sample.jsonl"
    lines = [
        {"id": n, "lon": 37 * n % 360 - 180, "lat": 17 * n % 180 - 90, "text": "fire road sky"}
        for n in range(500)
    ]
    sample.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = []
    for number, scheme in enumerate(SCHEMES):
        settings = ClusterSettings(slots=slots, leaves=24 + 8 * number, scheme=scheme)
        built = from_bytes(first_map(settings, str(sample)))
        turned = (built.slot_of_leaf + number + 1) % slots
        found.append(to_bytes(replace(built, version=2 + number, slot_of_leaf=turned)))
    return found


def await_version(client: Client, version: int) -> None:
    """Waits until a change to a map is over."""
    deadline_s = time.monotonic() + WAIT_S
    while (now := client.map_change()).map_version < version or now.phase != "none":
        assert time.monotonic() < deadline_s, now
        time.sleep(0.05)


def change_under_load(traffic: Traffic, client: Client, directory: Path) -> None:
    """Changes the map several times while objects arrive and queries are registered."""
    traffic.await_progress()
    for number, proposal in enumerate(proposals(directory, SLOTS)):
        with pytest.raises(InvalidArgument):
            client.propose_map(proposal[:-7])
        with pytest.raises(FailedPrecondition):
            client.propose_map(to_bytes(from_bytes(proposal).with_version(99)))
        version = client.propose_map(proposal)
        assert version == 2 + number
        traffic.register_under_way(f"word{number}")
        traffic.await_progress()
        await_version(client, version)
        traffic.await_progress()


def test_maps_follow_each_other_in_an_embedded_cluster(tmp_path: Path) -> None:
    settings = ClusterSettings(slots=SLOTS, leaves=32, intake_partitions=2, registry_partitions=2)
    cluster = EmbeddedCluster(settings, routers=2, evaluators=2, mergers=2)
    with (
        cluster,
        Client(cluster.router_address) as client,
        Traffic((cluster.router_address,), "maps", SEED) as traffic,
    ):
        change_under_load(traffic, client, tmp_path)
        traffic.finish()


@pytest.mark.kafka
def test_maps_follow_each_other_on_kafka_while_processes_are_killed(
    kafka_server: KafkaServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    with cluster_of_two("maps", kafka_server, redis_server, tmp_path) as cluster:
        address = ",".join(cluster.router_addresses)
        with Client(address) as client, Traffic(cluster.router_addresses, "maps", SEED) as traffic:
            traffic.await_progress()
            victims = ("router-0", "coordinator-0", "evaluator-0")
            for number, (proposal, victim) in enumerate(
                zip(proposals(tmp_path, SLOTS), victims, strict=True)
            ):
                version = client.propose_map(proposal)
                cluster.kill(victim)
                traffic.register_under_way(f"word{number}")
                traffic.await_progress()
                assert cluster.mend() == [victim]
                await_version(client, version)
            traffic.await_progress()
            traffic.finish()
