"""Records with schemas: what they hold, and what is refused before it can do harm."""

from __future__ import annotations

import datetime
import decimal
import io
import math
import random
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from sirocco.services.connector.sources.records import DecodeError
from sirocco.services.connector.sources.schemas import (
    avro_parser,
    plain,
    protobuf_parser,
    schema_id_of,
)
from tests.support.schema_registry import framed
from tests.support.seeds import drawn_seed


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return framed(7, out.getvalue())


def record(**members: Any) -> dict[str, Any]:
    fields = [{"name": name, "type": kind} for name, kind in members.items()]
    return {"type": "record", "name": "R", "fields": fields}


def reason(parse: Any, *arguments: Any) -> tuple[str, str]:
    with pytest.raises(DecodeError) as caught:
        parse(*arguments)
    return caught.value.reason, str(caught.value.error)


PLACE = record(
    id="long",
    lon="double",
    at={"type": "long", "logicalType": "timestamp-millis"},
    price={"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    tags={"type": "array", "items": "string"},
    maybe=["null", {"type": "map", "values": "int"}],
    raw="bytes",
)
PLACED = {
    "id": 5,
    "lon": 1.5,
    "at": 1_405_123_200_123,
    "price": decimal.Decimal("12.50"),
    "tags": ["a", "b"],
    "maybe": {"k": 3},
    "raw": b"\x01",
}


def test_avro_becomes_members_with_times_in_milliseconds() -> None:
    found = avro_parser(PLACE, {})(written(PLACE, PLACED))
    assert found == PLACED | {"price": 12.5, "raw": "AQ=="}


@pytest.mark.parametrize("kind", ["bytes", {"type": "fixed", "name": "F", "size": 400_000}])
def test_a_decimal_of_very_many_bytes_is_not_computed(kind: Any) -> None:
    named = {"type": kind} if kind == "bytes" else kind
    schema = record(price={**named, "logicalType": "decimal", "precision": 6})
    length = io.BytesIO()
    if kind == "bytes":
        fastavro.schemaless_writer(length, "long", 400_000)
    value = framed(7, length.getvalue() + b"\x7f" * 400_000)
    # It would take ten seconds.
    found = reason(avro_parser(schema, {}), value)
    assert found[0] == "decode"
    assert "400000 bytes" in found[1]


def empty_records(count: int) -> dict[str, Any]:
    """Returns a record of 2^count values without a byte."""
    first: Any = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "null"}]}
    for number in range(1, count):
        fields = [{"name": "a", "type": first}, {"name": "b", "type": f"R{number - 1}"}]
        first = {"type": "record", "name": f"R{number}", "fields": fields}
    return first


def test_values_without_bytes_are_bounded() -> None:
    assert "take no bytes" in reason(avro_parser, empty_records(40), {})[1]
    nulls = {f"n{i}": "null" for i in range(200)}
    for kind, items in (("array", "items"), ("map", "values")):
        element = record(**nulls, a="int") | {"name": "E"}
        many = record(many={"type": kind, items: element})
        assert "values a byte" in reason(avro_parser, many, {})[1]
        optional = record(many={"type": kind, items: ["int", element]})
        assert "values a byte" in reason(avro_parser, optional, {})[1]
    # What people write has none, or few.
    assert avro_parser(record(**nulls), {})(framed(7, b"")) == dict.fromkeys(nulls)


@pytest.mark.parametrize("run", range(200))
def test_damaged_avro_is_refused_and_nothing_else(run: int) -> None:
    rng = random.Random(drawn_seed())
    value = bytearray(written(PLACE, PLACED))
    for _ in range(rng.randint(1, 3)):
        value[rng.randrange(5, len(value))] = rng.randrange(256)
    value = value[: rng.randint(5, len(value))]
    reasons = set()
    try:
        avro_parser(PLACE, {})(bytes(value))
    except DecodeError as error:
        reasons.add(error.reason)
    assert reasons <= {"decode"}


def test_a_record_that_is_cut_or_has_more_is_refused() -> None:
    parse, value = avro_parser(PLACE, {}), written(PLACE, PLACED)
    assert reason(parse, value[:-1])[0] == "decode"
    assert "1 bytes after" in reason(parse, value + b"\0")[1]


LIST = {
    "type": "record",
    "name": "N",
    "fields": [{"name": "next", "type": ["null", "N"]}],
}


EMPTY = {"type": "record", "name": "E", "fields": []}

# Each refers twice to the one before.
DOUBLED: Any = "int"
for level in range(60):
    fields = [{"name": "a", "type": DOUBLED}, {"name": "b", "type": f"D{level - 1}"}]
    DOUBLED = {"type": "record", "name": f"D{level}", "fields": fields[: 2 if level else 1]}


def test_schemas_that_refer_to_each_other_very_often_are_checked_at_once() -> None:
    schema: Any = "int"
    for level in range(40):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"D{level - 1}"}]
        schema = {"type": "record", "name": f"D{level}", "fields": fields[: 2 if level else 1]}
    avro_parser({"type": "array", "items": schema}, {})


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (LIST, "holds itself"),
        (record(a={"type": "array", "items": LIST}), "holds itself"),
        (record(a={"type": "array", "items": "null"}), "no bytes"),
        (record(a={"type": "array", "items": EMPTY}), "no bytes"),
        (record(e=EMPTY, a={"type": "array", "items": "E"}), "no bytes"),
        (record(a=DOUBLED), "nested too deeply"),
        (
            record(a={"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
            "no bytes",
        ),
        ({"type": "record"}, "no Avro schema"),
        ("nonsense", "no Avro schema"),
        (3, "no Avro schema"),
    ],
)
def test_schemas_that_a_few_bytes_could_use_are_refused(schema: Any, text: str) -> None:
    found, why = reason(avro_parser, schema, {})
    assert (found, text in why) == ("schema", True), why


def test_a_huge_count_in_a_few_bytes_ends_at_once() -> None:
    schema = record(a={"type": "array", "items": "string"})
    # 2^60 strings, of which there are none.
    count = bytes([0x80] * 8 + [0x20])
    assert reason(avro_parser(schema, {}), framed(7, count))[0] == "decode"
    # A text of 2^60 bytes.
    assert reason(avro_parser(record(a="string"), {}), framed(7, count))[0] == "decode"


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", b"\1\0\0\0\7x", b"{}"])
def test_what_names_no_schema_is_refused(value: bytes) -> None:
    assert reason(schema_id_of, value)[0] == "decode"
    assert schema_id_of(framed(1 << 31, b"")) == 1 << 31


# --- Protobuf -----------------------------------------------------------------------------------


def file_of(*, name: str = "own.proto", imports: tuple[str, ...] = ()) -> Any:
    return descriptor_pb2.FileDescriptorProto(
        name=name, package="p", syntax="proto3", dependency=list(imports)
    )


def add(message: Any, name: str, number: int, kind: Any, **more: Any) -> None:
    more.setdefault("label", Field.LABEL_OPTIONAL)
    message.field.add(name=name, number=number, type=kind, **more)


def places() -> Any:
    file = file_of(
        imports=("google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto", "other.proto")
    )
    file.message_type.add(name="First")
    message = file.message_type.add(name="Place")
    add(message, "id", 1, Field.TYPE_UINT64)
    add(message, "lon", 2, Field.TYPE_DOUBLE)
    add(message, "ts", 3, Field.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    add(message, "size", 4, Field.TYPE_MESSAGE, type_name=".google.protobuf.Int64Value")
    add(message, "tags", 5, Field.TYPE_STRING, label=Field.LABEL_REPEATED)
    add(message, "inner", 6, Field.TYPE_MESSAGE, type_name=".p.Place.Inner")
    add(message, "kind", 7, Field.TYPE_ENUM, type_name=".o.Kind")
    add(message, "maybe", 8, Field.TYPE_STRING, proto3_optional=True, oneof_index=0)
    message.oneof_decl.add(name="_maybe")
    add(message, "raw", 9, Field.TYPE_BYTES)
    entry = message.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    add(entry, "key", 1, Field.TYPE_STRING)
    add(entry, "value", 2, Field.TYPE_INT32)
    add(
        message,
        "counts",
        10,
        Field.TYPE_MESSAGE,
        type_name=".p.Place.CountsEntry",
        label=Field.LABEL_REPEATED,
    )
    inner = message.nested_type.add(name="Inner")
    add(inner, "text", 1, Field.TYPE_STRING)
    add(inner, "next", 2, Field.TYPE_MESSAGE, type_name=".p.Place.Inner")
    return file


def other() -> Any:
    file = file_of(name="other.proto")
    file.package = "o"
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="TAXI", number=1)
    return file


def place_class() -> Any:
    pool = DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(other())
    pool.Add(places())
    return GetMessageClass(pool.FindMessageTypeByName("p.Place"))


def parser() -> Any:
    own = places().SerializeToString()
    return protobuf_parser(own, [("other.proto", other().SerializeToString())])


# The second message of the file: one index, which is 1.
SECOND = b"\x02\x02"


def test_protobuf_becomes_members_also_where_they_are_zero() -> None:
    place = place_class()(id=5, kind=1, tags=["a"], raw=b"\x01", counts={"k": 2})
    place.ts.FromMilliseconds(1_405_123_200_123)
    place.size.value = 7
    place.inner.text = "t"
    wanted = {
        "id": 5,
        "lon": 0.0,
        "ts": 1_405_123_200_123,
        "size": 7,
        "tags": ["a"],
        "inner": {"text": "t"},
        "kind": "TAXI",
        "raw": "AQ==",
        "counts": {"k": 2},
    }
    assert parser()(framed(7, place.SerializeToString(), SECOND)) == wanted
    place.maybe = ""
    assert parser()(framed(7, place.SerializeToString(), SECOND)) == wanted | {"maybe": ""}
    # The inner one of the second, and the first, which has a short form.
    assert parser()(framed(7, place.inner.SerializeToString(), b"\x04\x02\x02")) == {"text": "t"}
    assert parser()(framed(7, b"", b"\0")) == {}


@pytest.mark.parametrize(
    "value",
    [
        framed(7, b"", b""),
        framed(7, b"", b"\x02\x06"),
        framed(7, b"", b"\x02\x01"),
        framed(7, b"", b"\x7f" * 9),
        framed(7, b"", b"\xff" * 12),
        framed(7, b"", b"\xfe\x0f"),
        framed(7, b"\xff\xff\xff", SECOND),
        framed(7, b"\x2a\x02\xff\xff", SECOND),
    ],
)
def test_damaged_protobuf_is_refused(value: bytes) -> None:
    assert reason(parser(), value)[0] == "decode"


def test_deep_protobuf_is_refused() -> None:
    deep = b""
    for _ in range(5_000):
        size = len(deep)
        prefix = bytearray()
        while size >= 0x80:
            prefix.append(size & 0x7F | 0x80)
            size >>= 7
        prefix.append(size)
        deep = b"\x12" + bytes(prefix) + deep
    assert reason(parser(), framed(7, deep, b"\x04\x02\x02"))[0] == "decode"


def test_files_that_are_none_or_lack_one_are_refused() -> None:
    assert reason(protobuf_parser, b"\xff", [])[0] == "schema"
    assert reason(protobuf_parser, places().SerializeToString(), [])[0] == "schema"


def test_values_without_a_form_in_json_get_one() -> None:
    day = datetime.date(2026, 1, 2)
    members = {"d": day, "t": datetime.time(3, 4), "l": (1, None), "x": math.nan}
    assert plain(members) == {"d": "2026-01-02", "t": "03:04:00", "l": [1, None], "x": None}
    assert plain(datetime.datetime(1970, 1, 1, 0, 0, 1)) == 1_000


def one_file(*messages: tuple[str, list[tuple[str, int, str]]]) -> bytes:
    """Returns a file of messages; a field with a type's name is repeated and of that type."""
    proto = descriptor_pb2.FileDescriptorProto(name="f.proto", package="p", syntax="proto3")
    for name, fields in messages:
        message = proto.message_type.add(name=name)
        for field_name, number, kind in fields:
            added = message.field.add(name=field_name, number=number, label=Field.LABEL_OPTIONAL)
            added.type = Field.TYPE_INT32
            if kind:
                added.label = Field.LABEL_REPEATED
                added.type, added.type_name = Field.TYPE_MESSAGE, f".p.{kind}"
    return proto.SerializeToString()


def test_messages_without_bytes_are_bounded() -> None:
    """Two bytes stand for a message of forty members that are zero."""
    wide = [(f"n{i}", i, "") for i in range(1, 41)]
    parse = protobuf_parser(one_file(("Top", [("many", 1, "Wide")]), ("Wide", wide)), [])
    assert len(parse(framed(7, b"\x0a\x00" * 1_000, b"\0"))["many"]) == 1_000
    assert "members" in reason(parse, framed(7, b"\x0a\x00" * 500_000, b"\0"))[1]


def test_names_of_fields_that_messages_have_themselves_harm_one_record() -> None:
    for name in ("DESCRIPTOR", "ListFields", "Clear", "HasField", "SerializeToString"):
        parse = protobuf_parser(one_file(("Top", [(name, 1, "Sub")]), ("Sub", [("a", 1, "")])), [])
        for value in (b"", b"\x0a\x02\x08\x05"):
            with suppress(DecodeError):
                assert parse(framed(7, value, b"\0"))
