"""Provides real servers for all tests, and marks the tests that run two at a time.

A server is started at its first use, once per process that runs tests, and stopped at the end.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sirocco.local.kafka import KafkaServer
from sirocco.local.redis import RedisServer
from sirocco.runtime.process.process_tuning import GC_THRESHOLDS
from tests.support import seeds

SERVERS = frozenset({"kafka_server", "redis_server"})
# Whole clusters, brokers and Spark: they have processes of their own, or as many threads, and their
# timeouts assume that few others use the cores. So do those of the Prometheus that scrapes a
# cluster every second.
WHOLE_CLUSTERS = ("tests/integration/", "tests/end_to_end/", "tests/charts/test_dashboards.py")


# For a Spark that lives a minute, as for brokers: the optimising compiler takes half of the CPU
# time and gains nothing within that. To verify the bytecode of released jars takes a fifth of the
# rest.
SPARK_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)


# Before Hypothesis reads its option.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Chooses the seed of the run, also for property tests, and the options of Spark."""
    # Where tests run in the background, processes that they start would ignore ^C as well.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SPARK_OPTIONS)
    seed = seeds.choose()
    if config.getoption("--hypothesis-seed", None) is None:
        config.option.hypothesis_seed = seed


def pytest_sessionstart(session: pytest.Session) -> None:
    """Prints the seed; a header would be left out by -q."""
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None and not hasattr(session.config, "workerinput"):
        reporter.write_line(f"random tests: {seeds.VARIABLE}={seeds.choose()}")


def pytest_collection_finish() -> None:
    """Spares the collector of cycles what all tests stand on: modules, kernels, the tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


# Before pytest chooses by marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests that run two at a time at most: brokers and Spark take all cores, and memory."""
    for item in items:
        fixtures = SERVERS.intersection(getattr(item, "fixturenames", ()))
        marks = any(item.get_closest_marker(name) for name in ("kafka", "spark"))
        if item.nodeid.startswith(WHOLE_CLUSTERS):
            item.add_marker(pytest.mark.alone)
        elif fixtures or marks:
            raise pytest.UsageError(f"{item.nodeid} has servers: its place is tests/integration")


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka broker; a test needs topic names of its own. A test that kills it restarts it."""
    server = KafkaServer(Path(tmp_path_factory.mktemp("kafka")))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis; a test needs a key prefix of its own. A test that kills it restarts it."""
    server = RedisServer(Path(tmp_path_factory.mktemp("redis")))
    server.start()
    yield server
    server.stop()
