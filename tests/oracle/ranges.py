"""Range queries: objects that satisfy region, text and `where`, and the tracking of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle.filters import type_of
from tests.oracle.forms import Answer, Line, malformed, plain, single, unequal
from tests.oracle.table import Members, ObjectId, Objects


def answer(objects: Objects, query: Members) -> Answer:
    """Returns the expected results of a range query."""
    if query["mode"] == "snapshot":
        rows = objects.satisfying(query, *objects.in_window(query)).tolist()
        rows.sort(key=lambda row: int(objects.keys[row]))
        return Found(query["id"], [objects.ids[row] for row in rows])
    if "track" in query:
        return Changes(query["id"], changes(objects, query))
    rows = objects.satisfying(query, *objects.in_lifetime(query)).tolist()
    return Matches(query["id"], Counter(objects.ids[row] for row in rows))


@dataclass(frozen=True, slots=True)
class Matches:
    """Continuous: how often each object is notified: once for each publication."""

    query: str
    counts: Counter[ObjectId]

    def lines(self) -> list[dict[str, Any]]:
        """Returns the results as lines."""
        return [{"query": self.query, "object": one} for one in self.counts.elements()]

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Returns the errors in lines."""
        difference = [bad for line in lines if (bad := malformed(line, "object"))]
        return difference or unequal(Counter(plain(line["object"]) for line in lines), self.counts)


@dataclass(frozen=True, slots=True)
class Found:
    """Snapshot: the objects of the window in the order of their ids."""

    query: str
    objects: list[ObjectId]

    def lines(self) -> list[dict[str, Any]]:
        """Returns the results as lines."""
        return [{"query": self.query, "objects": self.objects}]

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Returns the errors in lines."""
        if difference := single(lines, "objects"):
            return [difference]
        found = [plain(one) for one in lines[0]["objects"]]
        if found == self.objects:
            return []
        return unequal(Counter(found), Counter(self.objects)) or ["not in the order of the ids"]


@dataclass(frozen=True, slots=True)
class Changes:
    """Continuous with `track`: (object, event, value of the attribute), in order."""

    query: str
    events: list[tuple[ObjectId, str, Any]]

    def lines(self) -> list[dict[str, Any]]:
        """Returns the results as lines."""
        return [
            {"query": self.query, "object": one, "event": event, "track": value}
            for one, event, value in self.events
        ]

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Returns the errors in lines, which may be in any order."""
        difference = [bad for line in lines if (bad := malformed(line, "object event track"))]
        if difference:
            return difference
        found = Counter(
            (plain(line["object"]), plain(line["event"]), plain(line["track"])) for line in lines
        )
        return unequal(found, Counter((one, event, plain(v)) for one, event, v in self.events))


def changes(objects: Objects, query: Members) -> list[tuple[ObjectId, str, Any]]:
    """Returns the events of the tracked values, in file order.

    An object gives at most one event: its value enters, stays inside or exits. If `enter` is not
    asked for but `inside` is, a value that enters is inside like the others. Values that are inside
    when the lifetime ends exit with their last object inside.
    """
    wanted = query.get("events", ["enter", "exit"])
    first, last = objects.in_lifetime(query)
    inside = set(objects.satisfying(query, first, last).tolist())
    are_inside: dict[tuple[str, Any], tuple[ObjectId, Any]] = {}
    found = []
    for row in range(first, last):
        value = objects.attribute(row, query["track"])
        if (kind := type_of(value)) is None:
            continue
        was_inside = (kind, value) in are_inside
        if row in inside:
            are_inside[kind, value] = objects.ids[row], value
            difference = ["inside"] if was_inside else ["enter", "inside"]
        else:
            are_inside.pop((kind, value), None)
            difference = ["exit"] if was_inside else []
        if event := next((one for one in difference if one in wanted), None):
            found.append((objects.ids[row], event, value))
    if objects.is_over(query) and "exit" in wanted:
        found += [(one, "exit", value) for one, value in are_inside.values()]
    return found
