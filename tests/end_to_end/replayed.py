"""Replays of files, in this process or in one of their own, compared with the oracle."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sirocco.cli.__main__ import main
from tests.oracle import agrees, read_members

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 600


@dataclass(frozen=True)
class Replayed:
    """The results of a replay."""

    status: int
    summary: dict[str, Any]
    stderr: str
    lines: list[dict[str, Any]]


def write_lines(path: Path, lines: Sequence[object]) -> Path:
    """Writes a file of JSON lines."""
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(f"{line}\n" for line in text))
    return path


def run_here(*arguments: object) -> tuple[int, str, str]:
    """Runs `sirocco replay` on the embedded log; returns its status, output and errors.

    A process of its own would spend five seconds on its imports, more than on most replays.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(["replay", *map(str, arguments)])
    return status, out.getvalue(), err.getvalue()


def _arguments(directory: Path, evaluators: int, *options: object) -> list[str]:
    asked = ["--results", directory / "results", "--arrival", "event"]
    asked += ["--objects", directory / "objects", "--queries", directory / "queries"]
    return [str(each) for each in (*asked, "--evaluators", evaluators, *options)]


def start(directory: Path, evaluators: int, *options: object) -> subprocess.Popen[str]:
    """Starts a replay of the files `objects` and `queries` of a directory, as a process."""
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sirocco.cli",
            "replay",
            *_arguments(directory, evaluators, *options),
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(directory)},
    )


def finish(directory: Path, process: subprocess.Popen[str]) -> Replayed:
    """Waits for the end of a replay."""
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    return _replayed(directory, process.returncode, out, err)


def _replayed(directory: Path, status: int, out: str, err: str) -> Replayed:
    results = directory / "results"
    summary = json.loads(out.splitlines()[-1]) if out else {}
    lines = read_members(results) if results.exists() else []
    return Replayed(status, summary, err, lines)


def replay(directory: Path, evaluators: int, *options: object) -> Replayed:
    """Replays the files `objects` and `queries` of a directory on the embedded log."""
    return _replayed(
        directory, *run_here(*_arguments(directory, evaluators, "--log", "memory", *options))
    )


def agree(
    done: Replayed,
    objects: list[dict[str, Any]],
    queries: list[dict[str, Any]],
    bad_lines: Sequence[tuple[str, int]] = (),
    *,
    seed: int,
) -> None:
    """Checks that a replay answered as the oracle does."""
    assert done.status in (0, 3), done.stderr
    received = agrees(done.lines, objects, queries, bad_lines=bad_lines)
    listed = "\n".join(received[:10])
    assert not received, (
        f"seed {seed}, {len(received)} differences:\n{listed}\n{done.stderr[-2000:]}"
    )
    assert done.status == (3 if bad_lines else 0), done.stderr
    assert done.summary["objects"] == len(objects)
    assert done.summary["queries"] == len(queries)
