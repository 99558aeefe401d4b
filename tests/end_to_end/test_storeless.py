"""Without a store routers hold back what no query needs, and every match is told all the same.

Queries come while objects do, and the map changes from one that cuts space to one that cuts text.
Whatever needs stored objects is refused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sirocco_client import Client, FailedPrecondition, query_from_json

from services.embedded import EmbeddedCluster
from services.router.service import RouterService
from sirocco.runtime.settings import ClusterSettings
from sirocco.schemes.map_bytes import from_bytes, to_bytes
from tests.end_to_end import under_load
from tests.end_to_end.test_map_changes import SLOTS, await_version, proposals
from tests.end_to_end.under_load import Traffic

SEED = "20261121-storeless"
SETTINGS = ClusterSettings(
    slots=SLOTS, leaves=32, intake_partitions=2, registry_partitions=2, store=False
)

REFUSED: dict[str, dict[str, Any]] = {
    "kind": {"kind": "knn", "point": {"lon": 0, "lat": 0}, "k": 1},
    "track": {"kind": "range", "track": "vehicle"},
}


def held_back(cluster: EmbeddedCluster) -> int:
    routers = [each for each in cluster.services if isinstance(each, RouterService)]
    return sum(router.machine.intake.held_back_total for router in routers)


def test_a_cluster_without_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The last one asks for any text, nearly everywhere: no slot could do without any object.
    monkeypatch.setattr(under_load, "QUERIES", under_load.QUERIES[:3])
    cluster = EmbeddedCluster(SETTINGS, routers=2, evaluators=2, mergers=2)
    with cluster, Client(cluster.router_address) as client:
        with Traffic((cluster.router_address,), "storeless", SEED) as traffic:
            traffic.await_progress()
            traffic.register_under_way("first")
            traffic.await_progress()
            before = held_back(cluster)
            assert before > 0
            by_text = from_bytes(proposals(tmp_path, SLOTS)[1])
            version = client.propose_map(to_bytes(by_text.with_version(2)))
            traffic.register_under_way("second")
            traffic.await_progress()
            await_version(client, version)
            traffic.register_under_way("third")
            traffic.await_progress()
            assert held_back(cluster) > before
            traffic.finish()
        for field, members in REFUSED.items():
            standing = {"id": field, "mode": "continuous", **members}
            with pytest.raises(FailedPrecondition) as raised:
                client.register(query_from_json(standing, "s"))
            assert raised.value.field == field
        plain = {"id": "plain", "kind": "range", "mode": "continuous", "text": "fire"}
        with pytest.raises(FailedPrecondition) as raised:
            client.register(query_from_json(plain, "s"), past="1h")
        assert raised.value.field == "past"
        with pytest.raises(FailedPrecondition):
            client.search(query_from_json(plain | {"mode": "snapshot"}, "s"))
