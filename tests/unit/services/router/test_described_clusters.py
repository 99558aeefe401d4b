"""What descriptions of the cluster and waits cost a router: any token may ask for them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sirocco_api.v1 import cluster_service_pb2 as pb

from sirocco.protocol.contract.positions import position_of
from sirocco.schemes.map.map import PartitionMap
from sirocco.schemes.map.map_bytes import from_bytes, to_bytes
from sirocco.services.router import cluster
from sirocco.services.router.cluster import ClusterFront
from tests.support.random_maps import random_map


def test_a_map_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call read it, 8 us a leaf: a second of CPU time where a map has as many as it may."""
    maps = [to_bytes(random_map(np.random.default_rng(seed))) for seed in (1, 2)]
    read: list[bytes] = []

    def counted(data: bytes) -> PartitionMap:
        read.append(data)
        return from_bytes(data)

    monkeypatch.setattr(cluster, "from_bytes", counted)
    view = SimpleNamespace(map_version=1, partition_map=maps[0], leader="", owners={})
    machine: Any = SimpleNamespace(holdings=SimpleNamespace(view=view))
    settings: Any = SimpleNamespace(cluster="sirocco", slots=4)
    unused: Any = None
    front = ClusterFront(settings, "router", machine, unused, unused, dict)
    for data in maps:
        view.partition_map = data
        for _ in range(3):
            described = front._describe(pb.DescribeClusterRequest())
            assert described.leaf_count == len(from_bytes(data).leaves)
    assert read == maps


def test_calls_that_wait_share_their_looks_at_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looked by itself, 20 times a second in the threads of all calls."""
    looks: list[int] = []

    def last_progress(_: Any, partition: int) -> Any:
        looks.append(partition)
        # Of both partitions the third look finds all delivered.
        reached = 5 if len(looks) > 4 else 4
        return SimpleNamespace(slots=np.array([0]), positions=np.array([position_of(reached)]))

    monkeypatch.setattr(cluster, "last_progress", last_progress)
    settings: Any = SimpleNamespace(partials_partitions=2)
    unused: Any = None

    async def run() -> None:
        front = ClusterFront(settings, "router", unused, unused, unused, dict)
        await asyncio.gather(*(front._delivered([5]) for _ in range(50)))

    asyncio.run(run())
    # A call whose look was there before the others' may begin one more.
    assert 6 <= len(looks) <= 10
