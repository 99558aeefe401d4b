"""What a process says of settings of which only the start shows that they are of no use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from services.main import EXIT_FAILURE, EXIT_SETTINGS


def started(**variables: str) -> subprocess.CompletedProcess[str]:
    """A merger that ends before it asks anybody."""
    settings = {
        "SIROCCO_KAFKA": "127.0.0.1:1",
        "SIROCCO_REDIS": "redis://127.0.0.1:1",
        "SIROCCO_ARCHIVE": "memory://",
    }
    return subprocess.run(
        [sys.executable, "-m", "services.merger"],
        env={**os.environ, **settings, **variables},
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


def test_a_certificate_that_is_none_is_told_in_words(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("no certificate")
    done = started(SIROCCO_KAFKA_SECURITY="ssl", SIROCCO_KAFKA_CA=str(authority))
    assert done.returncode == EXIT_FAILURE
    assert "ssl.ca.location" in done.stderr
    assert "Traceback" not in done.stderr
