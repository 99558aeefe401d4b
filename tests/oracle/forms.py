"""What answers have in common: the lines of OUT that they stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

Line: TypeAlias = Mapping[str, Any]


class Answer(Protocol):
    """What is to be said of one query."""

    def lines(self) -> list[dict[str, Any]]:
        """Returns lines of OUT that say it; where several forms are right, one of them."""

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Says what is wrong with the lines of OUT of this query, which stand in their order."""


def malformed(line: Line, *forms: str) -> str | None:
    """Says that a line has other members than any of the forms, each a list of names."""
    if any(set(line) == {"query", *form.split()} for form in forms):
        return None
    return f"a line of members {', '.join(sorted(line))}"


def single(lines: Sequence[Line], *forms: str) -> str | None:
    """Says that there is not exactly one line, or that it is of none of the forms."""
    return f"{len(lines)} lines instead of 1" if len(lines) != 1 else malformed(lines[0], *forms)


def unequal(found: Counter[Any], wanted: Counter[Any]) -> list[str]:
    """Says what is there too often or too seldom."""
    told = [f"{one!r} is missing ({n} times)" for one, n in (wanted - found).items()]
    return told + [f"{one!r} is too many ({n} times)" for one, n in (found - wanted).items()]


def plain(value: object) -> object:
    """Returns a value in a form of which equal ones are equal in JSON: `true` is not 1."""
    if isinstance(value, bool | list | dict):
        return type(value).__name__, repr(value)
    return value
