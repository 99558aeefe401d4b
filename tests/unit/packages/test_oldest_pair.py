"""The client works with the oldest grpcio and protobuf that its package promises."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OLDEST = ROOT / ".cache/oldest/bin/python"


def lower_bounds() -> dict[str, str]:
    client = tomllib.loads((ROOT / "sdk/pyproject.toml").read_text())["project"]
    found = [re.match(r"([\w-]+)>=([\d.]+)(,|$)", each) for each in client["dependencies"]]
    assert all(found), client["dependencies"]
    return {each[1]: each[2] for each in found if each}


def test_the_lock_holds_the_lower_bounds() -> None:
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "locks/oldest.txt").read_text(), re.M))
    bounds = lower_bounds()
    assert bounds.keys() == {"grpcio", "protobuf"}
    assert {name: pins[name] for name in bounds} == bounds
    # Generated code requires its generator's version as the oldest grpcio.
    assert pins["grpcio-tools"] == bounds["grpcio"]


@pytest.mark.parametrize("path", sorted((ROOT / "sdk/sirocco_api/v1").glob("*_pb2*.py")))
def test_generated_code_asks_for_no_newer_packages(path: Path) -> None:
    bounds, text = lower_bounds(), path.read_text()
    grpc = re.search(r"GRPC_GENERATED_VERSION = '(\S+)'", text)
    protobuf = re.search(r"# Protobuf Python Version: (\S+)", text)
    assert grpc or protobuf
    assert not grpc or grpc[1] == bounds["grpcio"]
    assert not protobuf or protobuf[1] == bounds["protobuf"]


def test_a_query_an_object_and_its_match_on_the_oldest_pair() -> None:
    subprocess.run([ROOT / "scripts/setup.sh", "oldest"], check=True)
    bounds = lower_bounds()
    done = subprocess.run(
        [OLDEST, "-m", "tests.unit.packages.oldest_pair", bounds["grpcio"], bounds["protobuf"]],
        cwd=ROOT,
        # No part of the environment that runs this test.
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'sdk'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) > 40
