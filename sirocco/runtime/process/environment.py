"""Reads settings from the environment, for processes with and without the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from sirocco.model.durations import format_duration, parse_duration_ms
from sirocco.model.errors import InvalidArgument

T = TypeVar("T")


def shown_retention(duration_ms: int | None) -> str:
    """Returns a duration as people write it; `unlimited` for None."""
    return "unlimited" if duration_ms is None else format_duration(duration_ms)


class Reader:
    """Reads settings, and refuses values that make no sense by the variable's name."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def text(self, name: str, default: str | None) -> str:
        """Returns a text; without a default the setting is required."""
        return self._read(name, default, str)

    def integer(self, name: str, default: int, greatest: int, *, least: int = 1) -> int:
        """Returns an integer of a range."""
        value = self._read(name, default, int)
        if not least <= value <= greatest:
            raise InvalidArgument(f"{value} is not within {least} … {greatest}", field=name)
        return value

    def number(self, name: str, default: float, least: float, greatest: float) -> float:
        """Returns a number of a range."""
        value = self._read(name, default, float)
        if not least <= value <= greatest:
            raise InvalidArgument(f"{value:g} is not within {least:g} … {greatest:g}", field=name)
        return value

    def duration_ms(self, name: str, default_ms: int, least: int) -> int:
        """Returns a duration of at least so many milliseconds."""
        value = parse_duration_ms(self.text(name, format_duration(default_ms)), name)
        if value < least:
            raise InvalidArgument(f"{value} ms is less than {least} ms", field=name)
        return value

    def retention_ms(self, name: str, default_ms: int | None) -> int | None:
        """Returns a duration; None for `unlimited`."""
        raw = self.text(name, shown_retention(default_ms))
        return None if raw == "unlimited" else parse_duration_ms(raw, name)

    def when(self, is_used: bool, otherwise: str) -> Reader:
        """Returns a reader of settings that depend on another one: it refuses them where unused."""
        return self if is_used else _Unused(self._environment, otherwise)

    def switch(self, name: str, default: bool) -> bool:
        """Returns whether a setting is `on`."""
        return self.choice(name, "on" if default else "off", ("on", "off")) == "on"

    def choice(self, name: str, default: str | None, choices: tuple[str, ...]) -> str:
        """Returns one of some values."""
        value = self._read(name, default, str)
        if value not in choices:
            raise InvalidArgument(f"{value!r} is none of {', '.join(choices)}", field=name)
        return value

    def _read(self, name: str, default: T | None, convert: Callable[[str], T]) -> T:
        raw = self._environment.get(name, "")
        if not raw:
            if default is None:
                raise InvalidArgument("is not set in the environment", field=name)
            return default
        try:
            return convert(raw)
        except ValueError:
            raise InvalidArgument(f"{raw!r} is no {convert.__name__}", field=name) from None


class _Unused(Reader):
    def __init__(self, environment: Mapping[str, str], reason: str) -> None:
        super().__init__(environment)
        self._reason = reason

    def text(self, name: str, default: str | None) -> str:
        # A setting without effect must not be ignored silently.
        if self._environment.get(name, ""):
            raise InvalidArgument(f"is of no use with {self._reason}", field=name)
        return default or ""
