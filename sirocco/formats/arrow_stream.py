"""Arrow's IPC streams as clients send them: dataframes, and tables with points of GeoArrow.

A row's number stands for its line.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from sirocco.formats.arrow_messages import LIMITS, StreamLimits, check_stream
from sirocco.formats.arrow_rows import layout_of, rows_of
from sirocco.formats.column_map import ChosenColumns
from sirocco.formats.rows import Row
from sirocco.model.errors import InvalidArgument


def read_arrow(body: bytes, chosen: ChosenColumns, limits: StreamLimits = LIMITS) -> Iterator[Row]:
    """Yields the objects of a stream.

    Args:
        body: The whole stream.
        chosen: Columns that the user named.
        limits: How much it may be.

    Raises:
        InvalidArgument: It is no such stream, has no such columns, or takes more; `field` is
            `body`, `header`, `map`, or the column.
    """
    check_stream(memoryview(body), limits)
    try:
        schema = _without_extensions(pa.ipc.open_stream(body).schema)
        layout = layout_of(schema, chosen)
        options = pa.ipc.IpcReadOptions(
            # Places of numbers are the client's choice.
            ensure_alignment=pa.ipc.Alignment.DataTypeSpecific,
            use_threads=False,
            included_fields=sorted(schema.get_field_index(name) for name in layout.wanted),
        )
        count = 0
        for batch in pa.ipc.open_stream(body, options=options):
            # Offsets, indices and texts are as the client wrote them.
            batch.validate(full=True)
            for row in rows_of(_stored(batch), layout):
                count += 1
                yield count, row
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"cannot be read as Arrow: {error!s:.300}", field="body") from None


def _stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Returns a batch whose columns of extension types are those that they are kept as."""
    columns = [
        each.storage if isinstance(each, pa.ExtensionArray) else each for each in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _without_extensions(schema: pa.Schema) -> pa.Schema:
    fields = [
        field.with_type(field.type.storage_type)
        if isinstance(field.type, pa.BaseExtensionType)
        else field
        for field in schema
    ]
    return pa.schema(fields, metadata=schema.metadata)
