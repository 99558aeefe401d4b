"""NumPy's types have one spelling: `np.int64`, with a byte order where bytes are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("sirocco", "services", "loadgen", "spark-jobs", "benchmarks", "tests")
MAKERS = frozenset(
    {"zeros", "ones", "empty", "full", "array", "asarray", "fromiter", "ascontiguousarray"}
)
BUILTIN = frozenset({"bool", "int", "float"})
# Types of the machine, whose sizes differ between them, and second names.
OTHERS = frozenset({"bool", "int_", "uint", "intc", "uintc", "long", "ulong", "single", "double"})


def faults_of(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            if ast.unparse(node.value) == "np" and node.attr in OTHERS:
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            is_made = name in MAKERS and ast.unparse(node.func.value) == "np"
            types = [each.value for each in node.keywords if each.arg == "dtype"]
            types += node.args[1:] if is_made else node.args[:1] if name == "astype" else []
            for each in types:
                if isinstance(each, ast.Name) and each.id in BUILTIN:
                    yield f"line {node.lineno}: {ast.unparse(node)}"


def test_types_have_one_spelling() -> None:
    faults = [
        f"{path.relative_to(ROOT)}, {fault}"
        for source in SOURCES
        for path in sorted((ROOT / source).rglob("*.py"))
        for fault in faults_of(path.read_text())
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "source", ["np.zeros(3, bool)", "x.astype(int)", "np.array(x, dtype=float)", "np.double(1)"]
)
def test_another_spelling_is_found(source: str) -> None:
    assert list(faults_of(source))
