"""The rows of the jobs, and their conversion to the engine's arrays and back.

An unsigned 64-bit number is stored as the signed one with the same bits: Spark has no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sirocco.model.objects import MISSING_TS, ObjectColumns

# Column → (type of Spark, type of Arrow). `refusal` is the reason why a row is not an object.
OBJECT_TYPES: dict[str, tuple[str, pa.DataType]] = {
    "id": ("long", pa.int64()),
    "name": ("string", pa.string()),
    "lon": ("double", pa.float64()),
    "lat": ("double", pa.float64()),
    "ts": ("long", pa.int64()),
    "arrival": ("long", pa.int64()),
    "text": ("string", pa.string()),
    "attributes": ("string", pa.string()),
    "session": ("long", pa.int64()),
    "number": ("long", pa.int64()),
    "refusal": ("string", pa.string()),
}
PLACE = ("lon", "lat", "arrival")
CONTENT = ("id", "lon", "lat", "text")


def ddl_of(columns: Sequence[str]) -> str:
    """Returns the Spark schema of some columns, followed by `refusal`."""
    return ", ".join(f"{name} {OBJECT_TYPES[name][0]}" for name in (*columns, "refusal"))


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """Returns the same for Arrow."""
    return pa.schema([(name, OBJECT_TYPES[name][1]) for name in (*columns, "refusal")])


def object_batch(
    objects: ObjectColumns,
    columns: Sequence[str],
    *,
    arrivals_ms: NDArray[np.int64] | None = None,
    session: int = 0,
    numbers: NDArray[np.uint64] | None = None,
) -> pa.RecordBatch:
    """Returns objects as rows; an unknown arrival is replaced by the object's own time."""
    count = len(objects)
    missing = objects.ts == MISSING_TS

    def column(name: str) -> pa.Array:
        match name:
            case "id":
                return pa.array(objects.ids.view(np.int64))
            case "name":
                return strings(objects.names, objects.name_offsets)
            case "lon" | "lat":
                return pa.array(getattr(objects, name))
            case "ts":
                return pa.array(objects.ts, mask=missing)
            case "arrival":
                known = arrivals_ms is not None
                return pa.array(arrivals_ms) if known else pa.array(objects.ts, mask=missing)
            case "text":
                return strings(objects.text, objects.text_offsets)
            case "attributes":
                return strings(objects.attributes, objects.attribute_offsets)
            case "session":
                return pa.array(np.full(count, session, np.uint64).view(np.int64))
            case _:
                own = np.arange(count, dtype=np.uint64) if numbers is None else numbers
                return pa.array(own.view(np.int64))

    arrays = [column(name) for name in columns]
    return pa.RecordBatch.from_arrays(
        [*arrays, pa.nulls(count, pa.string())], schema=arrow_schema(columns)
    )


def refusal_batch(reasons: Sequence[str], columns: Sequence[str]) -> pa.RecordBatch:
    """Returns rows with only the reason why they are not objects."""
    nothing = [pa.nulls(len(reasons), OBJECT_TYPES[name][1]) for name in columns]
    return pa.RecordBatch.from_arrays(
        [*nothing, pa.array(reasons, pa.string())], schema=arrow_schema(columns)
    )


def strings(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> pa.Array:
    """Returns a column of bytes (valid UTF-8) as strings."""
    data, offsets = data[offsets[0] : offsets[-1]], offsets - offsets[0]
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data.tobytes())]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def bytes_of(column: pa.Array | pa.ChunkedArray) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Returns a column of strings as (data u1[b], offsets i8[n + 1])."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], pa.string())
    array = array.cast(pa.large_string()).fill_null("")
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    whole = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return whole[bounds[0] : bounds[-1]], bounds - bounds[0]


def plain(column: pa.Array | pa.ChunkedArray, dtype: Any) -> NDArray[Any]:
    """Returns a column of numbers without nulls."""
    values = column.to_numpy(zero_copy_only=False) if isinstance(column, pa.Array) else None
    return np.asarray(column.to_numpy() if values is None else values).view(dtype)
