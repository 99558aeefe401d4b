"""`sirocco explain --file`: queries that are not registered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sirocco.cli.explain.command import read_query
from sirocco.cli.terminal.status import CommandError


def written(path: Path, members: Any) -> str:
    file = path / "query.json"
    file.write_text(json.dumps(members))
    return str(file)


def test_a_query_needs_neither_id_nor_mode_as_over_http(tmp_path: Path) -> None:
    query = read_query(written(tmp_path, {"kind": "range", "text": "fire"})).query
    assert (query.id, query.mode) == ("query", "continuous")
    members = {"id": "q", "mode": "snapshot", "kind": "range", "region": {"geohash": "u09"}}
    query = read_query(written(tmp_path, members)).query
    assert (query.id, query.mode) == ("q", "snapshot")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"kind": "range", "region": {"hexagon": 1}}, "region.hexagon: unknown member; known are"),
        ({"kind": "knn"}, "point: is missing"),
        ({"id": "", "kind": "range"}, "id: must not be empty"),
        ([], "query: must be an object"),
    ],
)
def test_errors_name_the_file_and_the_member(tmp_path: Path, members: Any, message: str) -> None:
    file = written(tmp_path, members)
    with pytest.raises(CommandError) as caught:
        read_query(file)
    assert str(caught.value).startswith(f"{file}: {message}")
