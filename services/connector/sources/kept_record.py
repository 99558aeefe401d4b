"""Records of a Kafka topic without what the client library keeps beside them.

Writers to the topic choose keys and headers as freely as values. The library counts neither
where it bounds what it has read, and keeps all of them while somebody holds the message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

Headers: TypeAlias = tuple[tuple[str, bytes], ...]

# Of a record's headers, which are kept up to here, each with what it takes besides its bytes.
HEADER_BYTES_MAX = 64 << 10
_HEADER_BYTES = 64

# What a record takes besides its bytes.
_RECORD_BYTES = 300


def kept(message: Any) -> Any:
    """Returns what is kept of a message: itself, if it has no headers, as most have none.

    Keys and values are copies of the message's own; to copy what else it has takes as long as to
    read a short object.
    """
    try:
        if not message.headers():
            return message
    except UnicodeDecodeError:
        pass
    return KeptRecord.of(message)


def size_of(record: Any) -> int:
    """Returns about how many bytes a record that is kept takes."""
    size = _RECORD_BYTES + len(record.key() or b"") + len(record.value() or b"")
    return size + record.header_bytes if isinstance(record, KeptRecord) else size


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRecord:
    """One record with headers; its methods are those of the client library's messages.

    Attributes:
        header_bytes: About what the headers take.
    """

    _topic: str
    _partition: int
    _offset: int
    _timestamp: tuple[int, int]
    _key: bytes | None
    _value: bytes | None
    _headers: Headers
    header_bytes: int

    @classmethod
    def of(cls, message: Any) -> KeptRecord:
        """Returns what is kept of a message."""
        headers, size = _first_headers(message)
        return cls(
            _topic=message.topic(),
            _partition=message.partition(),
            _offset=message.offset(),
            _timestamp=message.timestamp(),
            _key=message.key(),
            _value=message.value(),
            _headers=headers,
            header_bytes=size,
        )

    def topic(self) -> str:
        """The topic."""
        return self._topic

    def partition(self) -> int:
        """The partition."""
        return self._partition

    def offset(self) -> int:
        """Its place in the partition."""
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        """The kind of its time, and the time, epoch ms."""
        return self._timestamp

    def key(self) -> bytes | None:
        """Its key."""
        return self._key

    def value(self) -> bytes | None:
        """Its value; None for a tombstone."""
        return self._value

    def headers(self) -> Headers:
        """Its first headers that have a value."""
        return self._headers


def _first_headers(message: Any) -> tuple[Headers, int]:
    """Returns as many headers as are kept, and their bytes."""
    try:
        found = message.headers()
    except UnicodeDecodeError:
        # Brokers take any bytes as a name, the library reads it as text.
        return (), 0
    kept: list[tuple[str, bytes]] = []
    size = 0
    for name, value in found or ():
        if value is None:
            continue
        each = _HEADER_BYTES + len(name) + len(value)
        if size + each > HEADER_BYTES_MAX:
            break
        size += each
        kept.append((name, value))
    return tuple(kept), size
