"""Batches of objects as columns: size, checks, splitting.

Columns are little-endian arrays (`columns.proto`), as `array` and `memoryview.cast` have them on
every machine that gRPC's wheels run on.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from sirocco_api.v1.columns_pb2 import ObjectColumns

from sirocco_client.errors import InvalidArgument

# Time of an object that has none; its arrival time is used instead.
MISSING_TS = -(2**63)

# Bytes of one member of one object. Servers refuse far smaller ones (64 KB of text by default), but
# a message too large to be sent would break the stream again and again.
MEMBER_BYTES_MAX = 1 << 20

# Bytes of an object besides text, name and attributes: four numbers, and one offset for each of
# these three. Objects without names or attributes are counted slightly too large.
FIXED_BYTES = 44

_BYTE_COLUMNS = (
    ("text", "text_offsets"),
    ("names", "name_offsets"),
    ("attributes", "attribute_offsets"),
)


def columns_bytes(columns: ObjectColumns) -> int:
    """Approximate size of columns in bytes, rather too high."""
    variable = len(columns.text) + len(columns.names) + len(columns.attributes)
    return FIXED_BYTES * columns.count + variable


def check_columns(columns: ObjectColumns) -> None:
    """Refuses columns whose lengths do not fit together, so that they can be split.

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
        if not ends and not size and (data != "text" or not count):
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
    """Splits valid columns into parts within both bounds, or of one object.

    Raises:
        InvalidArgument: A single object is too large to be sent.
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
