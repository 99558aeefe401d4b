"""Whole clusters in this process, called only through the generated stubs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.support.plain_client import PlainClient

SETTINGS = ClusterSettings(
    slots=4,
    leaves=8,
    intake_partitions=2,
    registry_partitions=2,
    partials_partitions=2,
    scheme="uniform-grid",
)


@pytest.fixture(scope="session")
def cluster() -> Iterator[EmbeddedCluster]:
    """Two routers, two evaluators, one merger; tests use ids and subscribers of their own."""
    with EmbeddedCluster(SETTINGS, routers=2, evaluators=2) as running:
        yield running


@pytest.fixture(scope="session")
def plain(cluster: EmbeddedCluster) -> Iterator[PlainClient]:
    """A client of that cluster."""
    with PlainClient(cluster) as client:
        yield client
