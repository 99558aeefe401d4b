"""The contracts in proto/: their style, their generated code, and compatibility with releases.

The rules and their names are those of buf (STANDARD of `buf lint`, WIRE_JSON of `buf breaking`).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

from scripts.release_contracts import RELEASED, ROOT, describe

GENERATED = ("sdk/sirocco_api", "sirocco/internal_api")
SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
PASCAL = re.compile(r"([A-Z][a-z0-9]*)+")
UPPER_SNAKE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
# The answer of a hop over a topic: no caller waits for it.
EMPTY = ".google.protobuf.Empty"


@pytest.fixture(scope="module")
def contracts(tmp_path_factory: pytest.TempPathFactory) -> FileDescriptorSet:
    return describe(tmp_path_factory.mktemp("contracts") / "now.binpb")


def messages_of(file: FileDescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
    """Returns full name and message, nested ones too, without those of a map's entries."""

    def below(prefix: str, found: DescriptorProto) -> Iterator[tuple[str, DescriptorProto]]:
        if not found.options.map_entry:
            yield f"{prefix}.{found.name}", found
            for nested in found.nested_type:
                yield from below(f"{prefix}.{found.name}", nested)

    for message in file.message_type:
        yield from below(file.package, message)


def enums_of(file: FileDescriptorProto) -> Iterator[tuple[str, EnumDescriptorProto]]:
    for enum in file.enum_type:
        yield f"{file.package}.{enum.name}", enum
    for name, message in messages_of(file):
        for enum in message.enum_type:
            yield f"{name}.{enum.name}", enum


def methods_of(
    file: FileDescriptorProto,
) -> Iterator[tuple[str, ServiceDescriptorProto, MethodDescriptorProto]]:
    for service in file.service:
        for method in service.method:
            yield f"{file.package}.{service.name}.{method.name}", service, method


# --- style -----------------------------------------------------------------------------------


def package_faults(contracts: FileDescriptorSet) -> Iterator[str]:
    for file in contracts.file:
        if not re.fullmatch(r"[a-z_.]+\.v[1-9][0-9]*(alpha\d+|beta\d+)?", file.package):
            yield f"{file.name}: PACKAGE_VERSION_SUFFIX: {file.package}"
        if Path(file.name).parent.as_posix() != file.package.replace(".", "/"):
            yield f"{file.name}: PACKAGE_DIRECTORY_MATCH: {file.package}"
        if not SNAKE.fullmatch(Path(file.name).stem):
            yield f"{file.name}: FILE_LOWER_SNAKE_CASE"
        if file.syntax != "proto3":
            yield f"{file.name}: SYNTAX_SPECIFIED"
        if file.public_dependency:
            yield f"{file.name}: IMPORT_NO_PUBLIC"


def service_faults(contracts: FileDescriptorSet) -> Iterator[str]:
    for file in contracts.file:
        for service in file.service:
            if not service.name.endswith("Service"):
                yield f"{service.name}: SERVICE_SUFFIX"
            stem = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", service.name).lower()
            if Path(file.name).stem != stem:
                yield f"{service.name}: stands in {file.name}, not in {stem}.proto"
        for name, _, method in methods_of(file):
            if not PASCAL.fullmatch(method.name):
                yield f"{name}: RPC_PASCAL_CASE"


def request_faults(contracts: FileDescriptorSet) -> Iterator[str]:
    users: dict[str, list[str]] = {}
    for name, service, method in chain.from_iterable(map(methods_of, contracts.file)):
        scope = "." + name.removesuffix(f".{service.name}.{method.name}")
        request, response = f"{scope}.{method.name}Request", f"{scope}.{method.name}Response"
        users.setdefault(method.input_type, []).append(name)
        if method.input_type != request:
            yield f"{name}: RPC_REQUEST_STANDARD_NAME: {method.input_type}"
        if method.output_type == EMPTY:
            if not method.client_streaming or method.server_streaming:
                yield f"{name}: answered by nothing, so it is a hop and streams its requests alone"
            continue
        users.setdefault(method.output_type, []).append(name)
        if method.output_type != response:
            yield f"{name}: RPC_RESPONSE_STANDARD_NAME: {method.output_type}"
    for message, methods in users.items():
        if len(methods) > 1:
            yield f"{message}: RPC_REQUEST_RESPONSE_UNIQUE: {', '.join(methods)}"


def enum_faults(contracts: FileDescriptorSet) -> Iterator[str]:
    for name, enum in chain.from_iterable(map(enums_of, contracts.file)):
        prefix = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", enum.name).upper() + "_"
        if not PASCAL.fullmatch(enum.name):
            yield f"{name}: ENUM_PASCAL_CASE"
        if enum.options.allow_alias:
            yield f"{name}: ENUM_NO_ALLOW_ALIAS"
        for value in enum.value:
            if not UPPER_SNAKE.fullmatch(value.name):
                yield f"{name}.{value.name}: ENUM_VALUE_UPPER_SNAKE_CASE"
            if not value.name.startswith(prefix):
                yield f"{name}.{value.name}: ENUM_VALUE_PREFIX: {prefix}"
            if value.number == 0 and value.name != f"{prefix}UNSPECIFIED":
                yield f"{name}.{value.name}: ENUM_ZERO_VALUE_SUFFIX"


def message_faults(contracts: FileDescriptorSet) -> Iterator[str]:
    for name, message in chain.from_iterable(map(messages_of, contracts.file)):
        if not PASCAL.fullmatch(message.name):
            yield f"{name}: MESSAGE_PASCAL_CASE"
        for field in message.field:
            if not SNAKE.fullmatch(field.name):
                yield f"{name}.{field.name}: FIELD_LOWER_SNAKE_CASE"
        for oneof in message.oneof_decl:
            # protoc declares one with a leading underscore for each `optional` field.
            if not SNAKE.fullmatch(oneof.name.removeprefix("_")):
                yield f"{name}.{oneof.name}: ONEOF_LOWER_SNAKE_CASE"


RULES: tuple[Callable[[FileDescriptorSet], Iterator[str]], ...] = (
    package_faults,
    service_faults,
    request_faults,
    enum_faults,
    message_faults,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_style(contracts: FileDescriptorSet, rule: Callable[..., Iterator[str]]) -> None:
    faults = list(rule(contracts))
    assert not faults, "\n".join(faults)


def test_every_style_rule_bites() -> None:
    bad = FileDescriptorProto(name="sirocco/v1/Things.proto", package="sirocco", syntax="proto2")
    bad.public_dependency.append(0)
    service = bad.service.add(name="Things")
    service.method.add(name="get_it", input_type=".sirocco.Ask", output_type=".sirocco.Thing")
    service.method.add(name="Put", input_type=".sirocco.Ask", output_type=EMPTY)
    enum = bad.enum_type.add(name="kind_of")
    enum.value.add(name="Some", number=0)
    message = bad.message_type.add(name="thing")
    message.field.add(name="badName", number=1)
    message.oneof_decl.add(name="OneOf")
    found = " ".join(chain.from_iterable(rule(FileDescriptorSet(file=[bad])) for rule in RULES))
    for name in (
        *("PACKAGE_VERSION_SUFFIX", "PACKAGE_DIRECTORY_MATCH", "FILE_LOWER_SNAKE_CASE"),
        *("SYNTAX_SPECIFIED", "IMPORT_NO_PUBLIC", "SERVICE_SUFFIX", "stands in"),
        *("RPC_PASCAL_CASE", "RPC_REQUEST_STANDARD_NAME", "RPC_RESPONSE_STANDARD_NAME"),
        *("RPC_REQUEST_RESPONSE_UNIQUE", "it is a hop", "ENUM_PASCAL_CASE", "ENUM_VALUE_PREFIX"),
        *("ENUM_VALUE_UPPER_SNAKE_CASE", "ENUM_ZERO_VALUE_SUFFIX", "MESSAGE_PASCAL_CASE"),
        *("FIELD_LOWER_SNAKE_CASE", "ONEOF_LOWER_SNAKE_CASE"),
    ):
        assert name in found


# --- generated code --------------------------------------------------------------------------


def test_generated_code_is_fresh(tmp_path: Path) -> None:
    subprocess.run([ROOT / "proto" / "generate.sh", tmp_path], check=True)
    fresh, kept = (
        {
            path.relative_to(top): path.read_bytes()
            for package in GENERATED
            for path in (top / package).rglob("*.py*")
            if path.suffix in (".py", ".pyi")
        }
        for top in (tmp_path, ROOT)
    )
    stale = sorted(
        str(path) for path in fresh.keys() | kept.keys() if fresh.get(path) != kept.get(path)
    )
    assert not stale, f"not what proto/ says (make proto): {', '.join(stale)}"


# --- released contracts ----------------------------------------------------------------------


def reserved(message: DescriptorProto, field: FieldDescriptorProto) -> bool:
    """Returns whether both number and name of a removed field are reserved."""
    ranges = message.reserved_range
    return field.name in message.reserved_name and any(
        one.start <= field.number < one.end for one in ranges
    )


def shape_of(message: DescriptorProto, field: FieldDescriptorProto) -> tuple[object, ...]:
    """Returns what peers have to agree on; a `oneof` counts by its name, an `optional` as such."""
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    return field.name, field.type, field.type_name, field.label, oneof


def message_breaks(before: FileDescriptorSet, now: FileDescriptorSet) -> Iterator[str]:
    present = dict(chain.from_iterable(map(messages_of, now.file)))
    for name, old in chain.from_iterable(map(messages_of, before.file)):
        message = present.get(name)
        if message is None:
            yield f"message {name} is gone"
            continue
        fields = {field.number: field for field in message.field}
        for field in old.field:
            other = fields.get(field.number)
            if other is None:
                if not reserved(message, field):
                    yield f"{name}.{field.name} is gone; reserve {field.number} and its name"
            elif shape_of(old, field) != shape_of(message, other):
                place = f"{name}.{field.name} ({field.number})"
                yield f"{place} is now another field, or of another type: {other.name}"


def enum_breaks(before: FileDescriptorSet, now: FileDescriptorSet) -> Iterator[str]:
    present = dict(chain.from_iterable(map(enums_of, now.file)))
    for name, old in chain.from_iterable(map(enums_of, before.file)):
        values = (
            {value.number: value.name for value in present[name].value} if (name in present) else {}
        )
        for value in old.value:
            if values.get(value.number) != value.name:
                yield f"{name}.{value.name} ({value.number}) is gone or renamed"


def method_breaks(before: FileDescriptorSet, now: FileDescriptorSet) -> Iterator[str]:
    present = {name: method for file in now.file for name, _, method in methods_of(file)}
    for name, _, old in chain.from_iterable(map(methods_of, before.file)):
        method = present.get(name)
        if method is None:
            yield f"method {name} is gone"
        elif (
            (method.input_type, method.output_type) != (old.input_type, old.output_type)
            or method.client_streaming != old.client_streaming
            or method.server_streaming != old.server_streaming
        ):
            yield f"method {name} has another signature"


def breaks(before: FileDescriptorSet, now: FileDescriptorSet) -> list[str]:
    """Returns what a peer that was built from `before` would misread in `now`."""
    return [
        *message_breaks(before, now),
        *enum_breaks(before, now),
        *method_breaks(before, now),
    ]


def test_released_contracts_hold(contracts: FileDescriptorSet) -> None:
    released = FileDescriptorSet.FromString(RELEASED.read_bytes())
    found = breaks(released, contracts)
    assert not found, (
        "\n".join(found) + "\nRecords in topics and older peers still speak the released contracts."
        " If the break is meant, say so in CHANGELOG.md and run: make proto-release"
    )


def copy_of(contracts: FileDescriptorSet) -> FileDescriptorSet:
    return FileDescriptorSet.FromString(contracts.SerializeToString())


def file_named(contracts: FileDescriptorSet, stem: str) -> FileDescriptorProto:
    return next(file for file in contracts.file if Path(file.name).stem == stem)


def rename_field(contracts: FileDescriptorSet) -> None:
    file_named(contracts, "query").message_type[0].field[0].name = "left"


def retype_field(contracts: FileDescriptorSet) -> None:
    field = file_named(contracts, "query").message_type[0].field[0]
    field.type = FieldDescriptorProto.TYPE_FLOAT


def remove_field(contracts: FileDescriptorSet) -> None:
    del file_named(contracts, "query").message_type[0].field[0]


def remove_message(contracts: FileDescriptorSet) -> None:
    del file_named(contracts, "query").message_type[0]


def renumber_enum(contracts: FileDescriptorSet) -> None:
    file_named(contracts, "query").enum_type[0].value[1].number = 9


def remove_service(contracts: FileDescriptorSet) -> None:
    del file_named(contracts, "publish_service").service[:]


def unstream(contracts: FileDescriptorSet) -> None:
    file_named(contracts, "publish_service").service[0].method[0].server_streaming = False


@pytest.mark.parametrize(
    "change",
    [
        *(rename_field, retype_field, remove_field, remove_message),
        *(renumber_enum, remove_service, unstream),
    ],
)
def test_a_break_is_found(
    contracts: FileDescriptorSet, change: Callable[[FileDescriptorSet], None]
) -> None:
    changed = copy_of(contracts)
    change(changed)
    assert breaks(contracts, changed)


def test_additions_and_reserved_removals_are_no_breaks(contracts: FileDescriptorSet) -> None:
    changed = copy_of(contracts)
    query = file_named(changed, "query")
    message = query.message_type[0]
    message.field.add(
        name="further",
        number=900,
        type=FieldDescriptorProto.TYPE_BYTES,
        label=FieldDescriptorProto.LABEL_OPTIONAL,
    )
    removed = message.field[0]
    message.reserved_name.append(removed.name)
    message.reserved_range.add(start=removed.number, end=removed.number + 1)
    del message.field[0]
    query.enum_type[0].value.add(name="QUERY_MODE_FURTHER", number=900)
    file_named(changed, "publish_service").service[0].method.add(name="Further")
    assert breaks(contracts, changed) == []
