"""One cluster with two processes of each service, for all tests that break something in it.

Each test restores it: killed processes run again, and stopped servers are back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sirocco.local.cluster import LocalCluster
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from tests.end_to_end.under_load import cluster_of_two


@pytest.fixture(scope="session")
def cluster(
    kafka_server: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """This directory is run last: an idle cluster would take time from other tests."""
    directory = Path(tmp_path_factory.mktemp("two-of-each"))
    with cluster_of_two("two", kafka_server, redis_server, directory) as running:
        yield running
