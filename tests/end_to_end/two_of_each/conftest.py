"""One cluster with two processes of each service, for all tests that break something in it.

Each test restores it: killed processes run again, and stopped servers are back. A test that fails
may leave it broken: the failure shows each process and the end of its log, and the tests after it
fail at once.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from sirocco.local.cluster import LocalCluster
from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from tests.end_to_end.under_load import cluster_of_two

LINES_SHOWN = 3

# The test that failed first, in this process.
BROKEN_BY = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def cluster(
    kafka_server: KafkaServer, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    """This directory is run last: an idle cluster would take time from other tests."""
    directory = Path(tmp_path_factory.mktemp("two-of-each"))
    with cluster_of_two("two", kafka_server, redis_server, directory) as running:
        yield running


@pytest.fixture(autouse=True)
def _whole(request: pytest.FixtureRequest) -> None:
    broken_by = request.config.stash.get(BROKEN_BY, "")
    if broken_by:
        pytest.fail(f"the cluster may be broken since {broken_by}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Called by pytest after each of a test's phases."""
    report = yield
    running = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(running, LocalCluster) and BROKEN_BY not in item.config.stash:
        item.config.stash[BROKEN_BY] = item.nodeid
        report.sections.append(("processes of the cluster", described(running)))
    return report


def described(cluster: LocalCluster) -> str:
    """Returns the load of the machine, and of each process its state and the end of its log."""
    lines = [f"load of the machine: {os.getloadavg()}"]
    for one in cluster.processes:
        lines.append(f"{one.name}: {'runs' if one.running else 'HAS ENDED'}")
        lines += [f"  {line:.300}" for line in one.process.log_tail().splitlines()[-LINES_SHOWN:]]
    return "\n".join(lines)
