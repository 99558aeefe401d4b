"""Which kernels are compiled in advance, and in which order."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sirocco import kernels
from sirocco.kernels.jit.precompile import AT_FIRST_USE, imports_of_kernels, order

FOLDER = Path(str(kernels.__file__)).parent
FOLDERS = {path.parent.name for path in FOLDER.glob("*/__init__.py")}

# The kernels that a process of services, and the demo, imports.
STARTED = """
import sys
import sirocco.services.embedded, sirocco.cli.demo.run
prefix = "sirocco.kernels."
print(*(name.removeprefix(prefix) for name in sys.modules if name.startswith(prefix)))
"""

COMPILED = """
from sirocco.kernels.jit.precompile import compile_ahead
compiled = []
compile_ahead(compiled.append, at_start={at_start})
print(len(compiled))
"""


def run(program: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


def imports_by_syntax(path: Path) -> set[str]:
    """Returns the kernels that a module imports, from Python's own parser."""
    prefix = "sirocco.kernels."
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{each.name}" for each in node.names]
            found |= {name for name in [node.module, *names] if name.startswith(prefix)}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names if each.name.startswith(prefix)}
    modules = {name.removeprefix(prefix) for name in found}
    return {name for name in modules if (FOLDER / f"{name.replace('.', '/')}.py").exists()}


def test_a_module_comes_before_those_that_import_it_and_the_longest_chain_first() -> None:
    imports = {"a": set(), "b": {"a"}, "c": {"b"}, "d": set(), "e": {"d"}}
    costs = {"a": 1, "b": 1, "c": 9, "d": 5, "e": 1}
    assert order(imports, costs) == ["a", "b", "c", "d", "e"]


def test_imports_are_those_of_the_sources() -> None:
    imports = imports_of_kernels()
    assert imports["store.ranked_scan"] >= {
        "store.ranked_state",
        "store.slice_range",
        "jit.compiled",
    }
    assert "jit.precompile" not in imports
    for name, needed in imports.items():
        assert needed == imports_by_syntax(FOLDER / f"{name.replace('.', '/')}.py"), name


def test_what_waits_for_its_first_use_is_not_imported_at_the_start() -> None:
    started = set(run(STARTED).split())
    assert started & AT_FIRST_USE == set()
    # All kernels imported at the start are compiled for it.
    assert (
        started - FOLDERS - {"jit.cache", "jit.precompile"}
        <= imports_of_kernels().keys() - AT_FIRST_USE
    )


def test_nothing_that_starts_imports_what_waits() -> None:
    imports = imports_of_kernels()
    for name in imports.keys() - AT_FIRST_USE:
        assert imports[name] & AT_FIRST_USE == set(), name


@pytest.mark.parametrize("at_start", [False, True])
def test_a_stamp_file_skips_the_compilation(tmp_path: Path, at_start: bool) -> None:
    mark = "from sirocco.kernels.jit.cache import completion_mark; completion_mark('all').touch()\n"
    program = mark + COMPILED.format(at_start=at_start)
    assert run(program, SIROCCO_KERNEL_CACHE=str(tmp_path)) == "0\n"


def test_without_native_code_nothing_is_compiled(tmp_path: Path) -> None:
    program = COMPILED.format(at_start=False)
    assert run(program, SIROCCO_KERNEL_CACHE=str(tmp_path), SIROCCO_JIT="0") == "0\n"
