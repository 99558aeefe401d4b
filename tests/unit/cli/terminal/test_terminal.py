"""Text of other users can neither control a terminal nor imitate a line of the tool."""

from __future__ import annotations

import ast
import io
import json
import sys
from pathlib import Path

import pytest

import sirocco.cli
from sirocco.cli.terminal import terminal
from sirocco.cli.terminal.terminal import console, json_line, note, print_json, print_lines, shown

# Clears the screen, sets the title by C1, changes the direction, ends the line in four ways.
HOSTILE = "a\x1b[2Jb\x9b31mc\u202ed\ne\rf\u2028g\x00\x7f\x07"
COMMANDS = "\x1b\x9b\u202e\n\r\u2028\x00\x7f\x07"


def test_controls_are_escaped_and_words_stay() -> None:
    assert shown(HOSTILE) == "a\\x1b[2Jb\\x9b31mc\\u202ed\\ne\\rf\\u2028g\\x00\\x7f\\x07"
    plain = "Füße 東京 ليل 👩‍🚒 a\\b [red] 5½"
    assert shown(plain) == plain


def test_json_means_the_same_without_controls() -> None:
    line = json_line({"text": HOSTILE, HOSTILE: 1, "tea": "ليل"})
    assert not set(line) & set(COMMANDS)
    assert "ليل" in line
    assert json.loads(line) == {"text": HOSTILE, HOSTILE: 1, "tea": "ليل"}


def test_each_way_out_prints_a_line_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(HOSTILE, "next")
    print_json({"text": HOSTILE})
    note(HOSTILE)
    out, err = capsys.readouterr()
    assert (out.count("\n"), err.count("\n")) == (3, 1)
    assert not (set(out) | set(err)) & set(COMMANDS) - {"\n"}


def test_what_the_terminal_cannot_encode_does_not_end_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    print_lines("Füße \ud800")
    assert out.buffer.getvalue() == b"F\\xfc\\xdfe \\ud800\n"


def test_tables_take_no_markup_and_no_controls(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table  # noqa: PLC0415 - slow to import

    table = Table("query", box=None)
    table.add_row(f"[red]{HOSTILE}[/red] :smile:")
    console(width=300).print(table)
    out = capsys.readouterr().out
    assert "[red]a\\x1b[2J" in out
    assert ":smile:" in out
    assert not set(out) & set(COMMANDS) - {"\n"}


def test_nothing_of_the_tool_prints_by_itself() -> None:
    """Forbids `print` and separate rich consoles, which would pass control characters."""
    found = []
    for path in Path(sirocco.cli.__file__).parent.rglob("*.py"):
        if path == Path(terminal.__file__):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in {"print", "Console"}:
                    found.append(f"{path.name}:{node.lineno}")
            elif isinstance(node, ast.Attribute) and node.attr in {"stdout", "stderr"}:
                where = f"{path.name}: {ast.unparse(node)}"
                if where != "__main__.py: sys.stdout":
                    found.append(where)
    assert not found


def test_json_is_printed_in_every_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal in Latin-1 ended the command at the first line with another character."""
    members = {"id": "火€ 👩‍🚒 é", "x": 1}
    for encoding in ("ascii", "latin-1", "utf-8"):
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        monkeypatch.setattr(sys, "stdout", out)
        print_json(members)
        out.flush()
        assert json.loads(out.buffer.getvalue().decode(encoding)) == members  # type: ignore[attr-defined]
