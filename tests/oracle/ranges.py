"""Range queries: objects that satisfy region, text and `where`, and the tracking of values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle.filters import type_of
from tests.oracle.forms import Answer, Line, malformed, plain, single, unequal
from tests.oracle.table import Members, ObjectId, Objects
from tests.oracle.times import duration_ms


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
    """Returns the events of the tracked values, those of each value in file order.

    An object gives at most one event: its value enters, stays inside or exits. If `enter` is not
    asked for but `inside` is, a value that enters is inside like the others. Values that are inside
    when the lifetime ends exit with their last object inside.

    With `dwell` a value enters when no object was outside from the first one inside on, up to and
    including that time later. With `leave_after` it exits when no object was inside from the first
    one outside on. Both are reported with the last object inside.
    """
    wanted = query.get("events", ["enter", "exit"])
    first, last = objects.in_lifetime(query)
    inside = set(objects.satisfying(query, first, last).tolist())
    rows_of: dict[tuple[str, Any], list[int]] = {}
    for row in range(first, last):
        value = objects.attribute(row, query["track"])
        if (kind := type_of(value)) is not None:
            rows_of.setdefault((kind, value), []).append(row)
    found = []
    for (_, value), rows in rows_of.items():
        for row, choices in _visits(objects, query, rows, inside):
            if event := next((one for one in choices if one in wanted), None):
                found.append((objects.ids[row], event, value))
    return found


def _visits(
    objects: Objects, query: Members, rows: list[int], inside: set[int]
) -> Iterator[tuple[int, list[str]]]:
    """Yields objects of one value to report, with events: the first one asked for is reported."""
    dwell_ms, leave_ms = (
        duration_ms(query[name]) if name in query else 0 for name in ("dwell", "leave_after")
    )
    waits = bool(dwell_ms or leave_ms)
    place: int | None = None  # The last object inside; None: the value is not inside.
    has_entered = False
    # When it came inside, until it has entered; or went outside, until it has exited.
    since_ms: int | None = None
    for row in [*rows, None]:
        now_ms = 0
        if waits:
            now_ms = _end_ms(objects, query) if row is None else int(objects.arrivals[row])
        wait_ms = leave_ms if has_entered else dwell_ms
        if place is not None and since_ms is not None and since_ms + wait_ms < now_ms:
            yield place, ["exit"] if has_entered else ["enter", "inside"]
            place = None if has_entered else place
            has_entered, since_ms = not has_entered, None
        if row is None:
            break
        if row in inside:
            if place is None:
                has_entered, since_ms = not dwell_ms, now_ms if dwell_ms else None
                if has_entered:
                    yield row, ["enter", "inside"]
            elif has_entered:
                since_ms = None
                yield row, ["inside"]
            place = row
        elif place is not None and has_entered and leave_ms:
            since_ms = now_ms if since_ms is None else since_ms
        elif place is not None:
            if has_entered:
                yield row, ["exit"]
            place = since_ms = None
    if place is not None and has_entered and objects.is_over(query):
        yield place, ["exit"]


def _end_ms(objects: Objects, query: Members) -> int:
    """Returns the time before which waits must be over to count."""
    if objects.is_over(query):
        return objects.start_ms + duration_ms(query["ttl"])
    return objects.now_ms + 1
