"""The oracle's checks of OUT: correct lines pass in every allowed form, others do not."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.end_to_end.moving_vehicles import moving_vehicles
from tests.end_to_end.random_queries import random_queries_of_all_kinds
from tests.oracle import agrees, answers

SEED = 20261121

Line = dict[str, Any]

OBJECTS: list[dict[str, Any]] = [
    {"id": 1, "ts": 0, "lon": 0, "lat": 3, "text": "fire road", "bus": "x"},
    {"id": 2, "ts": 1_000, "lon": 0, "lat": 1, "text": "fire", "bus": "x"},
    {"id": 2, "ts": 2_000, "lon": 0, "lat": 1, "text": "fire sky", "bus": True},
    {"id": "c", "ts": 3_000, "lon": 0, "lat": 2, "text": "road", "bus": "x"},
    {"id": 5, "ts": 9_000, "lon": 0, "lat": 1, "text": "", "bus": "x"},
]
POINT = {"lon": 0, "lat": 0}
RANKED: dict[str, Any] = {"kind": "ranked", "point": POINT, "radius_m": 400_000}
BESTS = RANKED | {"id": "bests", "mode": "continuous", "k": 2}
QUERIES: list[dict[str, Any]] = [
    {"id": "range", "kind": "range", "mode": "continuous", "text": "fire"},
    {"id": "track", "kind": "range", "mode": "continuous", "text": "fire", "track": "bus"},
    {"id": "found", "kind": "range", "mode": "snapshot", "text": "fire"},
    {"id": "near", "kind": "knn", "mode": "snapshot", "point": POINT, "k": 4},
    {"id": "nearer", "kind": "knn", "mode": "continuous", "point": POINT, "k": 2},
    {"id": "top", "kind": "terms", "mode": "snapshot", "k": 2},
    {"id": "tops", "kind": "terms", "mode": "continuous", "k": 2, "step": "2s", "window": "2s"},
    RANKED | {"id": "best", "mode": "snapshot", "k": 3, "keywords": ["fire", "sky"]},
    BESTS | {"keywords": ["fire"], "step": "1s", "window": "2s"},
]


def _right() -> list[Line]:
    wanted = answers(OBJECTS, QUERIES)
    return copy.deepcopy([line for answer in wanted.values() for line in answer.lines()])


def _of(lines: list[Line], query: str) -> list[Line]:
    return [line for line in lines if line["query"] == query]


def test_right_lines_are_right() -> None:
    lines = _right()
    assert agrees(lines, OBJECTS, QUERIES) == []
    counts = {query["id"]: len(_of(lines, query["id"])) for query in QUERIES}
    assert counts == {
        "range": 3,
        "track": 3,
        "found": 1,
        "near": 1,
        "nearer": 3,
        "top": 1,
        "tops": 4,
        "best": 1,
        "bests": 4,
    }


def test_lines_of_matches_stand_in_any_order() -> None:
    lines = sorted(_right(), key=lambda line: line["query"] in ("range", "track"))
    loose = [line for line in lines if line["query"] in ("range", "track")]
    assert agrees(lines[: -len(loose)] + loose[::-1], OBJECTS, QUERIES) == []


def test_any_chain_of_nearest_lists_that_ends_right_is_right() -> None:
    distances = _of(_right(), "near")[0]["distance_m"]
    near, far = distances[0], distances[3]
    chain: list[Line] = [
        {"added": ["c", 5], "removed": [], "objects": [5, "c"], "distance_m": [near, far]},
        {"added": [2, 2], "removed": ["c", 5], "objects": [2, 2], "distance_m": [near, near]},
    ]
    rest = [line for line in _right() if line["query"] != "nearer"]
    lines = rest + [{"query": "nearer", **line} for line in chain]
    assert agrees(lines, OBJECTS, QUERIES) == []


NEAR, FAR = 111195.08, 333585.241


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (([], [], [2, 1], [NEAR, FAR]), "changes nothing"),
        (([], [1], [2], [NEAR]), "a place of the list gets worse"),
        ((["c", 5], [], [2, 5, "c", 1], [NEAR, NEAR, 2 * NEAR, FAR]), "k is 2"),
        ((["c"], [2], ["c", 1], [2 * NEAR, FAR]), "a place of the list gets worse"),
        (([7], [], [2, 7], [NEAR, NEAR]), "do not lead to the list"),
        (([7], [1], [2, 7], [NEAR, NEAR]), "does not belong there"),
        (([5], [9], [2, 5], [NEAR, NEAR]), "was not there"),
        (([5, True], [1, 2], [5, True], [NEAR, NEAR]), "is no id"),
    ],
)
def test_a_broken_chain_of_nearest_lists_is_reported(
    change: tuple[list[Any], list[Any], list[Any], list[float]], difference: str
) -> None:
    right = _of(_right(), "nearer")
    assert right[1]["distance_m"] == [NEAR, FAR]
    added, removed, objects, distances = change
    line = {"query": "nearer", "added": added, "removed": removed, "objects": objects}
    lines = [*right[:2], line | {"distance_m": distances}, *right[2:]]
    (found,) = agrees(lines, OBJECTS, [QUERIES[4]])
    assert found.startswith("nearer: ")
    assert difference in found


def test_a_snapshot_of_terms_may_do_without_its_time() -> None:
    lines = _right()
    del _of(lines, "top")[0]["at"]
    assert agrees(lines, OBJECTS, QUERIES) == []


def test_results_independent_of_time_are_checked_in_wall_time_too() -> None:
    untimed = [{k: v for k, v in one.items() if k != "ts"} for one in OBJECTS]
    queries = [query for query in QUERIES if query["id"] not in ("tops", "best", "bests")]
    weights = {"text": 0.5, "space": 0.5, "time": 0}
    queries.append(QUERIES[7] | {"weights": weights})
    wanted = answers(untimed, queries, "wall")
    lines = [line for answer in wanted.values() for line in answer.lines()]
    assert agrees(lines, untimed, queries, arrival="wall") == []
    # The time of the snapshot is unknown.
    (top,) = _of(lines, "top")
    assert "at" not in top
    reported = [*lines, top | {"at": 1_700_000_000_000}]
    reported.remove(top)
    assert agrees(reported, untimed, queries, arrival="wall") == []
    assert agrees(lines[1:], untimed, queries, arrival="wall")
    with pytest.raises(AssertionError, match="wall time"):
        agrees([], untimed, [QUERIES[7]], arrival="wall")


def _swap(line: Line, *names: str) -> None:
    for name in names:
        line[name][:2] = line[name][1::-1]


BAD: list[tuple[str, int, Callable[[Line], object]]] = [
    ("range", 0, lambda line: line.update(object=7)),
    ("range", 0, lambda line: line.update(object=True)),
    ("range", 0, lambda line: line.update(object="1")),
    ("range", 0, lambda line: line.update(event="enter")),
    ("track", 0, lambda line: line.update(event="exit")),
    ("track", 1, lambda line: line.update(track=1)),
    ("track", 0, lambda line: line.pop("track")),
    ("found", 0, lambda line: line["objects"].reverse()),
    ("found", 0, lambda line: line["objects"].pop()),
    ("found", 0, lambda line: line["objects"].append(9)),
    ("near", 0, lambda line: line["objects"].pop()),
    ("near", 0, lambda line: line["objects"].reverse()),
    ("near", 0, lambda line: line["objects"].__setitem__(slice(1, 3), [5, 2])),
    ("near", 0, lambda line: line["objects"].__setitem__(3, 1)),
    ("near", 0, lambda line: line["distance_m"].__setitem__(0, line["distance_m"][0] + 0.002)),
    ("near", 0, lambda line: line["distance_m"].__setitem__(0, line["distance_m"][0] + 0.0001)),
    ("near", 0, lambda line: line.update(added=[])),
    ("nearer", 2, lambda line: line.update(removed=[])),
    ("nearer", 1, lambda line: line["added"].append(5)),
    ("nearer", 2, lambda line: line["removed"].append("c")),
    ("nearer", 0, lambda line: line.update(objects=[5], added=[5])),
    ("nearer", 0, lambda line: line["distance_m"].__setitem__(0, 0.0)),
    ("nearer", 1, lambda line: _swap(line, "objects", "distance_m")),
    ("top", 0, lambda line: line["terms"].reverse()),
    ("top", 0, lambda line: line["terms"].pop()),
    ("top", 0, lambda line: line["terms"].append(["sky", 1])),
    ("top", 0, lambda line: line.update(at=1)),
    ("tops", 1, lambda line: line["terms"][0].__setitem__(1, 9)),
    ("tops", 1, lambda line: line.update(at=4_001)),
    ("tops", 1, lambda line: line.pop("at")),
    ("best", 0, lambda line: line["objects"].reverse()),
    ("best", 0, lambda line: (line["objects"].reverse(), line["score"].reverse())),
    ("best", 0, lambda line: _swap(line, "score")),
    ("best", 0, lambda line: line["score"].__setitem__(1, line["score"][1] + 3e-9)),
    ("best", 0, lambda line: line["score"].__setitem__(1, line["score"][1] + 1e-10)),
    ("best", 0, lambda line: line["score"].pop()),
    ("bests", 0, lambda line: line.update(at=500)),
    ("bests", 0, lambda line: line.update(objects=[1])),
    ("bests", 2, lambda line: line.update(objects=["c"])),
]


@pytest.mark.parametrize(("query", "number", "spoil"), BAD, ids=range(len(BAD)))
def test_a_spoilt_line_is_reported(
    query: str, number: int, spoil: Callable[[Line], object]
) -> None:
    lines = _right()
    spoil(_of(lines, query)[number])
    reported = agrees(lines, OBJECTS, QUERIES)
    assert reported
    assert all(one.startswith(f"{query}: ") for one in reported)


@pytest.mark.parametrize("query", [query["id"] for query in QUERIES])
def test_a_missing_or_surplus_line_is_reported(query: str) -> None:
    for row, line in enumerate(right := _right()):
        if line["query"] == query:
            assert agrees(right[:row] + right[row + 1 :], OBJECTS, QUERIES), f"without {line}"
            assert agrees([*right[:row], line, *right[row:]], OBJECTS, QUERIES), f"twice {line}"


@pytest.mark.parametrize("query", ["nearer", "tops", "bests"])
def test_lines_of_one_query_keep_their_order(query: str) -> None:
    for row, line in enumerate(right := _right()):
        if line["query"] == query and right[row - 1]["query"] == query:
            turned = [*right[: row - 1], line, right[row - 1], *right[row + 1 :]]
            assert agrees(turned, OBJECTS, QUERIES), f"{line} before its predecessor"


def test_strange_and_bad_lines_are_reported() -> None:
    lines = _right()
    assert "no query" in agrees([*lines, {"query": "other", "object": 1}], OBJECTS, QUERIES)[0]
    error = {"error": "lon: is missing", "file": "objects", "line": 3}
    assert agrees([*lines, error], OBJECTS, QUERIES, bad_lines=[("objects", 3)]) == []
    assert "too many" in agrees([*lines, error], OBJECTS, QUERIES)[0]
    assert "missing" in agrees(lines, OBJECTS, QUERIES, bad_lines=[("objects", 3)])[0]


def test_where_rounding_is_in_doubt_both_sides_are_right() -> None:
    # Half a millimetre, which two formulas may round differently, and one that rounds to 1 mm.
    metre = 360 / (2 * 3.141592653589793 * 6_371_008.8)
    objects = [
        {"id": 1, "ts": 0, "lon": 0, "lat": 0.001 * metre},
        {"id": 2, "ts": 0, "lon": 0, "lat": 0.0015 * metre},
        {"id": 3, "ts": 0, "lon": 0, "lat": 0.0021 * metre},
    ]
    query = {"id": "q", "kind": "knn", "mode": "snapshot", "point": POINT, "k": 2}

    def differences(ids: list[int], distances: list[float], k: int = 2) -> list[str]:
        line = {"query": "q", "objects": ids, "distance_m": distances}
        return agrees([line], objects, [query | {"k": k}])

    assert differences([1, 2], [0.001, 0.001]) == []
    assert differences([1, 2], [0.001, 0.002]) == []
    assert differences([2, 1], [0.001, 0.001])  # equal figures are ordered by id
    assert differences([1, 3], [0.001, 0.002])  # 2 is no farther, and comes first
    assert differences([1], [0.001], k=1) == []


def test_random_answers_are_right_and_no_others() -> None:
    """Results that are correct without one object are wrong with it, wherever they differ."""
    objects = moving_vehicles(400, SEED)
    queries = random_queries_of_all_kinds(objects, 90, SEED, track="vehicle")
    right = [line for answer in answers(objects, queries).values() for line in answer.lines()]
    assert agrees(right, objects, queries) == []
    # For the standing knn queries several lists are correct.
    strict = [query for query in queries if not query["id"].startswith("knn-continuous")]
    wanted = {query: answer.lines() for query, answer in answers(objects, strict).items()}
    dice = random.Random(SEED)
    noticed = 0
    for _ in range(10):
        row = dice.randrange(1, len(objects) - 1)
        fewer = answers(objects[:row] + objects[row + 1 :], strict)
        for query in strict:
            lines = fewer[query["id"]].lines()
            differs = lines != wanted[query["id"]]
            assert bool(agrees(lines, objects, [query])) is differs, f"seed {SEED}, {query}"
            noticed += differs
    assert noticed > 100
