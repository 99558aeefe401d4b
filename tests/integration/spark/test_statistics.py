"""The statistics are those of `sirocco.schemes`, and plain counts."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'sirocco[spark]'")

import workload_statistics as job
from sirocco_spark.distribution import box_of

from sirocco.model.errors import InvalidArgument
from sirocco.model.objects import ObjectColumnsBuilder, parse_object
from sirocco.model.query import parse_query
from sirocco.model.text import term_hash, tokens_of
from sirocco.schemes.workload.cost import held_share_of, workload_by_kind
from sirocco.schemes.workload.sample import QueryKind
from sirocco.schemes.workload.sampling import sample_of
from sirocco.schemes.workload.statistics import QueryStatistics
from tests.end_to_end.random_queries import random_queries_of_all_kinds
from tests.integration.spark.conftest import (
    OBJECTS,
    SEED,
    History,
    random_objects,
    write_lines,
)

pytestmark = pytest.mark.spark


def sample_here(objects, queries):
    rows = ObjectColumnsBuilder()
    for one in objects:
        rows.add(parse_object(one))
    columns = rows.build()
    times = [one["ts"] for one in objects if "ts" in one]
    asked = [parse_query(one) for one in queries]
    return sample_of(columns, asked, len(columns), max(times) - min(times))


def in_cell(sample, box):
    lon, lat = sample.lon, sample.lat
    east, north = (lon < box[2]) | (box[2] == 180), (lat < box[3]) | (box[3] == 90)
    return (lon >= box[0]) & east & (lat >= box[1]) & north


def test_cells_hold_what_the_cost_model_counts(spark, tmp_path):
    objects = random_objects(1_000)
    queries = random_queries_of_all_kinds(objects, 400, SEED)
    objects_path = write_lines(tmp_path / "objects", [*objects, "{"])
    queries_path = write_lines(tmp_path / "queries", queries)
    out = tmp_path / "out"
    summary = job.statistics(spark, job.Options(objects_path, str(out), queries_path, depth=5))
    assert summary == json.loads((out / "summary.json").read_text())
    assert (summary["objects"], summary["refused_objects"]["count"]) == (1_000, 1)
    assert summary["queries"] == 400
    sample = sample_here(objects, queries)
    statistics = QueryStatistics(sample.queries)
    cells = spark.read.parquet(str(out / "cells")).toArrow().to_pylist()
    assert len(cells) == summary["cells"] > 30
    assert Counter(cell["level"] for cell in cells)[5] > 5
    for cell in cells:
        box = box_of(cell["level"], cell["column"], cell["row"])
        here = statistics.within(statistics.root(), box)
        inside = in_cell(sample, box)
        where = f"seed {SEED}, cell {cell['level']}/{cell['column']}/{cell['row']}"
        assert cell["queries"] == len(here.queries), where
        assert cell["objects"] == inside.sum(), where
        own = np.repeat(inside, np.diff(sample.term_offsets))
        held = np.isin(statistics.vocabulary, sample.terms[own])
        work = workload_by_kind(here, int(inside.sum()), held_share_of(here, held))
        assert cell["workload"] == pytest.approx(work.sum()), where
        for kind in cell["kinds"]:
            number = QueryKind[kind["kind"].upper()]
            assert kind["probability"] == pytest.approx(here.reach[number]), where
            assert kind["lifetime"] == pytest.approx(here.lifetime[number]), where
            if number < 3:
                assert kind["keywords_per_query"] == pytest.approx(here.lengths[number]), where
    # Every cell with queries that is an ancestor of a leaf cell is there.
    root = next(cell for cell in cells if cell["level"] == 0)
    assert root["queries"] == 400
    assert sum(window["share"] for window in root["windows"]) == pytest.approx(1)


def test_terms_and_grid_are_plain_counts_of_the_archive(spark, history: History, tmp_path):
    out = tmp_path / "out"
    asked = job.Options(history.source, str(out), history.source, depth=3)
    summary = job.statistics(spark, asked)
    counts = Counter(
        term for one in history.objects for term in set(tokens_of(one.get("text", "")))
    )
    found = spark.read.parquet(str(out / "terms")).toArrow().to_pylist()
    assert {row["term"] % (1 << 64): row["objects"] for row in found} == {
        term_hash(term): count for term, count in counts.items()
    }
    best = summary["top_terms"][0]
    assert best["objects"] == counts[best["term"]] == max(counts.values())
    grid = spark.read.parquet(str(out / "grid")).toArrow()
    assert sum(grid.column("objects").to_pylist()) == OBJECTS
    # From the checkpoints of slots: each query once, in however many slots it is.
    assert summary["queries"] == len(history.queries)
    assert summary["queries_by_kind"]["knn_continuous"] == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    with pytest.raises(InvalidArgument, match="already"):
        job.statistics(spark, asked)


def test_a_job_that_fails_leaves_nothing(spark, tmp_path):
    empty = write_lines(tmp_path / "empty", [])
    with pytest.raises(InvalidArgument, match="it is empty"):
        job.statistics(spark, job.Options(empty, str(tmp_path / "out")))
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
