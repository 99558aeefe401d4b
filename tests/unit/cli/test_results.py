"""The lines of OUT."""

from __future__ import annotations

import json
from pathlib import Path

from sirocco.cli.results import ResultsFile


def test_lines_are_those_of_the_contract(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with ResultsFile(path) as out:
        out.write_matches(['q"1', "q2"], [17, "café", 2**64 - 1], [0, 1, 1], [2, 0, 1])
        out.write({"error": "lon: must be finite", "file": "o", "line": 3})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"query": 'q"1', "object": 2**64 - 1},
        {"query": "q2", "object": 17},
        {"query": "q2", "object": "café"},
        {"error": "lon: must be finite", "file": "o", "line": 3},
    ]
