"""Parquet in pieces whose memory is bounded, whatever a file claims or repeats.

A row may be large, and a file of some kilobytes can repeat one value in a million rows. Strings
are therefore read with their dictionary, and turned into values a piece at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sirocco.formats.parquet_pages import ColumnPages, Group, column_pages
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS

# Of rows that are Python's values at a time.
PIECE_BYTES = 8 << 20

# No object has more: the limits of text and attributes, and as much again for columns that hold
# neither. A larger row is refused alone, before it is made into values.
ROW_BYTES_MAX = 2 * (DEFAULT_LIMITS.text_bytes + DEFAULT_LIMITS.attribute_bytes)

# Of the pages that are unpacked at once, one of each column. DuckDB's have up to 100 MB.
PAGES_BYTES_MAX = 256 << 20

# Mean size of a page's or dictionary's values beyond which none can be an object's. Half a kilobyte
# of zeros, packed, may be a page of a gigabyte.
_MEAN_BYTES_MAX = 16 << 20

# Values of a column in one row group whose rows have several: all of them may be in one row.
_NESTED_VALUES_MAX = 16 << 20

# Beyond so many values or bytes of such a column, few rows are read at once.
_NESTED_VALUES = 1 << 18

# Rows that are read at once where a few of them may hold very much.
_CAUTIOUS_ROWS = 64

# Python's object for a number or a missing value.
_CELL_BYTES = 32


def dictionary_columns(schema: Any, groups: list[Group]) -> list[str]:
    """Returns the columns of strings that have a dictionary in some row group."""
    return sorted(
        {
            chunk.path
            for group in groups
            for index, chunk in enumerate(group.chunks)
            if chunk.has_dictionary and schema.column(index).physical_type == "BYTE_ARRAY"
        }
    )


def row_pieces(
    source: IO[bytes],
    file: Any,
    groups: list[Group],
    names: list[str],
    rows_max: int,
    pages_bytes_max: int,
) -> Iterator[Any]:
    """Yields the rows of some columns, group by group, in batches of a bounded number.

    Args:
        source: The file, and
        file: what reads it.
        groups: All of its row groups.
        names: The columns.
        rows_max: Of a batch.
        pages_bytes_max: Of the pages that are unpacked at once.

    Raises:
        InvalidArgument: Pages of a group are larger than that, or damaged.
    """
    wanted = set(names)
    for number, group in enumerate(groups):
        pages = [
            column_pages(source, chunk)
            for chunk in group.chunks
            if not wanted.isdisjoint((chunk.path, chunk.path.partition(".")[0]))
        ]
        _check_pages(pages, group.rows, pages_bytes_max)
        rows = _rows_at_once(pages, group.rows, rows_max)
        yield from file.iter_batches(rows, row_groups=[number], columns=names, use_threads=False)


def _check_pages(columns: list[ColumnPages], rows: int, bytes_max: int) -> None:
    """Refuses pages that unpack to very much.

    Raises:
        InvalidArgument: There are such; the field is the column.
    """
    size = 0
    for pages in columns:
        chunk = pages.chunk
        path = f"{chunk.path:.80}"
        if pages.mean > _MEAN_BYTES_MAX:
            raise InvalidArgument(f"has rows of {pages.mean} bytes", field=path)
        if chunk.is_nested and chunk.values > _NESTED_VALUES_MAX:
            message = f"has {chunk.values} values in a row group, the limit is"
            raise InvalidArgument(f"{message} {_NESTED_VALUES_MAX}", field=path)
        if not chunk.is_nested and chunk.values != rows:
            raise InvalidArgument(f"has {chunk.values} values in {rows} rows", field=path)
        size += pages.largest
        if size > bytes_max:
            message = f"has pages of {pages.largest} bytes, those of all columns may have"
            raise InvalidArgument(f"{message} {bytes_max}", field=path)


def _rows_at_once(columns: list[ColumnPages], rows: int, rows_max: int) -> int:
    """Returns how many rows of a group are read at once.

    Their pages take `PIECE_BYTES`, but for one page of each column. A dictionary is not multiplied
    by its rows.
    """
    is_cautious = any(pages.has_prefixes for pages in columns)
    flat = [pages for pages in columns if not pages.chunk.is_nested]
    nested_bytes = 0
    for pages in columns:
        if pages.chunk.is_nested:
            size = int(pages.sizes.sum())
            is_cautious |= pages.chunk.values > _NESTED_VALUES or size > PIECE_BYTES
            nested_bytes += size
    found = min(rows_max, _CAUTIOUS_ROWS) if is_cautious else rows_max
    least = sum(pages.bytes_of(1) for pages in flat)
    while found > 1:
        size = sum(pages.bytes_of(found) for pages in flat) + nested_bytes * found // max(1, rows)
        if size <= PIECE_BYTES + least:
            break
        found //= 2
    return found


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
        mean = column.nbytes // max(1, len(column))
        return np.full(len(column), kind.list_size * _CELL_BYTES + mean, np.int64)
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
        raise InvalidArgument(
            "cannot be read as Parquet: a value that its dictionary lacks", field="file"
        )


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
