"""Readers of records: as they are, or with schemas of a Schema Registry."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
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

_SCHEMA_BYTES_MAX = 4 << 20


class RegistryAwayError(Exception):
    """The registry does not answer, or not sensibly; its schemas are asked for again."""


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


class _WithSchemas:
    """Reads records by the schemas that they name."""

    def __init__(self, settings: KafkaSourceSettings, registry: RegistryConfig) -> None:
        self._is_avro = settings.format == "avro"
        self._registry = registry
        self._client = SchemaRegistryClient(_client_config(registry))
        # Id → what reads its records, or why nothing can; and until when that holds.
        self._parsers: dict[int, tuple[Parse | DecodeError, float]] = {}
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
        if len(self._parsers) + len(wanted) > _SCHEMAS_MAX:
            self._parsers = {each: self._parsers[each] for each in wanted & self._parsers.keys()}
        for each in sorted(wanted):
            known = self._parsers.get(each)
            if known is not None and now_s <= known[1]:
                continue
            try:
                self._parsers[each] = self._found(each)
            except RegistryAwayError:
                # It keeps answers, also those that are none.
                self._client = SchemaRegistryClient(_client_config(self._registry))
                raise

    def read(self, records: Sequence[Record]) -> Decoded:
        """See `Reader.read`."""
        return self._reader.read(records)

    def _decode(self, value: bytes) -> Any:
        parse, _ = self._parsers[schema_id_of(value)]
        if isinstance(parse, DecodeError):
            raise parse.with_traceback(None)
        return parse(value)

    def _found(self, schema_id: int) -> tuple[Parse | DecodeError, float]:
        form = None if self._is_avro else "serialized"
        try:
            schema = _asked(lambda: self._client.get_schema(schema_id, fmt=form))
            return self._parser(schema), float("inf")
        except SchemaRegistryError as error:
            unknown = InvalidArgument(f"{schema_id} is unknown: {error!s:.200}", field="schema")
            return DecodeError(SCHEMA, unknown), time.monotonic() + _UNKNOWN_S
        except DecodeError as error:
            return error, time.monotonic() + _UNKNOWN_S

    def _parser(self, schema: Schema) -> Parse:
        kind = (schema.schema_type or "AVRO").upper()
        wanted = "AVRO" if self._is_avro else "PROTOBUF"
        if kind != wanted:
            error = InvalidArgument(f"{kind:.40} is not {wanted}", field="schema")
            raise DecodeError(SCHEMA, error)
        others = list(self._referred(schema))
        if not self._is_avro:
            return protobuf_parser(_bytes(schema), [(name, _bytes(each)) for name, each in others])
        named: dict[str, Any] = {}
        for name, other in others:
            try:
                parse_schema(_json(other), named_schemas=named)
            except Exception:
                error = InvalidArgument(f"{name:.80} is no Avro schema", field="schema")
                raise DecodeError(SCHEMA, error) from None
        return avro_parser(_json(schema), named)

    def _referred(self, schema: Schema) -> list[tuple[str, Schema]]:
        """Returns name and schema of all that one refers to, those first that others refer to."""
        found: dict[str, Schema] = {}
        form = None if self._is_avro else "serialized"

        def add(one: Schema, within: tuple[str, ...]) -> None:
            for each in one.references or ():
                name = str(each.name)
                if name in found:
                    continue
                if len(found) + len(within) >= _REFERENCES_MAX or name in within:
                    error = InvalidArgument("refers to too many schemas", field="schema")
                    raise DecodeError(SCHEMA, error)
                subject, version = str(each.subject), int(each.version or 0)
                ask = partial(self._client.get_version, subject, version, fmt=form)
                other = _asked(lambda ask=ask: ask().schema)
                add(other, (*within, name))
                found[name] = other

        add(schema, ())
        return list(found.items())


def _asked(ask: Any) -> Any:
    """Returns an answer of the registry.

    Raises:
        SchemaRegistryError: It knows no such schema.
        RegistryAwayError: It does not answer, or with something else.
    """
    try:
        found = ask()
    except SchemaRegistryError as error:
        if error.http_status_code == 404:
            raise
        raise RegistryAwayError(f"schema registry: {error!s:.300}") from None
    except Exception as error:
        # Errors of the HTTP library, and whatever an answer causes that is none of a registry.
        raise RegistryAwayError(f"schema registry: {error!r:.300}") from None
    if not isinstance(found.schema_str, str):
        raise RegistryAwayError("schema registry: an answer without a schema")
    return found


def _json(schema: Schema) -> Any:
    text = schema.schema_str or ""
    if len(text) > _SCHEMA_BYTES_MAX:
        raise DecodeError(SCHEMA, InvalidArgument("is too large", field="schema"))
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # A primitive type may stand without quotes.
        return text


def _bytes(schema: Schema) -> bytes:
    try:
        return base64.b64decode(schema.schema_str or "", validate=True)
    except ValueError:
        raise DecodeError(
            SCHEMA, InvalidArgument("is no serialized descriptor", field="schema")
        ) from None


def _client_config(registry: RegistryConfig) -> dict[str, Any]:
    config: dict[str, Any] = {
        "url": registry.url,
        "timeout": registry.timeout_s,
        # Records wait here, and the group goes on meanwhile.
        "max.retries": 0,
        "cache.capacity": _SCHEMAS_MAX,
    }
    if registry.user:
        config["basic.auth.user.info"] = f"{registry.user}:{registry.password}"
    if registry.ca:
        config["ssl.ca.location"] = registry.ca
    return config
