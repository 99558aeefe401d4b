"""The part of Confluent's Schema Registry API that readers of records use.

A registry is another process on the network: its answers are bounded in bytes and in time.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.sources.kafka_config import RegistryConfig
from sirocco.services.connector.sources.records import SCHEMA, DecodeError

# Of a schema; a registry keeps one in a record of Kafka, which has a megabyte at most by default.
SCHEMA_BYTES_MAX = 4 << 20

# Of an answer: a schema is a string in it, whose quotes and line ends take two bytes each.
_ANSWER_BYTES_MAX = 2 * SCHEMA_BYTES_MAX

# Objects and arrays of an answer, or of a schema: they take 60 bytes each, in the text two.
_CONTAINERS_MAX = 200_000

_MEDIA_TYPES = "application/vnd.schemaregistry.v1+json, application/json"


class RegistryAwayError(Exception):
    """The registry does not answer, or not sensibly; its schemas are asked for again."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema that another one refers to.

    Attributes:
        name: As the other one calls it.
        subject, version: Where the registry has it.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as the registry has it.

    Attributes:
        kind: `AVRO`, `PROTOBUF`, or another.
        text: JSON for Avro; for Protobuf the file's descriptor in base 64.
        references: Schemas that it refers to.
    """

    kind: str
    text: str
    references: tuple[Reference, ...]


class SchemaRegistry:
    """Asks a registry; the next of its addresses where one does not answer.

    Args:
        registry: How it is reached.
        serialized: Whether schemas come as descriptors, not as text.
    """

    def __init__(self, registry: RegistryConfig, *, serialized: bool) -> None:
        self._urls = [each.strip().rstrip("/") for each in registry.url.split(",")]
        self._timeout_s = registry.timeout_s
        self._auth = (registry.user, registry.password) if registry.user else None
        self._query = "?format=serialized" if serialized else ""
        self._tls: ssl.SSLContext | bool = True
        if registry.ca:
            self._tls = ssl.create_default_context(cafile=registry.ca)

    def by_id(self, schema_id: int) -> Schema | None:
        """Returns a schema by its id; None if the registry has none.

        Raises:
            RegistryAwayError: The registry does not answer, or with something else.
            DecodeError: It answers with more than a schema may have.
        """
        return self._schema(f"schemas/ids/{schema_id}")

    def by_version(self, subject: str, version: int) -> Schema | None:
        """Returns a version of a subject; as `by_id`."""
        return self._schema(f"subjects/{quote(subject, safe='')}/versions/{version}")

    def _schema(self, path: str) -> Schema | None:
        reason = ""
        for url in self._urls:
            try:
                # In a loop of its own: the time of a whole answer is bounded, not of each read.
                status, body = asyncio.run(self._get(f"{url}/{path}{self._query}"))
            except (TimeoutError, OSError, httpx.HTTPError, httpx.InvalidURL) as error:
                reason = repr(error)
                continue
            if status == 200:
                return _schema_of(body)
            if status == 404:
                return None
            reason = f"status {status}: {body[:200]!r}"
        raise RegistryAwayError(f"schema registry: {reason:.300}")

    async def _get(self, url: str) -> tuple[int, bytes]:
        # Packed, few bytes could become very many.
        headers = {"accept": _MEDIA_TYPES, "accept-encoding": "identity"}
        body = bytearray()
        async with (
            asyncio.timeout(self._timeout_s),
            httpx.AsyncClient(verify=self._tls, auth=self._auth, timeout=None) as client,
            client.stream("GET", url, headers=headers) as answer,
        ):
            async for part in answer.aiter_raw():
                body += part
                if len(body) > _ANSWER_BYTES_MAX:
                    break
            return answer.status_code, bytes(body)


def _schema_of(body: bytes) -> Schema:
    if len(body) > _ANSWER_BYTES_MAX:
        raise _too_large(f"the registry's answer has more than {_ANSWER_BYTES_MAX} bytes")
    found = _read(body)
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        raise RegistryAwayError("schema registry: an answer without a schema")
    if len(found["schema"]) > SCHEMA_BYTES_MAX:
        raise _too_large(f"has {len(found['schema'])} characters, at most {SCHEMA_BYTES_MAX}")
    try:
        references = tuple(
            Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
            for each in found.get("references") or ()
        )
    except (TypeError, ValueError, KeyError, OverflowError):
        # OverflowError: JSON's reader takes `Infinity`, which is no integer.
        raise RegistryAwayError("schema registry: references of another form") from None
    return Schema(str(found.get("schemaType") or "AVRO").upper(), found["schema"], references)


def _read(body: bytes) -> Any:
    _check_containers(body.count(b"{") + body.count(b"["))
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise RegistryAwayError("schema registry: an answer that is no JSON") from None


def avro_json(schema: Schema) -> Any:
    """Returns an Avro schema as JSON has it.

    Raises:
        DecodeError: It holds very much.
    """
    text = schema.text
    _check_containers(text.count("{") + text.count("["))
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        # A primitive type may stand without quotes.
        return text


def _check_containers(count: int) -> None:
    if count > _CONTAINERS_MAX:
        raise _too_large(f"has {count} arrays and objects, at most {_CONTAINERS_MAX}")


def _too_large(reason: str) -> DecodeError:
    return DecodeError(SCHEMA, InvalidArgument(reason, field="schema"))
