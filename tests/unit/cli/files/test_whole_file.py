"""Files that are read as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from sirocco.cli.files.whole_file import read_whole
from sirocco.cli.terminal.status import CommandError


def test_a_file_is_read_up_to_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_bytes(b"x" * 100)
    assert read_whole(path, 100) == b"x" * 100
    with pytest.raises(CommandError, match=r"map: is larger than 99 bytes"):
        read_whole(path, 99)
    # It has no end.
    with pytest.raises(CommandError, match="/dev/zero"):
        read_whole("/dev/zero", 1_000)
    with pytest.raises(FileNotFoundError):
        read_whole(tmp_path / "missing")
