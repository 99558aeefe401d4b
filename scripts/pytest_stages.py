"""A pytest plugin: says which part of the suite runs, and how long all of `make test` took.

A part is a directory below `tests`. Where several processes run tests of several parts at once, a
part is reported when its last test is over.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest


class Stages:
    """Writes a line for each part, and in the end how many seconds the tests of each took."""

    def __init__(self, reporter: pytest.TerminalReporter, *, in_turn: bool) -> None:
        self._reporter = reporter
        self._in_turn = in_turn
        self._stage = ""
        self._started_s = time.monotonic()
        self._tests: Counter[str] = Counter()
        self._open: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Called by pytest when it knows the tests."""
        self._expect(item.nodeid for item in session.items)

    # Of pytest-xdist, which runs without this one's knowing any test.
    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Called for each of the processes that run tests; all of them know the same."""
        self._expect(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Called by pytest before each test."""
        stage = _stage_of(nodeid)
        if self._in_turn and stage != self._stage:
            self._stage = stage
            self._say(f"== {stage} (after {self._elapsed_s():.0f} s)")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called by pytest after each of a test's phases."""
        self._seconds[_stage_of(report.nodeid)] += report.duration

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Called by pytest after each test."""
        stage = _stage_of(nodeid)
        self._open[stage] -= 1
        if not self._in_turn and self._open[stage] == 0:
            self._say(f"== {stage} is through (after {self._elapsed_s():.0f} s)")

    def pytest_terminal_summary(self) -> None:
        """Called by pytest before its closing line."""
        for stage, count in sorted(self._tests.items()):
            taken = f"{count} tests, {self._seconds[stage]:.0f} s of one process"
            self._reporter.write_line(f"== {stage}: {taken}")
        started_s = os.environ.get("SIROCCO_TEST_STARTED")
        if started_s is not None:
            total_s = time.time() - float(started_s)
            self._reporter.write_line(f"== make test: {total_s:.0f} s since it began")

    def _expect(self, test_ids: Iterable[str]) -> None:
        if not self._tests:
            self._tests = Counter(map(_stage_of, test_ids))
            self._open = self._tests.copy()

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._started_s

    def _say(self, line: str) -> None:
        # The dots of the stage before are an unfinished line, which the reporter does not know.
        self._reporter.write_line(f"\n{line}")


def _stage_of(test_id: str) -> str:
    return "/".join(test_id.partition("::")[0].split("/")[:2])


# After the terminal's own hook made its reporter, which processes that run tests for others lack.
@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest once."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        in_turn = not config.getoption("numprocesses", None)
        config.pluginmanager.register(Stages(reporter, in_turn=in_turn))
