"""Parquet, and GeoParquet with points: WKB or pairs of columns (GeoParquet 1.1).

A row's number stands for its line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

import pyarrow as pa
from pyarrow import parquet as pq

from sirocco.formats.arrow_rows import layout_of, rows_of
from sirocco.formats.column_map import ChosenColumns
from sirocco.formats.parquet_pages import of_schema, read_footer
from sirocco.formats.parquet_pieces import PAGES_BYTES_MAX, dictionary_columns, row_pieces
from sirocco.formats.rows import Row
from sirocco.formats.thrift_compact import unreadable
from sirocco.model.errors import InvalidArgument

# Of each column's pages, read at once.
_BUFFER_BYTES = 1 << 18


def read_parquet(
    source: IO[bytes],
    chosen: ChosenColumns,
    batch_rows: int,
    pages_bytes_max: int = PAGES_BYTES_MAX,
) -> Iterator[Row]:
    """Yields the objects of a file.

    Args:
        source: The file, which can be read at any place.
        chosen: Columns that the user named.
        batch_rows: How many rows are in memory at most, beside the pages they are from; fewer where
            rows are large (see `parquet_pieces`).
        pages_bytes_max: What the pages may take that are unpacked at once, one of each column.

    Raises:
        InvalidArgument: It is no such file, or has no such columns; `field` is `file`, `header` or
            `map`. Or pages take too much; `field` is the column.
    """
    try:
        # Before Arrow reads any of it.
        footer = read_footer(source)
        source.seek(0)
        metadata = pq.read_metadata(source)
        groups = of_schema(footer, metadata.schema)
        if len(groups) != metadata.num_row_groups:
            raise unreadable("damaged metadata")
        # Without read-ahead and with values that repeat kept once, a batch takes what its pages do.
        file = pq.ParquetFile(
            source,
            metadata=metadata,
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES,
            read_dictionary=dictionary_columns(metadata.schema, groups),
        )
        layout = layout_of(file.schema_arrow, chosen)
        count = 0
        for batch in row_pieces(source, file, groups, layout.wanted, batch_rows, pages_bytes_max):
            for row in rows_of(batch, layout):
                count += 1
                yield count, row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot be read as Parquet: {error!s:.300}", field="file") from None
