"""Parquet in pieces whose memory is bounded, whatever a file claims or repeats.

A row may be large, and a file of some kilobytes can repeat one value in a million rows. Strings
are therefore read with their dictionary, and turned into values a piece at a time.
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

# A row group of more bytes may have all of them in a few rows.
_LARGE_GROUP_BYTES = 64 << 20

# Rows that are read at once where a few of them may hold very much.
_CAUTIOUS_ROWS = 64

# Mean size of the values of a column beyond which no row can be an object. Half a kilobyte of zeros
# packed may be a page of a gigabyte.
_MEAN_BYTES_MAX = 16 << 20

# An encoding that repeats the begin of the value before without a dictionary.
_PREFIXES = "DELTA_BYTE_ARRAY"

# Python's object for a number or a missing value.
_CELL_BYTES = 32


def dictionary_columns(metadata: Any) -> list[str]:
    """Returns the columns of strings that have a dictionary in some row group."""
    found: set[str] = set()
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            column = row_group.column(index)
            if column.physical_type == "BYTE_ARRAY" and column.has_dictionary_page:
                found.add(column.path_in_schema)
    return sorted(found)


def row_pieces(file: Any, names: list[str], rows_max: int) -> Iterator[Any]:
    """Yields the rows of some columns, group by group, in batches of a bounded number.

    Raises:
        InvalidArgument: The rows of a group are larger than any object.
    """
    for group in range(file.num_row_groups):
        rows = _rows_at_once(file.metadata.row_group(group), names, rows_max)
        yield from file.iter_batches(rows, row_groups=[group], columns=names, use_threads=False)


def _rows_at_once(group: Any, names: list[str], rows_max: int) -> int:
    """Returns how many rows of a group are read at once."""
    size = 0
    is_steep = False
    wanted = set(names)
    for index in range(group.num_columns):
        column = group.column(index)
        path = column.path_in_schema
        if path not in wanted and path.partition(".")[0] not in wanted:
            continue
        size += column.total_uncompressed_size
        is_steep |= _PREFIXES in column.encodings
        if column.total_uncompressed_size > _MEAN_BYTES_MAX * max(1, group.num_rows):
            raise InvalidArgument(
                f"has rows of {column.total_uncompressed_size // max(1, group.num_rows)} bytes",
                field=f"{path:.80}",
            )
    mean = max(1, size // max(1, group.num_rows))
    rows: int = min(rows_max, max(1, PIECE_BYTES // mean))
    is_cautious = is_steep or size > _LARGE_GROUP_BYTES
    return min(rows, _CAUTIOUS_ROWS) if is_cautious else rows


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
        mean = column.nbytes // max(1, len(column))
        return np.full(len(column), kind.list_size * _CELL_BYTES + mean, np.int64)
    if _has_lengths(kind):
        found = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        lengths: NDArray[np.int64] = found.astype(np.int64) + _CELL_BYTES
        return lengths
    return np.full(len(column), _CELL_BYTES, np.int64)


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
