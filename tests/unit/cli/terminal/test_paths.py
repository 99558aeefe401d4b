"""No option accepts an empty value, in any command."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from sirocco.cli.__main__ import _COMMANDS, command_module
from sirocco.cli.replay.command import _run as run_replay
from sirocco.cli.replay.results import ResultsFile
from sirocco.cli.subscribe import _keep as keep_cursor
from sirocco.cli.terminal.paths import filled, naming, path
from sirocco.cli.terminal.status import CommandError


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from parsers(each)


def options() -> Iterator[tuple[str, argparse.Action]]:
    for command in _COMMANDS:
        top = argparse.ArgumentParser(prog="sirocco")
        command_module(command).add_parser(top.add_subparsers())
        for parser in parsers(top):
            for action in parser._actions:
                if action.nargs == 0 or isinstance(action, argparse._SubParsersAction):
                    continue
                yield f"{parser.prog} {action.dest}", action


@pytest.mark.parametrize("text", ["", "  "])
def test_every_option_of_every_command_refuses_an_empty_value(text: str) -> None:
    taken = []
    for name, action in options():
        if action.choices is not None:
            assert text not in action.choices
            continue
        read = action.type
        assert callable(read) or read is None
        try:
            taken.append((name, text if read is None else read(text)))
        except (argparse.ArgumentTypeError, ValueError):
            continue
    assert taken == []


def test_what_is_not_empty_is_taken_as_it_is() -> None:
    assert filled(" a b ") == " a b "
    assert path("a/b") == Path("a/b")
    with pytest.raises(argparse.ArgumentTypeError, match="is empty"):
        path("")


def test_a_full_disk_is_reported_with_the_file(tmp_path: Path) -> None:
    full = Path("/dev/full")
    many = {"query": "x" * (2 << 20)}
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        ResultsFile(full).write(many)
    out = ResultsFile(full)
    out.write({"query": "q"})
    with pytest.raises(OSError, match="/dev/full"):
        out.flush()
    with pytest.raises(OSError, match="/dev/full"), ResultsFile(full) as out:
        out.write_end("q", "ttl")
    # An error that already names its file, or is not a system error, is unchanged.
    with pytest.raises(FileNotFoundError, match="missing"), naming(tmp_path):
        (tmp_path / "missing").read_bytes()
    with pytest.raises(OSError, match=r"^odd$"), naming(tmp_path):
        raise OSError("odd")


def test_a_cursor_that_cannot_be_written_leaves_the_former_one(tmp_path: Path) -> None:
    cursor = tmp_path / "cursor"
    keep_cursor(cursor, "0.1")
    (tmp_path / "cursor.new").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"cursor\.new"):
        keep_cursor(cursor, "0.2")
    assert cursor.read_text() == "0.1"


def test_a_replay_does_not_overwrite_what_it_reads(tmp_path: Path) -> None:
    objects, queries = tmp_path / "objects", tmp_path / "queries"
    for each in (objects, queries):
        each.write_text("{}\n")
    (tmp_path / "link").symlink_to(queries)
    parser = argparse.ArgumentParser()
    command_module("replay").add_parser(parser.add_subparsers())
    given = ["replay", "--objects", str(objects), "--queries", str(queries), "--results"]
    for out in (objects, queries, tmp_path / "link"):
        with pytest.raises(CommandError, match="--results would overwrite"):
            run_replay(parser.parse_args([*given, str(out)]))
        assert objects.read_text() == queries.read_text() == "{}\n"
