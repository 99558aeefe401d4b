"""Files of queries: what is served, what is bad, what is repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.lines import BadLine
from sirocco.cli.query_file import QueryLine, read_queries
from sirocco.model.errors import AlreadyExists

PARIS = {"rect": {"west": 2.2, "south": 48.8, "east": 2.5, "north": 49}}


def _query(number: str, **members: Any) -> dict[str, Any]:
    return {"id": number, "kind": "range", "mode": "continuous", "region": PARIS} | members


def _read(path: Path, *lines: object) -> tuple[list[QueryLine], list[BadLine]]:
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    found = list(read_queries(path, path.name))
    good = [one for one in found if isinstance(one, QueryLine)]
    return good, [one for one in found if isinstance(one, BadLine)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queries.jsonl"


def test_good_lines_keep_their_numbers(path: Path) -> None:
    good, bad = _read(path, _query("a"), "", _query("b", text="fire AND NOT drill"))
    assert not bad
    assert [(one.line, one.query.id) for one in good] == [(1, "a"), (3, "b")]
    assert good[1].members["text"] == "fire AND NOT drill"


def test_equal_repeats_are_left_out_and_others_are_bad(path: Path) -> None:
    good, bad = _read(
        path,
        _query("a", ttl="1h", text="coffee AND free"),
        _query("b"),
        _query("a", ttl="60m", text="free coffee"),
        _query("a", ttl="61m", text="free coffee"),
        _query("b", text="x"),
    )
    assert [one.query.id for one in good] == ["a", "b"]
    assert [one.line for one in bad] == [4, 5]
    assert all(isinstance(one.error, AlreadyExists) for one in bad)
    assert bad[0].members() == {
        "error": "id: 'a' stands for another query in line 1",
        "file": "queries.jsonl",
        "line": 4,
    }


def test_a_bad_line_does_not_take_its_id(path: Path) -> None:
    good, bad = _read(path, _query("a", text="("), _query("a", text="x"))
    assert [one.line for one in good] == [2]
    assert [one.line for one in bad] == [1]


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("{", "query"),
        ("[]", "query"),
        (_query("a", kind="dance"), "kind"),
        (_query("a", ttl="-1s"), "ttl"),
        (_query("a", colour="red"), "colour"),
        (_query("a", text=""), "text"),
        (_query("a", region={"circle": {"lon": 0, "lat": 0, "radius_m": -1}}), "radius_m"),
        ({"id": "a", "mode": "continuous"}, "kind"),
        ({"id": "a", "kind": "range"}, "mode"),
    ],
)
def test_errors_name_the_field(path: Path, line: object, field: str) -> None:
    good, bad = _read(path, line)
    assert not good
    assert bad[0].line == 1
    assert str(bad[0].error.field).endswith(field)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (_query("a", mode="snapshot"), "snapshot queries"),
        (_query("a", track="vehicle"), "tracked objects"),
        (
            {
                "id": "a",
                "kind": "knn",
                "mode": "continuous",
                "point": {"lon": 1, "lat": 2},
                "k": 3,
            },
            "knn queries",
        ),
    ],
)
def test_what_is_not_served_is_said(path: Path, line: object, what: str) -> None:
    _, bad = _read(path, line)
    assert f"this version does not serve {what}" in str(bad[0].error)
