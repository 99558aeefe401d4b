"""Unit tests wait on conditions: they do not sleep, and read no clock.

A sleep for luck is too short on a loaded machine and too long on every other; so is a time that a
test measures and compares. A test waits with `tests.support.waiting`, passes a clock to what it
tests, or counts what happens.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tests/unit", "tests/support")

# File and call → why there is no other way.
_WAIT = "the wait on a condition itself, which checks it again and again"
ALLOWED = {
    ("tests/support/waiting.py", "time.sleep"): _WAIT,
    ("tests/support/waiting.py", "asyncio.sleep"): _WAIT,
    ("tests/support/waiting.py", "time.monotonic"): _WAIT,
    ("tests/support/http_streams.py", "time.monotonic"): _WAIT,
}

_CLOCKS = {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}


def waits_in(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and name of each sleep and each look at a clock; turns of a loop are none."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio"):
            names = {each.name for each in node.names}
            for name in names & ({"sleep"} | (_CLOCKS if node.module == "time" else set())):
                yield node.lineno, f"{node.module}.{name}"
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name == "asyncio.sleep" and [ast.unparse(each) for each in node.args] == ["0"]:
            continue
        module, _, function = name.rpartition(".")
        is_sleep = module in ("time", "asyncio") and function == "sleep"
        if is_sleep or (module == "time" and function in _CLOCKS):
            yield node.lineno, name


def files() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def test_no_unit_test_sleeps_or_reads_a_clock() -> None:
    found: list[str] = []
    used: set[tuple[str, str]] = set()
    for path in files():
        name = str(path.relative_to(ROOT))
        for line, call in waits_in(path.read_text()):
            used.add((name, call))
            if (name, call) not in ALLOWED:
                found.append(f"{name}:{line}: {call}")
    assert not found, "wait on a condition, or pass a clock: " + ", ".join(found)
    assert used == set(ALLOWED), "exceptions that nobody needs any more"


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("time.sleep(1)", ["time.sleep"]),
        ("await asyncio.sleep(0.1)", ["asyncio.sleep"]),
        ("await asyncio.sleep(0)", []),
        ("assert time.monotonic() - begin_s < 1", ["time.monotonic"]),
        ("from time import perf_counter", ["time.perf_counter"]),
        ("time.sleep", []),
        ("loop.time()", []),
    ],
)
def test_the_search_finds_waits(source: str, calls: list[str]) -> None:
    assert [call for _, call in waits_in(source)] == calls
