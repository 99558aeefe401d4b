"""The contracts in proto/: their generated code, and compatibility with releases.

`proto/buf.yaml` names the rules, and buf checks them: style as a part of the linters, here what
would break a peer that was built from `proto/released.binpb`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
GENERATED = ("sdk/sirocco_api", "sirocco/internal_api")
BUF = Path(sysconfig.get_path("scripts"), "buf")


def buf(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([BUF, *arguments], capture_output=True, text=True, check=False)


def services() -> list[tuple[str, str]]:
    """Returns the name of each file that declares services, and the name of each service."""
    return [
        (path.stem, name)
        for path in sorted(PROTO.rglob("*.proto"))
        for name in re.findall(r"^service (\w+)", path.read_text(), re.MULTILINE)
    ]


def test_a_service_stands_in_a_file_of_its_name() -> None:
    assert services()
    for stem, name in services():
        assert stem == re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


# The answer of a hop over a topic: no caller waits for it.
def test_what_is_answered_by_nothing_streams_its_requests_alone() -> None:
    text = "\n".join(path.read_text() for path in PROTO.rglob("*.proto"))
    answered = re.findall(r"rpc \w+\(([^)]*)\)\s+returns \((?:google\.protobuf\.)Empty\)", text)
    assert len(answered) == text.count("returns (google.protobuf.Empty)") > 0
    assert all(request.startswith("stream ") for request in answered)


# --- generated code --------------------------------------------------------------------------


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    subprocess.run([PROTO / "generate.sh", tmp_path], check=True)
    fresh, kept = (
        {
            path.relative_to(top): path.read_bytes()
            for package in GENERATED
            for path in (top / package).rglob("*.py*")
            if path.suffix in (".py", ".pyi")
        }
        for top in (tmp_path, ROOT)
    )
    stale = sorted(
        str(path) for path in fresh.keys() | kept.keys() if fresh.get(path) != kept.get(path)
    )
    assert not stale, f"not what proto/ says (make proto): {', '.join(stale)}"


# --- released contracts ----------------------------------------------------------------------


def test_released_contracts_hold() -> None:
    done = buf("breaking", PROTO, "--against", PROTO / "released.binpb")
    assert done.returncode == 0, (
        f"{done.stdout}{done.stderr}\n"
        "Records in topics and older peers still speak the released contracts."
        " If the break is meant, say so in CHANGELOG.md and run: make proto-release"
    )


QUERY, PUBLISH = "sirocco/v1/query.proto", "sirocco/v1/publish_service.proto"


def breaks(
    directory: Path, change: Callable[[str], str], file: str
) -> subprocess.CompletedProcess[str]:
    """Returns what buf says of a change to one file, against the contracts as they are."""
    changed = directory / "proto"
    shutil.copytree(PROTO, changed)
    before = (changed / file).read_text()
    (changed / file).write_text(change(before))
    assert (changed / file).read_text() != before
    return buf("breaking", changed, "--against", PROTO)


def replaced(pattern: str, by: str) -> Callable[[str], str]:
    """Returns a change of the first place that matches."""
    return lambda text: re.sub(pattern, by, text, count=1, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("file", "pattern", "by"),
    [
        (QUERY, r"double west = ", "double left = "),
        (QUERY, r"double west = ", "float west = "),
        (QUERY, r"^  double west = \d+;\n", ""),
        (QUERY, r"repeated (\w+) (\w+) = ", r"\1 \2 = "),
        (QUERY, r"message Rectangle (.*)  Rectangle rect", r"message Box \1  Box rect"),
        (QUERY, r"(QUERY_MODE_\w+) = 1;", r"\1 = 9;"),
        (QUERY, r"(QUERY_MODE_)\w+ = 1;", r"\1OTHER = 1;"),
        (PUBLISH, r"^service \w+ \{.*?^\}\n", ""),
        (PUBLISH, r"^  rpc \w+\(.*?\);\n", ""),
        (PUBLISH, r"returns \(stream ", "returns ("),
    ],
)
def test_a_break_is_found(tmp_path: Path, file: str, pattern: str, by: str) -> None:
    done = breaks(tmp_path, replaced(pattern, by), file)
    # Of files that cannot be read it says something else.
    assert done.returncode == 100, done.stdout + done.stderr


def test_additions_and_reserved_removals_are_no_breaks(tmp_path: Path) -> None:
    def change(text: str) -> str:
        text = replaced(
            r"^  double west = (\d+);\n",
            r'  reserved \1;\n  reserved "west";\n  bytes more = 900;\n',
        )(text)
        return replaced(r"(  QUERY_MODE_\w+ = 1;\n)", r"\1  QUERY_MODE_FURTHER = 900;\n")(text)

    done = breaks(tmp_path, change, QUERY)
    assert done.returncode == 0, done.stdout + done.stderr
