"""Files of queries: good, bad and repeated lines."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sirocco.cli.files.query_file import QueryLine, read_queries
from sirocco.loadgen.lines import BadLine
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
        "error": "id: 'a' is also the id of the query in line 1",
        "file": "queries.jsonl",
        "line": 4,
    }


@pytest.mark.parametrize("kept_bytes", [1 << 20, 1])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_repeats_in_a_pipe_are_validated_too(
    path: Path,
    pack: Callable[[bytes], bytes],
    kept_bytes: int,
) -> None:
    members = [
        _query("b"),
        _query("a", text="coffee AND free"),
        _query("a", text="free coffee"),
        _query("a", text="tea"),
    ]
    text = "\r\n".join(["", "{", *map(json.dumps, members)])
    os.mkfifo(path)
    writing = threading.Thread(target=path.write_bytes, args=(pack(text.encode()),))
    writing.start()
    found = list(read_queries(path, "-", kept_bytes_max=kept_bytes))
    writing.join()
    assert [(type(one), one.line) for one in found] == [
        (BadLine, 2),
        (QueryLine, 3),
        (QueryLine, 4),
        (BadLine, 6),
    ]
    assert isinstance(found[-1], BadLine)
    assert str(found[-1].error) == "id: 'a' is also the id of the query in line 4"


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


POINT = {"lon": 1, "lat": 2}
KNN = {"id": "k", "kind": "knn", "mode": "snapshot", "point": POINT, "k": 3}
TERMS = {"id": "t", "kind": "terms", "mode": "continuous", "k": 3, "step": "2s"}
RANKED = {
    "id": "b",
    "kind": "ranked",
    "mode": "snapshot",
    "point": POINT,
    "radius_m": 9,
    "k": 3,
    "keywords": ["fire"],
}


def test_all_kinds_and_modes_are_good(path: Path) -> None:
    terms = {"id": "ts", "kind": "terms", "mode": "snapshot", "k": 3}
    lines = [
        _query("r"),
        _query("e", track="vehicle", events=["inside", "exit"]),
        _query("s", mode="snapshot", window="3d"),
        KNN | {"mode": "continuous", "ttl": "1h"},
        KNN | {"id": "ks", "text": "fire", "where": {"a": 1}},
        TERMS | {"window": "2s"},
        terms,
        RANKED | {"mode": "continuous"},
        RANKED | {"id": "bs", "half_life": "1h"},
    ]
    good, bad = _read(path, *lines)
    assert not bad
    assert [one.members for one in good] == lines
    assert [one.query.id for one in good if one.is_standing] == ["r", "e", "k", "t", "b"]


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (KNN | {"k": 0}, "k"),
        (KNN | {"k": 10**9}, "k"),
        (KNN | {"point": {"lon": 1}}, "point.lat"),
        (KNN | {"mode": "continuous", "window": "1s"}, "window"),
        ({name: TERMS[name] for name in TERMS if name != "step"}, "step"),
        (TERMS | {"window": "1s"}, "step"),
        (TERMS | {"mode": "snapshot"}, "step"),
        (RANKED | {"radius_m": -1}, "radius_m"),
        (RANKED | {"keywords": []}, "keywords"),
        (RANKED | {"keywords": ["-"]}, "keywords[0]"),
        (RANKED | {"weights": {"text": 1, "space": 1, "time": 1}}, "weights"),
        (RANKED | {"text": "fire"}, "text"),
        (_query("a", mode="snapshot", ttl="1h"), "ttl"),
        (_query("a", mode="snapshot", track="vehicle"), "track"),
        (_query("a", events=["enter"]), "events"),
        (_query("a", track="vehicle", events=["leave"]), "events[0]"),
    ],
)
def test_errors_of_all_kinds_name_the_field(path: Path, line: object, field: str) -> None:
    good, bad = _read(path, line)
    assert not good
    assert bad[0].error.field == field
