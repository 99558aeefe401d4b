"""A file that is read again: what was read last stays until the file is valid again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from sirocco.model.errors import InvalidArgument
from sirocco.runtime.process.watched_file import BYTES_MAX, WatchedFile


def read(data: bytes) -> int:
    if not data.isdigit():
        raise InvalidArgument("is no number")
    return int(data)


def watched(path: Path, bytes_max: int = BYTES_MAX) -> WatchedFile[int]:
    setting = "SIROCCO_NUMBERS"
    return WatchedFile(path, read, "numbers", setting, look_s=0.0, bytes_max=bytes_max)


def test_what_was_read_last_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = tmp_path / "numbers"
    path.write_text("7")
    file = watched(path)
    assert file.contents == 7
    path.write_text("no number")
    assert file.contents == 7
    path.unlink()
    assert file.contents == 7
    path.write_text("12")
    assert file.contents == 12
    events = [record.event for record in caplog.records]  # type: ignore[attr-defined]
    assert events == ["numbers_unreadable", "numbers_unreadable", "numbers_read"]


def test_at_the_start_it_has_to_be_valid(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    with pytest.raises(InvalidArgument) as caught:
        watched(path)
    assert caught.value.field == "SIROCCO_NUMBERS"
    path.write_text("x")
    with pytest.raises(InvalidArgument, match="SIROCCO_NUMBERS: is no number"):
        watched(path)
    path.write_text("12345")
    with pytest.raises(InvalidArgument, match="more than 4 bytes"):
        watched(path, bytes_max=4)
