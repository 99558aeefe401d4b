"""Messages are counted before they are parsed, by their wire format only."""

from __future__ import annotations

import importlib
import pkgutil
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sirocco_api.v1
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from sirocco_api.v1 import query_pb2
from sirocco_api.v1 import query_service_pb2 as pb

import sirocco.internal_api.v1
from sirocco.codec.wire import (
    BOUNDS,
    ELEMENTS_MAX,
    QUERIES_MAX,
    ROW_ELEMENTS_MAX,
    PartlyRefused,
    check_message,
    parse_rows,
)
from sirocco.internal_api.v1 import owner_service_pb2 as owner_pb
from sirocco.kernels.base.wire_scan import DEPTH_MAX, FIELDS_MAX
from sirocco.model.errors import InvalidArgument

# Services called over topics, whose records other services wrote.
OVER_TOPICS = {
    "ControlService",
    "DeliveryService",
    "IntakeService",
    "PartialService",
    "RegistryService",
    "SlotService",
}


def requests() -> Iterator[Descriptor]:
    """Returns the request types of all methods that are served by gRPC."""
    packages = (sirocco_api.v1, sirocco.internal_api.v1)
    for name in (
        f"{package.__name__}.{module.name}"
        for package in packages
        for module in pkgutil.iter_modules(package.__path__)
    ):
        if name.endswith("_service_pb2"):
            file = importlib.import_module(name).DESCRIPTOR
            for service in file.services_by_name.values():
                if service.name not in OVER_TOPICS:
                    for method in service.methods:
                        yield method.input_type


def below(root: Descriptor, depth: int = 1) -> Iterator[tuple[Descriptor, int]]:
    yield root, depth
    for each in root.fields:
        if each.message_type is not None:
            yield from below(each.message_type, depth + 1)


def class_of(descriptor: Descriptor) -> Any:
    return message_factory.GetMessageClass(descriptor)


def bulk(*queries: query_pb2.Query) -> pb.RegisterQueriesRequest:
    return pb.RegisterQueriesRequest(queries=queries)


def good_query(name: str = "q") -> query_pb2.Query:
    kind = query_pb2.RangeKind(text="fire", events=["enter"])
    return query_pb2.Query(id=name, subscriber="ops", mode="QUERY_MODE_CONTINUOUS", range=kind)


def test_every_repeated_field_of_a_request_has_a_bound_of_its_own() -> None:
    for root in requests():
        for descriptor, depth in below(root):
            assert depth < DEPTH_MAX
            for each in descriptor.fields:
                assert each.number < FIELDS_MAX
                if each.is_repeated:
                    assert each.full_name in BOUNDS


@pytest.mark.parametrize("root", list(requests()), ids=lambda each: each.name)
def test_each_repeated_field_is_refused_over_its_bound(root: Descriptor) -> None:
    """Also for deeply nested fields, and for the smallest elements."""
    for descriptor, path in _repeated(root):
        each = descriptor.fields_by_name[path[-1]]
        bound = BOUNDS[each.full_name]
        for count in (bound, bound + 1):
            message = class_of(root)()
            at = message
            for name in path[:-1]:
                field = getattr(at, name)
                at = field.add() if hasattr(field, "add") else field
            values = getattr(at, path[-1])
            if each.message_type is not None:
                for _ in range(count):
                    values.add()
            else:
                values.extend(["" if each.type == each.TYPE_STRING else 1] * count)
            data = message.SerializeToString()
            if count == bound:
                assert check_message(data, class_of(root)) > len(data)
                continue
            with pytest.raises(InvalidArgument, match=f"more than {bound}") as caught:
                check_message(data, class_of(root))
            assert caught.value.field


def _repeated(
    root: Descriptor, path: tuple[str, ...] = ()
) -> Iterator[tuple[Descriptor, tuple[str, ...]]]:
    for each in root.fields:
        if each.is_repeated:
            yield root, (*path, each.name)
        if each.message_type is not None:
            yield from _repeated(each.message_type, (*path, each.name))


def test_the_field_of_a_refusal_is_its_path() -> None:
    query = good_query()
    query.ranked.keywords.extend(["a"] * (BOUNDS["sirocco.v1.RankedKind.keywords"] + 1))
    with pytest.raises(InvalidArgument) as caught:
        check_message(bulk(good_query(), query).SerializeToString(), pb.RegisterQueriesRequest)
    assert caught.value.field == "queries[1].keywords"


def test_parts_of_all_kinds_are_bounded_together() -> None:
    """A field that is set repeatedly is one field to the parser, but allocated each time."""
    query = b"\x52\x00\x5a\x00" * (ELEMENTS_MAX // 2 + 1)
    size = len(query)
    varint = bytes((size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14 & 0x7F | 0x80))
    data = b"\x0a" + varint + bytes((size >> 21,)) + query
    pb.RegisterQueryRequest.FromString(data)
    with pytest.raises(InvalidArgument, match="parts"):
        check_message(data, pb.RegisterQueryRequest)


def test_packed_numbers_count_each() -> None:
    request = owner_pb.CountQueriesRequest(handles=range(2 * QUERIES_MAX + 1))
    with pytest.raises(InvalidArgument) as caught:
        check_message(request.SerializeToString(), owner_pb.CountQueriesRequest)
    assert caught.value.field == "handles"


@given(seed=st.integers(0, 2**32), flips=st.integers(0, 6))
def test_what_a_scan_lets_through_holds_no_more_than_it_counted(seed: int, flips: int) -> None:
    random_ = random.Random(seed)
    data = bytearray(bulk(*(good_query(f"{seed}-{i}") for i in range(9))).SerializeToString())
    for _ in range(flips):
        data[random_.randrange(len(data))] = random_.randrange(256)
    try:
        size = check_message(bytes(data), pb.RegisterQueriesRequest)
    except InvalidArgument:
        return
    try:
        message = pb.RegisterQueriesRequest.FromString(bytes(data))
    except DecodeError:
        return
    held = sum(1 + len(query.range.events) for query in message.queries)
    assert size >= len(data) + 256 * held


@given(data=st.binary(max_size=400))
def test_any_bytes_are_sound_or_refused(data: bytes) -> None:
    padded = data + b"\x7a\x7f" + bytes(127)
    for each in (data, padded):
        try:
            check_message(each, pb.RegisterQueriesRequest)
        except InvalidArgument:
            continue


def test_lengths_beyond_the_message_are_refused() -> None:
    for lie in (
        b"\xff\xff\xff\xff\x7f",
        b"\xff" * 9 + b"\x01",
        b"\xff" * 10 + b"\x01",
        b"\xff" * 12,
    ):
        data = b"\x0a" + lie + bytes(300)
        with pytest.raises(InvalidArgument, match="malformed"):
            check_message(data, pb.RegisterQueriesRequest)


def test_bad_rows_are_left_out_and_the_others_continue() -> None:
    many = good_query("many")
    many.ranked.keywords.extend(["a"] * 2_000)
    vast = good_query("vast")
    for _ in range(ROW_ELEMENTS_MAX // 8):
        vast.range.region.polygon.rings.add().coordinates.extend([0.0] * 9)
    request = bulk(good_query("a"), many, good_query("b"), vast, good_query("c"))
    data = request.SerializeToString().replace(b"\x0a\x01b", b"\x0a\x01\xff")
    found = parse_rows(data, pb.RegisterQueriesRequest)
    assert isinstance(found, PartlyRefused)
    assert sorted(found.refused) == [1, 2, 3]
    assert found.refused[1].field == "keywords"
    assert [query.id for query in found.message.queries] == ["a", "", "", "", "c"]


def test_too_many_rows_are_refused_as_a_whole() -> None:
    data = b"\x0a\x00" * (QUERIES_MAX + 1)
    with pytest.raises(InvalidArgument) as caught:
        parse_rows(data, pb.RegisterQueriesRequest)
    assert caught.value.field == "queries"


def test_fields_beside_the_rows_are_few_where_each_is_looked_at() -> None:
    """Four million in one message took four seconds of Python and half a gigabyte."""
    bad_row = b"\x0a\x02\xff\xff"
    assert parse_rows(bad_row + b"\x7a\x00" * 100, pb.RegisterQueriesRequest).refused
    with pytest.raises(InvalidArgument) as caught:
        parse_rows(bad_row + b"\x7a\x00" * (1 << 22), pb.RegisterQueriesRequest)
    assert "beside queries" in caught.value.message


def test_a_scan_reads_nothing_but_its_message() -> None:
    data = np.frombuffer(b"\x0a" * 300, np.uint8)
    with pytest.raises(InvalidArgument):
        check_message(data[:200].tobytes(), pb.RegisterQueriesRequest)
