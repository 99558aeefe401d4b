"""The first steps in Go: generated from proto/ by buf, built, and run against a cluster."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "docs" / "tutorials" / "samples" / "go"
BUF = Path(sysconfig.get_path("scripts"), "buf")


def run(*command: str | Path, directory: Path) -> str:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, check=False, timeout=850
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("go") is None, reason="Go builds the client")
def test_the_first_steps_print_their_match(tmp_path: Path) -> None:
    sample = tmp_path / "first-steps"
    shutil.copytree(SAMPLE, sample, ignore=shutil.ignore_patterns("gen"))
    run(BUF, "generate", ROOT / "proto", directory=sample)
    run("go", "vet", ".", directory=sample)
    run("go", "build", "-o", "first-steps", ".", directory=sample)
    settings = ClusterSettings(cluster="go", slots=4, leaves=8)
    with EmbeddedCluster(settings) as cluster:
        printed = run(sample / "first-steps", cluster.router_address, directory=sample)
    assert printed == "canal-fire-go 5 Big fire near the canal\n"
