"""Devices and JSON without an end: commands refuse them instead of reading for ever."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from sirocco.cli.explain import command as explain
from sirocco.cli.files.query_file import read_queries
from sirocco.cli.search import command as search
from sirocco.cli.terminal.remote import connect
from sirocco.cli.terminal.status import CommandError
from sirocco.loadgen.damage import DamagedFileError
from sirocco.loadgen.lines import BadLine, numbered_lines, read_objects

ZEROS = Path("/dev/zero")


def test_objects_of_a_line_without_an_end_are_one_bad_line() -> None:
    (batch,) = read_objects(ZEROS, "zeros")
    (bad,) = batch.bad
    assert (len(batch.lines), bad.line) == (0, 1)
    assert "no end within 256 MiB; is this a text?" in str(bad.error)


def test_queries_of_a_line_without_an_end_are_one_bad_line() -> None:
    (bad,) = read_queries(ZEROS, "zeros")
    assert isinstance(bad, BadLine)
    assert bad.line == 1
    assert "no end" in str(bad.error)


def test_lines_before_one_without_an_end_are_read(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    with file.open("wb") as out:
        out.write(b"one\ntwo\n")
        # A hole, which reads as zeros.
        out.truncate(300 << 20)
    lines = numbered_lines(file)
    assert [next(lines), next(lines)] == [(1, b"one\n"), (2, b"two\n")]
    with pytest.raises(DamagedFileError, match="from line 3 on"):
        next(lines)


def test_small_files_that_options_name_are_read_within_a_bound() -> None:
    """`--ca /dev/zero` took all memory."""
    args = argparse.Namespace(
        ca=ZEROS, token_file=None, server_name=None, router="127.0.0.1:1", timeout=1.0
    )
    with pytest.raises(CommandError, match="/dev/zero: is larger than"), connect(args):
        pass
    with pytest.raises(CommandError, match="/dev/zero: is larger than 16777216"):
        explain.read_query(str(ZEROS))


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000 + "1" + "}" * 200_000])
def test_json_that_is_nested_without_an_end_is_refused(text: str, tmp_path: Path) -> None:
    """It ended the command with status 1 and `RecursionError`."""
    file = tmp_path / "deep.json"
    file.write_text(text)
    with pytest.raises(CommandError, match=r"deep\.json: query: "):
        explain.read_query(str(file))
    with pytest.raises(CommandError, match="--where: is no JSON: nested too deeply"):
        search._json(text, "--where")
