"""The guide "Alerts to a webhook" can be pasted, and does what it says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from sirocco.local.process import free_port
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "alerts-to-a-webhook.md"


def pasted(folder: Path, router: str, script: str) -> subprocess.Popen[bytes]:
    programs = Path(sys.executable).parent
    sirocco = folder / "bin" / "sirocco"
    sirocco.parent.mkdir(exist_ok=True)
    sirocco.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sirocco.cli "$@"\n')
    sirocco.chmod(0o755)
    return subprocess.Popen(
        ["bash", "-c", f"{script}\nwait"],
        cwd=folder,
        env=os.environ
        | {
            "PATH": f"{sirocco.parent}:{programs}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'sdk'}",
            "SIROCCO_ROUTER": router,
        },
        stdout=(folder / "out").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def test_the_guide_can_be_pasted(tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (script,) = re.findall(r"```bash\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    script = script.replace("8077", str(free_port()))
    out = tmp_path / "out"
    settings = ClusterSettings(cluster="guide", slots=2, leaves=4)
    with EmbeddedCluster(settings) as cluster:
        shell = pasted(tmp_path, cluster.router_address, script)
        try:
            eventually(
                lambda: (
                    len(re.findall(r"^\d+\.\d+-\d+ (paris-fire|coffee) ", out.read_text(), re.M))
                    >= 3
                ),
                "three alerts",
            )
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.wait(120.0)
            print(out.read_text())
