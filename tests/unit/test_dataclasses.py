"""Values of many fields are created by name: a reader cannot follow twelve numbers by position."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("sirocco", "services", "loadgen", "sdk", "spark-jobs", "benchmarks", "scripts", "tests")
POSITIONAL_MAX = 6


def keywords_of(call: ast.expr) -> dict[str | None, str]:
    found = call.keywords if isinstance(call, ast.Call) else []
    return {each.arg: ast.unparse(each.value) for each in found}


def positional_fields(found: ast.ClassDef) -> int:
    """Returns how many fields of a dataclass may be given by position; 0 for other classes."""
    decorators = [
        each
        for each in found.decorator_list
        if ast.unparse(each).partition("(")[0].split(".")[-1] == "dataclass"
    ]
    if not decorators or keywords_of(decorators[0]).get("kw_only") == "True":
        return 0
    count = 0
    for each in found.body:
        if not isinstance(each, ast.AnnAssign):
            continue
        kind = ast.unparse(each.annotation)
        if kind.split(".")[-1] == "KW_ONLY":
            break
        given = keywords_of(each.value) if each.value is not None else {}
        is_named = given.get("init") == "False" or given.get("kw_only") == "True"
        count += not (is_named or "ClassVar" in kind)
    return count


def faults_of(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and positional_fields(node) > POSITIONAL_MAX:
            yield f"line {node.lineno}: {node.name} has {positional_fields(node)}, kw_only=True"


def test_dataclasses_of_many_fields_take_names_only() -> None:
    faults = [
        f"{path.relative_to(ROOT)}, {fault}"
        for source in SOURCES
        for path in sorted((ROOT / source).rglob("*.py"))
        for fault in faults_of(path.read_text())
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("decorator", "field", "is_fault"),
    [
        ("dataclass", "g: int", True),
        ("dataclass(frozen=True)", "g: int = 0", True),
        ("dataclasses.dataclass(slots=True)", "g: list = field(default_factory=list)", True),
        ("dataclass(kw_only=True)", "g: int", False),
        ("dataclass", "g: int = field(init=False)", False),
        ("dataclass", "g: ClassVar[int] = 3", False),
        ("dataclass", "_: KW_ONLY\n    g: int", False),
        ("final", "g: int", False),
    ],
)
def test_what_is_a_fault(decorator: str, field: str, is_fault: bool) -> None:
    fields = "".join(f"    {name}: int\n" for name in "abcdef")
    source = f"@{decorator}\nclass A:\n{fields}    {field}\n"
    assert bool(list(faults_of(source))) == is_fault
