"""The pages of a Parquet file, by their headers: what they unpack to, before one is unpacked.

A page's header says how large the page is; what the file's metadata says of a column need not be
so. Headers are structs of Thrift's compact protocol (parquet-format, `PageHeader`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sirocco.model.errors import InvalidArgument

# Read for a header at first, and at most: it may hold the least and the greatest value of its page.
_HEADER_BYTES = 1 << 10
_HEADER_BYTES_MAX = 1 << 20

_DEPTH_MAX = 8

# Of Thrift's compact protocol.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = {4, 5, 6}

# Fields of `PageHeader`, and of its structs the number of values.
_TYPE, _UNPACKED, _PACKED = 1, 2, 3
_DATA_HEADERS = (5, 8)
_DICTIONARY_HEADER = 7
_DICTIONARY_PAGE = 2
_VALUES = 1

# Pages that a column may have, and values for each further one: millions of pages of a value each
# would fit into a small file.
_PAGES = 1_000
_PAGE_VALUES = 16


@dataclass(frozen=True, slots=True)
class ColumnPages:
    """The pages of one column in one row group.

    Attributes:
        values: i64[n], values of each page of data, missing ones included.
        sizes: i64[n], what each unpacks to, bytes.
        dictionary: What its dictionary unpacks to, bytes; 0 without one.
        mean: Of the sizes of values, the greatest of any page and the dictionary, bytes.
    """

    values: NDArray[np.int64]
    sizes: NDArray[np.int64]
    dictionary: int
    mean: int

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


def column_pages(source: IO[bytes], column: Any) -> ColumnPages:
    """Reads the headers of a column's pages.

    Args:
        source: The file, which can be read at any place.
        column: Of the file's metadata.

    Raises:
        InvalidArgument: They are no headers, or of pages that cannot be.
    """
    begin = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < begin:
        begin = column.dictionary_page_offset
    end = begin + column.total_compressed_size
    left = column.num_values
    values: list[int] = []
    sizes: list[int] = []
    dictionary = mean = 0
    while left > 0 and begin < end:
        header, length = _header(source, begin)
        unpacked, packed = header.get(_UNPACKED, -1), header.get(_PACKED, -1)
        if unpacked < 0 or packed < 0:
            raise _damaged(column)
        begin += length + packed
        count = next((header[at].get(_VALUES, 0) for at in _DATA_HEADERS if at in header), 0)
        if header.get(_TYPE) == _DICTIONARY_PAGE:
            count = 0
            different = header.get(_DICTIONARY_HEADER, {}).get(_VALUES, 0)
            # A value takes a byte at least: Arrow makes room for as many as the header says.
            if different > unpacked:
                raise _damaged(column)
            dictionary = max(dictionary, unpacked)
            mean = max(mean, unpacked // max(1, different))
        elif count <= 0 or len(values) > _PAGES + column.num_values // _PAGE_VALUES:
            raise _damaged(column)
        else:
            values.append(count)
            sizes.append(unpacked)
            mean = max(mean, unpacked // count)
        left -= count
    return ColumnPages(np.array(values, np.int64), np.array(sizes, np.int64), dictionary, mean)


def _damaged(column: Any) -> InvalidArgument:
    path = f"{column.path_in_schema:.80}"
    return InvalidArgument("has a damaged page", field=path)


def _unreadable(reason: str) -> InvalidArgument:
    return InvalidArgument(f"cannot be read as Parquet: {reason}", field="file")


def _header(source: IO[bytes], begin: int) -> tuple[dict[int, Any], int]:
    """Returns the fields of the header at a place, and its length."""
    size = _HEADER_BYTES
    while True:
        source.seek(begin)
        data = source.read(size)
        try:
            return _struct(data, 0, 0)
        except IndexError:
            if len(data) < size or size >= _HEADER_BYTES_MAX:
                raise _unreadable("no header of a page") from None
            size = _HEADER_BYTES_MAX


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Returns a struct's fields by their numbers, and the place after it.

    Integers, and structs with these; nothing for other fields.

    Raises:
        IndexError: The data end before it.
    """
    fields: dict[int, Any] = {}
    number = 0
    while True:
        byte = data[at]
        at += 1
        if byte == 0:
            return fields, at
        kind = byte & 15
        if byte >> 4:
            number += byte >> 4
        else:
            number, at = _integer(data, at)
        if kind in _INTEGERS:
            fields[number], at = _integer(data, at)
        elif kind == _STRUCT:
            if depth >= _DEPTH_MAX:
                raise _unreadable("nested too deeply")
            fields[number], at = _struct(data, at, depth + 1)
        elif kind not in {_TRUE, _FALSE}:
            at = _after(data, at, kind, depth)


def _after(data: bytes, at: int, kind: int, depth: int) -> int:
    """Returns the place after a value of a kind; a boolean takes a byte, as in lists."""
    if depth > _DEPTH_MAX:
        raise _unreadable("nested too deeply")
    if kind in _INTEGERS:
        return _integer(data, at)[1]
    if kind == _STRUCT:
        return _struct(data, at, depth)[1]
    if kind == _BINARY:
        length, at = _varint(data, at)
        return at + length
    if kind in {_LIST, _SET}:
        count, kind = data[at] >> 4, data[at] & 15
        at += 1
        if count == 15:
            count, at = _varint(data, at)
        for _ in range(count):
            at = _after(data, at, kind, depth + 1)
            if at > len(data):
                raise IndexError
        return at
    if kind in {_TRUE, _FALSE, _BYTE}:
        return at + 1
    if kind == _DOUBLE:
        return at + 8
    raise _unreadable("no header of a page")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
        if shift > 63:
            raise _unreadable("a damaged number")


def _integer(data: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at
