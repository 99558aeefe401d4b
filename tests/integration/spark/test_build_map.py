"""The Spark job builds the same map as the schemes in this process from the same sample."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'sirocco[spark]'")

import build_map as job
from sirocco_spark.history import draw_objects
from sirocco_spark.past import read_history

from sirocco.model.errors import InvalidArgument
from sirocco.model.objects import ObjectColumnsBuilder, parse_object
from sirocco.model.query import parse_query, query_handle
from sirocco.schemes.builders.scheme import SCHEMES, scheme_named
from sirocco.schemes.map.map_bytes import from_bytes, to_bytes
from sirocco.schemes.workload.sampling import sample_of
from tests.integration.spark.conftest import (
    JOBS,
    OBJECTS,
    ROOT,
    SEED,
    History,
    kill_at,
    write_lines,
)

pytestmark = pytest.mark.spark

DATA = Path(os.environ.get("SIROCCO_DATA", ROOT / ".." / "shared" / "data"))


def object_lines(count=2000, seed=SEED):
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
        query: dict[str, Any] = {
            "id": f"q{number}",
            "mode": "snapshot",
            "text": f"word{rng.integers(10)}",
        }
        if number % 3 == 0:
            query |= {"kind": "knn", "point": {"lon": lon, "lat": lat}, "k": 5}
        else:
            query |= {"kind": "range", "region": {"rect": rect}}
        yield json.dumps(query)


def built_here(objects, queries, scheme, leaves, slots):
    """Builds the same map without Spark, from lines."""
    rows = ObjectColumnsBuilder()
    for row in sorted((parse_object(line) for line in objects), key=lambda row: row.id):
        rows.add(row)
    columns = rows.build()
    asked = [parse_query(orjson.loads(line)) for line in queries]
    # In Spark's order of the handles: as signed numbers.
    asked.sort(key=lambda q: (query_handle(q.id) + (1 << 63)) % (1 << 64))
    span_ms = int(columns.ts.max() - columns.ts.min())
    sample = sample_of(columns, asked, len(columns), span_ms)
    return scheme_named(scheme).build(sample, leaves, slots)


def test_the_map_of_every_scheme_is_that_of_the_same_sample_built_here(spark, tmp_path):
    objects, queries = list(object_lines()), list(query_lines())
    with gzip.open(tmp_path / "objects.jsonl.gz", "wt") as file:
        file.writelines(line + "\n" for line in objects)
    queries_path = write_lines(tmp_path / "queries.jsonl", [*queries, queries[0], "{", '{"id": 1}'])
    past = read_history(spark, "test", str(tmp_path / "objects.jsonl.gz"), queries_path, 2000, 0)
    assert past.counts.total == len(past.sample) == 2000
    assert past.counts.span_ms == 1999
    # A repeated line is the same query; bad lines are counted by their error.
    assert len(past.sample.queries) == 300
    assert sum(count for _, count in past.refused_queries) == 2
    for name in SCHEMES:
        built = scheme_named(name).build(past.sample, 31, 8)
        assert to_bytes(built) == to_bytes(built_here(objects, queries, name, 31, 8)), (name, SEED)


def test_a_sample_is_the_same_however_the_files_are_cut(spark, tmp_path):
    lines = list(object_lines())
    (tmp_path / "parts").mkdir()
    for part in range(3):
        write_lines(tmp_path / "parts" / f"{part}.jsonl", lines[part::3])
    whole = write_lines(tmp_path / "whole.jsonl", list(reversed(lines)))
    maps = []
    for source in (str(tmp_path / "parts"), whole):
        options = job.Options(
            objects=source, out=tmp_path / "map", sample=500, scheme="uniform-grid"
        )
        partition_map, summary = job.build_map(spark, options)
        maps.append(to_bytes(partition_map))
        assert (summary.objects, summary.sampled_objects) == (2000, 500)
        assert 0 < summary.sample_deviation < 0.1
    assert maps[0] == maps[1]
    assert [one["code"] for one in summary.warnings] == ["no-queries", "small-sample"]


def test_of_two_queries_of_an_id_the_same_counts_however_the_files_are_cut(spark, tmp_path):
    objects = write_lines(tmp_path / "objects.jsonl", list(object_lines(50)))
    east = {"id": "q", "kind": "range", "mode": "continuous", "text": "east"}
    west = {**east, "text": "west"}
    taken = []
    for first, second in ((east, west), (west, east)):
        place = tmp_path / f"queries-{first['text']}"
        place.mkdir()
        for name, query in (("a", first), ("b", second)):
            write_lines(place / f"{name}.jsonl", [query])
        past = read_history(spark, "test", objects, str(place), 50, 0)
        taken.append(past.sample.queries.terms.tolist())
    assert taken[0] == taken[1]


def test_readings_of_sensors_that_stay_in_their_place_are_drawn_one_by_one(spark, tmp_path):
    readings = [
        {"id": sensor, "ts": 1405123200000 + 60_000 * turn, "lon": sensor / 10, "lat": 1.0}
        for sensor in range(200)
        for turn in range(100)
    ]
    objects = write_lines(tmp_path / "objects.jsonl", readings)
    past = read_history(spark, "test", objects, None, 2_000, 0)
    _, counts = np.unique(past.sample.event_keys, return_counts=True)
    assert counts.sum() == 2_000
    assert len(counts) > 190
    assert counts.max() < 30


def test_equal_objects_of_a_system_are_drawn_by_the_numbers_that_it_gave_them(spark):
    schema = "id long, lon double, lat double, text string, arrival long, session long, number long"
    rows = [(n % 100, 2.0, 3.0, "rain", 7, 5, n, None) for n in range(2_000)]
    frame = spark.createDataFrame(rows, schema + ", refusal string")

    class Numbered:
        refused: list[tuple[str, int]] = []  # noqa: RUF012 - never changed
        numbering: tuple[str, ...] = ("session", "number")

        def read(self, columns):
            return frame.select(*columns, "refusal")

    drawn = draw_objects(Numbered(), 2_000, 200, 0)
    assert len(drawn) == 200
    assert len(np.unique(drawn.event_keys)) > 60


def test_bad_lines_are_counted_and_reported(spark, tmp_path):
    bad = ["{broken", '{"id": 1, "lon": 181, "lat": 0}', '{"id": 2, "lat": 0}', "[]", "   ", "\t"]
    one_place = [{"id": i, "lon": 1.5, "lat": 2.5} for i in range(100)]
    objects = write_lines(tmp_path / "objects.jsonl", [*one_place, *bad])
    summary = job.build_map(spark, job.Options(objects=objects, out=tmp_path / "map", leaves=4))[1]
    assert summary.objects == 100
    assert summary.refused_objects["count"] == 4
    assert any("lon" in reason for reason in summary.refused_objects["reasons"])
    assert [one["code"] for one in summary.warnings] == ["one-place", "no-text", "no-queries"]


def test_without_any_object_there_is_no_proposal(spark, tmp_path):
    nothing = write_lines(tmp_path / "nothing.jsonl", ["{", ""])
    with pytest.raises(InvalidArgument, match="holds no object: 1 lines or files were refused"):
        job.build_map(spark, job.Options(objects=nothing, out=tmp_path / "map"))
    for missing in (str(tmp_path / "nowhere"), f"archive:{tmp_path}/nowhere"):
        with pytest.raises(InvalidArgument, match="nowhere"):
            job.build_map(spark, job.Options(objects=missing, out=tmp_path / "map"))
    with pytest.raises(InvalidArgument, match="no slices/ and no checkpoints/"):
        job.build_map(spark, job.Options(objects=f"archive:{tmp_path}", out=tmp_path / "map"))


def command(*arguments: object) -> list[str]:
    return [sys.executable, str(JOBS / "build_map.py"), *map(str, arguments)]


@pytest.mark.timeout(1_800)
def test_the_command_leaves_nothing_when_it_is_killed_and_works_when_repeated(
    spark, history: History, tmp_path
):
    out = tmp_path / "map"
    asked = command("--objects", history.source, "--queries", history.source, "--out", out)
    asked += ["--scheme", "uniform-grid", "--master", "local[2]"]
    # In the middle: the archive has been read once, the sample is being drawn.
    kill_at(asked, "counting objects")
    assert list(tmp_path.iterdir()) == []
    # As after a job that dies between its two files.
    (tmp_path / ".map.unfinished-999999999").write_bytes(b"half")
    # By the session of all tests: `end_to_end/test_spark_map` sees commands end well.
    summary = job.run(spark, job.parse_options(asked[2:])[0])
    assert summary == json.loads((tmp_path / "map.json").read_text())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["map", "map.json"]
    partition_map = from_bytes(out.read_bytes())
    assert len(partition_map.leaves) == summary["leaves"] == 64
    assert summary["objects"] == summary["sampled_objects"] == OBJECTS
    assert summary["queries"] == len(history.queries)


def test_the_command_says_what_is_wrong_with_its_input(tmp_path):
    asked = command("--objects", f"archive:{tmp_path}", "--out", tmp_path / "map")
    done = subprocess.run(asked, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 2
    assert "build_map: archive: " in done.stderr
    assert "no slices/ and no checkpoints/" in done.stderr
    assert list(tmp_path.iterdir()) == []
