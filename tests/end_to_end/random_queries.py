"""Queries that match given objects with high probability: ranges of all shapes, and all kinds."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sirocco.model.text import tokens_of
from tests.oracle import arrivals_ms, duration_ms

Members = Mapping[str, Any]

_MODES = ("continuous", "snapshot")
_KINDS = [(kind, mode) for kind in ("range", "knn", "terms", "ranked") for mode in _MODES]
_FIXED = {"id", "ts", "lon", "lat", "text"}
_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}


def random_queries(
    objects: Sequence[Members], count: int, seed: int, *, lifetimes: bool = False
) -> list[dict[str, Any]]:
    """Returns queries whose regions are around objects and whose words are in their texts.

    Args:
        objects: The objects on which the queries are modelled.
        count: How many.
        seed: For all random draws.
        lifetimes: Give some queries a lifetime (for `--arrival event`).
    """
    dice = random.Random(seed)
    with_words = [one for one in objects if tokens_of(one.get("text") or "")]
    queries = []
    for number in range(count):
        one = dice.choice(with_words)
        query: dict[str, Any] = {"id": f"q-{number}", "kind": "range", "mode": "continuous"}
        if dice.random() < 0.9:
            reach = 10 ** dice.uniform(-3, 1.5)
            query["region"] = _region(dice, one["lon"], one["lat"], reach)
        if dice.random() < 0.9 or "region" not in query:
            query["text"] = _expression(dice, dice.choices(with_words, k=3), one)
        if dice.random() < 0.3:
            query["where"] = _where(dice, one)
        if lifetimes and dice.random() < 0.5:
            query["ttl"] = dice.choice(["1ms", "90s", "6h", "30d", "1000d"])
        queries.append(query)
    return queries


def random_queries_of_all_kinds(
    objects: Sequence[Members],
    count: int,
    seed: int,
    *,
    track: str | None = None,
    steps_max: int = 25,
) -> list[dict[str, Any]]:
    """Returns queries of all kinds and modes in turn, for `--arrival event`.

    Windows, steps and lifetimes fit the time span of the objects: a query has 5 to `steps_max`
    steps, and sometimes one of its times is exactly that of an arrival.

    Args:
        objects: The objects on which the queries are modelled; at least one has words.
        count: How many.
        seed: For all random draws.
        track: An attribute that some range queries track, None for none.
        steps_max: Most of the time of a replay goes into steps.
    """
    maker = _Maker(objects, seed, track, steps_max)
    return [maker.query(number) for number in range(count)]


class _Maker:
    """Draws queries one after another."""

    def __init__(
        self, objects: Sequence[Members], seed: int, track: str | None, steps_max: int
    ) -> None:
        self._steps_max = steps_max
        self._dice = random.Random(seed)
        self._with_words = [one for one in objects if tokens_of(one.get("text") or "")]
        words = Counter(word for one in self._with_words[:2_000] for word in tokens_of(one["text"]))
        self._frequent = [word for word, _ in words.most_common(40)]
        self._track = track
        arrivals = arrivals_ms(objects)
        self._span_ms = arrivals[-1] - arrivals[0]
        # Multiples of this are often times of arrivals, if arrivals have a common divisor.
        self._grain_ms = math.gcd(*(b - a for a, b in pairwise(arrivals))) or 1

    def query(self, number: int) -> dict[str, Any]:
        """Returns the query of a number, which determines its kind."""
        one = self._dice.choice(self._with_words)
        kinds = [*_KINDS, ("track", "continuous")] if self._track else _KINDS
        kind, mode = kinds[number % len(kinds)]
        members = {
            "range": self._range,
            "track": self._tracked,
            "knn": self._knn,
            "terms": self._terms,
            "ranked": self._ranked,
        }[kind](one, mode)
        query = {"id": f"{kind}-{mode}-{number}", "kind": "range", "mode": mode} | members
        if self._dice.random() < (0.2 if set(one) - _FIXED else 0.02):
            query["where"] = _where(self._dice, one)
        if mode == "continuous" and self._dice.random() < 0.3:
            query["ttl"] = self._lifetime(query.get("step"))
        return query

    def _range(self, one: Members, mode: str) -> dict[str, Any]:
        members = self._conditions(one, 10 ** self._dice.uniform(-2, 2), 0.8)
        return members | self._window() if mode == "snapshot" else members

    def _tracked(self, one: Members, _: str) -> dict[str, Any]:
        dice = self._dice
        reach = 10 ** dice.uniform(-2.5, -0.5)
        members: dict[str, Any] = {
            "region": _region(dice, one["lon"], one["lat"], reach),
            "track": self._track,
        }
        if dice.random() < 0.3:
            members["text"] = _expression(dice, dice.choices(self._with_words, k=3), one)
        if dice.random() < 0.6:
            events = ["enter", "inside", "exit"]
            members["events"] = dice.sample(events, dice.randint(1, 3))
        for name in ("dwell", "leave_after"):
            if dice.random() < 0.4:
                grains = dice.randint(1, max(1, self._span_ms // self._grain_ms // 20))
                members[name] = f"{grains * self._grain_ms}ms"
        return members

    def _knn(self, one: Members, mode: str) -> dict[str, Any]:
        members = {"kind": "knn", "point": self._point(one), "k": self._k()}
        if self._dice.random() < 0.7:
            others = self._dice.choices(self._with_words, k=3)
            members["text"] = _expression(self._dice, others, one)
        return members | self._window() if mode == "snapshot" else members

    def _terms(self, one: Members, mode: str) -> dict[str, Any]:
        members = {"kind": "terms", "k": self._k()}
        members |= self._conditions(one, 10 ** self._dice.uniform(-1, 2), 0.25)
        return members | (self._steps() if mode == "continuous" else self._window())

    def _ranked(self, one: Members, mode: str) -> dict[str, Any]:
        dice = self._dice
        words = [dice.choice(tokens_of(one["text"])), *dice.choices(self._frequent, k=4)]
        members = {
            "kind": "ranked",
            "point": self._point(one),
            "radius_m": 10 ** dice.uniform(4.5, 7.3),
            "k": self._k(),
            "keywords": words[dice.randint(0, 4) :],
        }
        if dice.random() < 0.3:
            members["weights"] = {"text": 0.4, "space": 0.3, "time": 0.3}
        elif dice.random() < 0.6:
            alpha, beta = sorted(dice.choices([0, 0.25, 0.5, 0.625, 1], k=2))
            members["weights"] = {"text": alpha, "space": beta - alpha, "time": 1 - beta}
        if dice.random() < 0.7:
            members["half_life"] = self._time(self._grains(10 ** dice.uniform(-2, 0.5)))
        if mode == "snapshot":
            return members | self._window()
        steps = self._steps()
        if 5 <= self._span_ms // 10_000 <= 100 and dice.random() < 0.3:
            return members  # every 10 s, over all objects
        return members | steps

    def _conditions(self, one: Members, reach: float, text_share: float) -> dict[str, Any]:
        dice = self._dice
        members: dict[str, Any] = {}
        if dice.random() < 0.85:
            members["region"] = _region(dice, one["lon"], one["lat"], reach)
        if dice.random() < text_share:
            members["text"] = _expression(dice, dice.choices(self._with_words, k=3), one)
        return members

    def _point(self, one: Members) -> dict[str, float]:
        """Returns a point near an object, or its own: others of the same place are as far away."""
        reach = self._dice.choice([0, 1e-4, 0.01, 1, 20])
        lon, lat = (one[name] + self._dice.uniform(-reach, reach) for name in ("lon", "lat"))
        return {"lon": _wrap(lon), "lat": min(90.0, max(-90.0, lat))}

    def _k(self) -> int:
        return self._dice.choice([1, 2, 5, 10, 50, self._dice.randint(1, 50)])

    def _window(self) -> dict[str, str]:
        """Returns a snapshot's window, if it has one."""
        share = 10 ** self._dice.uniform(-1.5, 0.1)
        return {"window": self._time(self._grains(share))} if self._dice.random() < 0.6 else {}

    def _steps(self) -> dict[str, str]:
        """Returns a step, and usually a window that is not shorter; often both are equal."""
        step = self._grains(1 / self._dice.uniform(5, self._steps_max))
        window = step * max(1.0, self._dice.uniform(0, 5))
        times = {"step": self._time(step), "window": self._time(round(window))}
        if self._dice.random() < 0.2:
            del times["window"]
        return times

    def _lifetime(self, step: str | None) -> str:
        """Returns a lifetime; its end is sometimes at a step."""
        if step is not None and self._dice.random() < 0.5:
            return f"{duration_ms(step) * self._dice.randint(1, 20)}ms"
        return self._time(self._grains(self._dice.uniform(0.05, 1.2)))

    def _grains(self, share: float) -> int:
        return max(1, round(share * self._span_ms / self._grain_ms))

    def _time(self, grains: int) -> str:
        return _duration(grains * self._grain_ms)


def _duration(duration_ms: int) -> str:
    for unit, unit_ms in _UNITS_MS.items():
        if duration_ms % unit_ms == 0:
            return f"{duration_ms // unit_ms}{unit}"
    return f"{duration_ms}ms"


def _region(dice: random.Random, lon: float, lat: float, reach: float) -> dict[str, Any]:
    """Returns a region around a point, about `reach` degrees to each side."""
    kind = dice.randrange(4)
    if kind == 0:
        return {"circle": {"lon": lon, "lat": lat, "radius_m": reach * 111_000 * dice.random()}}
    west, east = lon - reach * dice.random(), lon + reach * dice.random()
    south, north = max(-90.0, lat - reach * dice.random()), min(90.0, lat + reach * dice.random())
    if kind == 1:  # the object on its border; across the antimeridian if near
        west, east = (lon, east) if dice.random() < 0.5 else (west, lon)
    if kind < 3:
        return {"rect": {"west": _wrap(west), "south": south, "east": _wrap(east), "north": north}}
    corners = [(lon + dice.uniform(-reach, reach), lat + dice.uniform(-reach, reach))]
    corners += [(lon + dice.uniform(-reach, reach), lat + dice.uniform(-reach, reach))]
    corners += [(lon + dice.uniform(0, reach), lat + dice.uniform(0, reach)) for _ in range(3)]
    ring = [[min(180.0, max(-180.0, x)), min(90.0, max(-90.0, y))] for x, y in corners]
    if len({(x, y) for x, y in ring}) < 3:  # corners outside the world coincide at its corner
        return _region(dice, lon, lat, reach)
    return {"polygon": [ring]}


def _wrap(lon: float) -> float:
    return lon if -180 <= lon <= 180 else (lon + 180) % 360 - 180


def _expression(dice: random.Random, others: list[Members], one: Members) -> str:
    words = tokens_of(one["text"])
    foreign = [word for other in others for word in tokens_of(other["text"])]
    a, b = dice.choice(words), dice.choice(words)
    x, y = dice.choice(foreign), dice.choice(foreign)
    forms = [
        a,
        f"{a} {b}",
        f"{a.title()} AND {b}",
        f"{a} OR {x}",
        f"ANY({x} {y} {a})",
        f"({a} OR {x}) AND {b}",
    ]
    if x != a:
        forms += [f"{a} AND NOT {x}", f"({a} OR {y}) AND NOT ({x} AND {b})"]
    return dice.choice(forms)


def _where(dice: random.Random, one: Members) -> dict[str, Any]:
    others = {k: v for k, v in one.items() if k not in _FIXED and v is not None}
    if not others or dice.random() < 0.1:
        return {"no such member": 1}
    name = dice.choice(sorted(others))
    value = others[name]
    if isinstance(value, bool):
        return {name: value}
    if isinstance(value, int | float):
        return {name: dice.choice([value, {"gte": value}, {"lt": value}, {"in": [value, "x"]}])}
    return {name: dice.choice([value, {"in": [value, 3]}, {"gte": value}, {"gt": value}])}
