"""Reads sections of a configuration with type checks; every error names the member by its path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sirocco.model.durations import parse_duration_ms
from sirocco.model.errors import InvalidArgument
from sirocco.model.members import (
    read_integer,
    read_mapping,
    read_number,
    read_sequence,
    read_string,
    refuse_unknown,
)

TEXT_BYTES_MAX = 64 << 10
LIST_MAX = 1_000

_MISSING: Any = object()


class Section:
    """One section; `end` refuses the members that were not read.

    Args:
        value: The section as YAML has it.
        path: Its path, such as `sources.events`; empty at the top.

    Raises:
        InvalidArgument: It is no mapping.
    """

    def __init__(self, value: object, path: str) -> None:
        self._members = read_mapping(value, path or "configuration")
        self.path = path
        self._known: set[str] = set()

    def field(self, name: str) -> str:
        """Returns the path of a member."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Whether a member is given; null is none."""
        self._known.add(name)
        return self._members.get(name) is not None

    def value(self, name: str, default: Any = _MISSING) -> Any:
        """Returns a member unread; without a default it is required."""
        if self.has(name):
            return self._members[name]
        if default is _MISSING:
            raise InvalidArgument("is missing", field=self.field(name))
        return default

    def text(self, name: str, default: str | None = None, *, empty: bool = False) -> str:
        """Returns a text; without a default it is required."""
        if default is not None and not self.has(name):
            return default
        field = self.field(name)
        found = _not_boolean(self.value(name), field)
        text = read_string(found, field, bytes_max=TEXT_BYTES_MAX, empty=empty)
        if "\0" in text:
            # No path, address or name has one, and Python's errors for it do not name the member.
            raise InvalidArgument("must not hold a NUL character", field=field)
        return text

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """Returns one of some texts."""
        found = self.text(name, default)
        if found not in choices:
            raise InvalidArgument(
                f"{found!r:.60} is none of {', '.join(choices)}", field=self.field(name)
            )
        return found

    def integer(self, name: str, default: int | None, least: int, greatest: int) -> int:
        """Returns an integer of a range."""
        if default is not None and not self.has(name):
            return default
        return read_integer(self.value(name), self.field(name), least=least, greatest=greatest)

    def number(self, name: str, default: float | None, least: float, greatest: float) -> float:
        """Returns a number of a range."""
        if default is not None and not self.has(name):
            return default
        return read_number(self.value(name), self.field(name), least=least, greatest=greatest)

    def duration_s(
        self, name: str, default_s: float | None, least_s: float, most_s: float
    ) -> float:
        """Returns a duration such as `30s` in seconds."""
        if default_s is not None and not self.has(name):
            return default_s
        field = self.field(name)
        found = parse_duration_ms(self.text(name), field) / 1_000
        if not least_s <= found <= most_s:
            raise InvalidArgument(f"is not within {least_s:g} s … {most_s:g} s", field=field)
        return found

    def switch(self, name: str, default: bool) -> bool:
        """Returns true or false."""
        found = self.value(name, default)
        if not isinstance(found, bool):
            raise InvalidArgument("must be true or false", field=self.field(name))
        return found

    def texts(self, name: str, default: Sequence[str] | None = None) -> tuple[str, ...]:
        """Returns several texts; a single one need not be a list."""
        if default is not None and not self.has(name):
            return tuple(default)
        field = self.field(name)
        found = _not_boolean(self.value(name), field)
        if isinstance(found, str):
            found = [found]
        rows = read_sequence(found, field)
        if not 1 <= len(rows) <= LIST_MAX:
            raise InvalidArgument(f"must have 1 to {LIST_MAX} members", field=field)
        return tuple(
            read_string(
                _not_boolean(each, f"{field}[{row}]"), f"{field}[{row}]", bytes_max=TEXT_BYTES_MAX
            )
            for row, each in enumerate(rows)
        )

    def section(self, name: str) -> Section:
        """Returns a section within this one; an empty one if it is missing."""
        return Section(self.value(name, {}), self.field(name))

    def sections(self, name: str) -> Mapping[str, Any]:
        """Returns a mapping of names to sections, unread; empty if it is missing."""
        found = read_mapping(self.value(name, {}), self.field(name))
        if len(found) > LIST_MAX:
            raise InvalidArgument(f"has more than {LIST_MAX} members", field=self.field(name))
        return found

    def end(self) -> None:
        """Raises InvalidArgument for a member that is not known."""
        refuse_unknown(self._members, self._known, f"{self.path}." if self.path else "")


def _not_boolean(found: Any, field: str) -> Any:
    """Returns a value; a word that YAML took for a boolean is refused with what to do about it."""
    if isinstance(found, bool):
        raise InvalidArgument(
            "must be a text, not a boolean: quote it if it is no, off, yes or on", field=field
        )
    return found
