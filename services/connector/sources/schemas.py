"""Records with a schema: what is before their bytes, and how these become members. No I/O.

A record begins with a zero byte and the id of its schema in the registry, four bytes; Protobuf has
the place of the message within its file after it (Confluent's wire format).
"""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import fastavro
from fastavro.read import LOGICAL_READERS
from fastavro.schema import parse_schema
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from sirocco.model.errors import InvalidArgument
from sirocco.services.connector.sources.records import DECODE, SCHEMA, DecodeError

# Bytes → the members that they hold.
Parse = Callable[[bytes], Any]

_MAGIC = 0
_FRAME = 5

# Of a schema: readers walk it in the machine's stack.
_SCHEMA_DEPTH_MAX = 50

# Values that a record may have for each of its bytes, and how many more without any: some bytes
# could stand for millions.
_BYTE_VALUES_MAX = 64
_EMPTY_MAX = 10_000

# Members of a record's messages, those included that have no bytes.
_MEMBERS_MAX = 250_000

# Of a decimal: the time to read one grows with its square.
_DECIMAL_BYTES_MAX = 256
_VALUE_DEPTH_MAX = 50
_INDEXES_MAX = 20


def schema_id_of(value: bytes) -> int:
    """Returns the id of a record's schema.

    Raises:
        DecodeError: It has none.
    """
    if len(value) < _FRAME or value[0] != _MAGIC:
        raise DecodeError(
            DECODE, InvalidArgument("does not begin with the id of a schema", field="value")
        )
    return int.from_bytes(value[1:_FRAME])


# --- Avro ---------------------------------------------------------------------------------------


def _bounded(read: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a reader of decimals that refuses long ones."""

    def bounded(data: bytes, *arguments: Any) -> Any:
        if len(data) > _DECIMAL_BYTES_MAX:
            raise ValueError(f"a decimal has {len(data)} bytes, at most {_DECIMAL_BYTES_MAX}")
        return read(data, *arguments)

    return bounded


for _form in ("bytes-decimal", "fixed-decimal"):
    LOGICAL_READERS[_form] = _bounded(LOGICAL_READERS[_form])


def avro_parser(schema: Any, named: Mapping[str, Any]) -> Parse:
    """Returns what reads the records of a schema.

    Args:
        schema: As JSON has it.
        named: Other schemas that it refers to, parsed, by name.

    Raises:
        DecodeError: The schema is none, or one that a few bytes could use against this process.
    """
    try:
        parsed = parse_schema(schema, named_schemas=dict(named))
        _AvroCheck(named).check(parsed)
    except DecodeError:
        raise
    except Exception as error:
        # The library raises what it comes across: KeyError, TypeError, its own.
        raise DecodeError(
            SCHEMA, InvalidArgument(f"is no Avro schema: {error!r:.200}", field="schema")
        ) from None

    def parse(value: bytes) -> Any:
        source = io.BytesIO(value)
        source.seek(_FRAME)
        try:
            found = fastavro.schemaless_reader(source, parsed, None)
            rest = len(value) - source.tell()
        except Exception as error:
            raise DecodeError(
                DECODE, InvalidArgument(f"does not fit its schema: {error!r:.200}", field="value")
            ) from None
        if rest:
            raise DecodeError(
                DECODE, InvalidArgument(f"has {rest} bytes after its end", field="value")
            )
        return plain(found)

    return parse


class _AvroCheck:
    """Refuses schemas that hold themselves, and arrays of what takes no bytes.

    The first would let a record of a megabyte nest a million deep, the second a record of ten bytes
    have 2^60 elements.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = dict(named)
        # Names that were walked to their end: schemas may refer to each other very often.
        self._done: set[str] = set()
        self._takes: dict[str, bool] = {}
        self._excesses: dict[str, int] = {}

    def check(self, schema: Any) -> None:
        """Raises DecodeError for a schema that is refused."""
        self.walk(schema)
        if self._excess(schema) > _EMPTY_MAX:
            raise _unusable(f"has more than {_EMPTY_MAX} values that take no bytes")

    def walk(self, schema: Any, within: tuple[str, ...] = (), depth: int = 0) -> None:
        """Raises DecodeError for a schema that is refused."""
        if depth > _SCHEMA_DEPTH_MAX:
            raise _unusable("is nested too deeply")
        if isinstance(schema, list):
            for each in schema:
                self.walk(each, within, depth + 1)
        elif isinstance(schema, str):
            if schema in within:
                raise _unusable(f"{schema:.80} holds itself")
            if schema in self._named and schema not in self._done:
                self.walk(self._named[schema], within, depth + 1)
        elif isinstance(schema["type"], dict | list):
            self.walk(schema["type"], within, depth + 1)
        else:
            self._walk_complex(schema, within, depth)

    def _walk_complex(self, schema: Any, within: tuple[str, ...], depth: int) -> None:
        kind, name = schema["type"], schema.get("name", "")
        if kind in {"record", "error"}:
            if name in within:
                raise _unusable(f"{name:.80} holds itself")
            self._named[name] = schema
            for member in schema["fields"]:
                self.walk(member["type"], (*within, name), depth + 1)
            self._done.add(name)
        elif kind == "array":
            self.walk(schema["items"], within, depth + 1)
            if not self._takes_bytes(schema["items"]):
                raise _unusable("has an array of what takes no bytes")
            self._check_element(schema["items"])
        elif kind == "map":
            self.walk(schema["values"], within, depth + 1)
            self._check_element(schema["values"])
        elif kind in {"fixed", "enum"}:
            self._named[name] = schema
        elif kind in self._named:
            self.walk(kind, within, depth + 1)

    def _check_element(self, schema: Any) -> None:
        if self._excess(schema) > _BYTE_VALUES_MAX:
            raise _unusable(f"has elements of more than {_BYTE_VALUES_MAX} values a byte")

    def _excess(self, schema: Any) -> int:
        """Returns how many values a value of a walked schema has beyond those of its bytes."""
        if isinstance(schema, list):
            return max(map(self._excess, schema), default=0) - _BYTE_VALUES_MAX
        if isinstance(schema, str):
            if schema not in self._named:
                return 1 if schema == "null" else -_BYTE_VALUES_MAX
            if schema not in self._excesses:
                self._excesses[schema] = self._excess(self._named[schema])
            return self._excesses[schema]
        kind = schema["type"]
        if kind in {"record", "error"}:
            return 1 + sum(self._excess(each["type"]) for each in schema["fields"])
        if kind == "fixed":
            return 1 - _BYTE_VALUES_MAX * int(schema["size"])
        return -_BYTE_VALUES_MAX if kind in {"array", "map", "enum"} else self._excess(kind)

    def _takes_bytes(self, schema: Any) -> bool:
        """Whether each value of a schema that was walked takes a byte at least."""
        if isinstance(schema, list):
            return True
        if isinstance(schema, str):
            if schema not in self._named:
                return schema != "null"
            if schema not in self._takes:
                self._takes[schema] = self._takes_bytes(self._named[schema])
            return self._takes[schema]
        kind = schema["type"]
        if kind in {"record", "error"}:
            return any(self._takes_bytes(each["type"]) for each in schema["fields"])
        if kind == "fixed":
            return int(schema["size"]) > 0
        if kind in {"array", "map", "enum"}:
            return True
        return self._takes_bytes(kind)


def _unusable(reason: str) -> DecodeError:
    return DecodeError(SCHEMA, InvalidArgument(reason, field="schema"))


# --- Protobuf -----------------------------------------------------------------------------------


def protobuf_parser(file: bytes, others: Sequence[tuple[str, bytes]]) -> Parse:
    """Returns what reads the records of a schema.

    Args:
        file: A `FileDescriptorProto`.
        others: (name, the same) of the files that it imports, those first that others import.

    Raises:
        DecodeError: The schema is none.
    """
    pool = descriptor_pool.DescriptorPool()
    try:
        known: set[str] = set()
        for name, data in others:
            if name not in known:
                known.add(name)
                _add(pool, data, name)
        own = _add(pool, file, "sirocco/schema.proto")
        found = pool.FindFileByName(own)
    except Exception as error:
        raise DecodeError(
            SCHEMA, InvalidArgument(f"is no Protobuf schema: {error!r:.200}", field="schema")
        ) from None
    classes: dict[tuple[int, ...], type[Message]] = {}

    def parse(value: bytes) -> Any:
        indexes, begin = _indexes(value, _FRAME)
        if indexes not in classes:
            # As many as the file has messages.
            classes[indexes] = message_factory.GetMessageClass(_message(found, indexes))
        message = classes[indexes]()
        try:
            message.ParseFromString(value[begin:])
            return _Members().of(message, 0)
        except DecodeError:
            raise
        except Exception as error:
            # Also whatever names of fields cause that Python's messages have, too.
            raise DecodeError(
                DECODE, InvalidArgument(f"does not fit its schema: {error!r:.200}", field="value")
            ) from None

    return parse


_WELL_KNOWN = (
    *("any", "api", "duration", "empty", "field_mask", "source_context", "struct", "timestamp"),
    *("type", "wrappers"),
)


def _add(pool: Any, data: bytes, name: str) -> str:
    proto = descriptor_pb2.FileDescriptorProto.FromString(data)
    proto.name = name
    for dependency in proto.dependency:
        _add_well_known(pool, dependency)
    pool.Add(proto)
    return name


def _add_well_known(pool: Any, name: str) -> None:
    """Adds a file of Protobuf itself, which the registry does not have."""
    part = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if not name.startswith("google/protobuf/"):
        return
    try:
        pool.FindFileByName(name)
        return
    except KeyError:
        pass
    default = descriptor_pool.Default()
    if part in _WELL_KNOWN:
        __import__(f"google.protobuf.{part}_pb2")
    proto = descriptor_pb2.FileDescriptorProto()
    default.FindFileByName(name).CopyToProto(proto)
    for dependency in proto.dependency:
        _add_well_known(pool, dependency)
    pool.Add(proto)


def _indexes(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Returns the place of a message in its file, and where its bytes begin."""
    count, at = _zigzag(value, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= _INDEXES_MAX:
        raise _no_message()
    found = []
    for _ in range(count):
        index, at = _zigzag(value, at)
        found.append(index)
    return tuple(found), at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(value) or shift > 28:
            raise _no_message()
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def _message(file: Any, indexes: tuple[int, ...]) -> Any:
    found: Any = None
    # In the order of the file, which the descriptors' mappings keep.
    messages = list(file.message_types_by_name.values())
    for index in indexes:
        if not 0 <= index < len(messages):
            raise _no_message()
        found = messages[index]
        messages = list(found.nested_types)
    return found


def _no_message() -> DecodeError:
    return DecodeError(DECODE, InvalidArgument("names no message of its schema", field="value"))


class _Members:
    """Makes the messages of one record into members, a bounded number of them."""

    def __init__(self) -> None:
        self._left = _MEMBERS_MAX

    def of(self, message: Any, depth: int) -> Any:
        """Returns a message's fields; those without presence also if they are 0 or empty."""
        if depth > _VALUE_DEPTH_MAX:
            raise _unreadable("is nested too deeply")
        descriptor = message.DESCRIPTOR
        self._count(len(descriptor.fields))
        if descriptor.full_name == "google.protobuf.Timestamp":
            return message.seconds * 1_000 + message.nanos // 1_000_000
        if descriptor.file.name == "google/protobuf/wrappers.proto":
            return plain(message.value)
        found: dict[str, Any] = {}
        for one in descriptor.fields:
            value = getattr(message, one.name)
            if _is_map(one):
                kind = one.message_type.fields_by_name["value"]
                self._count(len(value))
                found[one.name] = {
                    str(key): self._one(kind, each, depth) for key, each in value.items()
                }
            elif one.is_repeated:
                self._count(len(value))
                found[one.name] = [self._one(one, each, depth) for each in value]
            elif not one.has_presence or message.HasField(one.name):
                found[one.name] = self._one(one, value, depth)
        return found

    def _one(self, one: FieldDescriptor, value: Any, depth: int) -> Any:
        if one.message_type is not None:
            return self.of(value, depth + 1)
        if one.enum_type is not None:
            known = one.enum_type.values_by_number.get(value)
            return value if known is None else known.name
        return plain(value)

    def _count(self, members: int) -> None:
        self._left -= members
        if self._left < 0:
            raise _unreadable(f"has more than {_MEMBERS_MAX} members")


def _is_map(one: FieldDescriptor) -> bool:
    kind = one.message_type
    return kind is not None and kind.GetOptions().map_entry


def _unreadable(reason: str) -> DecodeError:
    return DecodeError(DECODE, InvalidArgument(reason, field="value"))


# --- values -------------------------------------------------------------------------------------


def plain(value: Any, depth: int = 0) -> Any:
    """Returns a value as JSON has it: times as epoch ms, decimals as numbers, bytes in base 64.

    What is not a number is missing, as in tables.
    """
    if isinstance(value, float) and math.isnan(value):
        return None
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if depth > _VALUE_DEPTH_MAX:
        raise DecodeError(DECODE, InvalidArgument("is nested too deeply", field="value"))
    if isinstance(value, dict):
        return {str(name): plain(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, depth + 1) for each in value]
    if isinstance(value, datetime.datetime):
        # Local times of a schema are taken as UTC: it does not say of which place they are.
        aware = value if value.tzinfo is not None else value.replace(tzinfo=datetime.UTC)
        return round(aware.timestamp() * 1_000)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, uuid.UUID):
        return str(value)
    return str(value)
