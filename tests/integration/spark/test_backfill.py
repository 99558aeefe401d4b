"""New queries over the whole archive, against the oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'sirocco[spark]'")

import backfill as job

from sirocco.model.errors import InvalidArgument
from tests.end_to_end.random_queries import random_queries, random_queries_of_all_kinds
from tests.integration.spark.conftest import OBJECTS, SEED, History, write_lines
from tests.oracle import agrees

pytestmark = pytest.mark.spark


def lines_of(out: Path) -> list[dict]:
    parts = sorted((out / "lines").glob("part-*"))
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


def is_answered(query: dict) -> bool:
    if query["kind"] == "range":
        return "track" not in query
    return query["kind"] == "knn" and query["mode"] == "snapshot"


def test_answers_are_those_of_the_oracle(spark, history: History, tmp_path):
    ranges = random_queries(history.objects, 120, SEED, lifetimes=True)
    others = random_queries_of_all_kinds(history.objects, 48, SEED + 1, track="kind")
    everything: dict[str, Any] = {"kind": "range", "mode": "snapshot"}
    special: list[dict[str, Any]] = [
        {"id": "all", **everything},
        {"id": "none", **everything, "text": "nowhere"},
        {"id": "antimeridian", **everything}
        | {"region": {"rect": {"west": 179, "south": -90, "east": -179, "north": 90}}},
    ]
    renamed = [{**one, "id": f"o-{one['id']}"} for one in others]
    queries: list[dict[str, Any]] = [*ranges, *renamed, *special]
    path = write_lines(tmp_path / "queries", [*queries, queries[0], '{"id": "bad"}'])
    out = tmp_path / "out"
    summary = job.backfill(spark, job.Options(str(history.archive), path, str(out)))
    answered = [one for one in queries if is_answered(one)]
    assert len(answered) < len(queries)
    assert agrees(lines_of(out), history.objects, answered) == [], f"seed {SEED}"
    assert summary["objects"] == OBJECTS
    assert summary["queries"] == len(answered)
    # Queries that cannot be answered, and the line that is no query.
    assert summary["refused_queries"]["count"] == len(queries) - len(answered) + 1
    assert sorted(one.name for one in out.iterdir() if one.name[0] != ".") == ["lines"]


def test_without_a_query_or_with_two_of_an_id_nothing_is_answered(spark, history, tmp_path):
    one: dict[str, Any] = {"id": "q", "kind": "range", "mode": "snapshot", "text": "a"}
    standing = {"id": "t", "kind": "terms", "mode": "continuous", "k": 3, "step": "1m"}
    cases: dict[str, list[dict[str, Any]]] = {
        "holds no query that can be answered$": [],
        "continuous terms: is answered by steps": [standing],
        "q: is the id of several queries": [one, {**one, "text": "b"}],
    }
    for number, (why, queries) in enumerate(cases.items()):
        path = write_lines(tmp_path / f"queries{number}", queries)
        options = job.Options(str(history.archive), path, str(tmp_path / "out"))
        with pytest.raises(InvalidArgument, match=why):
            job.backfill(spark, options)
    assert not (tmp_path / "out").exists()
