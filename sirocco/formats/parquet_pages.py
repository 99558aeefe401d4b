"""The pages of a Parquet file, by their headers: what they unpack to, before one is unpacked.

A page's header says how large the page is; what the file's metadata says of a column need not be
so. The metadata are read here as well, before Arrow does. It makes room for as many columns as
they claim (forty bytes took 680 MiB), and ends the process where what they say of a column
contradicts itself and Python asks for the column (pyarrow 26: `RowGroupMetaData.column`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sirocco.formats.thrift_compact import Shape, read_struct, unreadable
from sirocco.model.errors import InvalidArgument

# The metadata's length and the mark after them.
_TAIL_BYTES = 8
_MARK = b"PAR1"

# Of the metadata: so much, and a part of the file. A thousand columns of statistics take 0.1 MB.
_FOOTER_BYTES_MAX = 1 << 20
_FOOTER_SHARE = 64

# Columns in the schema, those within others included: Arrow takes some kilobytes for each.
_ELEMENTS_MAX = 10_000

# A schema of Arrow's beside Parquet's. One field of it may stand in many places, each of which
# takes memory: up to two hundred times as much as the text.
_ARROW_SCHEMA = b"ARROW:schema"
_ARROW_SCHEMA_BYTES_MAX = 1 << 19

# `FileMetaData`: the schema, row groups, of these columns and rows, and of a column
# `ColumnMetaData`; and texts by their names.
_SCHEMA, _GROUPS, _TEXTS = 2, 4, 5
_COLUMNS, _ROWS, _METADATA = 1, 3, 3
_KEY, _VALUE = 1, 2
_CHUNK_VALUES, _CHUNK_BYTES, _DATA_AT, _DICTIONARY_AT = 5, 7, 9, 11
_CHUNK: Shape = dict.fromkeys((_CHUNK_VALUES, _CHUNK_BYTES, _DATA_AT, _DICTIONARY_AT))
_FOOTER: Shape = {
    _SCHEMA: [{}],
    _GROUPS: [{_COLUMNS: [{_METADATA: _CHUNK}], _ROWS: None}],
    _TEXTS: [{_KEY: bytes, _VALUE: bytes}],
}

# Read for a header at first, and at most: it may hold the least and the greatest value of its page.
_HEADER_BYTES = 1 << 10
_HEADER_BYTES_MAX = 1 << 20

# Parquet counts the bytes and the values of a page with 32 bits.
_PAGE_MAX = (1 << 31) - 1

# `PageHeader`: its type, sizes, and what its structs say of values and their encoding.
_TYPE, _UNPACKED, _PACKED = 1, 2, 3
_VALUES = 1
_DATA_HEADERS = {5: 2, 8: 4}
_DICTIONARY_HEADER = 7
_DICTIONARY_PAGE = 2
_HEADER: Shape = {
    **dict.fromkeys((_TYPE, _UNPACKED, _PACKED)),
    **{at: {_VALUES: None, encoding: None} for at, encoding in _DATA_HEADERS.items()},
    _DICTIONARY_HEADER: {_VALUES: None},
}

# An encoding that repeats the begin of the value before without a dictionary: DELTA_BYTE_ARRAY.
_PREFIXES = 7

# Pages that a column may have, and values for each further one: millions of pages of a value each
# would fit into a small file.
_PAGES = 1_000
_PAGE_VALUES = 16


@dataclass(frozen=True, slots=True)
class Chunk:
    """One column in one row group, as the metadata have it.

    Attributes:
        path: Of the column.
        is_nested: Whether a row may have several values.
        values: Their number, missing ones included.
        begin, end: Where its pages are in the file.
        has_dictionary: Whether one of these is a dictionary.
    """

    path: str
    is_nested: bool
    values: int
    begin: int
    end: int
    has_dictionary: bool


@dataclass(frozen=True, slots=True)
class Group:
    """A row group.

    Attributes:
        rows: Their number.
        chunks: All of its columns, as in the schema.
    """

    rows: int
    chunks: list[Chunk]


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """The pages of one column in one row group.

    Attributes:
        chunk: The column.
        values: i64[n], values of each page of data, missing ones included.
        sizes: i64[n], what each unpacks to, bytes.
        dictionary: What its dictionary unpacks to, bytes; 0 without one.
        mean: Of the sizes of values, the greatest of any page and the dictionary, bytes.
        has_prefixes: Whether values repeat the begin of others.
    """

    chunk: Chunk
    values: NDArray[np.int64]
    sizes: NDArray[np.int64]
    dictionary: int
    mean: int
    has_prefixes: bool

    @property
    def largest(self) -> int:
        """Bytes that one page of data takes at most, and the dictionary with it."""
        return int(self.sizes.max(initial=0)) + self.dictionary

    def bytes_of(self, rows: int) -> int:
        """Returns what the pages take that so many rows in a row touch, at most.

        Args:
            rows: Of a column whose rows have one value each.
        """
        ends = np.cumsum(self.values)
        sums = np.concatenate(([0], np.cumsum(self.sizes)))
        # From the last value of each page on.
        last = np.searchsorted(ends, ends + rows - 1, "left")
        within: NDArray[np.int64] = sums[np.minimum(last + 1, len(ends))] - sums[:-1]
        return int(within.max(initial=0))


def read_footer(source: IO[bytes]) -> list[Group]:
    """Reads the row groups from a file's metadata; which columns they are of is not known yet.

    Args:
        source: The file, which can be read at any place.

    Raises:
        InvalidArgument: The metadata are damaged, or larger than any.
    """
    size = source.seek(0, 2)
    source.seek(max(0, size - _TAIL_BYTES))
    tail = source.read(_TAIL_BYTES)
    if tail[4:] != _MARK:
        raise unreadable("it does not end as such a file")
    length = int.from_bytes(tail[:4], "little")
    most = _FOOTER_BYTES_MAX + size // _FOOTER_SHARE
    if length > most:
        raise InvalidArgument(f"has {length} bytes of metadata, the limit is {most}", field="file")
    source.seek(max(0, size - _TAIL_BYTES - length))
    try:
        found, _ = read_struct(source.read(length), 0, _FOOTER)
        _check_schema(found)
        return [_group(group, size) for group in found.get(_GROUPS, ())]
    except (IndexError, KeyError):
        raise unreadable("damaged metadata") from None


def _check_schema(footer: dict[int, Any]) -> None:
    count = len(footer.get(_SCHEMA, ()))
    if count > _ELEMENTS_MAX:
        message = f"has {count} columns with those within others, the limit is {_ELEMENTS_MAX}"
        raise InvalidArgument(message, field="header")
    texts = footer.get(_TEXTS, ())
    length = sum(len(text.get(_VALUE, b"")) for text in texts if text[_KEY] == _ARROW_SCHEMA)
    if length > _ARROW_SCHEMA_BYTES_MAX:
        message = f"has {length} bytes of `ARROW:schema`, the limit is {_ARROW_SCHEMA_BYTES_MAX}"
        raise InvalidArgument(message, field="file")


def _group(group: dict[int, Any], size: int) -> Group:
    if group[_ROWS] < 0:
        raise unreadable("damaged metadata")
    chunks = []
    for column in group[_COLUMNS]:
        found = column[_METADATA]
        begin, dictionary = found[_DATA_AT], found.get(_DICTIONARY_AT, 0)
        if 0 < dictionary < begin:
            begin = dictionary
        end = begin + found[_CHUNK_BYTES]
        if not 0 <= begin <= end <= size or found[_CHUNK_VALUES] < 0:
            raise unreadable("a column that is not in the file")
        has_dictionary = _DICTIONARY_AT in found
        chunks.append(Chunk("", False, found[_CHUNK_VALUES], begin, end, has_dictionary))
    return Group(group[_ROWS], chunks)


def of_schema(groups: list[Group], schema: Any) -> list[Group]:
    """Returns row groups with the columns of a file's schema, of Parquet.

    Raises:
        InvalidArgument: They have other columns.
    """
    columns = [schema.column(index) for index in range(len(schema))]
    kinds = [(column.path, column.max_repetition_level > 0) for column in columns]
    if any(len(group.chunks) != len(kinds) for group in groups):
        raise unreadable("row groups of other columns")
    return [
        Group(
            group.rows,
            [
                replace(chunk, path=path, is_nested=is_nested)
                for chunk, (path, is_nested) in zip(group.chunks, kinds, strict=True)
            ],
        )
        for group in groups
    ]


def column_pages(source: IO[bytes], chunk: Chunk) -> ColumnPages:
    """Reads the headers of a column's pages.

    Args:
        source: The file, which can be read at any place.
        chunk: The column.

    Raises:
        InvalidArgument: They are no headers, or of pages that cannot be.
    """
    begin, left = chunk.begin, chunk.values
    values: list[int] = []
    sizes: list[int] = []
    dictionary = mean = 0
    has_prefixes = False
    while left > 0 and begin < chunk.end:
        header, length = _header(source, begin)
        unpacked, packed = header.get(_UNPACKED, -1), header.get(_PACKED, -1)
        if not (0 <= unpacked <= _PAGE_MAX and 0 <= packed <= _PAGE_MAX):
            raise _damaged(chunk)
        begin += length + packed
        if header.get(_TYPE) == _DICTIONARY_PAGE:
            if dictionary:
                raise _damaged(chunk)
            different = header.get(_DICTIONARY_HEADER, {}).get(_VALUES, 0)
            # A value takes a byte at least: Arrow makes room for as many as the header says.
            if different > unpacked:
                raise _damaged(chunk)
            dictionary = max(1, unpacked)
            mean = max(mean, unpacked // max(1, different))
            continue
        count = 0
        for at, encoding in _DATA_HEADERS.items():
            if at in header:
                count = header[at].get(_VALUES, 0)
                has_prefixes |= header[at].get(encoding) == _PREFIXES
        if not 0 < count <= _PAGE_MAX or len(values) > _PAGES + chunk.values // _PAGE_VALUES:
            raise _damaged(chunk)
        values.append(count)
        sizes.append(unpacked)
        mean = max(mean, unpacked // count)
        left -= count
    return ColumnPages(
        chunk,
        np.array(values, np.int64),
        np.array(sizes, np.int64),
        dictionary,
        mean,
        has_prefixes,
    )


def _damaged(chunk: Chunk) -> InvalidArgument:
    return InvalidArgument("has a damaged page", field=f"{chunk.path:.80}")


def _header(source: IO[bytes], begin: int) -> tuple[dict[int, Any], int]:
    """Returns the fields of the header at a place, and its length."""
    size = _HEADER_BYTES
    while True:
        source.seek(begin)
        data = source.read(size)
        try:
            return read_struct(data, 0, _HEADER)
        except IndexError:
            if len(data) < size or size >= _HEADER_BYTES_MAX:
                raise unreadable("no header of a page") from None
            size = _HEADER_BYTES_MAX
