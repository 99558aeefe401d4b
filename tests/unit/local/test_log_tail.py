"""What is shown of the log of a process that did not start."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from sirocco.local.process import LocalProcess

Usage = namedtuple("Usage", "free")


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log that would name it is empty, as it cannot be written either."""
    process = LocalProcess("router-0", tmp_path, "sirocco", outlive=False)
    free = 1 << 30
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free))
    assert process.log_tail() == "(no log)"
    process.log_path.write_text("")
    assert process.log_tail() == ""
    free = 24 << 10
    assert process.log_tail() == f"the disk of {tmp_path} is full"
    process.log_path.write_text("it was well\n")
    assert process.log_tail() == f"it was well\nthe disk of {tmp_path} is full"
