"""The lines of OUT."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sirocco.cli.replay.results import ResultsFile


def _written(path: Path, write: Callable[[ResultsFile], None]) -> list[dict[str, Any]]:
    with ResultsFile(path) as out:
        write(out)
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_matches_and_errors(tmp_path: Path) -> None:
    def write(out: ResultsFile) -> None:
        out.write_matches(['q"1', "q2"], [17, "café", 2**64 - 1], [0, 1, 1], [2, 0, 1])
        out.write({"error": "lon: must be finite", "file": "o", "line": 3})

    assert _written(tmp_path / "out.jsonl", write) == [
        {"query": 'q"1', "object": 2**64 - 1},
        {"query": "q2", "object": 17},
        {"query": "q2", "object": "café"},
        {"error": "lon: must be finite", "file": "o", "line": 3},
    ]


def test_events_of_tracked_values_stand_beside_plain_matches(tmp_path: Path) -> None:
    def write(out: ResultsFile) -> None:
        out.write_events(
            ["t", "plain"],
            [17, "bus"],
            [0, 1, 0, 0],
            [0, 0, 1, 1],
            ["enter", None, "exit", "inside"],
            ['a "b"', None, 7, True],
        )

    assert _written(tmp_path / "out.jsonl", write) == [
        {"query": "t", "object": 17, "event": "enter", "track": 'a "b"'},
        {"query": "plain", "object": 17},
        {"query": "t", "object": "bus", "event": "exit", "track": 7},
        {"query": "t", "object": "bus", "event": "inside", "track": True},
    ]


def test_lists_are_those_of_the_contract(tmp_path: Path) -> None:
    def write(out: ResultsFile) -> None:
        out.write_objects("q2", [17, 23])
        out.write_change("q4", ["a"], [23], [17, "a"], [12.1, 13.0])
        out.write_terms("q5", ["light", "ليل"], [120, 77], 1405123200000)
        out.write_terms("q5", [], [], 1405123201000)
        out.write_ranked("q6", [17, 23], [0.91, 0.85])
        out.write_ranked("q6", [], [], 1405123200000)

    assert _written(tmp_path / "out.jsonl", write) == [
        {"query": "q2", "objects": [17, 23]},
        {
            "query": "q4",
            "added": ["a"],
            "removed": [23],
            "objects": [17, "a"],
            "distance_m": [12.1, 13.0],
        },
        {"query": "q5", "terms": [["light", 120], ["ليل", 77]], "at": 1405123200000},
        {"query": "q5", "terms": [], "at": 1405123201000},
        {"query": "q6", "objects": [17, 23], "score": [0.91, 0.85]},
        {"query": "q6", "objects": [], "score": [], "at": 1405123200000},
    ]


def test_terms_and_counts_belong_together(tmp_path: Path) -> None:
    with ResultsFile(tmp_path / "out.jsonl") as out, pytest.raises(ValueError, match="zip"):
        out.write_terms("q", ["a", "b"], [1], 0)


def test_flushed_lines_are_seen_while_the_file_is_open(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultsFile(path) as out:
        out.write_objects("q", [1])
        assert not path.read_bytes()
        out.flush()
        assert json.loads(path.read_bytes()) == {"query": "q", "objects": [1]}
        out.write_matches(["q"], [1], [0], [0])
        assert path.read_bytes().count(b"\n") == 2
