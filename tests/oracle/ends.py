"""The last line of a query that asks for it: its lifetime is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle.forms import Answer, Line
from tests.oracle.table import Members, Objects


def answer(objects: Objects, query: Members, found: Answer) -> Answer:
    """Returns what is to be said of a query, given what is to be said of it besides."""
    if "ended" in query.get("events", ()) and objects.is_over(query):
        return Ended(query["id"], found)
    return found


@dataclass(frozen=True, slots=True)
class Ended:
    """Continuous: what there is besides, and behind it that the query has ended."""

    query: str
    before: Answer

    def lines(self) -> list[dict[str, Any]]:
        """Returns them as lines."""
        return [*self.before.lines(), {"query": self.query, "event": "ended", "reason": "ttl"}]

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Says what is wrong with lines; the end stands behind all others."""
        last = {"query": self.query, "event": "ended", "reason": "ttl"}
        if not lines or dict(lines[-1]) != last:
            return [f"the last line is {dict(lines[-1]) if lines else None!r:.100}, no end"]
        return self.before.differences(lines[:-1])
