"""kill -9 of each service under load, on real Kafka and Redis: nothing lost, nothing doubled.

Two of each service run as processes. While one session publishes and one subscriber receives, a
process is killed; the other of its kind takes over. Then it is started again and gets its share.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sirocco.local.cluster import LocalCluster
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from tests.end_to_end.under_load import Traffic, cluster_of_two

pytestmark = pytest.mark.kafka

SEED = 20261121


@pytest.fixture(scope="module")
def cluster(
    kafka_server: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    directory = Path(tmp_path_factory.mktemp("kills"))
    with cluster_of_two("kills", kafka_server, redis_server, directory) as running:
        yield running


@pytest.mark.parametrize("victim", ["evaluator-0", "router-0", "merger-0", "coordinator-0"])
def test_a_kill_under_load_loses_and_doubles_nothing(cluster: LocalCluster, victim: str) -> None:
    with Traffic(cluster.router_addresses, victim, f"{SEED}-{victim}") as traffic:
        traffic.await_progress()
        cluster.kill(victim)
        print(f"{victim} killed: matching resumed after {traffic.await_progress():.1f} s")
        assert cluster.mend() == [victim]
        next(one for one in cluster.processes if one.name == victim).await_ready()
        traffic.await_progress()
        traffic.finish()
