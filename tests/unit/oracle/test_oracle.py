"""The oracle of the end-to-end tests, compared with hand-made cases and the model."""

from __future__ import annotations

import math
import random
from collections import Counter
from typing import Any, ClassVar

import numpy as np
import pytest

from sirocco.model.errors import InvalidArgument
from sirocco.model.expression import Expression
from sirocco.model.geometry import distance_m as model_distance_m
from sirocco.model.geometry import parse_region
from sirocco.model.text import terms_of as model_terms
from tests.oracle import (
    Members,
    Objects,
    Region,
    answers,
    arrivals_ms,
    distance_m,
    matches,
    satisfies,
    table,
)
from tests.oracle.geometry import distances_m
from tests.oracle.words import BadExpressionError, evaluate, holds, parse, terms_of, tokens_of

SQUARE = {"polygon": [[[0, 0], [4, 0], [4, 4], [0, 4]], [[1, 1], [1, 3], [3, 3], [3, 1], [1, 1]]]}


def _query(**members: Any) -> dict[str, Any]:
    return {"id": "q", "kind": "range", "mode": "continuous"} | members


@pytest.mark.parametrize(
    ("point", "inside"),
    [((0.5, 0.5), True), ((2, 2), False), ((1, 2), True), ((4, 4), True), ((4.0001, 2), False)],
)
def test_polygons_are_even_odd_with_their_borders(point: tuple[float, float], inside: bool) -> None:
    assert Region(SQUARE).contains(*point) is inside


def test_rectangles_cross_the_antimeridian() -> None:
    region = Region({"rect": {"west": 170, "south": 0, "east": -170, "north": 1}})
    assert region.contains(175, 0.5)
    assert region.contains(-170, 1)
    assert not region.contains(0, 0.5)
    east = Region({"rect": {"west": 170, "south": 0, "east": 180, "north": 1}})
    assert east.contains(-180, 0)


def test_a_degree_of_latitude() -> None:
    assert distance_m(10, 0, 10, 1) == pytest.approx(math.pi / 180 * 6_371_008.8)


@pytest.mark.parametrize("size", [1e-6, 1.0, 179.9999])
def test_distances_are_those_of_the_haversine_formula(size: float) -> None:
    seed = 20261121
    dice = random.Random(seed)
    for _ in range(200):
        lon, lat = dice.uniform(-180, 180), dice.uniform(-90, 90)
        turned = (lon + dice.uniform(-size, size) + 180) % 360 - 180
        point = turned, min(90.0, max(-90.0, lat + dice.uniform(-size, size)))
        (found,) = distances_m(lon, lat, np.array([point[0]]), np.array([point[1]])).tolist()
        wanted = float(model_distance_m(lon, lat, *point))
        assert found == pytest.approx(wanted, abs=1e-7), f"seed {seed}"


def test_regions_agree_with_the_model() -> None:
    seed = 20261121
    dice = random.Random(seed)
    for _ in range(200):
        lon, lat = dice.uniform(-180, 180), dice.uniform(-85, 85)
        ring = [[dice.randint(-5, 5), dice.randint(-5, 5)] for _ in range(dice.randint(3, 7))]
        if len({tuple(vertex) for vertex in ring}) < 3:
            continue
        shapes: list[dict[str, Any]] = [
            {"circle": {"lon": lon, "lat": lat, "radius_m": dice.uniform(0, 2e6)}},
            {"rect": {"west": lon, "south": -10, "east": dice.uniform(-180, 180), "north": 9}},
            {"polygon": [ring]},
        ]
        points = [(dice.randint(-10, 10) / 2, dice.randint(-10, 10) / 2) for _ in range(50)]
        points += [(lon + dice.gauss(0, 5), lat) for _ in range(20)]
        points = [((x + 180) % 360 - 180, y) for x, y in points]
        for shape in shapes:
            x, y = np.array(points, np.float64).T
            wanted = parse_region(shape).contains(x, y).tolist()
            assert [Region(shape).contains(*point) for point in points] == wanted, f"seed {seed}"
            assert Region(shape).mask(x, y).tolist() == wanted, f"seed {seed}"


def test_a_ring_may_touch_the_antimeridian_from_one_side() -> None:
    region = Region({"polygon": [[[170, 0], [180, 0], [180, 10], [170, 10]]]})
    assert region.contains(-180, 5)
    assert not region.contains(-179.9999, 5)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Fire, fire!", ["fire", "fire"]),
        ("It's_ok 3.5", ["it", "s_ok", "3", "5"]),
        ("STRASSE Straße ﬁre", ["strasse", "strasse", "fire"]),
        ("गाड़ी", ["गाड़ी"]),  # marks belong to words
        ("①½", ["1", "1", "2"]),  # a fraction begins anew, and NFKC has a slash in it
        ("-- ", []),
    ],
)
def test_terms_by_hand(text: str, terms: list[str]) -> None:
    assert terms_of(text) == terms


def test_terms_agree_with_the_model() -> None:
    seed = 20261121
    dice = random.Random(seed)
    points = [*range(0x250), *range(0x900, 0x980), *range(0x2150, 0x2190), 0x1F525, 0x10428]
    for _ in range(500):
        text = "".join(chr(dice.choice(points)) for _ in range(dice.randint(0, 30)))
        assert terms_of(text) == model_terms(text), f"seed {seed}"


def test_ascii_is_read_like_any_text() -> None:
    dice = random.Random(20261127)
    for _ in range(500):
        text = "".join(chr(dice.randrange(128)) for _ in range(dice.randint(0, 30)))
        # The last letter makes it a text that is read character by character.
        for read in (terms_of, tokens_of):
            assert [*read(text), "é"] == read(f"{text} é"), repr(text)
        assert [*tokens_of(text, fold=True), "e"] == tokens_of(f"{text} é", fold=True), repr(text)


def _holds(source: str, text: str) -> bool:
    tokens = tokens_of(text)
    return bool(evaluate(parse(source), lambda leaf: np.bool_(holds(leaf, tokens))))


@pytest.mark.parametrize(
    ("source", "text", "holds"),
    [
        ("a b OR c", "c", True),
        ("a AND b OR c", "a", False),
        ("a (b OR c)", "a c", True),
        ("NOT a b", "b", True),  # NOT binds strongest
        ("NOT (a b) b", "a b", False),
        ("ANY(x y-z) a", "a y", False),
        ("ANY(x y-z) a", "a y z", True),
        ("a and b", "a b", False),  # only capitals are operators
        ("rock'n'roll", "roll n rock", False),  # a word of several tokens is a phrase
        ("rock'n'roll", "rock-n-roll", True),
    ],
)
def test_expressions_by_hand(source: str, text: str, holds: bool) -> None:
    assert _holds(source, text) is holds


@pytest.mark.parametrize(
    "source",
    [
        "",
        "a AND",
        "(a",
        "a)",
        "ANY a",
        "ANY()",
        "NOT",
        "a OR OR b",
        "-",
        'a "b',
        '""',
        "a*",
        "f*x",
        '"a bc*"',
        "火事*",
    ],
)
def test_malformed_expressions(source: str) -> None:
    with pytest.raises(BadExpressionError):
        parse(source)
    with pytest.raises(InvalidArgument):
        Expression.parse(source)


def test_expressions_agree_with_the_model() -> None:
    seed = 20261121
    dice = random.Random(seed)
    words = [*"abcd", "ab*", '"a b"', "c-d", "AND", "OR", "NOT", "(", ")", "(", ")", "ANY(a b)"]
    decided = 0
    for _ in range(5_000):
        source = " ".join(dice.choices(words, k=dice.randint(1, 9)))
        try:
            wanted = Expression.parse(source)
        except InvalidArgument:
            continue
        decided += 1
        for number in range(32):
            text = [
                word for bit, word in enumerate(["d", "c", "a", "b", "abc"]) if number >> bit & 1
            ]
            assert _holds(source, " ".join(text)) == wanted.matches(text), f"seed {seed}: {source}"
    assert decided > 200


def test_filters_know_types_and_missing_members() -> None:
    assert satisfies({"size": {"gte": 3, "lt": 10}}, {"size": 3.0})
    assert not satisfies({"size": 1}, {"size": True})
    assert not satisfies({"size": {"gte": 3}}, {"size": "4"})
    assert not satisfies({"size": {"in": [1, "a"]}}, {"size": None})
    assert satisfies({"size": {"in": [1, "a"]}}, {"size": "a"})
    assert not satisfies({"text": "fire"}, {"text": "fire"})  # no attribute


def test_texts_that_repeat_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read: Counter[str] = Counter()

    def counted(text: str, *, fold: bool = False) -> list[str]:
        read[text] += 1
        return tokens_of(text, fold=fold)

    monkeypatch.setattr(table, "tokens_of", counted)
    monkeypatch.setattr(table, "terms_of", counted)
    one = {"lon": 0, "lat": 0}
    objects = [{"id": i, "text": ("a b", "b c")[i % 2], **one} for i in range(10)]
    queries = [{"id": q, "kind": "range", "mode": "continuous", "text": q} for q in "ab"]
    assert matches(objects, queries).total() == 5 + 10
    assert read == {"a b": 2, "b c": 2}, "once for terms, once for tokens"


def test_matches_count_publications_and_lifetimes() -> None:
    objects = [
        {"id": 1, "ts": 1_000, "lon": 1, "lat": 1, "text": "Fire!"},
        {"id": 1, "lon": 1, "lat": 1, "text": "fire"},
        {"id": "b", "ts": 500, "lon": 1, "lat": 1, "text": "fire drill"},
        {"id": 4, "ts": 2_000, "lon": 1, "lat": 1, "text": "fire"},
    ]
    assert arrivals_ms(objects) == [1_000, 1_000, 1_000, 2_000]
    query = _query(text="fire AND NOT drill", region=SQUARE)
    assert matches(objects, [query]) == Counter({("q", 1): 2, ("q", 4): 1})
    limited = query | {"ttl": "1s"}
    assert matches(objects, [limited], event_arrivals=True) == Counter({("q", 1): 2})


def _place(one: int | str, ts: int | None, **members: Any) -> dict[str, Any]:
    return {"id": one, "ts": ts, "lon": 1, "lat": 1} | members


def _lines(objects: list[dict[str, Any]], query: Members) -> list[dict[str, Any]]:
    lines = answers(objects, [query])[query["id"]].lines()
    return [{k: v for k, v in line.items() if k != "query"} for line in lines]


def test_a_lifetime_is_open_at_its_end() -> None:
    objects = [_place(1, 1_000), _place(2, 1_999), _place(3, 2_000)]
    assert _lines(objects, _query(ttl="1s")) == [{"object": 1}, {"object": 2}]
    assert len(_lines(objects, _query(ttl="1001ms"))) == 3


def test_the_window_of_a_snapshot_is_closed_and_ids_ascend_as_numbers() -> None:
    objects = [
        _place(9, 1_000),
        _place(7, 2_000),
        _place(7, 2_500),
        _place("a", 3_000),
        _place(3, 1),
    ]
    # The last one arrived at 3,000, since arrivals never decrease.
    query = _query(mode="snapshot", window="1s")
    assert Objects(objects).keys[3] == 0xE6C632B61E964E1F  # xxh3-64 of "a"
    assert _lines(objects, query) == [{"objects": [3, 7, 7, "a"]}]
    assert _lines(objects, query | {"window": "999ms"}) == [{"objects": [3, 7, "a"]}]
    assert _lines(objects, query | {"window": "0ms"}) == [{"objects": [3, "a"]}]


def test_without_objects_there_are_only_empty_snapshots() -> None:
    assert _lines([], _query()) == []
    assert _lines([], _query(mode="snapshot", window="1s")) == [{"objects": []}]


def test_what_depends_on_wall_time_is_refused() -> None:
    with pytest.raises(AssertionError, match="lifetime in wall time"):
        answers([_place(1, 1)], [_query(ttl="1s")], "wall")


class TestTrack:
    IN: ClassVar[dict[str, Any]] = {"lon": 1}
    OUT: ClassVar[dict[str, Any]] = {"lon": 9}

    def _events(
        self, objects: list[tuple[tuple[int, int], dict[str, Any]]], **members: Any
    ) -> list[tuple[Any, ...]]:
        query = _query(region=SQUARE, track="v") | members
        found = _lines([_place(*key, **rest) for key, rest in objects], query)
        return [(line["object"], line["event"], line["track"]) for line in found]

    def test_enter_and_exit_are_the_default(self) -> None:
        objects = [
            ((1, 10), self.OUT | {"v": "bus"}),
            ((2, 20), self.IN | {"v": "bus", "lat": 0.5}),
            ((3, 30), self.IN | {"v": "bus", "lat": 0.5}),
            ((4, 25), self.OUT | {"v": "bus"}),  # file order counts, not its time
            ((5, 40), self.OUT | {"v": "bus"}),
            ((6, 50), self.IN | {"v": "bus"}),
        ]
        wanted = [(2, "enter", "bus"), (4, "exit", "bus"), (6, "enter", "bus")]
        assert self._events(objects) == wanted
        assert self._events(objects, events=["exit"]) == wanted[1:2]
        assert self._events(objects, events=["enter"]) == [wanted[0], wanted[2]]

    def test_inside_events_appear_where_they_are_requested(self) -> None:
        objects = [((n, n), (self.IN if n != 4 else self.OUT) | {"v": 1}) for n in range(1, 6)]
        everything = ["enter", "inside", "exit"]
        assert [one[:2] for one in self._events(objects, events=everything)] == [
            (1, "enter"),
            (2, "inside"),
            (3, "inside"),
            (4, "exit"),
            (5, "enter"),
        ]
        inside = [(n, "inside", 1) for n in (1, 2, 3, 5)]
        assert self._events(objects, events=["inside"]) == inside

    def test_values_are_distinguished_by_type(self) -> None:
        objects = [
            ((1, 1), self.IN | {"v": 1}),
            ((2, 2), self.IN | {"v": "1"}),
            ((3, 3), self.IN | {"v": True}),
            ((4, 4), self.IN | {"v": 1.0}),
            ((5, 5), self.IN | {"v": None}),
            ((6, 6), self.IN | {"v": [1]}),
            ((7, 7), self.IN),
            ((8, 8), self.OUT | {"v": True}),
            ((9, 9), self.OUT),
        ]
        wanted = [(1, "enter", 1), (2, "enter", "1"), (3, "enter", True), (8, "exit", True)]
        assert self._events(objects) == wanted

    def test_text_and_where_are_part_of_inside(self) -> None:
        objects = [
            ((1, 1), self.IN | {"v": "a", "text": "free", "size": 3}),
            ((2, 2), self.IN | {"v": "a", "text": "full", "size": 3}),
            ((3, 3), self.IN | {"v": "a", "text": "free", "size": 3}),
            ((4, 4), self.IN | {"v": "a", "text": "free", "size": 4}),
        ]
        found = self._events(objects, text="free", where={"size": 3})
        assert [one[1] for one in found] == ["enter", "exit", "enter", "exit"]

    def test_a_value_inside_when_the_lifetime_ends_exits_with_its_last_object(self) -> None:
        objects = [
            ((1, 1_000), self.IN | {"v": 1}),
            ((2, 1_500), self.IN | {"v": 1}),
            ((3, 2_000), self.OUT | {"v": 1}),
        ]
        assert self._events(objects, ttl="1s") == [(1, "enter", 1), (2, "exit", 1)]
        assert self._events(objects, ttl="1s", events=["enter"]) == [(1, "enter", 1)]
        # The newest arrival is within the lifetime.
        assert self._events(objects[:2], ttl="501ms") == [(1, "enter", 1)]
        assert len(self._events(objects, ttl="1001ms")) == 2
