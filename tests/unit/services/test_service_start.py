"""The errors of a process whose settings turn out to be useless only at the start."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import pytest

from sirocco.runtime.settings import from_environment
from sirocco.services import main
from sirocco.services.main import EXIT_FAILURE, EXIT_SETTINGS
from sirocco.transport.errors import TransportUnavailable
from sirocco.transport.log import TopicSpec
from sirocco.transport.memory_log import MemoryLog

SETTINGS = {
    "SIROCCO_KAFKA": "127.0.0.1:1",
    "SIROCCO_REDIS": "redis://127.0.0.1:1",
    "SIROCCO_ARCHIVE": "memory://",
}


def started(**variables: str) -> subprocess.CompletedProcess[str]:
    """Starts a merger that ends before it makes any request."""
    return subprocess.run(
        [sys.executable, "-m", "sirocco.services.merger"],
        env={**os.environ, **SETTINGS, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("archive", ["archive/here", "no-such://bucket/x", "s3://b/x?regio=eu"])
def test_an_archive_that_is_none_is_named_with_its_setting(archive: str) -> None:
    done = started(SIROCCO_ARCHIVE=archive)
    assert done.returncode == EXIT_SETTINGS
    assert "SIROCCO_ARCHIVE" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_invalid_certificate_is_reported_in_words(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("no certificate")
    done = started(SIROCCO_KAFKA_SECURITY="ssl", SIROCCO_KAFKA_CA=str(authority))
    assert done.returncode == EXIT_FAILURE
    assert "ssl.ca.location" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_service_that_ends_while_the_log_is_away_does_not_try_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Eight tries of ten seconds are longer than an operator waits for an end.
    asked: list[Sequence[TopicSpec]] = []

    class Away(MemoryLog):
        def create_topics(self, specs: Sequence[TopicSpec]) -> None:
            asked.append(specs)
            raise TransportUnavailable("no broker")

    def make(*_: Any) -> NoReturn:
        raise AssertionError("there is no log to begin with")

    stopping = threading.Event()
    stopping.set()
    monkeypatch.setattr(main, "KafkaLog", lambda settings: Away())
    with pytest.raises(TransportUnavailable):
        main._serve(make, from_environment(SETTINGS), stopping)
    assert len(asked) == 1
