"""A pytest plugin: hands out tests on whole clusters, brokers and Spark to two processes.

Most of their time they wait for processes, leases and brokers, each on ports of its own: two at a
time share the cores well. A file stays in one process, which starts once what its tests share.
Spark's files stay together, so that there is one session and never two that take gigabytes.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK = ("tests/integration/spark/", "tests/end_to_end/test_spark_map.py")
# What takes minutes begins first, so that neither process has the other wait for it in the end.
LONG = (*SPARK, "tests/end_to_end/test_replay")
# Their cluster stands until the end of the process, and would take time from other tests.
LASTING = "tests/end_to_end/two_of_each/"


def group_of(test_id: str) -> str:
    """Returns what a test is run together with, in one process: its file, Spark, or a cluster."""
    if test_id.startswith(SPARK):
        return "Spark"
    if test_id.startswith(LASTING):
        return LASTING
    return test_id.partition("::")[0]


def place_of(test_id: str) -> int:
    """Returns when a test comes: what is long before the rest, what leaves a cluster after it."""
    if test_id.startswith(LASTING):
        return len(LONG) + 1
    return next((at for at, start in enumerate(LONG) if test_id.startswith(start)), len(LONG))


class Pairs(LoadScopeScheduling):
    """Hands out groups in the order of their tests."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


# Of pytest-xdist.
@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Pairs:
    """Called by pytest-xdist once, in the process that hands out."""
    config.option.loadscopereorder = False
    return Pairs(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called by pytest in each process that runs tests."""
    items.sort(key=lambda item: place_of(item.nodeid))
