"""Tests hand limits in; they do not patch constants of modules.

A module that imports a constant by its name does not notice that its home is patched: the test goes
on under the usual limit and says nothing. Limits are dataclasses that constructors take
(`limits.py` of each folder), so a test passes `replace(LIMITS, steps_max=5)`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("tests", "benchmarks")

# File and name → why there is no other way.
_OF_MAPS = "what a valid map is, the same in every process: nobody is given it"
_OF_SLICES = "what a valid slice is, the same in every process: nobody is given it"
ALLOWED = {
    ("tests/paper/test_balance_swarm.py", "CELLS_MAX"): _OF_MAPS,
    ("tests/unit/schemes/map/test_map_bounds.py", "LEAVES_MAX"): _OF_MAPS,
    ("tests/unit/schemes/map/test_map_bounds.py", "NODES_MAX"): _OF_MAPS,
    ("tests/unit/schemes/map/test_refused_proposals.py", "INFLATED_BYTES_MAX"): _OF_MAPS,
    ("tests/unit/codec/test_slice_files.py", "ROWS_MAX"): _OF_SLICES,
    ("tests/unit/codec/test_slice_files.py", "BYTES_MAX"): _OF_SLICES,
    ("tests/unit/runtime/process/test_clock_jumps.py", "_WALL"): "the clock of the process",
    ("tests/unit/benchmarks/test_benchmark_report.py", "ROOT"): "the path of the repository",
}

_CONSTANT = re.compile(r"(.*\.)?(_?[A-Z][A-Z0-9_]+)")
_SETTERS = ("setattr", "delattr", "object", "patch")


def constants_in(nodes: list[ast.expr]) -> Iterator[str]:
    """Yields the names of constants among strings, such as `"STEPS_MAX"` or `"a.b.STEPS_MAX"`."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = _CONSTANT.fullmatch(node.value)
            if found is not None:
                yield found[2]


def is_setter(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    return name in _SETTERS


def patched_in(source: str) -> Iterator[tuple[int, str]]:
    """Yields line and name of each constant that a file patches."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and is_setter(node):
            for name in constants_in(node.args[:2]):
                yield node.lineno, name
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Attribute) and _CONSTANT.fullmatch(target.attr):
                    yield node.lineno, target.attr
        elif isinstance(node, ast.Tuple) and len(node.elts) > 1:
            # A row of a table of patches: (module, "NAME", value).
            first, second = node.elts[:2]
            if isinstance(first, ast.Name | ast.Attribute) and not ast.unparse(first).isupper():
                for name in constants_in([second]):
                    yield node.lineno, name
        elif isinstance(node, ast.FunctionDef):
            yield from _by_parameter(node)


def _by_parameter(function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    """Yields the constants whose names a function is given to patch."""
    calls = [each for each in ast.walk(function) if isinstance(each, ast.Call)]
    if any(
        is_setter(call) and len(call.args) > 1 and isinstance(call.args[1], ast.Name)
        for call in calls
    ):
        for decorator in function.decorator_list:
            strings = [each for each in ast.walk(decorator) if isinstance(each, ast.Constant)]
            for name in constants_in([*strings]):
                yield function.lineno, name


def test_limits_are_handed_in() -> None:
    faults, found = [], set()
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if path == Path(__file__).resolve():
                continue
            for line, constant in patched_in(path.read_text()):
                found.add((name, constant))
                if (name, constant) not in ALLOWED:
                    faults.append(f"{name}, line {line}: {constant} is patched; hand it in")
    assert not faults, "\n".join(faults)
    assert not ALLOWED.keys() - found, "no longer needed"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('monkeypatch.setattr(slot, "STEPS_MAX", 5)', ["STEPS_MAX"]),
        ('monkeypatch.setattr("a.b.STEPS_MAX", 5)', ["STEPS_MAX"]),
        ('monkeypatch.setattr(slot, "_FREE_MIN", 4)', ["_FREE_MIN"]),
        ('with patch.object(slot, "STEPS_MAX", 5): pass', ["STEPS_MAX"]),
        ('with mock.patch("a.b.STEPS_MAX", 5): pass', ["STEPS_MAX"]),
        ('setattr(slot, "STEPS_MAX", 5)', ["STEPS_MAX"]),
        ("slot.STEPS_MAX = 5", ["STEPS_MAX"]),
        ('BOUNDS = ((slot, "STEPS_MAX", 5),)', ["STEPS_MAX"]),
        (
            '@pytest.mark.parametrize("name", ["STEPS_MAX"])\n'
            "def test(name, monkeypatch):\n    monkeypatch.setattr(slot, name, 5)",
            ["STEPS_MAX"],
        ),
        ('monkeypatch.setattr(slot, "take", None)', []),
        ('monkeypatch.setattr(Slot, "_limits", replace(LIMITS, steps_max=5))', []),
        ('monkeypatch.setenv("SIROCCO_SLOTS", "5")', []),
        ('KEYS = ((INTAKE, "KEY"),)', []),
        ("STEPS_MAX = 5", []),
    ],
)
def test_what_is_a_patch(source: str, names: list[str]) -> None:
    assert [name for _, name in patched_in(source)] == names
