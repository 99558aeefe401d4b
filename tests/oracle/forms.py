"""The common interface of answers: the lines of OUT that they expect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

Line: TypeAlias = Mapping[str, Any]


class Answer(Protocol):
    """The expected results of one query."""

    def lines(self) -> list[dict[str, Any]]:
        """Returns lines of OUT with these results; if several forms are correct, one of them."""

    def differences(self, lines: Sequence[Line]) -> list[str]:
        """Returns the errors in this query's lines of OUT, which are given in order."""


def malformed(line: Line, *forms: str) -> str | None:
    """Returns an error if the members of a line are not those of any form, a list of names."""
    if any(set(line) == {"query", *form.split()} for form in forms):
        return None
    return f"a line of members {', '.join(sorted(line))}"


def single(lines: Sequence[Line], *forms: str) -> str | None:
    """Returns an error unless there is exactly one line, of one of the forms."""
    return f"{len(lines)} lines instead of 1" if len(lines) != 1 else malformed(lines[0], *forms)


def unequal(found: Counter[Any], wanted: Counter[Any]) -> list[str]:
    """Returns which items occur too often or too rarely."""
    difference = [f"{one!r} is missing ({n} times)" for one, n in (wanted - found).items()]
    return difference + [f"{one!r} is too many ({n} times)" for one, n in (found - wanted).items()]


def plain(value: object) -> object:
    """Returns a value such that values are equal only if equal in JSON: `true` is not 1."""
    if isinstance(value, bool | list | dict):
        return type(value).__name__, repr(value)
    return value
