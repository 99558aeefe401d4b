"""Spark jobs under an interpreter that has no Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JOBS = sorted(path for path in (ROOT / "spark-jobs").glob("*.py") if "__main__" in path.read_text())


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_a_missing_spark_is_reported_in_one_line(job: Path) -> None:
    bare = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    # Without site, an interpreter has only the standard library.
    done = subprocess.run(
        [sys.executable, "-S", job], capture_output=True, text=True, check=False, env=bare
    )
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert ".venv/bin/pip install -c constraints.txt -e '.[spark]'" in line
