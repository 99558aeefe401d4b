"""Jobs that write many files, killed in the middle, show no partial result and can be repeated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'sirocco[spark]'")

import compact
from sirocco_spark.archive import index_archive

from sirocco.model.errors import InvalidArgument
from tests.integration.spark.conftest import JOBS, OBJECTS, History, kill_at, write_lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]


def command(job: str, *arguments: object) -> list[str]:
    # One task at a time, so that the job is long enough to be killed in the middle.
    asked = [sys.executable, str(JOBS / f"{job}.py"), "--master", "local[1]"]
    return [*asked, *map(str, arguments)]


def summary_of(asked: list[str]) -> dict:
    done = subprocess.run(asked, capture_output=True, text=True, timeout=1_500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_backfill_shows_nothing_before_it_shows_all(history: History, tmp_path: Path):
    query = {"id": "q", "kind": "range", "mode": "continuous"}
    queries = write_lines(tmp_path / "queries", [query])
    out = tmp_path / "results" / "new"
    asked = command("backfill", "--archive", history.archive, "--queries", queries, "--out", out)
    # Both are read, the join begins; the files that the job has begun have another name.
    kill_at(asked, "looking through the archive")
    assert not out.exists()
    left = [one.name for one in out.parent.iterdir()]
    assert all(name.startswith(".new") for name in left)
    # As if it had been killed later: half of the lines are there.
    half = out.parent / ".new.unfinished-job" / "lines" / "part-00000"
    half.parent.mkdir(parents=True, exist_ok=True)
    half.write_text('{"query": "q", "object": 1}\n')
    summary = summary_of(asked)
    assert (summary["objects"], summary["found"]) == (OBJECTS, OBJECTS)
    assert [one.name for one in out.parent.iterdir()] == ["new"]
    lines = [
        line for part in (out / "lines").glob("part-*") for line in part.read_text().splitlines()
    ]
    assert len(lines) == len(set(lines)) == OBJECTS


def test_a_compaction_shows_nothing_before_its_list(spark, history: History, tmp_path: Path):
    out = tmp_path / "out"
    asked = command("compact", "--archive", history.archive, "--out", out, "--rows", 400)
    kill_at(asked, "looking through the archive")
    assert not (out / "compacted.json").exists()
    with pytest.raises(InvalidArgument):
        index_archive(spark, str(out))
    # By the session of all tests: that a command ends well is seen in the test above.
    summary = compact.run(spark, compact.Options(str(history.archive), str(out), rows=400))
    assert summary["objects"] == OBJECTS
    after = index_archive(spark, str(out))
    assert sum(piece.rows for piece in after.pieces) == OBJECTS
    assert after.refused == ()
    named = {one["name"] for one in json.loads((out / "compacted.json").read_text())["slices"]}
    found = {str(one.relative_to(out)) for one in (out / "compacted").rglob("*") if one.is_file()}
    assert found == named
