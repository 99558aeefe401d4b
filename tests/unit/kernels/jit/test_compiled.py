"""The kernel decorator: its cache directory, what it compiles, and the mode without compilation."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from sirocco.kernels.jit import cache, compiled, libraries

PROGRAM = """
import sys
sys.path.insert(0, {root!r})
import numpy as np
from numba import types
from sirocco.kernels.jit.cache import cache_directory
from sirocco.kernels.jit.compiled import JIT_ENABLED, kernel
from sirocco.kernels.alone import three
from sirocco.kernels.base.caller import two
from sirocco.kernels.callee import one

@kernel("u8(u8)")
def double(x):
    return x * np.uint64(2)

@kernel
def triple(x):
    return x * 3

@kernel(types.int64(types.Array(types.int64, 1, "C", readonly=True)))
def total(values):
    result = 0
    for i in range(values.shape[0]):
        result += values[i]
    return result

values = np.arange(4)
values.flags.writeable = False
own = double(np.uint64(2**63 + 5)), triple(4), total(values)
print(JIT_ENABLED, *own, one(), two(), three(), sep=" ")
print(cache_directory() if JIT_ENABLED else "")
print(*(cache_directory(name).name for name in ("callee", "base.caller") if JIT_ENABLED))
"""
CALLEE = """
from sirocco.kernels.jit.compiled import kernel

@kernel("i8()")
def one():
    return {value}
"""
CALLER = """
from sirocco.kernels import (
    callee as imported,  # in a folder, with a name of its own
)
from sirocco.kernels.jit.compiled import kernel

@kernel("i8()")
def two():
    return imported.one() + 1
"""
ALONE = """
from sirocco.kernels.jit.compiled import kernel

@kernel("i8()")
def three():
    return 3
"""


def copy_of_kernels(folder: Path) -> Path:
    """Creates a package with the decorator and one kernel that a test may edit."""
    package = folder / "sirocco" / "kernels"
    package.mkdir(parents=True)
    (folder / "sirocco" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "jit").mkdir()
    (package / "jit" / "__init__.py").touch()
    for module in (cache, compiled, libraries):
        assert module.__file__ is not None
        shutil.copy(module.__file__, package / "jit")
    (package / "callee.py").write_text(CALLEE.format(value=1))
    (package / "alone.py").write_text(ALONE)
    (package / "base").mkdir()
    (package / "base" / "__init__.py").touch()
    (package / "base" / "caller.py").write_text(CALLER)
    (folder / "program.py").write_text(PROGRAM.format(root=str(folder)))
    return package


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        # Without bytecode: an edit within a second that keeps the length would not be noticed.
        [sys.executable, "-B", str(folder / "program.py")],
        env={k: v for k, v in os.environ.items() if not k.startswith("SIROCCO_")} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_edit_is_seen_by_the_module_and_those_that_import_it_and_by_no_other(
    tmp_path: Path,
) -> None:
    package = copy_of_kernels(tmp_path)
    root = tmp_path / "cache"
    first = run(tmp_path, SIROCCO_KERNEL_CACHE=str(root))
    assert first.stdout.splitlines()[0] == "True 10 12 6 1 2 3", first.stderr
    directory = Path(first.stdout.splitlines()[1])
    assert directory.parent == root
    assert list(directory.rglob("*.nbi")), "nothing was cached"
    before = {path for path in root.iterdir() if path.is_dir()}
    assert {path.name.rpartition("-")[0] for path in before} == {
        "all", "alone", "base.caller", "callee",
    }  # fmt: skip
    (package / "callee.py").write_text(CALLEE.format(value=2))
    second = run(tmp_path, SIROCCO_KERNEL_CACHE=str(root))
    assert second.stdout.splitlines()[0] == "True 10 12 6 2 3 3", second.stderr
    fresh = {path.name for path in root.iterdir() if path.is_dir() and path not in before}
    assert fresh == {
        Path(second.stdout.splitlines()[1]).name,
        *second.stdout.splitlines()[2].split(),
    }


def test_two_copies_of_the_same_sources_share_what_is_compiled(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    copies = tmp_path / "one", tmp_path / "other"
    for copy in copies:
        copy_of_kernels(copy)
    assert run(copies[0], SIROCCO_KERNEL_CACHE=str(root)).returncode == 0
    # Those of the program are kept by its path: they are of no module of kernels.
    compiled_once = sorted(root.glob("*/*.nb?"))
    assert compiled_once
    second = run(copies[1], SIROCCO_KERNEL_CACHE=str(root))
    assert second.stdout.splitlines()[0] == "True 10 12 6 1 2 3", second.stderr
    assert sorted(root.glob("*/*.nb?")) == compiled_once


def test_kernels_that_check_their_indices_are_kept_apart(tmp_path: Path) -> None:
    copy_of_kernels(tmp_path)
    root = tmp_path / "cache"
    checked = run(tmp_path, SIROCCO_KERNEL_CACHE=str(root), SIROCCO_BOUNDS="1")
    assert checked.stdout.splitlines()[0] == "True 10 12 6 1 2 3", checked.stderr
    assert Path(checked.stdout.splitlines()[1]).parent == root / "bounds"
    assert not [path for path in root.iterdir() if path.name.startswith("all")]


def test_without_compilation_results_are_the_same(tmp_path: Path) -> None:
    copy_of_kernels(tmp_path)
    plain = run(tmp_path, SIROCCO_JIT="0", SIROCCO_KERNEL_CACHE="/proc/none")
    assert plain.stdout.splitlines()[0] == "False 10 12 6 1 2 3", plain.stderr
    assert plain.stderr == ""


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    copy_of_kernels(tmp_path)
    failed = run(tmp_path, SIROCCO_KERNEL_CACHE="/proc/none")
    assert failed.returncode != 0
    assert "is not writable" in failed.stderr
    assert "SIROCCO_KERNEL_CACHE" in failed.stderr


def test_old_directories_are_removed(tmp_path: Path) -> None:
    copy_of_kernels(tmp_path)
    root = tmp_path / "cache"
    for i in range(20):
        (root / f"all-old{i:02}").mkdir(parents=True)
        os.utime(root / f"all-old{i:02}", (i, i))
    assert run(tmp_path, SIROCCO_KERNEL_CACHE=str(root)).returncode == 0
    left = sorted(p.name for p in root.iterdir() if p.name.startswith("all-old"))
    assert left == [f"all-old{i:02}" for i in range(5, 20)]


HELPERS = """
import numpy as np
from sirocco.kernels.jit.compiled import kernel

@kernel
def plus(x, y):
    return x + y

@kernel("i8(i8)")
def plus_one(x):
    return plus(x, 1)
"""
CALLS_HELPERS = """
from sirocco.kernels.helpers import plus, plus_one
from sirocco.kernels.jit.compiled import kernel

@kernel("i8(i8)")
def plus_three(x):
    return plus(plus_one(x), 2)
"""
LOOKS = """
import sys
sys.path.insert(0, {root!r})
from llvmlite import binding
from numba.core import event
calls = []
parse = binding.parse_bitcode
binding.parse_bitcode = lambda *args: calls.append("bitcode") or parse(*args)
with event.install_recorder("numba:compile") as recorder:
    from sirocco.kernels.{module} import {names}
    {statement}
    compiled = [e.data["dispatcher"].py_func.__name__ for _, e in recorder.buffer if e.is_start]
print(*calls, *sorted(compiled))
"""


def look(folder: Path, module: str, names: str, statement: str) -> str:
    """Returns which functions a process compiled, and whether it read bitcode before."""
    program = folder / "program.py"
    text = LOOKS.format(root=str(folder), module=module, names=names, statement=statement)
    program.write_text(text)
    done = run(folder, SIROCCO_KERNEL_CACHE=str(folder / "cache"))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_bitcode_is_read_when_a_caller_is_compiled_and_at_no_start(tmp_path: Path) -> None:
    package = copy_of_kernels(tmp_path)
    (package / "helpers.py").write_text(HELPERS)
    assert look(tmp_path, "helpers", "plus_one", "assert plus_one(1) == 2") == "plus plus_one"
    assert look(tmp_path, "helpers", "plus_one", "assert plus_one(1) == 2") == ""
    # A caller of another module includes both, and compiles neither.
    (package / "caller.py").write_text(CALLS_HELPERS)
    called = "assert plus_three(1) == 4"
    assert look(tmp_path, "caller", "plus_three", called) == "bitcode bitcode plus_three"
    assert look(tmp_path, "caller", "plus_three", called) == ""


def test_a_helper_is_compiled_for_python_when_python_calls_it_and_then_kept(tmp_path: Path) -> None:
    package = copy_of_kernels(tmp_path)
    (package / "helpers.py").write_text(HELPERS)
    called = "assert (plus(1, 2), plus(x=1, y=2.5), plus(3, 4)) == (3, 3.5, 7)"
    assert look(tmp_path, "helpers", "plus, plus_one", "") == "plus plus_one"
    assert look(tmp_path, "helpers", "plus", called) == "plus plus"
    assert look(tmp_path, "helpers", "plus", called) == ""
    # Kernels go on with their own.
    assert look(tmp_path, "helpers", "plus, plus_one", "assert plus_one(plus(1, 2)) == 4") == ""
