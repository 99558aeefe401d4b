"""Bodies of objects → columns: text, JSON, Parquet, Arrow; bad rows are set apart.

A body holds thousands of objects, so all of this runs in a thread if it is large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from typing import TypeVar

from sirocco.formats.column_map import ChosenColumns
from sirocco.formats.delimited import read_delimited
from sirocco.formats.geojson import read_features
from sirocco.formats.rows import Row
from sirocco.loadgen.lines import ReadBatch, read_chunk, read_members
from sirocco.model.errors import InvalidArgument, SiroccoError
from sirocco.model.json_text import load_json
from sirocco.model.objects import ObjectColumns, ObjectColumnsBuilder, concat
from sirocco.services.gateway.problems import PayloadTooLarge, UnsupportedMediaType
from sirocco.services.gateway.settings import GatewayLimits

# Rows that are read together, and bytes of a body: empty arrays and cells take thirty times as much
# once they are read.
_CHUNK_ROWS = 2_000
_CHUNK_BYTES = 1 << 20

# Lines of a body for each object that it may have: blank ones, and those within cells. A body of
# 16 MB has as many of them as bytes, packed in 16 kB, and each takes half a microsecond.
_LINES_EACH = 5

# Of Parquet and Arrow, where a row may be large whatever the body has.
_PACKED_ROWS = 64

# Registered with IANA for Parquet, GeoParquet included.
PARQUET = "application/vnd.apache.parquet"

# The same for streams of Arrow's IPC.
ARROW = "application/vnd.apache.arrow.stream"

# Whose bodies may become much larger than they are.
_PACKED = frozenset({PARQUET, ARROW})

# What reading them takes beside the objects: pages or a batch (`StreamLimits`), and the values of
# some rows.
_PAGES_BYTES = 40 << 20
_PACKED_BYTES = _PAGES_BYTES + (24 << 20)

# The columns of objects, the request of them, and what is sent.
_COPIES = 3

# An object without its strings.
_OBJECT_BYTES = 64

# Of GeoJSON: what is before a damaged place is forgotten a piece at a time.
_PIECE_BYTES = 1 << 16

# Errors of a body have no file.
_NO_FILE = ""

T = TypeVar("T")


@dataclass(slots=True)
class ReadBody:
    """The objects of a body.

    Attributes:
        objects: The good ones, in order.
        lines: Line of each, from 1; in JSON, its place in the array or collection.
        bad: (line, error) of the first of the others.
        bad_count: How many others there are.
    """

    objects: ObjectColumns
    lines: list[int]
    bad: list[tuple[int, SiroccoError]] = field(default_factory=list)
    bad_count: int = 0


def read_body(
    body: bytes, media_type: str, limits: GatewayLimits, chosen: ChosenColumns
) -> ReadBody:
    """Reads the objects of a body.

    Args:
        body: The whole body, unpacked.
        media_type: One of `MEDIA_TYPES`.
        limits: How many objects it may have, and of how many bad ones the errors are kept: an
            error takes 600 bytes, the line of one as few as two.
        chosen: Columns that the client named, for tables.

    Raises:
        PayloadTooLarge: It has too many objects.
        InvalidArgument: As a whole it is no text of that type, or a table without a column.
    """
    objects: list[ObjectColumns] = []
    lines: list[int] = []
    bad: list[tuple[int, SiroccoError]] = []
    bad_count = 0
    for batch in MEDIA_TYPES[media_type](body, limits, chosen):
        objects.append(batch.objects)
        lines += batch.lines.tolist()
        bad += [(one.line, one.error) for one in batch.bad[: limits.errors - len(bad)]]
        bad_count += len(batch.bad)
    whole = concat(objects) if objects else ObjectColumnsBuilder().build()
    return ReadBody(whole, lines, bad, bad_count)


def media_type_of(header: str) -> str:
    """Returns the media type of a Content-Type header that objects can have.

    Raises:
        UnsupportedMediaType: There is no reader for it.
    """
    name = header.partition(";")[0].strip().lower()
    if name not in MEDIA_TYPES:
        raise UnsupportedMediaType(
            f"{name!r:.60} is none of {', '.join(MEDIA_TYPES)}", field="Content-Type"
        )
    return name


def memory_factor(media_type: str) -> int:
    """Returns what reading takes, as a multiple of the body: arrays are in memory as a whole."""
    return 6 if media_type == "application/json" else 3


def unpacked_bytes(media_type: str, limits: GatewayLimits) -> int:
    """Returns the memory of what a packed body may become; 0 where bodies are as they are."""
    return _COPIES * limits.body_bytes + _PACKED_BYTES if media_type in _PACKED else 0


def _read_lines(body: bytes, limits: GatewayLimits, _: ChosenColumns) -> Iterator[ReadBatch]:
    source = _Source(body.removeprefix(b"\xef\xbb\xbf"))
    numbered = source.lines(limits.objects)
    lines = ((number, line) for number, line in numbered if not line.isspace())
    for chunk in _chunks(lines, limits.objects, source=source):
        yield read_chunk(chunk, _NO_FILE)


def _read_array(body: bytes, limits: GatewayLimits, _: ChosenColumns) -> Iterator[ReadBatch]:
    # Arrays and objects take 60 bytes each in memory, in the text as little as two.
    if body.count(b"{") + body.count(b"[") > limits.containers:
        raise PayloadTooLarge(
            f"has more than {limits.containers} arrays and objects: send several", field="body"
        )
    found = load_json(body, "body")
    # One object is an array of one.
    found = [found] if isinstance(found, dict) else found
    if not isinstance(found, list):
        raise InvalidArgument("is no array of objects", field="body")
    rows: Iterator[Row] = (
        (number, one)
        if isinstance(one, dict)
        else (number, InvalidArgument("is no JSON object", field="object"))
        for number, one in enumerate(found, 1)
    )
    for chunk in _chunks(rows, limits.objects):
        yield read_members(chunk, _NO_FILE)


def _read_geojson(body: bytes, limits: GatewayLimits, _: ChosenColumns) -> Iterator[ReadBatch]:
    # A collection is often one line, which would say nothing: features are numbered.
    source = _Source(body)
    features = enumerate((row for _, row in read_features(source.pieces())), 1)
    for chunk in _chunks(features, limits.objects, source=source):
        yield read_members(chunk, _NO_FILE)


def _read_table(
    body: bytes, limits: GatewayLimits, chosen: ChosenColumns, delimiter: str | None
) -> Iterator[ReadBatch]:
    source = _Source(body)
    rows = read_delimited(source.lines(limits.objects), chosen, delimiter)
    for chunk in _chunks(rows, limits.objects, source=source):
        yield read_members(chunk, _NO_FILE)


def _read_parquet(body: bytes, limits: GatewayLimits, chosen: ChosenColumns) -> Iterator[ReadBatch]:
    # Its library takes a tenth of a second, and most gateways never read such a body.
    from sirocco.formats.parquet import read_parquet  # noqa: PLC0415

    rows = read_parquet(BytesIO(body), chosen, _CHUNK_ROWS, _PAGES_BYTES)
    yield from _read_packed(rows, limits)


def _read_arrow(body: bytes, limits: GatewayLimits, chosen: ChosenColumns) -> Iterator[ReadBatch]:
    from sirocco.formats.arrow_stream import read_arrow  # noqa: PLC0415 -- as above

    yield from _read_packed(read_arrow(body, chosen), limits)


def _read_packed(rows: Iterator[Row], limits: GatewayLimits) -> Iterator[ReadBatch]:
    size = 0
    for chunk in _chunks(rows, limits.objects, _PACKED_ROWS):
        batch = read_members(chunk, _NO_FILE)
        size += _bytes_of(batch.objects)
        if size > limits.body_bytes:
            raise PayloadTooLarge(
                f"holds more than {limits.body_bytes} bytes of objects: send several", field="body"
            )
        yield batch


def _bytes_of(objects: ObjectColumns) -> int:
    strings = (objects.text, objects.attributes, objects.names)
    return _OBJECT_BYTES * len(objects) + sum(len(column) for column in strings)


class _Source:
    """A body that is read once, from its begin.

    Attributes:
        taken: bytes of it that have been read.
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.taken = 0

    def lines(self, objects_max: int) -> Iterator[tuple[int, bytes]]:
        """Yields (number, line) of all lines, with their ends; `objects_max` is of a body."""
        body, number = self._body, 0
        lines_max = _LINES_EACH * objects_max
        while (begin := self.taken) < len(body):
            self.taken = body.find(b"\n", begin) + 1 or len(body)
            number += 1
            if number > lines_max:
                raise PayloadTooLarge(
                    f"has more than {lines_max} lines: send several", field="body"
                )
            yield number, body[begin : self.taken]

    def pieces(self) -> Iterator[bytes]:
        """Yields pieces of it."""
        while (begin := self.taken) < len(self._body):
            self.taken = begin + _PIECE_BYTES
            yield self._body[begin : self.taken]


def _chunks(
    rows: Iterable[T],
    objects_max: int,
    chunk_rows: int = _CHUNK_ROWS,
    source: _Source | None = None,
) -> Iterator[list[T]]:
    """Yields rows that are read together.

    Args:
        rows: all of them.
        objects_max: of a body.
        chunk_rows: of one chunk.
        source: where they come from, of which a chunk takes some bytes; None: already in memory.
    """
    begin = 0
    chunk: list[T] = []
    for count, row in enumerate(rows, 1):
        chunk.append(row)
        if count > objects_max:
            raise PayloadTooLarge(
                f"has more than {objects_max} objects: send several", field="body"
            )
        is_large = source is not None and source.taken - begin >= _CHUNK_BYTES
        if is_large or len(chunk) == chunk_rows:
            yield chunk
            chunk = []
            begin = 0 if source is None else source.taken
    if chunk:
        yield chunk


# Media type → reader.
MEDIA_TYPES: dict[str, Callable[[bytes, GatewayLimits, ChosenColumns], Iterator[ReadBatch]]] = {
    "application/x-ndjson": _read_lines,
    "application/ndjson": _read_lines,
    "application/json": _read_array,
    "application/geo+json": _read_geojson,
    "application/geo+json-seq": _read_geojson,
    "text/csv": partial(_read_table, delimiter=None),
    "text/tab-separated-values": partial(_read_table, delimiter="\t"),
    PARQUET: _read_parquet,
    ARROW: _read_arrow,
}
