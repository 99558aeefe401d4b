"""The Spark job builds the map that the schemes build in this process from the same sample."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import orjson
import pytest

from sirocco.model.objects import ObjectColumnsBuilder, parse_object
from sirocco.model.query import parse_query
from sirocco.schemes.map_bytes import from_bytes, to_bytes
from sirocco.schemes.qt_tree import QtTree
from sirocco.schemes.sampling import sample_of

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'sirocco[spark]'")
pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]
JOB = ROOT / "spark-jobs" / "build_map.py"
DATA = Path(os.environ.get("SIROCCO_DATA", ROOT / ".." / "shared" / "data"))
SEED = 20260101


@pytest.fixture(scope="module")
def job():
    spec = importlib.util.spec_from_file_location("build_map", JOB)
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_map"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def spark():
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only where it is installed

    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    yield session
    session.stop()


def object_lines(count=3000, seed=SEED):
    rng = np.random.default_rng(seed)
    words = [f"word{i}" for i in range(50)]
    for number in range(count):
        lon, lat = rng.normal((2.35, 48.85), 3.0)
        text = " ".join(words[i] for i in rng.geometric(0.1, 5) % 50)
        line = {"id": number, "ts": 1405123200000 + number, "lon": lon, "lat": lat, "text": text}
        yield json.dumps(line)


def query_lines(count=300, seed=SEED):
    rng = np.random.default_rng(seed + 1)
    for number in range(count):
        lon, lat = rng.normal((2.35, 48.85), 3.0)
        rect = {"west": lon - 1, "south": lat - 1, "east": lon + 1, "north": lat + 1}
        query = {"id": f"q{number}", "mode": "snapshot", "text": f"word{rng.integers(10)}"}
        if number % 3 == 0:
            query |= {"kind": "knn", "point": {"lon": lon, "lat": lat}, "k": 5}
        else:
            query |= {"kind": "range", "region": {"rect": rect}}
        yield json.dumps(query)


def built_here(objects, queries, leaves, slots):
    """The same map without Spark, from lines."""
    rows = ObjectColumnsBuilder()
    for line in sorted(objects):
        rows.add(parse_object(line))
    columns = rows.build()
    asked = [parse_query(orjson.loads(line)) for line in sorted(queries)]
    span_ms = int(columns.ts.max() - columns.ts.min())
    return QtTree().build(sample_of(columns, asked, len(columns), span_ms), leaves, slots)


def write_lines(path, lines):
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        file.writelines(line + "\n" for line in lines)
    return str(path)


def test_the_map_is_that_of_the_same_sample_built_here(job, spark, tmp_path):
    objects, queries = list(object_lines()), list(query_lines())
    options = job.Options(
        write_lines(tmp_path / "objects.jsonl.gz", objects),
        tmp_path / "map",
        write_lines(tmp_path / "queries.jsonl", queries),
        leaves=31,
        slots=8,
    )
    partition_map, summary = job.build_map(spark, options)
    assert to_bytes(partition_map) == to_bytes(built_here(objects, queries, 31, 8)), f"seed {SEED}"
    assert (summary.objects, summary.sampled_objects, summary.queries) == (3000, 3000, 300)
    assert summary.refused_objects == summary.refused_queries == 0
    assert summary.sample_deviation == 0


def test_a_sample_is_the_same_however_the_files_are_cut(job, spark, tmp_path):
    lines = list(object_lines())
    (tmp_path / "parts").mkdir()
    for part in range(3):
        write_lines(tmp_path / "parts" / f"{part}.jsonl", lines[part::3])
    whole = write_lines(tmp_path / "whole.jsonl", reversed(lines))
    maps = []
    for source in (str(tmp_path / "parts"), whole):
        options = job.Options(source, tmp_path / "map", sample=500)
        partition_map, summary = job.build_map(spark, options)
        maps.append(to_bytes(partition_map))
        assert (summary.objects, summary.sampled_objects) == (3000, 500)
        assert 0 < summary.sample_deviation < 0.1
    assert maps[0] == maps[1]
    other = job.Options(whole, tmp_path / "map", sample=500, seed=1)
    assert to_bytes(job.build_map(spark, other)[0]) != maps[0]


def test_bad_lines_are_counted_and_left_out(job, spark, tmp_path):
    bad = [
        "{broken",
        '{"id": 1, "lon": 181, "lat": 0}',
        '{"id": 2, "lat": 0}',
        '{"id": 3, "lon": "x", "lat": 0}',
        "[]",
        "   ",
    ]
    objects = write_lines(tmp_path / "objects.jsonl", [*object_lines(100), *bad])
    queries = write_lines(tmp_path / "queries.jsonl", [*query_lines(10), "{", '{"id": "q"}'])
    summary = job.build_map(spark, job.Options(objects, tmp_path / "map", queries))[1]
    assert (summary.objects, summary.refused_objects) == (100, 5)
    assert (summary.queries, summary.refused_queries) == (10, 2)


def test_an_empty_history_gives_an_even_map(job, spark, tmp_path):
    objects = write_lines(tmp_path / "objects.jsonl", [])
    summary = job.build_map(spark, job.Options(objects, tmp_path / "map"))[1]
    assert (summary.objects, summary.leaves) == (0, 64)
    assert summary.load_max_over_mean == 1


def test_a_missing_file_is_named(job, spark, tmp_path):
    from sirocco.model.errors import InvalidArgument  # noqa: PLC0415

    with pytest.raises(InvalidArgument, match="nowhere"):
        job.build_map(spark, job.Options(str(tmp_path / "nowhere"), tmp_path / "map"))


def test_the_command_writes_the_proposal_of_real_objects(tmp_path):
    source = DATA / "nsw_rfs_bushfire_updates.jsonl.gz"
    if not source.exists():
        pytest.skip(f"{source} is not there; SIROCCO_DATA names its directory")
    out = tmp_path / "map"
    command = [sys.executable, str(JOB), "--objects", str(source), "--out", str(out)]
    command += ["--master", "local[2]"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    summary = json.loads(result.stdout.splitlines()[-1])
    assert summary == json.loads((tmp_path / "map.json").read_text())
    partition_map = from_bytes(out.read_bytes())
    assert len(partition_map.leaves) == summary["leaves"] == 64
    assert summary["objects"] == summary["sampled_objects"] == 19257
    assert summary["load_max_over_mean"] < 1.2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map", "map.json"]
