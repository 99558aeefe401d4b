"""What is right: a brute-force evaluator of standing range queries over objects as JSON members.

Independent of the engine: plain formulas of the public contract, object by object. From the model
it takes only the reference of the text analysis and the syntax tree of expressions, which it
evaluates as it stands, not in disjunctive form.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from sirocco.model.expression import AllOf, AnyOf, Node, Not, Term, parse_syntax
from sirocco.model.text import analyse

EARTH_RADIUS_M = 6_371_008.8

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Members = Mapping[str, Any]


def read_members(path: Path) -> list[dict[str, Any]]:
    """Returns the JSON objects of a file, plain or packed."""
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode()
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def matches(
    objects: Sequence[Members], queries: Iterable[Members], *, event_arrivals: bool = False
) -> Counter[tuple[str, int | str]]:
    """Returns how often each (query id, object id) is to be notified.

    Args:
        objects: Valid objects in order of publication.
        queries: Valid continuous range queries, registered before the first object.
        event_arrivals: Lifetimes follow the objects' own times (`--arrival event`); otherwise
            no query may have a lifetime.
    """
    arrivals = arrivals_ms(objects) if event_arrivals else [0] * len(objects)
    terms = [frozenset(analyse(one.get("text") or "")) for one in objects]
    found: Counter[tuple[str, int | str]] = Counter()
    for query in queries:
        ends_ms = math.inf
        if "ttl" in query:
            assert event_arrivals, "a lifetime in wall time cannot be told afterwards"
            ends_ms = arrivals[0] + duration_ms(query["ttl"])
        region = Region(query["region"]) if "region" in query else None
        node = parse_syntax(query["text"]) if "text" in query else None
        for one, words, arrival_ms in zip(objects, terms, arrivals, strict=True):
            if (
                arrival_ms < ends_ms
                and (node is None or holds(node, words))
                and (region is None or region.contains(one["lon"], one["lat"]))
                and satisfies(query.get("where", {}), one)
            ):
                found[query["id"], one["id"]] += 1
    return found


def arrivals_ms(objects: Sequence[Members]) -> list[int]:
    """Returns the arrival of each object where arrivals follow the objects' own times."""
    arrivals: list[int] = []
    for one in objects:
        before = arrivals[-1] if arrivals else None
        ts = one.get("ts")
        if ts is None:
            assert before is not None, "the first object has no time"
            ts = before
        arrivals.append(ts if before is None else max(ts, before))
    return arrivals


def duration_ms(text: str) -> int:
    """Returns the milliseconds of a duration."""
    digits = text.rstrip("msdh")
    return int(digits) * _UNITS_MS[text[len(digits) :]]


def holds(node: Node, terms: frozenset[str]) -> bool:
    """Tells whether the terms of a text satisfy a syntax tree."""
    match node:
        case Term(term):
            return term in terms
        case Not(operand):
            return not holds(operand, terms)
        case AllOf(operands):
            return all(holds(operand, terms) for operand in operands)
        case AnyOf(operands):
            return any(holds(operand, terms) for operand in operands)


class Region:
    """A region from its JSON form."""

    def __init__(self, members: Members) -> None:
        ((self._shape, self._form),) = members.items()
        if self._shape == "polygon":
            rings = [r[:-1] if r[0] == r[-1] else r for r in self._form]
            self._edges = [
                (*map(Fraction, ring[i - 1]), *map(Fraction, ring[i]))
                for ring in rings
                for i in range(len(ring))
            ]
            vertices = [vertex for ring in rings for vertex in ring]
            self._low = [min(v[i] for v in vertices) for i in (0, 1)]
            self._high = [max(v[i] for v in vertices) for i in (0, 1)]

    def contains(self, lon: float, lat: float) -> bool:
        """Tells whether a point belongs to the region; 180 and -180 are one meridian."""
        if self._shape == "circle":
            return self._circle(lon, lat)
        inside = self._rectangle if self._shape == "rect" else self._polygon
        return inside(lon, lat) or (abs(lon) == 180 and inside(-lon, lat))

    def _rectangle(self, lon: float, lat: float) -> bool:
        form = self._form
        if not form["south"] <= lat <= form["north"]:
            return False
        if form["west"] <= form["east"]:
            return bool(form["west"] <= lon <= form["east"])
        return bool(lon >= form["west"] or lon <= form["east"])

    def _circle(self, lon: float, lat: float) -> bool:
        form = self._form
        distance = distance_m(form["lon"], form["lat"], lon, lat)
        return bool(round(distance, 3) <= form["radius_m"])

    def _polygon(self, lon: float, lat: float) -> bool:
        if not (self._low[0] <= lon <= self._high[0] and self._low[1] <= lat <= self._high[1]):
            return False
        x, y = Fraction(lon), Fraction(lat)
        crossings = 0
        for x1, y1, x2, y2 in self._edges:
            if not min(y1, y2) <= y <= max(y1, y2) or x > max(x1, x2):
                continue
            turn = (x2 - x1) * (y - y1) - (y2 - y1) * (x - x1)
            if turn == 0 and min(x1, x2) <= x <= max(x1, x2):
                return True  # on the border
            if (y1 <= y) != (y2 <= y):
                crossings += x < x1 + (y - y1) * (x2 - x1) / (y2 - y1)
        return crossings % 2 == 1


def distance_m(lon1: float, lat1: float, lon2: float, lat2: float) -> float:
    """Returns the great-circle distance."""
    a, b = math.radians(lat1), math.radians(lat2)
    half = math.radians(lon2 - lon1) / 2
    haversine = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(half) ** 2
    return 2 * EARTH_RADIUS_M * math.asin(math.sqrt(min(1.0, haversine)))


def satisfies(where: Members, one: Members) -> bool:
    """Tells whether the attributes of an object satisfy a filter."""
    return all(
        _compare(one.get(name), comparison, operand)
        for name, wanted in where.items()
        for comparison, operand in (
            wanted.items() if isinstance(wanted, dict) else [("eq", wanted)]
        )
    )


def _compare(value: Any, comparison: str, operand: Any) -> bool:
    if comparison == "in":
        return any(_compare(value, "eq", one) for one in operand)
    if _type_of(value) is None or _type_of(value) != _type_of(operand):
        return False
    return {
        "eq": value == operand,
        "gte": value >= operand,
        "gt": value > operand,
        "lte": value <= operand,
        "lt": value < operand,
    }[comparison]


def _type_of(value: Any) -> str | None:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "string" if isinstance(value, str) else None
