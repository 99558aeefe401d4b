"""A pytest plugin: says which part of the suite runs, and how long all of `make test` took."""

from __future__ import annotations

import os
import time

import pytest


class Stages:
    """Writes a line whenever the tests come to another directory below `tests`."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        self._stage = ""
        self._started_s = time.monotonic()

    def pytest_runtest_logstart(self, location: tuple[str, int | None, str]) -> None:
        """Called by pytest before each test."""
        stage = "/".join(location[0].split("/")[:2])
        if stage != self._stage:
            self._stage = stage
            elapsed_s = time.monotonic() - self._started_s
            # The dots of the stage before are an unfinished line, which the reporter does not know.
            self._reporter.write_line(f"\n== {stage} (after {elapsed_s:.0f} s)")

    def pytest_terminal_summary(self) -> None:
        """Called by pytest before its closing line."""
        started_s = os.environ.get("SIROCCO_TEST_STARTED")
        if started_s is not None:
            total_s = time.time() - float(started_s)
            self._reporter.write_line(f"== make test: {total_s:.0f} s in all")


# After the terminal's own hook made its reporter.
@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest once."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        config.pluginmanager.register(Stages(reporter))
