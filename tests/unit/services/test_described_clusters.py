"""What a description of the cluster costs a router, which any token may ask for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sirocco_api.v1 import cluster_service_pb2 as pb

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
