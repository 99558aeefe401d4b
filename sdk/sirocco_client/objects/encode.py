"""Objects → columns, the form in which batches are sent (`columns.proto`).

Only values that columns cannot hold are refused here, with the member's name. The server checks
ranges and limits, and refuses single objects.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import accumulate, repeat
from typing import Any, TypeAlias

from sirocco_api.v1.columns_pb2 import ObjectColumns

from sirocco_client.base.members import shown
from sirocco_client.base.numbers import datetime_ms
from sirocco_client.errors import InvalidArgument
from sirocco_client.objects.columns import FIXED_BYTES, MEMBER_BYTES_MAX, MISSING_TS
from sirocco_client.objects.object import Object

_FIXED_MEMBERS = frozenset(("id", "ts", "lon", "lat", "text"))
_IDS = frozenset((int, str))
_NUMBERS = frozenset((float, int))
_INTEGER_OR_NONE = frozenset((int, type(None)))
_STRING_OR_NONE = frozenset((str, type(None)))

_write_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class ByteColumn:
    """Byte strings of rows; a column whose rows are all empty takes no space."""

    __slots__ = ("_lengths", "_parts", "bytes_total")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._lengths: list[int] = []
        self.bytes_total = 0

    def append(self, row: int, data: bytes) -> None:
        """Sets a row after those already set; rows in between are empty."""
        self.extend(row, data, (len(data),))

    def extend(self, row: int, data: bytes, lengths: Iterable[int]) -> None:
        """Sets consecutive rows, given as one string, from `row` on."""
        gap = row - len(self._lengths)
        if gap:
            self._lengths.extend(repeat(0, gap))
        self._parts.append(data)
        self._lengths.extend(lengths)
        self.bytes_total += len(data)

    def build(self, rows: int) -> tuple[bytes, bytes]:
        """Returns the bytes and the offsets, u4[rows + 1]."""
        self._lengths.extend(repeat(0, rows - len(self._lengths)))
        return b"".join(self._parts), array("I", accumulate(self._lengths, initial=0)).tobytes()


class ObjectEncoder:
    """Collects objects and converts them to columns."""

    __slots__ = ("_attributes", "_ids", "_lat", "_lon", "_names", "_text", "_ts_ms")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._ids = array("Q")
        self._lon = array("d")
        self._lat = array("d")
        self._ts_ms = array("q")
        self._text = ByteColumn()
        self._names = ByteColumn()
        self._attributes = ByteColumn()

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def bytes_total(self) -> int:
        """Approximate size of the columns in bytes, rather too high."""
        variable = self._text.bytes_total + self._names.bytes_total + self._attributes.bytes_total
        return FIXED_BYTES * len(self._ids) + variable

    def add(self, source: Mapping[str, Any] | Object) -> None:
        """Adds one object, or raises and adds nothing.

        Raises:
            InvalidArgument: A member is missing or malformed; `field` names it.
        """
        members = source.members() if isinstance(source, Object) else source
        try:
            number, lon, lat = members["id"], members["lon"], members["lat"]
        except (KeyError, TypeError):
            raise _incomplete(members) from None
        ts, text = members.get("ts"), members.get("text")
        name = b""
        # Values of the expected type skip the slow check.
        if type(number) is not int or not 0 <= number < 1 << 64:
            number, name = _read_id(number)
        if type(lon) is not float:
            lon = _read_number(lon, "lon")
        if type(lat) is not float:
            lat = _read_number(lat, "lat")
        ts_ms = MISSING_TS if ts is None else _read_ts(ts)
        encoded = b"" if text is None else _encode(text, "text")
        attributes = b""
        if len(members) > 3 + (ts is not None) + (text is not None):
            attributes = _dump_attributes(members)
        row = len(self._ids)
        self._ids.append(number)
        self._lon.append(lon)
        self._lat.append(lat)
        self._ts_ms.append(ts_ms)
        if encoded:
            self._text.append(row, encoded)
        if name:
            self._names.append(row, name)
        if attributes:
            self._attributes.append(row, attributes)

    def add_many(self, sources: Sequence[Mapping[str, Any] | Object], first: int = 0) -> None:
        """Adds objects in order, column by column if they have the same form.

        Args:
            sources: The objects.
            first: Index of the first in error messages.

        Raises:
            InvalidArgument: As `add`, `field` as `objects[17].lon`; those before it were added.
        """
        if self._add_alike(sources):
            return
        for i, source in enumerate(sources, first):
            try:
                self.add(source)
            except InvalidArgument as error:
                raise InvalidArgument(error.message, field=f"objects[{i}].{error.field}") from None

    def _add_alike(self, sources: Sequence[Mapping[str, Any] | Object]) -> bool:
        """Adds objects of plain types; False, adding nothing, if one needs a closer check."""
        fields = _fields(sources)
        if fields is None:
            return False
        ids, lon, lat, ts, texts = fields
        if not (
            _IDS.issuperset(map(type, ids))
            and _NUMBERS.issuperset(map(type, lon))
            and _NUMBERS.issuperset(map(type, lat))
            and _INTEGER_OR_NONE.issuperset(map(type, ts))
            and _STRING_OR_NONE.issuperset(map(type, texts))
            and "" not in ids
            and MISSING_TS not in ts
        ):
            return False
        is_named = str in map(type, ids)
        names = [each if type(each) is str else "" for each in ids] if is_named else []
        numbers = [0 if type(each) is str else each for each in ids] if is_named else ids
        try:
            columns = array("Q", numbers), array("d", lon), array("d", lat)
            times = array("q", [MISSING_TS if each is None else each for each in ts])
            text, lengths = _join([each or "" for each in texts])
            name, name_lengths = _join(names)
            attributes = _all_attributes(sources, ts, texts)
        except (OverflowError, UnicodeEncodeError, InvalidArgument):
            return False
        if max(lengths, default=0) > MEMBER_BYTES_MAX:
            return False
        if max(name_lengths, default=0) > MEMBER_BYTES_MAX:
            return False
        row = len(self._ids)
        self._ids += columns[0]
        self._lon += columns[1]
        self._lat += columns[2]
        self._ts_ms += times
        self._text.extend(row, text, lengths)
        if name:
            self._names.extend(row, name, name_lengths)
        if any(attributes):
            self._attributes.extend(row, b"".join(attributes), map(len, attributes))
        return True

    def take(self, message: ObjectColumns) -> None:
        """Moves the collected objects into an empty message and starts afresh."""
        count = len(self._ids)
        message.count = count
        message.ids = self._ids.tobytes()
        message.lon = self._lon.tobytes()
        message.lat = self._lat.tobytes()
        message.ts_ms = self._ts_ms.tobytes()
        message.text, message.text_offsets = self._text.build(count)
        if self._names.bytes_total:
            message.names, message.name_offsets = self._names.build(count)
        if self._attributes.bytes_total:
            message.attributes, message.attribute_offsets = self._attributes.build(count)
        self._clear()


def _join(texts: list[str]) -> tuple[bytes, list[int]]:
    joined = "".join(texts)
    if joined.isascii():
        return joined.encode(), list(map(len, texts))
    encoded = [text.encode() for text in texts]
    return b"".join(encoded), list(map(len, encoded))


_Fields: TypeAlias = "tuple[list[Any], list[Any], list[Any], list[Any], list[Any]]"


def _fields(sources: Sequence[Mapping[str, Any] | Object]) -> _Fields | None:
    """Returns id, lon, lat, ts and text of objects of the same form, else None."""
    rows: Any = sources
    if all(type(each) is Object for each in rows):
        return (
            [each.id for each in rows],
            [each.lon for each in rows],
            [each.lat for each in rows],
            [each.ts_ms for each in rows],
            [each.text for each in rows],
        )
    try:
        return (
            [each["id"] for each in rows],
            [each["lon"] for each in rows],
            [each["lat"] for each in rows],
            [each.get("ts") for each in rows],
            [each.get("text") for each in rows],
        )
    except (KeyError, TypeError, AttributeError):
        return None


def _all_attributes(
    sources: Sequence[Mapping[str, Any] | Object], ts: list[Any], texts: list[Any]
) -> list[bytes]:
    """Returns the attributes of objects that `_fields` accepted."""
    rows: Any = sources
    if rows and type(rows[0]) is Object:
        return [_dump_attributes(each.attributes) if each.attributes else b"" for each in rows]
    return [
        _dump_attributes(each) if len(each) > 3 + (t is not None) + (x is not None) else b""
        for each, t, x in zip(rows, ts, texts, strict=True)
    ]


def _incomplete(members: Any) -> InvalidArgument:
    if not isinstance(members, Mapping):
        return InvalidArgument(f"{shown(members)} is no mapping", field="object")
    name = next(each for each in ("id", "lon", "lat") if each not in members)
    return InvalidArgument("is missing", field=name)


def _read_id(value: object) -> tuple[int, bytes]:
    if isinstance(value, str):
        if not value:
            raise InvalidArgument("must not be empty", field="id")
        # The server fills in the number, a hash of the name.
        return 0, _encode(value, "id")
    number = _read_integer(value, "id")
    if not 0 <= number < 1 << 64:
        raise InvalidArgument(f"{shown(number)} is outside [0, 2^64)", field="id")
    return number, b""


def _read_integer(value: object, field: str) -> int:
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        return int(value.__index__())
    raise InvalidArgument(f"{shown(value)} is no integer", field=field)


def _read_number(value: object, field: str) -> float:
    if type(value) is float:
        return value
    # NumPy's scalars support one of the two; strings and booleans are not numbers.
    if not isinstance(value, bool | str) and (
        hasattr(value, "__float__") or hasattr(value, "__index__")
    ):
        try:
            return float(value)  # type: ignore[arg-type]
        except (OverflowError, TypeError, ValueError):
            pass
    raise InvalidArgument(f"{shown(value)} is no number", field=field)


def _read_ts(value: object) -> int:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidArgument(
                f"{shown(value)} is neither epoch ms nor a time of ISO 8601", field="ts"
            ) from None
    if isinstance(value, datetime):
        return datetime_ms(value, "ts")
    # Tables exported through floats contain 1405123200000.0, which is exact.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    ts_ms = _read_integer(value, "ts")
    if not -(1 << 63) < ts_ms < 1 << 63:
        raise InvalidArgument(f"{shown(ts_ms)} is no time in ms", field="ts")
    return ts_ms


def _encode(value: object, field: str) -> bytes:
    if not isinstance(value, str):
        raise InvalidArgument(f"{shown(value)} is no string", field=field)
    try:
        encoded = value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"is no Unicode text: lone surrogate at character {error.start}", field=field
        ) from None
    if len(encoded) > MEMBER_BYTES_MAX:
        raise InvalidArgument(
            f"has {len(encoded)} bytes, more than the {MEMBER_BYTES_MAX} that can travel",
            field=field,
        )
    return encoded


def _dump_attributes(members: Mapping[str, Any]) -> bytes:
    others = {name: value for name, value in members.items() if name not in _FIXED_MEMBERS}
    if not others:
        return b""
    try:
        text = _write_json(others)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"cannot be written as JSON: {error}", field="attributes") from None
    return _encode(text, "attributes")
