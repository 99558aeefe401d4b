"""Rows of Arrow's batches → members of objects; points are WKB or pairs of columns.

Columns of bytes are no attributes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from sirocco.formats.arrow_pieces import decoded, pieces_of
from sirocco.formats.column_map import ChosenColumns, Columns, find_columns, joined
from sirocco.model.errors import InvalidArgument
from sirocco.model.members import shown

# What a coordinate reference system may be: WGS 84, by its authorities' names.
_WGS_84 = {("OGC", "CRS84"), ("EPSG", "4326"), ("OGC", "CRS84h"), ("EPSG", "4979")}

# Extension types of points: in WKB, and as pairs.
_GEOARROW = {b"geoarrow.wkb", b"geoarrow.point"}

# Well-known binary: byte order, type, x, y. With Z or M the type differs, and more follows.
_WKB_POINTS = {1, 1001, 2001, 3001, 0x80000001, 0x40000001, 0xC0000001}
_WKB_SRID = 0x20000000

# Python's errors at values that it has no form for.
_UNREADABLE = (ValueError, OverflowError, LookupError, TypeError)

# Stands for such a value.
_LOST: Any = object()


@dataclass(frozen=True, slots=True)
class Layout:
    """Which columns of a table are what.

    Attributes:
        names: All columns but `place`.
        columns: What they are.
        place: The column of points; None: there is none.
    """

    names: list[str]
    columns: Columns
    place: str | None

    @property
    def wanted(self) -> list[str]:
        """Names of the columns that are read."""
        used = sorted(_used(self.columns) | _time_column(self.columns))
        found = [self.names[index] for index in used]
        return found if self.place is None else [*found, self.place]


def layout_of(schema: Any, chosen: ChosenColumns) -> Layout:
    """Finds the columns of objects.

    Args:
        schema: Of the table, with Arrow's types.
        chosen: Columns that the user named.

    Raises:
        InvalidArgument: There are no such columns; `field` is `file`, `header`, `map`, `ts`, or the
            column of the points.
    """
    _check_names(schema)
    place = _geometry(schema)
    names = [name for name in schema.names if name != place]
    elsewhere = ("lon", "lat") if place is not None else ()
    columns = find_columns(names, chosen, elsewhere=elsewhere)
    _check_time(schema, names, columns)
    return Layout(names, _without_bytes(schema, names, columns), place)


def rows_of(batch: Any, layout: Layout) -> Iterator[dict[str, Any] | InvalidArgument]:
    """Yields the members of the rows of a batch, which has the columns `layout.wanted`."""
    for piece, error in pieces_of(batch):
        if error is not None:
            yield error
        else:
            yield from _members(piece, layout.names, layout.columns, layout.place)


def _check_names(schema: Any) -> None:
    """Refuses two columns of one name: which is meant?

    Raises:
        InvalidArgument: There are such.
    """
    names = schema.names
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise InvalidArgument(f"has several columns {shown(name)}", field="header")


def _without_bytes(schema: Any, names: list[str], columns: Columns) -> Columns:
    """Returns the columns without attributes of bytes: they are not even read."""
    others = tuple(
        (index, name)
        for index, name in columns.others
        if not _is_bytes(schema.field(names[index]).type)
    )
    return replace(columns, others=others)


def _is_bytes(kind: Any) -> bool:
    if pa.types.is_dictionary(kind):
        return _is_bytes(kind.value_type)
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _geometry(schema: Any) -> str | None:
    """Returns the column of the points; None if there is none.

    Raises:
        InvalidArgument: It is in other coordinates, or cannot be read.
    """
    text = (schema.metadata or {}).get(b"geo")
    if text is None:
        return _geoarrow(schema)
    try:
        geo = json.loads(text)
        name = geo["primary_column"]
        column = geo["columns"][name]
        encoding, crs = column["encoding"], column.get("crs")
    except (ValueError, KeyError, TypeError, RecursionError):
        raise InvalidArgument("has damaged metadata `geo`", field="file") from None
    if encoding not in ("WKB", "point") or name not in schema.names:
        raise InvalidArgument(f"encoding {shown(encoding)} is not read", field=f"{name!s:.80}")
    identity = crs.get("id") if isinstance(crs, dict) else None
    if crs is not None and not _is_wgs_84(identity):
        raise InvalidArgument("is not in WGS 84 (EPSG:4326)", field=f"{name!s:.80}")
    return str(name)


def _geoarrow(schema: Any) -> str | None:
    """The same of columns that say of themselves what they are (GeoArrow): the first one."""
    for field in schema:
        metadata = field.metadata or {}
        if metadata.get(b"ARROW:extension:name") not in _GEOARROW:
            continue
        try:
            crs = json.loads(metadata.get(b"ARROW:extension:metadata") or b"{}").get("crs")
        except (ValueError, AttributeError, RecursionError):
            raise InvalidArgument("has damaged metadata", field=f"{field.name:.80}") from None
        if isinstance(crs, str):
            crs = {"id": dict(zip(("authority", "code"), crs.split(":", 1), strict=False))}
        identity = crs.get("id") if isinstance(crs, dict) else None
        if crs is not None and not _is_wgs_84(identity):
            raise InvalidArgument("is not in WGS 84 (EPSG:4326)", field=f"{field.name:.80}")
        return str(field.name)
    return None


def _is_wgs_84(identity: Any) -> bool:
    if not isinstance(identity, dict):
        return False
    return (str(identity.get("authority")), str(identity.get("code"))) in _WGS_84


def _check_time(schema: Any, names: list[str], columns: Columns) -> None:
    if columns.ts is None:
        return
    kind = schema.field(names[columns.ts]).type
    if pa.types.is_timestamp(kind) and kind.tz is None:
        raise InvalidArgument(f"column {shown(names[columns.ts])} has no time zone", field="ts")


def _members(
    batch: Any, names: list[str], columns: Columns, place: str | None
) -> Iterator[dict[str, Any] | InvalidArgument]:
    """Yields the members of the rows of a batch."""
    try:
        read, times = _read(batch, names, columns, place, _values)
        lost = {}
    except _UNREADABLE:
        read, times = _read(batch, names, columns, place, _values_or_lost)
        lost = _lost_rows(read | {"ts": times})
    named = [(name, read[names[index]]) for index, name in columns.others]
    of_object = (("id", columns.id), ("lon", columns.lon), ("lat", columns.lat))
    named += [(member, read[names[at]]) for member, at in of_object if at is not None]
    if columns.ts is not None:
        named.append(("ts", times))
    texts = [read[names[index]] for index in columns.text]
    points = read[place] if place is not None and columns.lon is None else None
    for row in range(batch.num_rows):
        if row in lost:
            yield InvalidArgument("has a value that cannot be read", field=f"{lost[row]:.80}")
            continue
        members: dict[str, Any] = {}
        for name, column in named:
            if (value := column[row]) is not None:
                members[name] = value
        if texts:
            members["text"] = joined([column[row] for column in texts])
        if points is not None:
            try:
                members["lon"], members["lat"] = _point(points[row])
            except InvalidArgument as error:
                yield error.with_traceback(None)
                continue
        yield members


# Returns a column's values as Python's.
_Values: TypeAlias = Callable[[Any], list[Any]]


def _read(
    batch: Any, names: list[str], columns: Columns, place: str | None, values: _Values
) -> tuple[dict[str, list[Any]], list[Any]]:
    """Returns the values of the columns that are used, and those of the time."""
    read = {names[index]: _cells(batch.column(names[index]), values) for index in _used(columns)}
    if place is not None:
        read[place] = values(batch.column(place))
    if columns.ts is None:
        return read, []
    return read, _times(batch.column(names[columns.ts]), values)


def _lost_rows(columns: dict[str, list[Any]]) -> dict[int, str]:
    """Returns the rows with a value that has no form → the name of its column."""
    found: dict[int, str] = {}
    for name, column in columns.items():
        found |= {row: name for row, value in enumerate(column) if value is _LOST}
    return found


def _time_column(columns: Columns) -> set[int]:
    return set() if columns.ts is None else {columns.ts}


def _used(columns: Columns) -> set[int]:
    single = {columns.id, columns.lon, columns.lat} - {None}
    return {*single, *columns.text, *(index for index, _ in columns.others)}  # type: ignore[arg-type]


def _cells(column: Any, values: _Values) -> list[Any]:
    kind, types = column.type, pa.types
    if types.is_timestamp(kind) and kind.unit == "ns":
        # Python's times have microseconds.
        column = pc.cast(column, pa.timestamp("us", kind.tz), safe=False)
    found = values(column)
    inner = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_string(inner) or types.is_large_string(inner) or types.is_integer(inner):
        return found
    return [_plain(value) for value in found]


def _values(column: Any) -> list[Any]:
    """Returns a column as Python's values.

    Raises:
        Exception: One of `_UNREADABLE`: it has a value without a form there.
    """
    if pa.types.is_dictionary(column.type) and len(column.dictionary) <= len(column):
        # Values that repeat are made once.
        each = column.dictionary.to_pylist()
        return [None if at is None else each[at] for at in column.indices.to_pylist()]
    return list(decoded(column).to_pylist())


def _values_or_lost(column: Any) -> list[Any]:
    """Returns a column as Python's values, `_LOST` in place of those that it has none for.

    Such are dates after the year 9999, text that is no UTF-8, and times in an unknown zone.
    """
    return [_value(cell) for cell in decoded(column)]


def _value(cell: Any) -> Any:
    try:
        return cell.as_py()
    except _UNREADABLE:
        return _LOST


def _plain(value: Any) -> Any:
    """Returns a value as JSON has it."""
    if value is _LOST or isinstance(value, str | int | None):
        return value
    if isinstance(value, float):
        # Tables write what is missing so.
        return None if math.isnan(value) else value
    if isinstance(value, datetime | date | time_of_day):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return value


def _times(column: Any, values: _Values) -> list[Any]:
    """Returns epoch ms where the column has moments, else what it has."""
    if not pa.types.is_timestamp(column.type):
        return _cells(column, values)
    moments = pc.cast(column, pa.timestamp("ms", column.type.tz), safe=False)
    return list(pc.cast(moments, pa.int64()).to_pylist())


def _point(value: Any) -> tuple[float, float]:
    """Returns (lon, lat) of a point.

    Raises:
        InvalidArgument: It is something else.
    """
    if isinstance(value, dict) and {"x", "y"} <= value.keys():
        return value["x"], value["y"]
    if value is None:
        raise InvalidArgument("is missing", field="geometry")
    if isinstance(value, list) and len(value) >= 2:
        return value[0], value[1]
    try:
        order = "<" if value[0] == 1 else ">"
        (kind,) = struct.unpack_from(f"{order}I", value, 1)
        start = 9 if kind & _WKB_SRID else 5
        if kind & ~_WKB_SRID not in _WKB_POINTS:
            raise InvalidArgument("is not a Point", field="geometry")
        lon, lat = struct.unpack_from(f"{order}dd", value, start)
    except (struct.error, TypeError, IndexError):
        raise InvalidArgument("is no WKB", field="geometry") from None
    if math.isnan(lon) or math.isnan(lat):
        raise InvalidArgument("is an empty point", field="geometry")
    return lon, lat
