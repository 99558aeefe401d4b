"""Batches of Arrow in pieces whose memory as Python's values is bounded.

A row may be large, and a dictionary of some kilobytes may repeat one value in a million rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS

# Of rows that are Python's values at a time.
PIECE_BYTES = 8 << 20

# No object has more: the limits of text and attributes, and as much again for columns that hold
# neither. A larger row is refused alone, before it is made into values.
ROW_BYTES_MAX = 2 * (DEFAULT_LIMITS.text_bytes + DEFAULT_LIMITS.attribute_bytes)

# Python's object for a number or a missing value.
_CELL_BYTES = 32


def pieces_of(batch: Any) -> Iterator[tuple[Any, InvalidArgument | None]]:
    """Yields pieces of a batch of `PIECE_BYTES`; an error in place of a row that is too large."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        sizes += _row_bytes(column)
    ends = np.cumsum(sizes)
    begin = 0
    while begin < batch.num_rows:
        if sizes[begin] > ROW_BYTES_MAX:
            message = f"has {sizes[begin]} bytes, at most {ROW_BYTES_MAX} are allowed"
            yield None, InvalidArgument(message, field="object")
            begin += 1
            continue
        before = ends[begin] - sizes[begin]
        end = int(np.searchsorted(ends, before + PIECE_BYTES, "right"))
        large = np.flatnonzero(sizes[begin : end + 1] > ROW_BYTES_MAX)
        end = max(begin + 1, begin + int(large[0]) if len(large) else end)
        yield batch.slice(begin, end - begin), None
        begin = end


def decoded(column: Any) -> Any:
    """Returns a column without its dictionary."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _row_bytes(column: Any) -> NDArray[np.int64]:
    """i64[n], about how much memory the values of a column take as Python's."""
    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        sizes = _row_bytes(column.dictionary)
        _check_indices(column.indices, len(sizes))
        if not len(sizes):
            return np.full(len(column), _CELL_BYTES, np.int64)
        rows: NDArray[np.int64] = sizes[
            pc.fill_null(column.indices, 0).to_numpy(zero_copy_only=False)
        ]
        return rows
    if isinstance(column, pa.ExtensionArray):
        return _row_bytes(column.storage)
    if types.is_struct(kind):
        sizes = np.full(len(column), _CELL_BYTES, np.int64)
        for child in column.flatten():
            sizes += _row_bytes(child)
        return sizes
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind):
        return _list_bytes(column)
    if types.is_fixed_size_list(kind):
        size = kind.list_size
        values = column.values.slice(column.offset * size, len(column) * size)
        cells: NDArray[np.int64] = _row_bytes(values).reshape(len(column), size).sum(1)
        return cells + _CELL_BYTES
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return _view_bytes(column)
    if _has_lengths(kind):
        found = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        lengths: NDArray[np.int64] = found.astype(np.int64) + _CELL_BYTES
        return lengths
    return np.full(len(column), _CELL_BYTES, np.int64)


def _check_indices(indices: Any, count: int) -> None:
    """Refuses indices beyond a dictionary, which Arrow takes from the file as they are.

    Raises:
        InvalidArgument: There are such; the value would be whatever is in memory there.
    """
    bounds = pc.min_max(indices).as_py()
    if bounds["max"] is not None and not 0 <= bounds["min"] <= bounds["max"] < count:
        raise InvalidArgument("has a value that its dictionary lacks", field="file")


def _has_lengths(kind: Any) -> bool:
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
    )


def _list_bytes(column: Any) -> NDArray[np.int64]:
    if pa.types.is_map(column.type):
        sizes = _row_bytes(column.keys) + _row_bytes(column.items)
    else:
        sizes = _row_bytes(column.values)
    sums = np.concatenate(([0], np.cumsum(sizes)))
    offsets = column.offsets.to_numpy(zero_copy_only=False)
    rows: NDArray[np.int64] = np.diff(sums[offsets]) + _CELL_BYTES
    return rows


def _view_bytes(column: Any) -> NDArray[np.int64]:
    """The same of strings that lie anywhere: 16 bytes each, the first four of them its length."""
    if not len(column):
        return np.zeros(0, np.int64)
    # The buffer may be longer, and not by whole views.
    views = np.frombuffer(column.buffers()[1], np.int32, 4 * (column.offset + len(column)))
    sizes = views[4 * column.offset :: 4].astype(np.int64)
    sizes[~column.is_valid().to_numpy(zero_copy_only=False)] = 0
    return sizes + _CELL_BYTES
