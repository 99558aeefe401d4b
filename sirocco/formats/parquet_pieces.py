"""Parquet in pieces whose memory is bounded, whatever a file claims or repeats.

A row may be large, and a file of some kilobytes can repeat one value in a million rows. Strings
are therefore read with their dictionary, and turned into values a piece at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

from sirocco.formats.arrow_pieces import PIECE_BYTES
from sirocco.formats.parquet_pages import ColumnPages, Group, column_pages
from sirocco.model.errors import InvalidArgument

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
