"""The oracle of knn, terms and ranked queries, compared with lists computed by hand."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest

from tests.oracle import answers, key_of

# Metres of a degree: the 360th part of the great circle.
DEGREE_M = 2 * math.pi * 6_371_008.8 / 360

ORIGIN = {"lon": 0, "lat": 0}


def _at(one: int | str, ts: int, text: str = "", **members: Any) -> dict[str, Any]:
    return {"id": one, "ts": ts, "lon": 0, "lat": 0, "text": text} | members


def _lines(objects: list[dict[str, Any]], **query: Any) -> list[dict[str, Any]]:
    """Returns the expected results, without the query's id."""
    lines = answers(objects, [{"id": "q", **query}])["q"].lines()
    assert all(line.pop("query") == "q" for line in lines)
    return lines


class TestKnn:
    def _list(self, objects: list[dict[str, Any]], **query: Any) -> tuple[list[Any], list[float]]:
        query = {"kind": "knn", "mode": "snapshot", "point": ORIGIN, "k": 2} | query
        (line,) = _lines(objects, **query)
        return line["objects"], line["distance_m"]

    def test_the_nearest_first(self) -> None:
        objects = [_at(1, 1, lat=2), _at(2, 1, lat=1), _at(3, 1, lon=1.5)]
        assert self._list(objects) == ([2, 3], [111195.08, 166792.62])
        assert self._list(objects, k=1) == ([2], [111195.08])
        assert self._list(objects, k=9)[0] == [2, 3, 1]

    def test_distances_are_rounded_to_a_millimetre_and_ties_go_by_id(self) -> None:
        tenth_of_mm = 1e-4 / DEGREE_M
        objects = [_at(5, 1), _at(3, 1, lat=2 * tenth_of_mm), _at(4, 1, lat=6 * tenth_of_mm)]
        assert self._list(objects, k=3) == ([3, 5, 4], [0, 0, 0.001])
        names: list[int | str] = ["a", "b", "c", 17, 2**64 - 1]
        names.sort(key=key_of)
        assert self._list([_at(one, 1) for one in reversed(names)], k=5)[0] == names

    def test_across_the_antimeridian_and_at_the_pole(self) -> None:
        objects = [_at(1, 1, lon=-179.999), _at(2, 1, lon=179.997)]
        point = {"lon": 179.999, "lat": 0}
        wanted = ([1, 2], [round(0.002 * DEGREE_M, 3)] * 2)
        assert self._list(objects, point=point) == wanted
        objects = [_at(1, 1, lat=89, lon=90)]
        assert self._list(objects, point={"lon": -90, "lat": 89})[1] == [round(2 * DEGREE_M, 3)]

    def test_text_where_and_window_choose(self) -> None:
        objects = [
            _at(1, 1_000, "fire", size=1),
            _at(2, 2_000, "fire drill", size=2),
            _at(3, 3_000, "fire"),
        ]
        assert self._list(objects, text="fire AND NOT drill")[0] == [1, 3]
        assert self._list(objects, where={"size": {"gte": 1}})[0] == [1, 2]
        assert self._list(objects, window="1s", k=3)[0] == [2, 3]
        assert self._list(objects, text="flood") == ([], [])

    def test_standing_lists_follow_each_other_and_nothing_expires(self) -> None:
        objects = [_at(1, 1_000, lat=3), _at(2, 1_500, lat=1), _at(3, 1_999, lat=2), _at(4, 2_000)]
        query = {"kind": "knn", "mode": "continuous", "point": ORIGIN, "k": 2, "ttl": "1s"}
        first, second, third = (round(n * DEGREE_M, 3) for n in (1, 2, 3))
        assert _lines(objects, **query) == [
            {"added": [1], "removed": [], "objects": [1], "distance_m": [third]},
            {"added": [2], "removed": [], "objects": [2, 1], "distance_m": [first, third]},
            {"added": [3], "removed": [1], "objects": [2, 3], "distance_m": [first, second]},
        ]


class TestTerms:
    def _steps(self, objects: list[dict[str, Any]], **query: Any) -> list[tuple[int, Any]]:
        query = {"kind": "terms", "mode": "continuous", "k": 2, "step": "1s"} | query
        return [(line["at"], line["terms"]) for line in _lines(objects, **query)]

    def test_an_object_counts_once_for_each_term_and_ties_go_by_code_point(self) -> None:
        # In UTF-16 the letter beyond the first 65,536 would come before U+FA0E.
        objects = [_at(1, 1, "b \ufa0e b \U00010428 a"), _at(2, 2, "B b")]
        (line,) = _lines(objects, kind="terms", mode="snapshot", k=9)
        assert line["terms"] == [["b", 2], ["a", 1], ["\ufa0e", 1], ["\U00010428", 1]]
        assert line["at"] == 2
        (line,) = _lines(objects, kind="terms", mode="snapshot", k=3)
        assert line["terms"] == [["b", 2], ["a", 1], ["\ufa0e", 1]]

    def test_the_most_frequent_first(self) -> None:
        objects = [_at(number, 1, text) for number, text in enumerate(["a b c d", "b c d", "b d"])]
        (line,) = _lines([*objects, _at(9, 1, "d")], kind="terms", mode="snapshot", k=3)
        assert line["terms"] == [["d", 4], ["b", 3], ["c", 2]]

    def test_the_window_of_a_snapshot_is_closed(self) -> None:
        objects = [_at(1, 1_000, "a"), _at(2, 2_000, "b"), _at(3, 3_000, "c")]
        query = {"kind": "terms", "mode": "snapshot", "k": 9}
        assert _lines(objects, window="1s", **query)[0]["terms"] == [["b", 1], ["c", 1]]
        assert _lines(objects, window="999ms", **query)[0]["terms"] == [["c", 1]]

    def test_steps_take_the_window_open_at_its_begin_and_closed_at_its_end(self) -> None:
        objects = [
            _at(1, 10_000, "a", lon=99),
            _at(2, 11_000, "b"),
            _at(3, 11_001, "c"),
            _at(4, 13_000, "d"),
        ]
        region = {"rect": {"west": -1, "south": -1, "east": 1, "north": 1}}
        # The first object is outside, and still is the start; 12,000 has neither a nor b.
        assert self._steps(objects, region=region, window="1s") == [
            (11_000, [["b", 1]]),
            (12_000, [["c", 1]]),
            (13_000, [["d", 1]]),
        ]
        assert self._steps(objects, region=region, window="2s") == [
            (11_000, [["b", 1]]),
            (12_000, [["b", 1], ["c", 1]]),
            (13_000, [["c", 1], ["d", 1]]),
        ]
        # Without a window all objects since the start count.
        assert self._steps(objects, step="3s", k=4) == [(13_000, [[x, 1] for x in "abcd"])]

    def test_empty_steps_are_reported(self) -> None:
        objects = [_at(1, 1_000, "a"), _at(2, 4_000, "b")]
        assert self._steps(objects, window="1s", text="a") == [
            (2_000, []),
            (3_000, []),
            (4_000, []),
        ]

    def test_the_last_step_is_the_newest_arrival_or_the_end_of_the_lifetime(self) -> None:
        objects = [_at(1, 0, "a"), _at(2, 3_999, "b")]
        assert [at for at, _ in self._steps(objects)] == [1_000, 2_000, 3_000]
        assert [at for at, _ in self._steps(objects, ttl="2s")] == [1_000, 2_000]
        assert [at for at, _ in self._steps(objects, ttl="1999ms")] == [1_000]
        objects.append(_at(3, 4_000))
        assert [at for at, _ in self._steps(objects)] == [1_000, 2_000, 3_000, 4_000]

    def test_an_object_at_the_end_of_the_lifetime_is_in_the_step_of_that_time(self) -> None:
        objects = [_at(1, 0, "a"), _at(2, 2_000, "b")]
        assert self._steps(objects, ttl="2s", step="2s") == [(2_000, [["a", 1], ["b", 1]])]


class TestRanked:
    TEXT: ClassVar = {"text": 1, "space": 0, "time": 0}
    SPACE: ClassVar = {"text": 0, "space": 1, "time": 0}
    TIME: ClassVar = {"text": 0, "space": 0, "time": 1}

    def _scores(self, objects: list[dict[str, Any]], **query: Any) -> dict[Any, float]:
        query = self._query(**query)
        (line,) = _lines(objects, **query)
        return dict(zip(line["objects"], line["score"], strict=True))

    def _query(self, **query: Any) -> dict[str, Any]:
        given = {"kind": "ranked", "mode": "snapshot", "point": ORIGIN, "radius_m": 1_000, "k": 9}
        return given | {"keywords": ["fire"]} | query

    def test_bm25_by_hand(self) -> None:
        objects = [
            _at(1, 1, "fire fire road"),
            _at(2, 1, "fire"),
            _at(3, 1, "road sky"),
            _at(4, 1, "fire", lat=1),  # too far away to count at all
        ]
        # One idf for both. Mean length 2; norm 1.2 (0.25 + 0.75 length / 2): 1.65 and 0.75.
        # 2 · 2.2 / (2 + 1.65) over 2.2 / (1 + 0.75).
        assert self._scores(objects, weights=self.TEXT) == {2: 1, 1: round(3.5 / 3.65, 9)}

    def test_idf_by_hand(self) -> None:
        objects = [
            _at(1, 1, "fire road"),
            _at(2, 1, "fire fire"),
            _at(3, 1, "road road"),
            _at(4, 1, "sky fire"),
        ]
        # N = 4, mean length 2: the norm is 1.2. fire stands in 3, road in 2.
        fire, road = math.log(1 + 1.5 / 3.5), math.log(1 + 2.5 / 2.5)
        once, twice = 2.2 / 2.2, 2 * 2.2 / 3.2
        wanted = {1: fire * once + road * once, 3: road * twice, 2: fire * twice, 4: fire * once}
        greatest = max(wanted.values())
        found = self._scores(objects, keywords=["Fire", "road-fire", "fire"], weights=self.TEXT)
        assert found == {one: round(score / greatest, 9) for one, score in wanted.items()}
        assert list(found) == sorted(wanted, key=lambda one: -wanted[one])

    def test_statistics_are_over_all_objects_of_the_window_within_the_radius(self) -> None:
        objects = [
            _at(0, 1_000, "fire " * 9),  # before the window
            _at(1, 2_000, "fire road", open=True),
            _at(2, 2_000, "fire", open=True),
            _at(3, 3_000, "fire sky sky sky"),  # no candidate, but counts
            _at(4, 3_000, ""),
        ]
        query = {"weights": self.TEXT, "window": "1s", "where": {"open": True}}
        mean = 7 / 4
        one, two = (1 / (1 + 1.2 * (0.25 + 0.75 * length / mean)) for length in (2, 1))
        assert self._scores(objects, **query) == {2: 1, 1: round(one / two, 9)}

    def test_space_falls_to_nothing_at_the_radius(self) -> None:
        quarter, whole, beyond = (d / DEGREE_M for d in (250, 1_000.0004, 1_000.0006))
        objects = [
            _at(1, 1, "fire", lat=whole),
            _at(2, 1, "fire", lat=quarter),
            _at(3, 1, "fire", lat=beyond),
            _at(4, 1, "fire"),
        ]
        assert self._scores(objects, weights=self.SPACE) == {4: 1, 2: 0.75, 1: 0}

    def test_distances_are_rounded_before_they_score(self) -> None:
        objects = [_at(1, 1, "fire", lat=0.1 * 1.4e-3 / DEGREE_M), _at(2, 1, "fire")]
        assert self._scores(objects, weights=self.SPACE, radius_m=0.01) == {1: 1, 2: 1}

    def test_time_halves_with_the_half_life(self) -> None:
        objects = [_at(1, 1_000, "fire"), _at(2, 3_000, "fire"), _at(3, 4_000, "road")]
        found = self._scores(objects, weights=self.TIME, half_life="1s")
        assert found == {2: 0.5, 1: 0.125}
        found = self._scores(objects, weights=self.TIME)
        assert found == {2: round(2 ** (-1 / 86_400), 9), 1: round(2 ** (-3 / 86_400), 9)}

    def test_weights_default_to_a_third_and_ties_go_by_id(self) -> None:
        half = 500 / DEGREE_M
        objects = [_at(7, 0, "fire", lat=half), _at("a", 0, "fire", lat=half), _at(5, 0, "fire")]
        (line,) = _lines(objects, **self._query(k=2))
        assert line == {"objects": [5, 7], "score": [1, round(5 / 6, 9)]}
        given = {"text": 0.25, "space": 0.5, "time": 0.25}
        assert self._scores(objects, weights=given) == {5: 1, 7: 0.75, "a": 0.75}

    def test_scores_are_rounded_before_they_order(self) -> None:
        # 2^-(1 ms / 1000 d) differs by less than 1e-9 from 1.
        objects = [_at(9, 1, "fire"), _at(8, 0, "fire")]
        found = self._scores(objects, weights=self.TIME, half_life="1000d")
        assert list(found.items()) == [(8, 1), (9, 1)]

    def test_no_object_holds_the_keyword(self) -> None:
        assert self._scores([_at(1, 1, "road"), _at(2, 1)]) == {}

    def _changes(self, objects: list[dict[str, Any]], **query: Any) -> list[tuple[int, list[Any]]]:
        query = self._query(mode="continuous") | query
        return [(line["at"], line["objects"]) for line in _lines(objects, **query)]

    def test_standing_a_line_where_the_list_changed(self) -> None:
        objects = [
            _at(0, 0, "road"),
            _at(1, 1_500, "fire"),
            _at(2, 3_000, "fire"),
            _at(3, 6_000, "road"),
        ]
        query = {"step": "1s", "weights": self.TIME, "half_life": "1s"}
        # None at 1,000, as the list was empty before as well; at 4,000 to 6,000 it is unchanged.
        assert self._changes(objects, **query) == [(2_000, [1]), (3_000, [2, 1])]
        # [at - window, at]: the second has left at 6,000.
        windowed = [(2_000, [1]), (3_000, [2, 1]), (4_000, [2]), (6_000, [])]
        assert self._changes(objects, **query, window="2s") == windowed
        assert self._changes(objects, **query, window="2s", ttl="4s") == windowed[:3]
        assert self._changes(objects, **query, window="2s", ttl="3999ms") == windowed[:2]

    def test_standing_every_ten_seconds_by_default(self) -> None:
        objects = [_at(1, 5_000, "fire"), _at(2, 15_001, "fire"), _at(3, 25_000)]
        assert self._changes(objects, weights=self.TIME) == [(15_000, [1]), (25_000, [2, 1])]

    def test_standing_ageing_alone_changes_the_order(self) -> None:
        objects = [_at(1, 0, "fire fire"), _at(2, 3_000, "fire sky"), _at(3, 9_000, "sky sky")]
        query = {"step": "3s", "weights": {"text": 0.5, "space": 0, "time": 0.5}, "half_life": "3s"}
        # Equally long texts of mean length: text is 1 and 1 / (4.4 / 3.2) = 0.727 for ever.
        # 0.5 + 0.25 against 0.364 + 0.5 at 3,000; 0.5 + 0.125 against 0.364 + 0.25 at 6,000.
        assert self._changes(objects, **query) == [(3_000, [2, 1]), (6_000, [1, 2])]

    def test_scores_of_a_step_are_of_its_time(self) -> None:
        objects = [_at(1, 0, "fire"), _at(2, 2_000, "road")]
        query = self._query(mode="continuous", step="1s", weights=self.TIME, half_life="1s")
        assert _lines(objects, **query) == [{"objects": [1], "score": [0.5], "at": 1_000}]


def test_steps_cannot_be_checked_in_wall_time() -> None:
    query = {"id": "q", "kind": "terms", "mode": "continuous", "k": 1, "step": "1s"}
    with pytest.raises(AssertionError, match="wall time"):
        answers([_at(1, 1)], [query], "wall")


def test_without_objects_there_are_only_empty_snapshots() -> None:
    queries = [
        {"id": "k", "kind": "knn", "point": ORIGIN, "k": 1},
        {"id": "t", "kind": "terms", "k": 1, "step": "1s"},
        {"id": "r", "kind": "ranked", "point": ORIGIN, "radius_m": 1, "k": 1, "keywords": ["a"]},
    ]
    for query in queries:
        (line,) = answers([], [query | {"mode": "snapshot"}])[str(query["id"])].lines()
        assert not any(value for name, value in line.items() if name != "query")
        assert answers([], [query | {"mode": "continuous"}])[str(query["id"])].lines() == []
