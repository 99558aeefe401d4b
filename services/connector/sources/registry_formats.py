"""Readers of records: as they are, or with schemas of a Schema Registry."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastavro.schema import parse_schema

from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.sources.kafka_config import KafkaSourceSettings, RegistryConfig
from sirocco.services.connector.sources.records import (
    SCHEMA,
    Decoded,
    DecodeError,
    Record,
    RecordReader,
    feature,
)
from sirocco.services.connector.sources.schema_registry import (
    SCHEMA_BYTES_MAX,
    Schema,
    SchemaRegistry,
    avro_json,
)
from sirocco.services.connector.sources.schemas import (
    Parse,
    avro_parser,
    protobuf_parser,
    schema_id_of,
)

# Schemas that are kept; a topic has some versions of one or two.
_SCHEMAS_MAX = 1_000

# How long an id counts as unknown: it may be registered later.
_UNKNOWN_S = 30.0

# Schemas that a schema refers to, with those that these refer to.
_REFERENCES_MAX = 100

# Of a schema with all that it refers to, and of all whose readers are kept.
_WHOLE_BYTES_MAX = 2 * SCHEMA_BYTES_MAX
_KEPT_BYTES_MAX = 8 * SCHEMA_BYTES_MAX


class Reader(Protocol):
    """Reads records of one source."""

    def prepare(self, messages: Iterable[Any]) -> None:
        """Gets what is needed to read some records.

        Raises:
            RegistryAwayError: It cannot be had now.
        """

    def read(self, records: Sequence[Record]) -> Decoded:
        """Reads prepared records of one partition, ascending by offset."""


def open_reader(settings: KafkaSourceSettings) -> Reader:
    """Returns the reader for a source's format."""
    if settings.registry is not None:
        return _WithSchemas(settings, settings.registry)
    decode = feature if settings.format == "geojson" else None
    return _AsTheyAre(RecordReader(settings.mapping, settings.record_bytes, decode))


class _AsTheyAre:
    """Reads records that need nothing else."""

    def __init__(self, reader: RecordReader) -> None:
        self.read = reader.read

    def prepare(self, messages: Iterable[Any]) -> None:
        """Needs nothing."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a schema.

    Attributes:
        parse: What reads its records, or why nothing can.
        until_s: How long that holds, as `time.monotonic`.
        size: Of the schema with all that it refers to, characters.
    """

    parse: Parse | DecodeError
    until_s: float
    size: int = 0


class _WithSchemas:
    """Reads records by the schemas that they name."""

    def __init__(self, settings: KafkaSourceSettings, registry: RegistryConfig) -> None:
        self._is_avro = settings.format == "avro"
        self._registry = SchemaRegistry(registry, serialized=not self._is_avro)
        # By id.
        self._parsers: dict[int, _Known] = {}
        self._reader = RecordReader(settings.mapping, settings.record_bytes, self._decode)
        self._record_bytes = settings.record_bytes

    def prepare(self, messages: Iterable[Any]) -> None:
        """See `Reader.prepare`."""
        wanted = set()
        for message in messages:
            value = None if message.error() is not None else message.value()
            if value is None or len(value) > self._record_bytes:
                continue
            try:
                wanted.add(schema_id_of(value))
            except DecodeError:
                # It is put aside when it is read.
                continue
        now_s = time.monotonic()
        if len(self._parsers) + len(wanted) > _SCHEMAS_MAX or self._kept_bytes() > _KEPT_BYTES_MAX:
            self._parsers = {each: self._parsers[each] for each in wanted & self._parsers.keys()}
        for each in sorted(wanted):
            known = self._parsers.get(each)
            if known is None or now_s > known.until_s:
                self._parsers[each] = self._found(each)

    def read(self, records: Sequence[Record]) -> Decoded:
        """See `Reader.read`."""
        return self._reader.read(records)

    def _decode(self, value: bytes) -> Any:
        parse = self._parsers[schema_id_of(value)].parse
        if isinstance(parse, DecodeError):
            raise parse.with_traceback(None)
        return parse(value)

    def _kept_bytes(self) -> int:
        return sum(each.size for each in self._parsers.values())

    def _found(self, schema_id: int) -> _Known:
        try:
            schema = self._registry.by_id(schema_id)
            if schema is None:
                raise _unusable(f"{schema_id} is unknown")
            others = self._referred(schema)
            size = len(schema.text) + sum(len(each.text) for each in others.values())
            if self._kept_bytes() + size > _KEPT_BYTES_MAX + _WHOLE_BYTES_MAX:
                raise _unusable("records that were read together have too many large schemas")
            return _Known(self._parser(schema, others), float("inf"), size)
        except DecodeError as error:
            return _Known(error.with_traceback(None), time.monotonic() + _UNKNOWN_S)

    def _parser(self, schema: Schema, referred: dict[str, Schema]) -> Parse:
        wanted = "AVRO" if self._is_avro else "PROTOBUF"
        if schema.kind != wanted:
            raise _unusable(f"{schema.kind:.40} is not {wanted}")
        if not self._is_avro:
            others = [(name, _bytes(each)) for name, each in referred.items()]
            return protobuf_parser(_bytes(schema), others)
        named: dict[str, Any] = {}
        for name, other in referred.items():
            try:
                parse_schema(avro_json(other), named_schemas=named)
            except Exception:
                raise _unusable(f"{name:.80} is no Avro schema") from None
        return avro_parser(avro_json(schema), named)

    def _referred(self, schema: Schema) -> dict[str, Schema]:
        """Returns all schemas that one refers to by name, those first that others refer to."""
        found: dict[str, Schema] = {}
        size = len(schema.text)

        def add(one: Schema, within: tuple[str, ...]) -> None:
            nonlocal size
            for each in one.references:
                name = each.name
                if name in found:
                    continue
                if len(found) + len(within) >= _REFERENCES_MAX or name in within:
                    raise _unusable("refers to too many schemas")
                other = self._registry.by_version(each.subject, each.version)
                if other is None:
                    raise _unusable(f"refers to {name:.80}, which is unknown")
                size += len(other.text)
                if size > _WHOLE_BYTES_MAX:
                    raise _unusable(f"has more than {_WHOLE_BYTES_MAX} bytes with its references")
                add(other, (*within, name))
                found[name] = other

        add(schema, ())
        return found


def _unusable(reason: str) -> DecodeError:
    return DecodeError(SCHEMA, InvalidArgument(reason, field="schema"))


def _bytes(schema: Schema) -> bytes:
    try:
        return base64.b64decode(schema.text, validate=True)
    except ValueError:
        raise _unusable("is no serialized descriptor") from None
