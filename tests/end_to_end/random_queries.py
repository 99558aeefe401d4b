"""Standing range queries of all shapes that given objects are likely to match."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from sirocco.model.text import analyse

Members = Mapping[str, Any]


def random_queries(
    objects: Sequence[Members], count: int, seed: int, *, lifetimes: bool = False
) -> list[dict[str, Any]]:
    """Returns queries whose regions lie around objects and whose words stand in their texts.

    Args:
        objects: What the queries are made after.
        count: How many.
        seed: Of everything drawn.
        lifetimes: Give some queries a lifetime (for `--arrival event`).
    """
    dice = random.Random(seed)
    with_words = [one for one in objects if analyse(one.get("text") or "")]
    queries = []
    for number in range(count):
        one = dice.choice(with_words)
        query: dict[str, Any] = {"id": f"q-{number}", "kind": "range", "mode": "continuous"}
        if dice.random() < 0.9:
            query["region"] = _region(dice, one["lon"], one["lat"])
        if dice.random() < 0.9 or "region" not in query:
            query["text"] = _expression(dice, dice.choices(with_words, k=3), one)
        if dice.random() < 0.3:
            query["where"] = _where(dice, one)
        if lifetimes and dice.random() < 0.5:
            query["ttl"] = dice.choice(["1ms", "90s", "6h", "30d", "1000d"])
        queries.append(query)
    return queries


def _region(dice: random.Random, lon: float, lat: float) -> dict[str, Any]:
    reach = 10 ** dice.uniform(-3, 1.5)
    kind = dice.randrange(4)
    if kind == 0:
        return {"circle": {"lon": lon, "lat": lat, "radius_m": reach * 111_000 * dice.random()}}
    west, east = lon - reach * dice.random(), lon + reach * dice.random()
    south, north = max(-90.0, lat - reach * dice.random()), min(90.0, lat + reach * dice.random())
    if kind == 1:  # with the object on its border, and across the antimeridian where it is near
        west, east = (lon, east) if dice.random() < 0.5 else (west, lon)
    if kind < 3:
        return {"rect": {"west": _wrap(west), "south": south, "east": _wrap(east), "north": north}}
    corners = [(lon + dice.uniform(-reach, reach), lat + dice.uniform(-reach, reach))]
    corners += [(lon + dice.uniform(-reach, reach), lat + dice.uniform(-reach, reach))]
    corners += [(lon + dice.uniform(0, reach), lat + dice.uniform(0, reach)) for _ in range(3)]
    ring = [[min(180.0, max(-180.0, x)), min(90.0, max(-90.0, y))] for x, y in corners]
    return {"polygon": [ring]}


def _wrap(lon: float) -> float:
    return lon if -180 <= lon <= 180 else (lon + 180) % 360 - 180


def _expression(dice: random.Random, others: list[Members], one: Members) -> str:
    words = analyse(one["text"])
    foreign = [word for other in others for word in analyse(other["text"])]
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
    others = {k: v for k, v in one.items() if k not in ("id", "ts", "lon", "lat", "text")}
    if not others or dice.random() < 0.1:
        return {"no such member": 1}
    name = dice.choice(sorted(others))
    value = others[name]
    if isinstance(value, bool):
        return {name: value}
    if isinstance(value, int | float):
        return {name: dice.choice([value, {"gte": value}, {"lt": value}, {"in": [value, "x"]}])}
    return {name: dice.choice([value, {"in": [value, 3]}, {"gte": value}, {"gt": value}])}
