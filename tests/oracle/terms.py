"""The k most frequent terms of the objects of a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.oracle.forms import Answer, Line, malformed, plain, single
from tests.oracle.table import Members, Objects, Rows
from tests.oracle.times import duration_ms, steps_ms

Counts = list[tuple[str, int]]


def answer(objects: Objects, query: Members) -> Answer:
    """Returns the expected results of a terms query."""
    rows = objects.satisfying(query, 0, len(objects))
    counter = _Counter(objects, rows, query["k"])
    if query["mode"] == "snapshot":
        at_ms = objects.now_ms if objects.has_arrivals and len(objects) else None
        return Frequent(query["id"], counter.top(*objects.in_window(query)), at_ms)
    assert objects.has_arrivals, "steps in wall time cannot be computed afterwards"
    window_ms = duration_ms(query["window"]) if "window" in query else None
    steps = []
    if len(objects):
        for at_ms in steps_ms(query, objects.start_ms, objects.now_ms):
            after_ms = None if window_ms is None else at_ms - window_ms
            steps.append((at_ms, counter.top(*objects.arrived(after_ms, at_ms))))
    return FrequentSteps(query["id"], steps)


class _Counter:
    """Counts the terms of some objects; an object counts once for each of its terms.

    Args:
        objects: The table.
        rows: Those that count, ascending.
        k: How many terms to find.
    """

    def __init__(self, objects: Objects, rows: Rows, k: int) -> None:
        self._rows, self._k = rows, k
        offsets = objects.term_offsets
        lengths = offsets[rows + 1] - offsets[rows]
        self._offsets = np.concatenate([[0], np.cumsum(lengths)])
        places = np.arange(self._offsets[-1]) + np.repeat(
            offsets[rows] - self._offsets[:-1], lengths
        )
        numbers, self._terms = np.unique(objects.terms[places], return_inverse=True)
        self._names = [objects.vocabulary[number] for number in numbers.tolist()]

    def top(self, first: int, last: int) -> Counts:
        """Returns the most frequent terms of the rows first ≤ row < last."""
        a, b = np.searchsorted(self._rows, [first, last])
        found = self._terms[self._offsets[a] : self._offsets[b]]
        counts = np.bincount(found, minlength=len(self._names))
        return [(self._names[term], int(counts[term])) for term in self._first(counts)]

    def _first(self, counts: NDArray[np.int64]) -> list[int]:
        """Returns the k terms of greatest count above 0; numbers are in order of code points."""
        least = 1
        if len(counts) > self._k:
            least = max(1, int(np.partition(counts, -self._k)[-self._k]))
        above, equal = np.flatnonzero(counts > least), np.flatnonzero(counts == least)
        above = above[np.argsort(-counts[above], kind="stable")]
        return [*above.tolist(), *equal.tolist()][: self._k]


@dataclass(frozen=True, slots=True)
class Frequent:
    """Snapshot.

    Attributes:
        query: Id of the query.
        terms: With their counts, the most frequent first, ties by code point.
        at_ms: The newest arrival, None if it is unknown.
    """

    query: str
    terms: Counts
    at_ms: int | None

    def lines(self) -> list[dict[str, Any]]:
        """Returns the results as lines."""
        return [_line(self.query, self.terms, self.at_ms)]

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Returns the errors in lines; `at` is optional."""
        if difference := single(lines, "terms", "terms at"):
            return [difference]
        at_ms = lines[0].get("at", self.at_ms)
        if self.at_ms is not None and plain(at_ms) != self.at_ms:
            return [f"at {at_ms!r} instead of {self.at_ms}"]
        wrong = _wrong(lines[0], self.terms)
        return [wrong] if wrong else []


@dataclass(frozen=True, slots=True)
class FrequentSteps:
    """Continuous: a line for each step, even without terms."""

    query: str
    steps: list[tuple[int, Counts]]

    def lines(self) -> list[dict[str, Any]]:
        """Returns the results as lines."""
        return [_line(self.query, terms, at_ms) for at_ms, terms in self.steps]

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Returns the errors in lines, which have to be in order of their steps."""
        if difference := [bad for line in lines if (bad := malformed(line, "terms at"))]:
            return difference
        found, wanted = [plain(line["at"]) for line in lines], [at_ms for at_ms, _ in self.steps]
        if found != wanted:
            missing, strange = set(wanted) - set(found), set(found) - set(wanted)
            return [
                f"{len(found)} steps instead of {len(wanted)}: {sorted(missing)[:3]} missing, "
                f"{list(strange)[:3]} too many, or not in order"
            ]
        pairs = zip(lines, self.steps, strict=True)
        wrong = [(at_ms, _wrong(line, terms)) for line, (at_ms, terms) in pairs]
        return [f"at {at_ms}: {difference}" for at_ms, difference in wrong if difference]


def _line(query: str, terms: Counts, at_ms: int | None) -> dict[str, Any]:
    line = {"query": query, "terms": [list(one) for one in terms]}
    return line if at_ms is None else line | {"at": at_ms}


def _wrong(line: Line, wanted: Counts) -> str | None:
    found = [tuple(map(plain, one)) for one in line["terms"]]
    if found == wanted:
        return None
    place = next(
        (i for i, (a, b) in enumerate(zip(found, wanted, strict=False)) if a != b),
        min(len(found), len(wanted)),
    )
    return (
        f"{len(found)} terms, at place {place} {found[place : place + 1]}; "
        f"wanted {len(wanted)}, there {wanted[place : place + 1]}"
    )
