"""What a sink keeps over restarts: its place, planned ends of batches, and open periods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Protocol

import orjson

from sirocco.services.connector.sinks.errors import SinkStopped
from sirocco.services.connector.sinks.rows import Place
from sirocco.services.connector.sinks.throttle import Window

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Saved:
    """The state of a sink after some notification.

    Attributes:
        place: Where to resume.
        ends: Ids of the last notifications of the batches that may have been sent after the place,
            so that they are sent again as the same batches.
        windows: Periods of the throttle, by query.
        target: What the target keeps beside, such as the length of a file.
        gone: Which receiver wants no more, as `receiver_mark` names it; empty: none does.
    """

    place: Place
    ends: tuple[str, ...] = ()
    windows: Mapping[str, Window] = field(default_factory=dict)
    target: Mapping[str, Any] = field(default_factory=dict)
    gone: str = ""

    def with_ends(self, ends: tuple[str, ...]) -> Saved:
        """Returns the same place with other planned ends."""
        return replace(self, ends=ends)

    def to_bytes(self) -> bytes:
        """Returns the stored form."""
        members = {
            "version": _VERSION,
            "cursor": self.place.cursor,
            "skip": self.place.skip,
            "ends": self.ends,
            "windows": {query: list(window) for query, window in self.windows.items()},
            "target": self.target,
            "gone": self.gone,
        }
        return orjson.dumps(members)

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Saved:
        """Reads the stored form.

        Raises:
            SinkStopped: It is damaged, or of another version.
        """
        try:
            members = orjson.loads(data)
            if members["version"] != _VERSION:
                raise ValueError(f"is of version {members['version']}")
            return cls(
                Place(str(members["cursor"]), _count(members["skip"])),
                tuple(map(str, members["ends"])),
                {query: _window(values) for query, values in members["windows"].items()},
                dict(members["target"]),
                str(members.get("gone", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SinkStopped("refused", f"the state in {where} cannot be read: {error}") from error


def _window(values: Any) -> Window:
    window = Window(*values)
    for value, default in zip(window, Window(0), strict=True):
        if type(value) is not type(default):
            raise ValueError(f"a period holds {value!r:.80}")
    return window


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.80} is no count")
    return value


def receiver_mark(url: str) -> str:
    """Returns what stands for a receiver in the state: URLs may hold secrets."""
    return blake2b(url.encode(), digest_size=16).hexdigest()


class Store(Protocol):
    """Where a sink's state is kept."""

    async def open(self) -> Saved | None:
        """Takes the state over from any other instance and reads it; None: there is none."""

    async def save(self, saved: Saved) -> None:
        """Keeps it; durable when this returns."""

    async def is_free(self) -> bool:
        """Whether it may be taken over, after another instance has; called now and then."""

    async def close(self) -> None:
        """Gives the state back."""
