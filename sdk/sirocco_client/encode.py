"""Objects → columns, the form in which batches travel (`columns.proto`).

Columns are little-endian arrays, as `array` keeps them on every machine that gRPC's wheels run on.
Only what columns cannot hold is refused here, with the member's name; ranges and limits are the
server's to judge, which refuses single objects.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from typing import Any

from sirocco_api.v1.columns_pb2 import ObjectColumns

from sirocco_client.errors import InvalidArgument
from sirocco_client.objects import Object

# The time of an object that came without one; arrival time takes its place.
MISSING_TS = -(2**63)

# What one member of one object may take: servers refuse far smaller ones (64 KB of text by
# default), but a message that is too large to travel at all would break the stream again and
# again.
MEMBER_BYTES_MAX = 1 << 20

# Bytes of an object beside its text, name and attributes: four numbers and an offset.
FIXED_BYTES = 36

_FIXED_MEMBERS = frozenset(("id", "ts", "lon", "lat", "text"))
_NUMBERS = frozenset((float, int))
_INTEGER = frozenset((int,))
_INTEGER_OR_NONE = frozenset((int, type(None)))
_STRING_OR_NONE = frozenset((str, type(None)))


class ByteColumn:
    """Byte strings of rows; a column whose rows are all empty costs nothing."""

    __slots__ = ("_lengths", "_parts", "bytes_total")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._lengths: list[int] = []
        self.bytes_total = 0

    def append(self, row: int, data: bytes) -> None:
        """Sets a row behind those that are set; rows in between are empty."""
        self.extend(row, data, (len(data),))

    def extend(self, row: int, data: bytes, lengths: Iterable[int]) -> None:
        """Sets several rows, given as one string, beginning at a row."""
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
    """Collects objects, and turns them into columns."""

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
        """About how many bytes the columns take."""
        variable = self._text.bytes_total + self._names.bytes_total + self._attributes.bytes_total
        return FIXED_BYTES * len(self._ids) + variable

    def add(self, source: Mapping[str, Any] | Object) -> None:
        """Takes one object, or raises and takes nothing.

        Raises:
            InvalidArgument: A member is missing or cannot be what it says; `field` names it.
        """
        members = source.members() if isinstance(source, Object) else source
        number, name = _read_id(_required(members, "id"))
        lon = _read_number(_required(members, "lon"), "lon")
        lat = _read_number(_required(members, "lat"), "lat")
        ts, text = members.get("ts"), members.get("text")
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
        """Takes objects in order, column by column where they are alike.

        Args:
            sources: The objects.
            first: What an error calls the first of them.

        Raises:
            InvalidArgument: As `add`, the field as `objects[17].lon`; those before it were taken.
        """
        if self._add_alike(sources):
            return
        for i, source in enumerate(sources, first):
            try:
                self.add(source)
            except InvalidArgument as error:
                raise InvalidArgument(error.message, field=f"objects[{i}].{error.field}") from None

    def _add_alike(self, sources: Sequence[Mapping[str, Any] | Object]) -> bool:
        """Takes plain objects; False, with nothing taken, where one needs a closer look."""
        members: Any = sources
        try:
            ids = [each["id"] for each in members]
            lon = [each["lon"] for each in members]
            lat = [each["lat"] for each in members]
            ts = [each.get("ts") for each in members]
            texts = [each.get("text") for each in members]
        except (KeyError, TypeError, AttributeError):
            return False
        if not (
            _NUMBERS.issuperset(map(type, lon))
            and _NUMBERS.issuperset(map(type, lat))
            and _INTEGER_OR_NONE.issuperset(map(type, ts))
            and _STRING_OR_NONE.issuperset(map(type, texts))
            and _INTEGER.issuperset(map(type, ids))
        ):
            return False
        try:
            columns = array("Q", ids), array("d", lon), array("d", lat)
            times = array("q", [MISSING_TS if each is None else each for each in ts])
            text, lengths = _join([each or "" for each in texts])
        except (OverflowError, UnicodeEncodeError):
            return False
        if max(lengths, default=0) > MEMBER_BYTES_MAX:
            return False
        attributes = [
            _dump_attributes(each) if len(each) > 3 + (t is not None) + (x is not None) else b""
            for each, t, x in zip(members, ts, texts, strict=True)
        ]
        row = len(self._ids)
        self._ids += columns[0]
        self._lon += columns[1]
        self._lat += columns[2]
        self._ts_ms += times
        self._text.extend(row, text, lengths)
        if any(attributes):
            self._attributes.extend(row, b"".join(attributes), map(len, attributes))
        return True

    def take(self, message: ObjectColumns) -> None:
        """Moves what was collected into an empty message and starts anew."""
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


def _required(members: Mapping[str, Any], name: str) -> Any:
    try:
        return members[name]
    except KeyError:
        raise InvalidArgument("is missing", field=name) from None
    except TypeError:
        raise InvalidArgument("is no mapping", field="object") from None


def _read_id(value: object) -> tuple[int, bytes]:
    if isinstance(value, str):
        if not value:
            raise InvalidArgument("must not be empty", field="id")
        # The server fills in the number, which is a hash of the name.
        return 0, _encode(value, "id")
    number = _read_integer(value, "id")
    if not 0 <= number < 1 << 64:
        raise InvalidArgument(f"{number!r:.40} is outside [0, 2^64)", field="id")
    return number, b""


def _read_integer(value: object, field: str) -> int:
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        return int(value.__index__())
    raise InvalidArgument(f"{value!r:.60} is no integer", field=field)


def _read_number(value: object, field: str) -> float:
    if type(value) is float:
        return value
    # NumPy's scalars know one of the two; strings and booleans are no numbers.
    if not isinstance(value, bool | str) and (
        hasattr(value, "__float__") or hasattr(value, "__index__")
    ):
        try:
            return float(value)  # type: ignore[arg-type]
        except (OverflowError, TypeError, ValueError):
            pass
    raise InvalidArgument(f"{value!r:.60} is no number", field=field)


def _read_ts(value: object) -> int:
    # Tables that were exported by way of floats write 1405123200000.0, which loses nothing.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    ts_ms = _read_integer(value, "ts")
    if not -(1 << 63) < ts_ms < 1 << 63:
        raise InvalidArgument(f"{ts_ms!r:.40} is no time in ms", field="ts")
    return ts_ms


def _encode(value: object, field: str) -> bytes:
    if not isinstance(value, str):
        raise InvalidArgument(f"{value!r:.60} is no string", field=field)
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
        text = json.dumps(others, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"cannot be written as JSON: {error}", field="attributes") from None
    return _encode(text, "attributes")


def columns_bytes(columns: ObjectColumns) -> int:
    """About how many bytes columns take."""
    variable = len(columns.text) + len(columns.names) + len(columns.attributes)
    return FIXED_BYTES * columns.count + variable


def check_columns(columns: ObjectColumns) -> None:
    """Refuses columns whose lengths do not fit together, so that they can be cut.

    Raises:
        InvalidArgument: `field` names the column.
    """
    count = columns.count
    for name in ("ids", "lon", "lat", "ts_ms"):
        size = len(getattr(columns, name))
        if size != 8 * count:
            raise InvalidArgument(f"has {size} bytes, {count} objects need {8 * count}", field=name)
    for data, offsets in _BYTE_COLUMNS:
        size, ends = len(getattr(columns, data)), getattr(columns, offsets)
        if not ends and not size and data != "text":
            continue
        if len(ends) != 4 * (count + 1):
            raise InvalidArgument(
                f"has {len(ends)} bytes, {count} objects need {4 * (count + 1)}", field=offsets
            )
        bounds = memoryview(ends).cast("I")
        if bounds[0] != 0 or bounds[-1] != size or not _ascends(bounds):
            raise InvalidArgument(f"must rise from 0 to the {size} bytes of {data}", field=offsets)


def _ascends(bounds: memoryview) -> bool:
    values = bounds.tolist()
    return values == sorted(values)


_BYTE_COLUMNS = (
    ("text", "text_offsets"),
    ("names", "name_offsets"),
    ("attributes", "attribute_offsets"),
)


def slice_columns(columns: ObjectColumns, begin: int, end: int) -> ObjectColumns:
    """Returns the rows [begin, end) of columns that fit together."""
    part = ObjectColumns(count=end - begin)
    for name in ("ids", "lon", "lat", "ts_ms"):
        setattr(part, name, getattr(columns, name)[8 * begin : 8 * end])
    for data, offsets in _BYTE_COLUMNS:
        ends = getattr(columns, offsets)
        if not ends:
            continue
        bounds = memoryview(ends).cast("I")[begin : end + 1].tolist()
        first = bounds[0]
        setattr(part, data, getattr(columns, data)[first : bounds[-1]])
        setattr(part, offsets, array("I", [bound - first for bound in bounds]).tobytes())
    return part


def split_columns(
    columns: ObjectColumns, objects_max: int, bytes_max: int
) -> Iterator[ObjectColumns]:
    """Cuts columns that fit together into parts within both bounds, or of one object.

    Raises:
        InvalidArgument: A single object is larger than what can travel.
    """
    if columns.count <= objects_max and columns_bytes(columns) <= bytes_max:
        if columns.count:
            yield columns
        return
    sizes = _row_bytes(columns)
    begin = held = 0
    for row, size in enumerate(sizes):
        if size > 3 * MEMBER_BYTES_MAX + FIXED_BYTES:
            raise InvalidArgument(f"has {size} bytes, which cannot travel", field=f"objects[{row}]")
        if row > begin and (row - begin >= objects_max or held + size > bytes_max):
            yield slice_columns(columns, begin, row)
            begin, held = row, 0
        held += size
    yield slice_columns(columns, begin, columns.count)


def _row_bytes(columns: ObjectColumns) -> list[int]:
    sizes = [FIXED_BYTES] * columns.count
    for _, offsets in _BYTE_COLUMNS:
        if ends := getattr(columns, offsets):
            bounds = memoryview(ends).cast("I").tolist()
            sizes = [
                size + end - begin
                for size, begin, end in zip(sizes, bounds, bounds[1:], strict=False)
            ]
    return sizes


def object_id(columns: ObjectColumns, row: int) -> int | str:
    """Returns the name of a row, or its number if it has no name."""
    if columns.name_offsets:
        begin, end = memoryview(columns.name_offsets).cast("I")[row : row + 2]
        if end > begin:
            return columns.names[begin:end].decode(errors="replace")
    return int(memoryview(columns.ids).cast("Q")[row])
