"""The k nearest objects that satisfy text and `where`."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle.forms import Answer, Line, malformed, single
from tests.oracle.geometry import distances_m
from tests.oracle.ranking import (
    DISTANCE_DECIMALS,
    DISTANCE_DOUBT_M,
    DISTANCE_TOLERANCE_M,
    Ranking,
    ranking,
)
from tests.oracle.table import Members, ObjectId, Objects, Rows, is_id, key_of

_NEAREST = "objects distance_m"
_CHANGE = f"added removed {_NEAREST}"


def answer(objects: Objects, query: Members) -> Answer:
    """Returns the expected results of a knn query."""
    if query["mode"] == "snapshot":
        rows = objects.satisfying(query, *objects.in_window(query))
        return Nearest(query["id"], nearest(objects, query, rows))
    rows = objects.satisfying(query, *objects.in_lifetime(query))
    return NearestSoFar(query["id"], nearest(objects, query, rows))


def nearest(objects: Objects, query: Members, rows: Rows) -> Ranking:
    """Returns objects in order of their distance from the query's point."""
    point = query["point"]
    raw = distances_m(point["lon"], point["lat"], objects.lon[rows], objects.lat[rows])
    doubt = DISTANCE_DOUBT_M
    return ranking(objects, query["k"], rows, (raw, raw - doubt, raw + doubt), is_score=False)


@dataclass(frozen=True, slots=True)
class Nearest:
    """Snapshot: one list."""

    query: str
    ranking: Ranking

    def lines(self) -> list[dict[str, Any]]:
        """Returns it as lines."""
        ids, distances = self.ranking.listed()
        return [{"query": self.query, "objects": ids, "distance_m": distances}]

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Returns the errors in lines."""
        wrong = single(lines, _NEAREST) or _wrong_lengths(lines[0])
        wrong = wrong or self.ranking.difference(lines[0]["objects"], lines[0]["distance_m"])
        return [wrong] if wrong else []


@dataclass(frozen=True, slots=True)
class NearestSoFar:
    """Continuous: changes that lead from the empty list to the correct one at the end.

    The lists between them depend on the order of arrival across leaves. But each is the best of the
    objects so far: its objects satisfy the query, are in order, and no place gets worse from one
    list to the next.
    """

    query: str
    ranking: Ranking

    def lines(self) -> list[dict[str, Any]]:
        """Returns the changes if objects are processed in order of publication."""
        listed: list[int] = []
        lines = []
        for place in self.ranking.rows.argsort().tolist():
            if len(listed) < self.ranking.k or place < listed[-1]:
                before = listed.copy()
                insort(listed, place)
                del listed[self.ranking.k :]
                lines.append(self._line(before, listed))
        return lines

    def _line(self, before: list[int], after: list[int]) -> dict[str, Any]:
        def ids(places: Sequence[int]) -> list[ObjectId]:
            return [self.ranking.objects.ids[self.ranking.rows[place]] for place in places]

        return {
            "query": self.query,
            "added": ids([place for place in after if place not in before]),
            "removed": ids([place for place in before if place not in after]),
            "objects": ids(after),
            "distance_m": [self.ranking.values[place].item() for place in after],
        }

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Returns the errors in lines; stops at the first that breaks the chain."""
        before: Line = {"objects": [], "distance_m": []}
        figures = zip(self.ranking.rows.tolist(), self.ranking.values.tolist(), strict=True)
        distance_of = dict(figures)
        for number, line in enumerate(lines, 1):
            wrong = malformed(line, _CHANGE) or _wrong_lengths(line)
            wrong = (
                wrong or _wrong_step(before, line) or self._wrong_list(before, line, distance_of)
            )
            if wrong:
                return [f"change {number}: {wrong}"]
            before = line
        wrong = self.ranking.difference(before["objects"], before["distance_m"])
        return [f"the last list: {wrong}"] if wrong else []

    def _wrong_list(self, before: Line, line: Line, distance_of: Mapping[int, float]) -> str | None:
        ids, distances = line["objects"], line["distance_m"]
        if len(ids) > self.ranking.k:
            return f"names {len(ids)} objects, k is {self.ranking.k}"
        if difference := self._strangers(ids, distances, distance_of):
            return difference
        ranks = [(value, key_of(one)) for one, value in zip(ids, distances, strict=True)]
        if ranks != sorted(ranks):
            return "is not in order"
        earlier = zip(before["objects"], before["distance_m"], strict=True)
        old = [(value, key_of(one)) for one, value in earlier]
        if len(ranks) < len(old) or any(a < b for a, b in zip(old, ranks, strict=False)):
            return "a place of the list gets worse"
        return None

    def _strangers(
        self,
        ids: Sequence[ObjectId],
        distances: Sequence[float],
        distance_of: Mapping[int, float],
    ) -> str | None:
        """Returns an object of a list that does not satisfy the query, or is elsewhere."""
        rows_of = self.ranking.objects.rows_of
        free = {
            one: [distance_of[row] for row in rows_of.get(one, []) if row in distance_of]
            for one in set(ids)
        }
        for one, distance in zip(ids, distances, strict=True):
            left = free[one]
            place = min(range(len(left)), key=lambda i: abs(left[i] - distance), default=-1)
            if place < 0:
                return f"{one!r} does not belong there"
            if not abs(left.pop(place) - distance) <= DISTANCE_TOLERANCE_M:
                return f"{one!r} is not {distance!r} m away"
            if round(distance, DISTANCE_DECIMALS) != distance:
                return f"{one!r} has {distance!r}, which is not rounded"
        return None


def _wrong_lengths(line: Line) -> str | None:
    ids, distances = line["objects"], line["distance_m"]
    if len(ids) != len(distances):
        return f"{len(ids)} objects and {len(distances)} distances"
    bad = [one for name in ("added", "removed", "objects") for one in line.get(name, ())]
    strange = next((one for one in bad if not is_id(one)), None)
    return None if strange is None else f"{strange!r} is no id"


def _wrong_step(before: Line, line: Line) -> str | None:
    """Returns an error unless `added` and `removed` lead from a list to the next."""
    old, new, added, removed = (
        Counter[ObjectId](ids)
        for ids in (before["objects"], line["objects"], line["added"], line["removed"])
    )
    if not added and not removed:
        return "changes nothing"
    if removed - old:
        return f"removes {next(iter(removed - old))!r}, which was not there"
    old.subtract(removed)
    old.update(added)
    if +old != new:
        return "`added` and `removed` do not lead to the list"
    return None
