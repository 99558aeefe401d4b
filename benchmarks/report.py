"""Runs the benchmarks and writes their output to `docs/results/benchmarks.md`.

A benchmark is a script in this directory that can be run by itself (it has a `__main__` guard).
It prints one JSON object a line and nothing else on stdout. Each script has its own section of the
report; running one again replaces that section and leaves the others alone.

    python benchmarks/report.py              all
    python benchmarks/report.py match text   bench_match and bench_text
    python benchmarks/report.py match -- --queries 100000
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "docs" / "results" / "benchmarks.md"
Row: TypeAlias = dict[str, object]

HEAD = """\
# Benchmarks

Written by `make bench`; each section by its script under `benchmarks`. Machines differ and
drift: compare ratios within one section rather than figures between sections.
"""
_SECTION = re.compile(r"^(?=## )", re.MULTILINE)
# Optional in a name.
_PREFIX = "bench_"
_GUARD = re.compile(r"^if __name__ == ['\"]__main__['\"]:", re.MULTILINE)
# Wider tables are unreadable in a rendered page; further columns become a table of their own.
_COLUMNS_MAX = 10


class BenchmarkError(RuntimeError):
    """A benchmark failed, or printed a line that is not a JSON object."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one script.

    Attributes:
        name: of the script, without suffix.
        command: as a shell would take it, relative to the repository.
        machine: see `describe_machine`.
        when: ISO date and minute, UTC.
        revision: of the repository, with `+` when files differ from it.
        rows: its output.
    """

    name: str
    command: str
    machine: str
    when: str
    revision: str
    rows: tuple[Row, ...]


def describe_machine() -> str:
    """Returns processor, cores, memory, operating system and Python, in a line."""
    processor = platform.processor() or platform.machine()
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{processor}, {cores} cores, {memory_bytes / 2**30:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def revision() -> str:
    """Returns the measured commit; empty outside a clone."""
    head = _git("rev-parse", "--short", "HEAD")
    # The report itself changes with every section that is written.
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs")
    return head + ("+" if changed else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def parse_row(line: str, name: str) -> Row:
    """Parses one printed line.

    Raises:
        BenchmarkError: it is not a JSON object.
    """
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise BenchmarkError(f"{name} printed what is no JSON object: {line!r}")
    return row


def _cell(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        # Four digits are more precise than the drift of any machine.
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("|", "\\|")


def render_table(rows: Sequence[Row]) -> str:
    """Returns tables; rows with the same members share one, in order of first appearance."""
    shapes: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        shapes.setdefault(tuple(row), []).append(row)
    tables: list[str] = []
    for members, alike in shapes.items():
        # A row that is too wide for a table is transposed.
        if len(members) > _COLUMNS_MAX:
            tables.extend(_table(("", "value"), list(row.items())) for row in alike)
        else:
            tables.append(_table(members, [tuple(row.values()) for row in alike]))
    return "\n\n".join(tables)


def _table(head: Iterable[str], body: Iterable[Sequence[object]]) -> str:
    head = tuple(head)
    lines = [head, ("---",) * len(head), *(tuple(map(_cell, cells)) for cells in body)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def render_section(run: Run) -> str:
    """Returns the section of a script."""
    return (
        f"## {run.name}\n\n"
        f"`{run.command}`  \n{run.when} UTC, revision {run.revision or 'unknown'}  \n"
        f"{run.machine}\n\n{render_table(run.rows)}\n"
    )


def replace_section(report: str, run: Run) -> str:
    """Returns the report with the section of this run in place of the earlier one.

    Sections are in alphabetical order, so that a report does not depend on the order of runs.
    """
    sections = {}
    for section in _SECTION.split(report)[1:]:
        name = section.partition("\n")[0].removeprefix("## ")
        sections[name] = section.rstrip() + "\n"
    sections[run.name] = render_section(run)
    return "\n".join([HEAD, *(sections[name] for name in sorted(sections))])


def scripts() -> dict[str, Path]:
    """Returns the benchmarks by name."""
    return {
        path.stem: path
        for path in sorted(Path(__file__).parent.glob("*.py"))
        if path.name != Path(__file__).name and _GUARD.search(path.read_text())
    }


def measure(path: Path, arguments: Sequence[str]) -> Run:
    """Runs one script; passes its lines on to stdout as they are printed.

    Raises:
        BenchmarkError: it failed, printed nothing, or printed anything but JSON objects.
    """
    name = path.stem
    spoken = ["python", str(path.relative_to(ROOT)), *arguments]
    started = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    rows = []
    # Support modules are found as siblings (by the script's own directory) and as `tests.…`.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    with subprocess.Popen(
        [sys.executable, str(path), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                if line.strip():
                    row = parse_row(line, name)
                    print(json.dumps({"benchmark": name, **row}), flush=True)
                    rows.append(row)
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        raise BenchmarkError(f"{name} ended with status {child.returncode}")
    if not rows:
        raise BenchmarkError(f"{name} printed nothing")
    return Run(name, shlex.join(spoken), describe_machine(), started, revision(), tuple(rows))


def main(arguments: Sequence[str]) -> int:
    """Runs the named benchmarks, or all; returns the exit status."""
    known = scripts()
    parser = argparse.ArgumentParser(description="Runs benchmarks and keeps a report.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known) or "none yet")
    parser.add_argument("--report", type=Path, default=REPORT)
    own, passed = _split(arguments)
    options = parser.parse_args(own)
    names = [name if name in known else f"{_PREFIX}{name}" for name in options.names]
    unknown = sorted(name for name in names if name not in known)
    if unknown:
        reported = ", ".join(name.removeprefix(_PREFIX) for name in unknown)
        there = ", ".join(name.removeprefix(_PREFIX) for name in known)
        parser.error(f"no such benchmark: {reported}; there are {there}")
    failed = False
    for name in names or known:
        print(f"== {name}", file=sys.stderr)
        try:
            run = measure(known[name], passed)
        except BenchmarkError as error:
            # The others are still worth their time.
            print(f"error: {error}", file=sys.stderr)
            failed = True
            continue
        # Read again each time: a long run must not undo what another wrote meanwhile.
        report = options.report.read_text() if options.report.exists() else ""
        options.report.parent.mkdir(parents=True, exist_ok=True)
        options.report.write_text(replace_section(report, run))
    return int(failed)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the arguments before and after `--`."""
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    return list(arguments[:at]), list(arguments[at + 1 :])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
