"""Messages are unchanged by encoding, and any damage raises one type of error."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message as ProtoMessage

from sirocco.codec.hops import HOPS, decode, encode, key_of, read_record
from sirocco.internal_api.v1.intake_service_pb2 import SummariseRequest
from sirocco.internal_api.v1.slot_service_pb2 import RouteRequest
from sirocco.model.errors import InvalidArgument
from sirocco.model.query import canonical, parse_query
from sirocco.protocol.contract.columns import NO_EVENTS, NO_MATCHES, NO_NAMES
from sirocco.protocol.contract.control_records import (
    CheckpointTaken,
    Granted,
    LeaderElected,
    MapActivated,
    MapPrepared,
)
from sirocco.protocol.contract.messages import (
    NO_OBJECTS,
    NO_POSITIONS,
    NO_ROWS,
    NO_TERMS,
    PROBE_HANDLE,
    Change,
    Found,
    Installed,
    Prepare,
    Progress,
    Retire,
    Routed,
)
from sirocco.protocol.contract.positions import Intervals
from tests.support.random_messages import MAKERS, differences

SIZES = [0, 1, 7, 60]


@pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seed", range(6))
def test_every_message_travels_unchanged(kind: type, seed: int) -> None:
    for size in SIZES:
        message = MAKERS[kind](np.random.default_rng(seed), size)
        path, request = encode(message)
        again = read_record(path, request.SerializeToString())
        assert type(again) is kind
        assert differences(message, again) == [], f"seed={seed} size={size}"
        assert differences(message, decode(request)) == [], f"seed={seed} size={size}"


@pytest.mark.parametrize("seed", range(100))
def test_a_changed_query_keeps_its_canonical_form(seed: int) -> None:
    message = MAKERS[Change](np.random.default_rng(seed), 0)
    again = decode(encode(message)[1])
    assert isinstance(message, Change)
    assert isinstance(again, Change)
    if message.query is not None:
        assert again.query is not None
        assert canonical(again.query) == canonical(message.query), f"seed={seed}"


def test_each_message_has_a_hop_that_the_contracts_declare() -> None:
    assert set(HOPS) == set(MAKERS)
    for hop in HOPS.values():
        name = Path(hop.request_class.DESCRIPTOR.file.name).stem
        module = importlib.import_module(f"sirocco.internal_api.v1.{name}_pb2")
        _, service, method = hop.method_path.split("/")
        found = module.DESCRIPTOR.services_by_name[service.split(".")[-1]].methods_by_name[method]
        assert found.containing_service.full_name == service
        assert found.input_type.full_name == hop.request_class.DESCRIPTOR.full_name
        assert found.output_type.full_name == Empty.DESCRIPTOR.full_name


def test_marks_are_small_and_travel() -> None:
    intervals = Intervals.of([(3, 1 << 40, 1 << 41, 5)])
    mark = Routed(
        map_version=1,
        intervals=intervals,
        objects=NO_OBJECTS,
        events=NO_EVENTS,
        positions=NO_POSITIONS,
        interval_rows=NO_ROWS,
        terms=NO_TERMS,
    )
    found = Found(
        intervals=intervals,
        objects=NO_OBJECTS,
        events=NO_EVENTS,
        positions=NO_POSITIONS,
        interval_rows=NO_ROWS,
        queries=NO_NAMES,
        matches=NO_MATCHES,
    )
    for message in (mark, found):
        path, request = encode(message)
        value = request.SerializeToString()
        assert len(value) < 50
        assert differences(message, read_record(path, value)) == []


def test_keys_are_the_subjects_of_compacted_topics() -> None:
    removal = Change(
        handle=0x0102030405060708,
        query=None,
        subscriber="",
        start_ms=5,
        expected_revision=7,
        digest=0,
    )
    assert key_of(removal) == bytes(range(1, 9))
    # Probes belong to no query; one of each ownership is kept.
    assert (
        key_of(
            Change(
                handle=PROBE_HANDLE,
                query=None,
                subscriber="",
                start_ms=5,
                expected_revision=0,
                digest=1,
                epoch=9,
            )
        )
        == b"probe/9"
    )
    # An empty value would be a tombstone: the record would be gone and its offset missing.
    assert encode(removal)[1].SerializeToString()
    assert key_of(LeaderElected("m")) == b"leader"
    assert key_of(Granted(1, "slots", 3, "m")) == b"owner/slots/3"
    assert key_of(MapActivated(1, 2, b"x")) == b"map"
    # The two maps that are needed at a time have different keys.
    assert key_of(MapPrepared(1, 2, b"x")) != key_of(MapPrepared(1, 3, b"x"))
    assert key_of(Prepare(2)) != key_of(Prepare(3)) != key_of(Retire(3, 0))
    assert key_of(CheckpointTaken("intake", 2, 1, 1, "n")) == b"checkpoint/intake/2"
    assert key_of(Progress(1, NO_ROWS, NO_POSITIONS, NO_POSITIONS)) is None


def test_progress_distinguishes_slots_without_reports() -> None:
    slots, positions = np.array([1, 4], np.uint32), np.array([0, 5])
    message = Progress(9, slots, positions, np.array([-(1 << 63), 7]), has_lists=True)
    assert differences(message, decode(encode(message)[1])) == []


def byte_fields(message: ProtoMessage, path: str = "") -> list[tuple[ProtoMessage, str, str]]:
    """Returns every present `bytes` field: (message that holds it, its name, its path)."""
    found = []
    for field, value in message.ListFields():
        if field.type == FieldDescriptor.TYPE_BYTES:
            found.append((message, field.name, f"{path}{field.name}"))
        elif field.type == FieldDescriptor.TYPE_MESSAGE and isinstance(value, ProtoMessage):
            found += byte_fields(value, f"{path}{field.name}.")
    return found


# Fields of raw bytes, or that only a length can damage.
FREE = ("partition_map",)

# Columns that are missing in records that do not need them.
OPTIONAL = ("matches.changes", "matches.distances_m", "locator")


@pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)
def test_a_cut_column_is_refused_with_a_field(kind: type) -> None:
    for seed in range(4):
        message = MAKERS[kind](np.random.default_rng(seed), 9)
        for number in range(len(byte_fields(encode(message)[1]))):
            for cut in (1, 4, 8, 1 << 20):
                _, request = encode(message)
                holder, name, path = byte_fields(request)[number]
                if name in FREE:
                    continue
                data = getattr(holder, name)
                if path in OPTIONAL and cut >= len(data):
                    continue
                setattr(holder, name, data[: max(0, len(data) - cut)])
                with pytest.raises(InvalidArgument) as caught:
                    decode(request)
                assert caught.value.field, f"seed={seed} {path} cut by {cut}"


@pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seed", range(5))
def test_garbled_columns_are_taken_or_refused_but_never_crash(kind: type, seed: int) -> None:
    rng = random.Random(seed)
    refused = 0
    message = MAKERS[kind](np.random.default_rng(seed), 9)
    for attempt in range(300):
        _, request = encode(message)
        for holder, name, _ in byte_fields(request):
            if rng.random() < 0.3:
                setattr(holder, name, garbled(rng, getattr(holder, name)))
        field = blamed(lambda request=request: decode(request))
        refused += field is not None
        assert field != "", f"seed={seed} attempt={attempt}"
    assert refused or not any(name not in FREE for _, name, _ in byte_fields(encode(message)[1])), (
        f"seed={seed}"
    )


@pytest.mark.parametrize("kind", MAKERS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("seed", range(5))
def test_garbled_records_are_taken_or_refused_but_never_crash(kind: type, seed: int) -> None:
    rng = random.Random(seed)
    path, request = encode(MAKERS[kind](np.random.default_rng(seed), 9))
    value = request.SerializeToString()
    for attempt in range(300):
        field = blamed(lambda: read_record(path, garbled(rng, value)))
        assert field != "", f"seed={seed} attempt={attempt}"


def blamed(read: Callable[[], object]) -> str | None:
    """Returns the field of the error that reading raises, None when it succeeds."""
    try:
        read()
    except InvalidArgument as error:
        return error.field or ""
    return None


def garbled(rng: random.Random, data: bytes) -> bytes:
    kind = rng.randrange(4)
    if kind == 0:
        return data[: rng.randrange(len(data) + 1)]
    if kind == 1:
        return data + rng.randbytes(rng.randrange(1, 20))
    out = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        if out:
            out[rng.randrange(len(out))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
    return bytes(out)


def test_an_unknown_method_and_an_empty_declaration_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="method"):
        read_record("/sirocco.v1.IntakeService/Give", b"")
    with pytest.raises(InvalidArgument, match="declaration"):
        read_record("/sirocco.v1.ControlService/Declare", b"")


def damaged(kind: type, seed: int = 3, /, **columns: Any) -> str | None:
    """Returns the field that is blamed when values replace those of a sound message."""
    message = MAKERS[kind](np.random.default_rng(seed), 9)
    _, request = encode(replace(message, **columns))
    with pytest.raises(InvalidArgument) as caught:
        decode(request)
    return caught.value.field


def test_what_a_kernel_could_not_take_is_refused() -> None:
    routed = MAKERS[Routed](np.random.default_rng(3), 9)
    assert isinstance(routed, Routed)
    nan = routed.objects.lon.copy()
    nan[4] = np.nan
    assert damaged(Routed, objects=replace(routed.objects, lon=nan)) == "objects.lon"
    assert damaged(Routed, interval_rows=routed.interval_rows + 4) == "interval_rows"
    backwards = replace(routed.terms, terms=routed.terms.terms[::-1])
    assert damaged(Routed, terms=backwards) == "terms"
    more = replace(routed.terms, counts=routed.terms.counts + np.uint16(1))
    assert damaged(Routed, terms=more) == "term_counts"
    longer = replace(routed.terms, lengths=routed.terms.lengths + 1, counts=more.counts)
    assert damaged(Routed, terms=longer) == "term_counts"
    far = replace(routed.intervals, sources=routed.intervals.sources + np.uint32(1 << 16))
    assert damaged(Routed, intervals=far) == "intervals.sources"
    found = MAKERS[Found](np.random.default_rng(3), 9)
    assert isinstance(found, Found)
    beyond = replace(found.matches, objects=found.matches.objects + 9)
    assert damaged(Found, matches=beyond) == "matches.objects"
    seed, installed = next(
        (seed, made)
        for seed in range(100)
        if isinstance(made := MAKERS[Installed](np.random.default_rng(seed), 9), Installed)
        and made.kinds.any()
    )
    assert damaged(Installed, seed, past_ms=installed.past_ms - (1 << 60)) == "past_ms"
    assert damaged(Installed, seed, kinds=installed.kinds[1:]) == "kinds"
    assert damaged(Installed, seed, locators=(bytes(24),) * 9) == "locators"
    places = {"homes": np.ones(9, np.bool_), "via": np.ones(len(routed.terms.terms), np.bool_)}
    assert damaged(Routed, **places | {"homes": np.ones(17, np.bool_)}) == "homes"
    assert damaged(Routed, **places | {"via": np.ones(1, np.bool_)}) == "via"


@pytest.mark.parametrize(("most", "size"), [(1, 0), (2, 1), (255, 1), (256, 2), (65_535, 2)])
def test_repeats_of_terms_take_as_little_as_they_need(most: int, size: int) -> None:
    routed = MAKERS[Routed](np.random.default_rng(3), 60)
    assert isinstance(routed, Routed)
    counts = np.ones_like(routed.terms.counts)
    counts[0] = most
    lengths = np.diff(routed.terms.offsets).astype(np.int32)
    lengths[int(np.flatnonzero(lengths)[0])] += most - 1
    message = replace(routed, terms=replace(routed.terms, counts=counts, lengths=lengths))
    _, request = encode(message)
    assert isinstance(request, RouteRequest)
    assert len(request.term_counts) == size * len(counts)
    assert len(request.token_counts) == (4 * len(lengths) if size else 0)
    assert differences(message, decode(request)) == []


def test_a_change_whose_query_does_not_fit_its_handle_is_refused() -> None:
    query = parse_query({"id": "q", "kind": "range", "mode": "continuous"})
    request = encode(
        Change(handle=1, query=query, subscriber="s", start_ms=5, expected_revision=7, digest=9)
    )[1]
    with pytest.raises(InvalidArgument) as caught:
        decode(request)
    assert caught.value.field == "handle"


@pytest.mark.parametrize(("keywords", "slots"), [(2, 3), (0, 1), (1, 0)])
def test_keywords_without_their_slots_are_refused(keywords: int, slots: int) -> None:
    request = SummariseRequest(keywords=bytes(8 * keywords), slots=bytes(8 * slots))
    with pytest.raises(InvalidArgument) as raised:
        decode(request)
    assert raised.value.field == "slots"
