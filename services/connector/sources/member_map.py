"""Which members of a record are an object's id, place, time and text; all others are attributes.

As for columns of tables (`--map`), but the members may be nested: `position.lon` is the member
`lon` of the member `position`. `$key` and `$timestamp` are the record's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sirocco.formats.column_map import joined, read_map
from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.sections import Section

MEMBERS = ("id", "lon", "lat", "ts", "text")
_FIXED = frozenset(MEMBERS)

KEY, TIMESTAMP = "$key", "$timestamp"

_PATH_MAX = 20


@dataclass(frozen=True, slots=True)
class Path:
    """The place of a value in a record.

    Attributes:
        text: As it was written.
        names: Of the members, from the outermost.
    """

    text: str
    names: tuple[str, ...]

    def value(self, members: Mapping[str, Any]) -> Any:
        """Returns the value; None if there is none."""
        found: Any = members
        for name in self.names:
            if not isinstance(found, dict):
                return None
            found = found.get(name)
        return found


@dataclass(frozen=True, slots=True)
class MemberMap:
    """What a source's records hold.

    Attributes:
        chosen: Member of an object → where it is; one missing here has its own name.
        text: Where the parts of the text are; empty: in `text`.
        attributes: What the attributes are; None: every other member.
    """

    chosen: Mapping[str, Path]
    text: tuple[Path, ...] = ()
    attributes: tuple[Path, ...] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether records are objects as they are."""
        return not self.chosen and not self.text and self.attributes is None

    @property
    def needs_record(self) -> bool:
        """Whether keys or times of records are asked for."""
        return any(path.text in {KEY, TIMESTAMP} for path in self.chosen.values())

    def members(
        self, record: Mapping[str, Any], key: bytes | str | None = None, ts_ms: int = -1
    ) -> dict[str, Any]:
        """Returns the members of the object that a record holds.

        Args:
            record: Its value.
            key: The record's key, None without.
            ts_ms: The record's time, below 0 without.

        Raises:
            InvalidArgument: A member that is an object's is missing; `field` is its path.
        """
        members = self._attributes(record)
        for name in ("id", "lon", "lat", "ts"):
            path = self.chosen.get(name)
            if path is None:
                found = record.get(name)
            elif path.text == KEY:
                found = _key(key, name)
            elif path.text == TIMESTAMP:
                found = ts_ms if ts_ms >= 0 else None
            else:
                found = path.value(record)
            if found is not None:
                members[name] = found
            elif name != "ts":
                raise InvalidArgument("is missing", field=name if path is None else path.text)
        if self.text:
            members["text"] = joined([_text(path, record) for path in self.text])
        elif (text := record.get("text")) is not None:
            members["text"] = text
        return members

    def _attributes(self, record: Mapping[str, Any]) -> dict[str, Any]:
        if self.attributes is not None:
            values = ((path.names[-1], path.value(record)) for path in self.attributes)
            return {name: found for name, found in values if found is not None}
        used = {
            path.names[0] for path in (*self.chosen.values(), *self.text) if len(path.names) == 1
        }
        return {
            name: found
            for name, found in record.items()
            if name not in _FIXED and name not in used and found is not None
        }


def read_member_map(section: Section) -> MemberMap:
    """Reads `map` and `attributes` of a source: `lon=a.b,text=c+d`, or a mapping of the same.

    Raises:
        InvalidArgument: They cannot be used; `field` is the path of the member.
    """
    field = section.field("map")
    given = section.value("map", {})
    chosen: Mapping[str, Sequence[str]]
    if isinstance(given, str):
        try:
            chosen = read_map(given)
        except InvalidArgument as error:
            raise InvalidArgument(error.message, field=field) from None
    else:
        inner = Section(given, field)
        chosen = {name: inner.texts(name) for name in MEMBERS if inner.has(name)}
        inner.end()
    paths = {
        name: tuple(_path(each, f"{field}.{name}") for each in texts)
        for name, texts in chosen.items()
    }
    for name, found in paths.items():
        if name != "text" and len(found) != 1:
            raise InvalidArgument("names several members", field=f"{field}.{name}")
    for path in paths.get("text", ()):
        if path.text in {KEY, TIMESTAMP}:
            raise InvalidArgument(f"{path.text} is no text", field=f"{field}.text")
    attributes = None
    if section.has("attributes"):
        field = section.field("attributes")
        attributes = tuple(_path(each, field) for each in section.texts("attributes"))
        names = [path.names[-1] for path in attributes]
        for name in names:
            if names.count(name) > 1 or name in _FIXED:
                raise InvalidArgument(f"{name!r:.60} has this name twice", field=field)
    return MemberMap(
        {name: found[0] for name, found in paths.items() if name != "text"},
        paths.get("text", ()),
        attributes,
    )


def _path(text: str, field: str) -> Path:
    names = tuple(text.split("."))
    if not all(names) or len(names) > _PATH_MAX:
        raise InvalidArgument(f"{text!r:.60} is no path such as position.lon", field=field)
    return Path(text, names)


def _text(path: Path, record: Mapping[str, Any]) -> Any:
    found = path.value(record)
    if isinstance(found, dict | list):
        raise InvalidArgument("is no text", field=path.text)
    return found


def _key(key: bytes | str | None, name: str) -> str | None:
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            raise InvalidArgument("the record's key is no UTF-8", field=name) from None
    return key
