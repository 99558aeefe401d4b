"""The last line of a query that asks for it: the end of its lifetime."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle.forms import Answer, Line
from tests.oracle.table import Members, Objects


def answer(objects: Objects, query: Members, found: Answer) -> Answer:
    """Returns the expected results of a query, given those without its end."""
    if "ended" in query.get("events", ()) and objects.is_over(query):
        return Ended(query["id"], found)
    return found


@dataclass(frozen=True, slots=True)
class Ended:
    """Continuous: the other results, and after them the end of the query."""

    query: str
    before: Answer

    def lines(self) -> list[dict[str, Any]]:
        """Returns the results as lines."""
        return [*self.before.lines(), {"query": self.query, "event": "ended", "reason": "ttl"}]

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Returns the errors in lines; the end comes after all others."""
        last = {"query": self.query, "event": "ended", "reason": "ttl"}
        if not lines or dict(lines[-1]) != last:
            return [f"the last line is {dict(lines[-1]) if lines else None!r:.100}, no end"]
        return self.before.differences(lines[:-1])
