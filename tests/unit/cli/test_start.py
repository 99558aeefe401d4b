"""The tool starts quickly: a command imports only what it needs."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from sirocco.cli import __main__ as tool

_SCRIPT = """
import sys
from sirocco.cli.__main__ import main
for command in {commands}:
    try:
        main([*command, "--help"])
    except SystemExit as end:
        assert end.code == 0
print(*sys.modules, file=sys.stderr)
"""


def _modules_of(commands: list[list[str]]) -> set[str]:
    script = _SCRIPT.format(commands=commands)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return set(done.stderr.decode().split())


def test_help_imports_neither_client_nor_engine() -> None:
    assert _modules_of([[]]).isdisjoint({"grpc", "numpy", "numba", "rich"})


def test_no_command_needs_the_compiler_for_its_help() -> None:
    modules = _modules_of([[name] for name in tool._COMMANDS])
    assert "sirocco.cli.search.command" in modules
    assert modules.isdisjoint({"numba", "llvmlite"})


@pytest.mark.parametrize(
    "arguments", [["cluster"], ["search", "range"], ["queries", "get", "q"], ["explain", "q"]]
)
def test_a_call_without_a_cluster_fails_without_the_compiler(arguments: list[str]) -> None:
    script = (
        "import sys; from sirocco.cli.__main__ import main; "
        f"code = main([*{arguments}, '--router', '127.0.0.1:1', '--timeout', '0.2']); "
        "assert 'numba' not in sys.modules, 'numba'; sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 4, done.stderr.decode()


def test_the_list_of_commands_describes_each(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tool.main(["--help"])
    text = capsys.readouterr().out
    for name, (_, purpose) in tool._COMMANDS.items():
        words = r"\s+".join(map(re.escape, purpose.split()))
        assert re.search(rf"^ +{name}\s+{words}", text, re.MULTILINE), name


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["--debug"]])
def test_nonsense_names_the_commands(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        tool.main(arguments)
    assert end.value.code == 2
    assert "COMMAND" in capsys.readouterr().err
