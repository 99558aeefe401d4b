"""Records of a log → columns of objects; what cannot be read is set apart, with why. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sirocco_api.v1.columns_pb2 import ObjectColumns as ObjectsMessage

from sirocco.codec.columns import put_objects
from sirocco.formats.geojson import members_of_feature
from sirocco.formats.rows import Row
from sirocco.loadgen.lines import ReadBatch, read_chunk, read_members
from sirocco.model.errors import InvalidArgument
from sirocco.model.json_text import load_json
from sirocco.services.connector.sources.kept_record import size_of
from sirocco.services.connector.sources.member_map import MemberMap

# Reasons of dead letters.
DECODE, SCHEMA, MAPPING, SIZE, REFUSED = "decode", "schema", "mapping", "size", "refused"
REASONS = (DECODE, SCHEMA, MAPPING, SIZE, REFUSED)

_NO_FILE = ""


class Record(Protocol):
    """One record."""

    def value(self) -> bytes | None:
        """Its value; None for a tombstone."""

    def key(self) -> bytes | None:
        """Its key."""

    def offset(self) -> int:
        """Its place in the partition."""

    def timestamp(self) -> tuple[int, int]:
        """The kind of its time, and the time, epoch ms."""


@dataclass(frozen=True, slots=True)
class Bad:
    """A record that cannot be published.

    Attributes:
        record: The record.
        reason: One of `REASONS`.
        error: Why; names the member.
    """

    record: Any
    reason: str
    error: InvalidArgument


class DecodeError(Exception):
    """One record cannot be decoded.

    Attributes:
        reason: One of `REASONS`.
        error: Why.
    """

    def __init__(self, reason: str, error: InvalidArgument) -> None:
        super().__init__(str(error))
        self.reason = reason
        self.error = error


# Value → members as the format has them.
Decode = Callable[[bytes], Any]


@dataclass(slots=True)
class Decoded:
    """Some records of one partition, in order.

    Attributes:
        objects: Those that can be published; None if there are none.
        numbers: The number of each.
        records: The records of these.
        bad: Those that cannot be published.
        empty: Number of records without a value.
        bytes_total: What the records of objects take.
    """

    objects: ObjectsMessage | None = None
    numbers: list[int] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    empty: int = 0
    bytes_total: int = 0


class RecordReader:
    """Reads the records of one source.

    Args:
        mapping: Which members are what.
        record_bytes: A larger value is set apart.
        decode: Returns what a value holds; None: it is a line of JSON.
    """

    def __init__(self, mapping: MemberMap, record_bytes: int, decode: Decode | None = None) -> None:
        self._map = mapping
        self._record_bytes = record_bytes
        self._decode = decode

    def read(self, records: Sequence[Record]) -> Decoded:
        """Reads records of one partition, ascending by offset."""
        found = Decoded()
        rows: list[tuple[int, bytes]] = []
        for row, record in enumerate(records):
            value = record.value()
            if value is None:
                found.empty += 1
                continue
            if len(value) > self._record_bytes:
                error = InvalidArgument(
                    f"has {len(value)} bytes, the limit is {self._record_bytes}", field="value"
                )
                found.bad.append(Bad(record, SIZE, error))
                continue
            rows.append((row, value))
        if not rows:
            return found
        if self._decode is None and self._map.is_plain:
            self._take(found, records, read_chunk(rows, _NO_FILE))
        else:
            self._take(found, records, read_members(self._rows(found, records, rows), _NO_FILE))
        return found

    def _rows(
        self, found: Decoded, records: Sequence[Record], rows: list[tuple[int, bytes]]
    ) -> list[Row]:
        decode = self._decode or _json
        needs_record = self._map.needs_record
        read: list[Row] = []
        for row, value in rows:
            try:
                decoded = decode(value)
                if not isinstance(decoded, dict):
                    raise InvalidArgument("is no object with members", field="value")
                if self._map.is_plain:
                    members = {name: each for name, each in decoded.items() if each is not None}
                elif needs_record:
                    record = records[row]
                    members = self._map.members(decoded, record.key(), record.timestamp()[1])
                else:
                    members = self._map.members(decoded)
            except DecodeError as error:
                found.bad.append(Bad(records[row], error.reason, error.error))
            except InvalidArgument as error:
                reason = DECODE if error.field == "value" else MAPPING
                found.bad.append(Bad(records[row], reason, error.with_traceback(None)))
            else:
                read.append((row, members))
        return read

    def _take(self, found: Decoded, records: Sequence[Record], batch: ReadBatch) -> None:
        for one in batch.bad:
            error = one.error
            assert isinstance(error, InvalidArgument)
            reason = DECODE if error.field == "object" else MAPPING
            found.bad.append(Bad(records[one.line], reason, error))
        if not len(batch.lines):
            return
        found.objects = ObjectsMessage()
        put_objects(found.objects, batch.objects)
        found.records = [records[row] for row in batch.lines.tolist()]
        found.bytes_total = sum(map(size_of, found.records))
        # Offsets begin with 0, numbers with 1.
        found.numbers = [record.offset() + 1 for record in found.records]


def _json(value: bytes) -> Any:
    return load_json(value, "value")


def feature(value: bytes) -> dict[str, Any]:
    """Decodes a GeoJSON Feature.

    Raises:
        InvalidArgument: It is none with a Point.
    """
    return members_of_feature(load_json(value, "value"))
