"""The console that is committed is what its sources build to."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm builds the console")
def test_the_committed_console_is_built_from_its_sources() -> None:
    done = subprocess.run(
        [ROOT / "scripts/console.sh", "--check"],
        capture_output=True,
        text=True,
        check=False,
        timeout=850,
    )
    assert done.returncode == 0, done.stdout + done.stderr
