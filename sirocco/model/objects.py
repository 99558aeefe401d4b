"""Objects as columns: the one form in which batches are sent, checked and stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import orjson
import xxhash
from numpy.typing import NDArray

from sirocco.kernels.base.columns import gather_bytes
from sirocco.kernels.base.wire_checks import is_outside
from sirocco.model.errors import InvalidArgument
from sirocco.model.json_text import is_nested, load_json, may_exceed_64_bits, refuse_unkept
from sirocco.model.limits import DEFAULT_LIMITS, Limits
from sirocco.model.members import (
    read_integer,
    read_mapping,
    read_number,
    read_string,
    required,
)
from sirocco.model.moments import moment_ms
from sirocco.model.text import hash_rows, invalid_utf8_rows

Bytes: TypeAlias = NDArray[np.uint8]
Offsets: TypeAlias = NDArray[np.int64]

# Time of an object that has none; its arrival time is used instead.
MISSING_TS = -(2**63)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRow:
    """One object.

    Attributes:
        id: Unsigned 64-bit; for a string id its xxh3-64.
        name: The string id, empty for a numeric id.
        lon: Degrees.
        lat: Degrees.
        ts: Event time, epoch ms, or `MISSING_TS`.
        text: Empty if there is none.
        attributes: JSON object, empty if there are none.
    """

    id: int
    name: str
    lon: float
    lat: float
    ts: int
    text: str
    attributes: bytes


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ObjectColumns:
    """A batch of n objects, column by column; byte columns have offsets.

    Attributes:
        ids: u8[n].
        names: u1[b], UTF-8 of string ids, empty rows for numeric ids.
        name_offsets: i8[n + 1].
        lon: f8[n], degrees.
        lat: f8[n], degrees.
        ts: i8[n], epoch ms, `MISSING_TS` where absent.
        text: u1[b], UTF-8.
        text_offsets: i8[n + 1].
        attributes: u1[b], a JSON object per row, empty rows where there are none.
        attribute_offsets: i8[n + 1].
    """

    ids: NDArray[np.uint64]
    names: Bytes
    name_offsets: Offsets
    lon: NDArray[np.float64]
    lat: NDArray[np.float64]
    ts: NDArray[np.int64]
    text: Bytes
    text_offsets: Offsets
    attributes: Bytes
    attribute_offsets: Offsets

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def bytes_total(self) -> int:
        """Bytes of all columns."""
        # Written out: a loop over the fields takes as long as finding a few objects.
        numbers = self.ids.nbytes + self.lon.nbytes + self.lat.nbytes + self.ts.nbytes
        content = self.names.nbytes + self.text.nbytes + self.attributes.nbytes
        offsets = (
            self.name_offsets.nbytes + self.text_offsets.nbytes + self.attribute_offsets.nbytes
        )
        return numbers + content + offsets

    def slice(self, start: int, stop: int) -> ObjectColumns:
        """Returns rows [start, stop) without copying numbers or bytes."""
        start, stop, _ = slice(start, stop).indices(len(self))
        stop = max(start, stop)
        if stop - start == len(self):
            return self
        names, name_offsets = _slice_bytes(self.names, self.name_offsets, start, stop)
        text, text_offsets = _slice_bytes(self.text, self.text_offsets, start, stop)
        attributes, attribute_offsets = _slice_bytes(
            self.attributes, self.attribute_offsets, start, stop
        )
        return ObjectColumns(
            ids=self.ids[start:stop],
            names=names,
            name_offsets=name_offsets,
            lon=self.lon[start:stop],
            lat=self.lat[start:stop],
            ts=self.ts[start:stop],
            text=text,
            text_offsets=text_offsets,
            attributes=attributes,
            attribute_offsets=attribute_offsets,
        )

    def take(self, rows: NDArray[np.int64]) -> ObjectColumns:
        """Returns the named rows (i8[k], each in [0, n)) in the given order."""
        names, name_offsets = take_bytes(self.names, self.name_offsets, rows)
        text, text_offsets = take_bytes(self.text, self.text_offsets, rows)
        attributes, attribute_offsets = take_bytes(self.attributes, self.attribute_offsets, rows)
        return ObjectColumns(
            ids=self.ids[rows],
            names=names,
            name_offsets=name_offsets,
            lon=self.lon[rows],
            lat=self.lat[rows],
            ts=self.ts[rows],
            text=text,
            text_offsets=text_offsets,
            attributes=attributes,
            attribute_offsets=attribute_offsets,
        )

    def row(self, index: int) -> ObjectRow:
        """Returns one object."""
        return ObjectRow(
            id=int(self.ids[index]),
            name=_row_bytes(self.names, self.name_offsets, index).decode(),
            lon=float(self.lon[index]),
            lat=float(self.lat[index]),
            ts=int(self.ts[index]),
            text=_row_bytes(self.text, self.text_offsets, index).decode(),
            attributes=_row_bytes(self.attributes, self.attribute_offsets, index),
        )


def concat(batches: Sequence[ObjectColumns]) -> ObjectColumns:
    """Returns the rows of all batches in order; a single batch unchanged."""
    if len(batches) == 1 and _is_packed(batches[0]):
        return batches[0]
    names, name_offsets = _concat_bytes([(b.names, b.name_offsets) for b in batches])
    text, text_offsets = _concat_bytes([(b.text, b.text_offsets) for b in batches])
    attributes, attribute_offsets = _concat_bytes(
        [(b.attributes, b.attribute_offsets) for b in batches]
    )
    return ObjectColumns(
        ids=np.concatenate([np.empty(0, np.uint64), *(b.ids for b in batches)]),
        names=names,
        name_offsets=name_offsets,
        lon=np.concatenate([np.empty(0, np.float64), *(b.lon for b in batches)]),
        lat=np.concatenate([np.empty(0, np.float64), *(b.lat for b in batches)]),
        ts=np.concatenate([np.empty(0, np.int64), *(b.ts for b in batches)]),
        text=text,
        text_offsets=text_offsets,
        attributes=attributes,
        attribute_offsets=attribute_offsets,
    )


def _is_packed(batch: ObjectColumns) -> bool:
    """Whether the offsets span all bytes, from the first on."""
    columns = (
        (batch.names, batch.name_offsets),
        (batch.text, batch.text_offsets),
        (batch.attributes, batch.attribute_offsets),
    )
    return all(offsets[0] == 0 and offsets[-1] == len(data) for data, offsets in columns)


def take_bytes(data: Bytes, offsets: Offsets, rows: NDArray[np.int64]) -> tuple[Bytes, Offsets]:
    """Returns the named rows of a byte column, as (data, offsets)."""
    if not len(data):
        # Most objects have neither a string id nor attributes.
        return np.empty(0, np.uint8), np.zeros(len(rows) + 1, np.int64)
    lengths = (offsets[1:] - offsets[:-1])[rows]
    taken_offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=taken_offsets[1:])
    taken = np.empty(taken_offsets[-1], np.uint8)
    gather_bytes(data, offsets[:-1][rows], lengths, taken_offsets, taken)
    return taken, taken_offsets


def _slice_bytes(data: Bytes, offsets: Offsets, start: int, stop: int) -> tuple[Bytes, Offsets]:
    kept = offsets[start : stop + 1]
    return data[kept[0] : kept[-1]], kept - kept[0]


def _row_bytes(data: Bytes, offsets: Offsets, index: int) -> bytes:
    return data[offsets[index] : offsets[index + 1]].tobytes()


def _concat_bytes(columns: Sequence[tuple[Bytes, Offsets]]) -> tuple[Bytes, Offsets]:
    if not any(len(data) for data, _ in columns):
        count = sum(len(offsets) - 1 for _, offsets in columns)
        return np.empty(0, np.uint8), np.zeros(count + 1, np.int64)
    parts, offset_parts, end = [np.empty(0, np.uint8)], [np.zeros(1, np.int64)], 0
    for data, offsets in columns:
        parts.append(data[offsets[0] : offsets[-1]])
        offset_parts.append(offsets[1:] + (end - offsets[0]))
        end += int(offsets[-1] - offsets[0])
    return np.concatenate(parts), np.concatenate(offset_parts)


class ObjectColumnsBuilder:
    """Collects rows into columns."""

    def __init__(self) -> None:
        self._rows: list[ObjectRow] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: ObjectRow) -> None:
        """Appends a row."""
        self._rows.append(row)

    def build(self) -> ObjectColumns:
        """Returns the rows added since the last build, and starts afresh."""
        rows, self._rows = self._rows, []
        names, name_offsets = pack_bytes([row.name.encode() for row in rows])
        text, text_offsets = pack_bytes([row.text.encode() for row in rows])
        attributes, attribute_offsets = pack_bytes([row.attributes for row in rows])
        return ObjectColumns(
            ids=np.array([row.id for row in rows], np.uint64),
            names=names,
            name_offsets=name_offsets,
            lon=np.array([row.lon for row in rows], np.float64),
            lat=np.array([row.lat for row in rows], np.float64),
            ts=np.array([row.ts for row in rows], np.int64),
            text=text,
            text_offsets=text_offsets,
            attributes=attributes,
            attribute_offsets=attribute_offsets,
        )


def pack_bytes(rows: Sequence[bytes]) -> tuple[Bytes, Offsets]:
    """Returns byte strings as a column: (data u1[b], offsets i8[n + 1])."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, rows), np.int64, len(rows)), out=offsets[1:])
    return np.frombuffer(b"".join(rows), np.uint8), offsets


# Members of an object's line; all others are attributes.
FIXED_MEMBERS = frozenset({"id", "ts", "lon", "lat", "text"})


def parse_object(
    source: Mapping[str, Any] | bytes | str, *, limits: Limits = DEFAULT_LIMITS
) -> ObjectRow:
    """Reads an object from its JSON members or from a line of JSON.

    Raises:
        InvalidArgument: Not a JSON object, or a member is missing, of the wrong type or out of
            range; `field` names it.
    """
    members = load_json(source, "object") if isinstance(source, bytes | str) else source
    members = read_mapping(members, "object")
    object_id, name = _parse_id(required(members, "id", "id"), limits)
    text = members.get("text")
    others = {k: v for k, v in members.items() if k not in FIXED_MEMBERS}
    return ObjectRow(
        id=object_id,
        name=name,
        lon=read_number(required(members, "lon", "lon"), "lon", least=-180, greatest=180),
        lat=read_number(required(members, "lat", "lat"), "lat", least=-90, greatest=90),
        ts=_parse_ts(members.get("ts"), limits),
        text=""
        if text is None
        else read_string(text, "text", bytes_max=limits.text_bytes, empty=True),
        attributes=_dump_attributes(others, limits) if others else b"",
    )


def _parse_id(value: object, limits: Limits) -> tuple[int, str]:
    if isinstance(value, str):
        name = read_string(value, "id", bytes_max=limits.id_bytes)
        return xxhash.xxh3_64_intdigest(name.encode()), name
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument("must be an unsigned 64-bit integer or a string", field="id")
    return read_integer(value, "id", least=0, greatest=2**64 - 1), ""


def _parse_ts(value: object, limits: Limits) -> int:
    if value is None:
        return MISSING_TS
    if isinstance(value, str):
        value = moment_ms(value, "ts")
    # Tables exported through floats contain 1405123200000.0, which is exact.
    if isinstance(value, float) and value.is_integer() and abs(value) <= limits.ts_ms:
        return int(value)
    return read_integer(value, "ts", least=-limits.ts_ms, greatest=limits.ts_ms)


def _dump_attributes(members: dict[str, Any], limits: Limits) -> bytes:
    refuse_unkept(members, "attributes", limits.attribute_depth)
    try:
        attributes = orjson.dumps(members)
    except TypeError as error:
        raise InvalidArgument(f"cannot be written as JSON: {error}", field="attributes") from None
    if len(attributes) > limits.attribute_bytes:
        raise InvalidArgument(
            f"have {len(attributes)} bytes, the limit is {limits.attribute_bytes}",
            field="attributes",
        )
    return attributes


def validate(columns: ObjectColumns, limits: Limits = DEFAULT_LIMITS) -> None:
    """Checks a batch from outside.

    Raises:
        InvalidArgument: The columns do not fit together, or a row is invalid; the field is, for
            example, `objects[17].lon`.
    """
    _, errors = split_valid(columns, limits)
    if errors:
        row, error = errors[0]
        raise error.within(f"objects[{row}]")


def split_valid(
    columns: ObjectColumns, limits: Limits = DEFAULT_LIMITS
) -> tuple[NDArray[np.int64], list[tuple[int, InvalidArgument]]]:
    """Separates the valid rows of a batch from the others.

    Args:
        columns: The batch.
        limits: Bounds of a row.

    Returns:
        The valid rows (i8[k], ascending), and the first error of each other row, ascending. Rows
        with the same error share one error.

    Raises:
        InvalidArgument: The columns do not fit together, so that there are no rows.
    """
    _check_shape(columns)
    errors: dict[int, InvalidArgument] = {}
    _check_numbers(columns, limits, errors)
    _check_bytes(columns, limits, errors)
    _check_names(columns, errors)
    _check_attributes(columns, limits, errors)
    if not errors:
        return np.arange(len(columns)), []
    good = np.ones(len(columns), np.bool_)
    good[list(errors)] = False
    return np.flatnonzero(good), sorted(errors.items())


_DTYPES = {
    "ids": np.uint64,
    "names": np.uint8,
    "name_offsets": np.int64,
    "lon": np.float64,
    "lat": np.float64,
    "ts": np.int64,
    "text": np.uint8,
    "text_offsets": np.int64,
    "attributes": np.uint8,
    "attribute_offsets": np.int64,
}
_BYTE_COLUMNS = (
    ("names", "name_offsets"),
    ("text", "text_offsets"),
    ("attributes", "attribute_offsets"),
)


def _check_shape(columns: ObjectColumns) -> None:
    for name, dtype in _DTYPES.items():
        column = getattr(columns, name)
        if column.ndim != 1 or column.dtype != dtype:
            raise InvalidArgument(f"must be one column of {np.dtype(dtype)}", field=name)
    for name in ("lon", "lat", "ts"):
        if len(getattr(columns, name)) != len(columns):
            raise InvalidArgument(
                f"has {len(getattr(columns, name))} rows, ids has {len(columns)}", field=name
            )
    for name, offsets_name in _BYTE_COLUMNS:
        data, offsets = getattr(columns, name), getattr(columns, offsets_name)
        if len(offsets) != len(columns) + 1:
            raise InvalidArgument(
                f"has {len(offsets)} entries, must have {len(columns) + 1}", field=offsets_name
            )
        if offsets[0] != 0 or offsets[-1] != len(data) or (offsets[1:] < offsets[:-1]).any():
            raise InvalidArgument(
                f"must rise from 0 to the {len(data)} bytes of {name}", field=offsets_name
            )


def _refuse(
    errors: dict[int, InvalidArgument], bad: NDArray[np.bool_], field: str, message: str
) -> None:
    if not bad.any():
        return
    # One error for all: a client may send thousands of rows with the same error.
    error = InvalidArgument(message, field=field)
    for row in np.flatnonzero(bad).tolist():
        errors.setdefault(row, error)


def _check_numbers(
    columns: ObjectColumns, limits: Limits, errors: dict[int, InvalidArgument]
) -> None:
    # NaN is outside as well.
    lon, lat, ts = map(np.ascontiguousarray, (columns.lon, columns.lat, columns.ts))
    if is_outside(lon, -180.0, 180.0):
        _refuse(errors, ~(np.abs(columns.lon) <= 180), "lon", "must be in [-180, 180]")
    if is_outside(lat, -90.0, 90.0):
        _refuse(errors, ~(np.abs(columns.lat) <= 90), "lat", "must be in [-90, 90]")
    if not is_outside(ts, -limits.ts_ms, limits.ts_ms):
        return
    late = (columns.ts > limits.ts_ms) | (columns.ts < -limits.ts_ms)
    message = f"must be within {limits.ts_ms} ms of 1970"
    _refuse(errors, late & (columns.ts != MISSING_TS), "ts", message)


def _check_bytes(
    columns: ObjectColumns, limits: Limits, errors: dict[int, InvalidArgument]
) -> None:
    for data, offsets, field, bytes_max in (
        (columns.names, columns.name_offsets, "id", limits.id_bytes),
        (columns.text, columns.text_offsets, "text", limits.text_bytes),
        (columns.attributes, columns.attribute_offsets, "attributes", limits.attribute_bytes),
    ):
        if not len(data):
            continue
        too_long = offsets[1:] - offsets[:-1] > bytes_max
        _refuse(errors, too_long, field, f"has more than {bytes_max} bytes")
        invalid = invalid_utf8_rows(data, offsets)
        if not len(invalid):
            continue
        is_invalid = np.zeros(len(columns), np.bool_)
        is_invalid[invalid] = True
        _refuse(errors, is_invalid, field, "is no valid UTF-8")


def _check_names(columns: ObjectColumns, errors: dict[int, InvalidArgument]) -> None:
    if not len(columns.names):
        return
    named = columns.name_offsets[1:] > columns.name_offsets[:-1]
    hashes = hash_rows(columns.names, columns.name_offsets)
    message = "the number is not the xxh3-64 of the string id"
    _refuse(errors, named & (hashes != columns.ids), "id", message)


def _check_attributes(
    columns: ObjectColumns, limits: Limits, errors: dict[int, InvalidArgument]
) -> None:
    offsets = columns.attribute_offsets
    if not len(columns.attributes):
        return
    holds_long = may_exceed_64_bits(columns.attributes.tobytes())
    no_object = InvalidArgument("must be a JSON object", field="attributes")
    for row in np.flatnonzero(offsets[1:] > offsets[:-1]).tolist():
        if row in errors:
            continue
        data = _row_bytes(columns.attributes, offsets, row)
        try:
            value = orjson.loads(data)
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict):
            errors[row] = no_object
            continue
        is_long = holds_long and may_exceed_64_bits(data)
        is_deep = data.count(b"[") + data.count(b"{") > limits.attribute_depth
        if is_long or (is_deep and is_nested(value, limits.attribute_depth)):
            try:
                value = load_json(data, "attributes") if is_long else value
                refuse_unkept(value, "attributes", limits.attribute_depth)
            except InvalidArgument as error:
                errors[row] = error
