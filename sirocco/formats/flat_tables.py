"""Tables of FlatBuffers, as far as Arrow's messages need them.

Written by others. References lead forward only, but many may lead to one table: who walks over
tables bounds how many. (FlatBuffers, "Internals": a table begins with the way back to its vtable,
which has the places of its fields.)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from sirocco.model.errors import InvalidArgument

_FIELDS_AT = 4


def damaged() -> InvalidArgument:
    """Returns the error of metadata that are not what they must be."""
    return InvalidArgument("cannot be read as Arrow: damaged metadata", field="body")


class FlatTable:
    """One table.

    Args:
        data: of the whole buffer.
        at: where the table begins; the root's place is in the first four bytes.

    Raises:
        InvalidArgument: It is not within the buffer; all methods raise this, too.
    """

    __slots__ = ("_at", "_data", "_vtable", "_vtable_bytes")

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        (back,) = _unpacked("<i", data, at)
        self._vtable = at - back
        (self._vtable_bytes,) = _unpacked("<H", data, self._vtable)

    @classmethod
    def root(cls, data: memoryview) -> FlatTable:
        """Returns the table that a buffer is about."""
        return cls(data, _unpacked("<I", data, 0)[0])

    def number(self, field: int, form: str, default: int = 0) -> int:
        """Returns an integer; `form` as in `struct`."""
        at = self._place(field)
        return default if at is None else int(_unpacked("<" + form, self._data, at)[0])

    def table(self, field: int) -> FlatTable | None:
        """Returns a table within; None: it is left out."""
        at = self._reference(field)
        return None if at is None else FlatTable(self._data, at)

    def tables(self, field: int) -> Iterator[FlatTable]:
        """Yields the tables of a vector."""
        begin, count = self._vector(field, 4)
        for at in range(begin, begin + 4 * count, 4):
            yield FlatTable(self._data, at + _unpacked("<I", self._data, at)[0])

    def piece(self, field: int, item_bytes: int = 1) -> memoryview:
        """Returns a vector of structs of some bytes each, or a string; empty if it is left out."""
        begin, count = self._vector(field, item_bytes)
        return self._data[begin : begin + item_bytes * count]

    def _place(self, field: int) -> int | None:
        entry = _FIELDS_AT + 2 * field
        if entry + 2 > self._vtable_bytes:
            return None
        (offset,) = _unpacked("<H", self._data, self._vtable + entry)
        return self._at + offset if offset else None

    def _reference(self, field: int) -> int | None:
        at = self._place(field)
        return None if at is None else at + _unpacked("<I", self._data, at)[0]

    def _vector(self, field: int, item_bytes: int) -> tuple[int, int]:
        """Returns where the items begin, and their number."""
        at = self._reference(field)
        if at is None:
            return 0, 0
        (count,) = _unpacked("<I", self._data, at)
        if at + 4 + item_bytes * count > len(self._data):
            raise damaged()
        return at + 4, count


def _unpacked(form: str, data: memoryview, at: int) -> tuple[int, ...]:
    # A negative place counts from the end, to Python.
    if at < 0:
        raise damaged()
    try:
        return struct.unpack_from(form, data, at)
    except struct.error:
        raise damaged() from None
