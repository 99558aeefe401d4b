"""A cluster in this process for all tests of connectors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.support.plain_client import new_session

SETTINGS = ClusterSettings(
    slots=4,
    leaves=8,
    intake_partitions=2,
    registry_partitions=2,
    partials_partitions=1,
    scheme="uniform-grid",
)


@pytest.fixture(scope="package")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(SETTINGS) as one:
        yield one


@pytest.fixture
def word() -> str:
    """A word that no other test uses."""
    return f"word{new_session()}"
