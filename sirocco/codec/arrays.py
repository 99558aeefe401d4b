"""One `bytes` field ⇄ one array, with checks that prevent kernels from reading out of bounds.

All arrays from the wire are read here. They are views of the field's bytes: read-only, not copied,
except for offsets, which are u4 on the wire and i8 inside. All errors are `InvalidArgument`; their
field is the name of the column.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from sirocco.kernels.base.wire_checks import is_outside, widen_offsets
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS

U1 = np.dtype("u1")
U2 = np.dtype("<u2")
U4 = np.dtype("<u4")
I8 = np.dtype("<i8")
U8 = np.dtype("<u8")
F8 = np.dtype("<f8")

Scalar = TypeVar("Scalar", bound=np.generic)


def pack(column: NDArray[Any], dtype: np.dtype[Any]) -> bytes:
    """Returns the bytes of a column in the type that the contract names for it."""
    return column.astype(dtype, copy=False).tobytes()


def read_column(
    data: bytes, dtype: np.dtype[Scalar], field: str, *, rows: int | None = None
) -> NDArray[Scalar]:
    """Returns the array that a field holds.

    Args:
        data: the field.
        dtype: of its elements.
        field: its name, for the error.
        rows: required number of elements; any number if None.
    """
    if rows is not None and len(data) != rows * dtype.itemsize:
        raise InvalidArgument(
            f"has {len(data)} bytes, must have {rows} times {dtype.itemsize}", field=field
        )
    if len(data) % dtype.itemsize:
        raise InvalidArgument(
            f"has {len(data)} bytes, no multiple of {dtype.itemsize}", field=field
        )
    return np.frombuffer(data, dtype)


def read_offsets(
    data: bytes, rows: int, end: int | None, field: str, *, least: int = 0
) -> NDArray[np.int64]:
    """Returns i8[rows + 1], the offsets that a field holds as u4.

    Args:
        data: the field; it may be empty if there are no rows.
        rows: number of pieces between the offsets.
        end: length of the column that they divide; None: they define it.
        field: its name, for the error.
        least: minimum length of each piece.
    """
    if not data and not rows and not end:
        return np.zeros(1, np.int64)
    narrow = read_column(data, U4, field, rows=rows + 1)
    offsets = np.empty(rows + 1, np.int64)
    fault = widen_offsets(narrow, least, offsets)
    if fault >= 0:
        why = f"a piece ends before {least} elements" if least and fault else "must rise from 0"
        raise InvalidArgument(f"{why} (entry {fault})", field=field)
    if end is not None and offsets[-1] != end:
        raise InvalidArgument(f"ends at {offsets[-1]}, its column at {end}", field=field)
    return offsets


def read_rows(data: bytes, rows: int, limit: int, field: str) -> NDArray[np.uint32]:
    """Returns u4[rows], each below `limit`: row numbers of other columns."""
    column = read_column(data, U4, field, rows=rows)
    if is_outside(column, 0, limit - 1):
        raise InvalidArgument(f"names row {int(column.max())} of {limit}", field=field)
    return column


def check_between(column: NDArray[Any], least: float, greatest: float, field: str) -> None:
    """Refuses values outside [least, greatest], and NaN.

    Args:
        column: f8[n], i8[n] or u4[n]; bounds are integers unless it is f8.
        least: smallest valid value.
        greatest: largest valid value.
        field: its name, for the error.
    """
    if is_outside(column, least, greatest):
        raise InvalidArgument(f"has a value outside [{least}, {greatest}]", field=field)


def check_time(time_ms: int, field: str) -> None:
    """Refuses a time (epoch ms) that no working clock shows.

    Raises:
        InvalidArgument: It is out of range.
    """
    if abs(time_ms) > DEFAULT_LIMITS.ts_ms:
        raise InvalidArgument(f"must be within {DEFAULT_LIMITS.ts_ms} ms of 1970", field=field)
