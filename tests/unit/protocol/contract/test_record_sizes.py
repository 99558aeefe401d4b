"""Records derived from accepted inputs fit the log: the largest of every kind of record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sirocco.codec.changes import read_change, write_change
from sirocco.codec.hops import HOPS, encode
from sirocco.codec.installs import read_installed, write_installed
from sirocco.model.errors import InvalidArgument
from sirocco.model.limits import DEFAULT_LIMITS, STORED_LIMITS
from sirocco.model.objects import ObjectColumns, ObjectColumnsBuilder, ObjectRow, split_valid
from sirocco.model.query import Query, parse_query, query_handle
from sirocco.model.text import analyse_batch
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.contract.control_records import (
    Attempted,
    CheckpointTaken,
    Granted,
    LeaderElected,
    MapActivated,
    MapCopied,
    MapPrepared,
    MapSwitched,
    Skipped,
)
from sirocco.protocol.contract.effects import Answer, Append, ChangeRequest
from sirocco.protocol.contract.map_change import MAP_BYTES_MAX
from sirocco.protocol.contract.messages import (
    NO_PAST,
    NO_REVISION,
    REGISTRY,
    Change,
    Delivered,
    Found,
    Installed,
    IntakeObjects,
    Keywords,
    Prepare,
    Progress,
    Retire,
    Routed,
    Switch,
    TrackedMember,
    TrackedMemberSet,
    without_content,
)
from sirocco.protocol.contract.positions import Intervals
from sirocco.protocol.contract.record_sizes import APPENDED_BYTES_MAX, RECORD_LIMITS, check_change
from sirocco.protocol.contract.term_rows import take_terms
from sirocco.protocol.evaluator.reports.partial_records import founds
from sirocco.protocol.evaluator.slot.slot import Slot
from sirocco.protocol.merger.delivery_records import deliveries
from sirocco.protocol.router.limits import LIMITS
from sirocco.protocol.router.objects.slot_records import piece_of, record_bounds
from sirocco.protocol.router.objects.track_copies import followed
from sirocco.protocol.router.queries.install_records import REMOVED_BYTES, Installs, routed_queries
from sirocco.transport.log import RECORD_BYTES_MAX
from tests.support.slot_log import INTAKE_PARTITIONS
from tests.support.values import change_of, installed_of, routed_of, uniform_routing
from tests.unit.protocol.router.test_router_machine import register, request_changes, router

# Headers, key and frame.
ROOM = 4_096

RING = [[math.cos(i / 1_000) / 10, math.sin(i / 1_000) / 10] for i in range(6_000)]
WORDS = " ".join(f"w{i}" for i in range(1_000)) + "".join(f" (a{i} OR b{i})" for i in range(8))
WIDE = {f"a{i:02}": {"in": [f"{j:04}" + "v" * 58 for j in range(56)]} for i in range(64)}
# As in the issue: within the documented limits, and 2.4 MB.
HUGE = {f"a{i:02}": {"in": [f"{j:04}" + "v" * 28 for j in range(1_024)]} for i in range(64)}

FULL: dict[str, Any] = {"mode": "continuous", "id": "q" * DEFAULT_LIMITS.id_bytes}
POINT = {"lon": 1.0, "lat": 2.0}
KINDS: dict[str, dict[str, Any]] = {
    "range": {"kind": "range", "region": {"polygon": [RING]}, "text": WORDS},
    "tracked": {"kind": "range", "region": {"polygon": [RING]}, "text": WORDS, "track": "t" * 256},
    "knn": {"kind": "knn", "point": POINT, "k": 10_000, "text": WORDS},
    "terms": {"kind": "terms", "k": 9, "step": "1m", "region": {"polygon": [RING]}, "text": WORDS},
    "ranked": {
        "kind": "ranked", "point": POINT, "radius_m": 1.5, "k": 9,
        "keywords": [f"{i:02}" + "k" * 900 for i in range(64)],
    },
}  # fmt: skip


def size_of(message: Any) -> int:
    return encode(message)[1].ByteSize() + ROOM


def stored_query(members: dict[str, Any]) -> Query:
    """Returns a query that an earlier version has accepted."""
    return parse_query(members, limits=STORED_LIMITS)


def fits(query: Query, subscriber: str, bytes_max: int = APPENDED_BYTES_MAX) -> bool:
    try:
        check_change(query, subscriber, bytes_max=bytes_max)
    except InvalidArgument:
        return False
    return True


def installed_for(query: Query, subscriber: str, locator: bytes = b"") -> Installed:
    change = replace(
        change_of(
            ChangeRequest(
                action="register", id=query.id, query=query, subscriber=subscriber, start_ms=0
            )
        ),
        locator=locator,
    )
    rows, slots = routed_queries([change], uniform_routing(1, 1))
    installs = Installs(0, 0)
    installs.install([(1, change)], rows, slots)
    (effect,) = installs.effects()
    assert isinstance(effect, Append)
    assert isinstance(effect.message, Installed)
    return effect.message


@pytest.mark.parametrize("where", [None, WIDE], ids=["no filter", "widest filter"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_accepted_query_fits_every_record_that_follows_from_it(
    kind: str, where: dict[str, Any] | None
) -> None:
    members = FULL | KINDS[kind] | ({} if where is None else {"where": where})
    query = stored_query(members)
    subscriber = "s" * DEFAULT_LIMITS.id_bytes
    if not fits(query, subscriber):
        return
    installed = installed_for(query, subscriber)
    assert size_of(installed) < min(RECORD_BYTES_MAX, APPENDED_BYTES_MAX + ROOM)
    change = Change(
        handle=query_handle(query.id),
        query=query,
        subscriber=subscriber,
        start_ms=0,
        expected_revision=NO_REVISION,
        digest=1,
    )
    assert size_of(change) < RECORD_BYTES_MAX
    assert read_change(write_change(change)).query == query
    assert len(read_installed(write_installed(installed)).names) == 1


def test_what_is_estimated_is_never_less_than_what_is_written() -> None:
    where = {"a": {"in": ["é" * 50, 1.25, 7]}}
    texts = [WORDS, "a AND NOT (b OR c)", "ANY(a b c d)"]
    for name, members in KINDS.items():
        for text in texts[: 1 if name == "ranked" else 3]:
            own = {} if name == "ranked" else {"text": text}
            query = stored_query(FULL | members | {"where": where} | own)
            size = size_of(installed_for(query, "s")) - ROOM
            assert not fits(query, "s", size - 1), (name, text)


@pytest.mark.parametrize("kind", ["range", "tracked", "knn", "terms", "ranked"])
def test_a_filter_of_megabytes_is_refused_by_name(kind: str) -> None:
    members = FULL | KINDS[kind] | {"where": HUGE}
    members.pop("text", None)
    with pytest.raises(InvalidArgument) as caught:
        parse_query(members)
    assert caught.value.field == "where"
    # An old front has accepted it, or an old log holds it.
    query = stored_query(members)
    if kind in ("tracked", "knn", "terms"):
        with pytest.raises(InvalidArgument) as caught:
            read_change(
                write_change(
                    Change(
                        handle=query_handle(query.id),
                        query=query,
                        subscriber="s",
                        start_ms=0,
                        expected_revision=NO_REVISION,
                        digest=1,
                    )
                )
            )
        assert "limit" in str(caught.value)


@pytest.mark.parametrize("kind", ["tracked", "knn", "terms"])
def test_the_owner_of_the_registry_refuses_what_an_older_front_lets_through(kind: str) -> None:
    one = router()
    one.own(REGISTRY, 0)
    query = stored_query(FULL | KINDS[kind] | {"where": HUGE})
    request = ChangeRequest(
        action="register", id=query.id, query=query, subscriber="s", start_ms=one.now_ms
    )
    (probe,) = request_changes(one, 1, request)
    assert isinstance(probe, Append)
    assert size_of(probe.message) < RECORD_BYTES_MAX
    (answer,) = one.poll((REGISTRY, 0, 0, probe.message))
    assert isinstance(answer, Answer)
    assert isinstance(answer.outcomes[0].error, InvalidArgument)
    # The next one is registered.
    assert register(one, "q", 1)


def test_many_queries_that_leave_a_slot_make_several_records() -> None:
    installs = Installs(0, 0)
    removed_max = LIMITS.installed_bytes_max // REMOVED_BYTES
    for handle in range(1, 2 * removed_max + 10):
        installs.leave([0], handle, 5)
    messages = [effect.message for effect in installs.effects() if isinstance(effect, Append)]
    assert [len(each.removed) for each in messages if isinstance(each, Installed)] == [
        removed_max,
        removed_max,
        9,
    ]
    assert all(size_of(each) < RECORD_BYTES_MAX for each in messages)


# --- reports of evaluators


def opened() -> Slot:
    slot = Slot(0, 1)
    slot.open(0, 0, INTAKE_PARTITIONS, 0)
    return slot


def test_matches_of_subscribers_with_long_names_fit() -> None:
    slot = opened()
    count = RECORD_LIMITS.matches_max // 2
    queries = [
        (
            i,
            {"id": f"q{i}", "kind": "range", "mode": "continuous"},
            f"{i:06}" + "s" * (DEFAULT_LIMITS.id_bytes - 6),
            0,
        )
        for i in range(count)
    ]
    slot.take([(1, installed_of(0, queries))])
    row = {"id": 1, "lon": 1, "lat": 1, "text": "x"}
    found = [f for _, f in founds(slot.take([(2, routed_of(0, 0, [row], [500]))]))]
    assert sum(len(each.matches) for each in found) == count
    assert all(size_of(each) < RECORD_BYTES_MAX for each in found)
    assert len(found) > 1
    installed_for = list(deliveries(found))
    assert all(size_of(each) < RECORD_BYTES_MAX for each in installed_for)


def test_steps_of_queries_with_large_definitions_fit() -> None:
    slot = opened()
    where = {f"a{i:02}": {"in": [f"{j:04}" + "v" * 58 for j in range(40)]} for i in range(64)}
    for i in range(40):
        members = {
            "id": f"q{i}", "kind": "terms", "mode": "continuous", "k": 3, "step": "1s",
            "window": "1m", "where": where,
        }  # fmt: skip
        slot.take([(1 + i, installed_of(0, [(1 + i, members, "s", 0)]))])
    reports = []
    for partition in range(INTAKE_PARTITIONS):
        mark = routed_of(partition, 0, [], [], time_ms=5_000)
        reports += slot.take([(100 + partition, mark)])
    found = [f for _, f in founds(reports)]
    assert sum(0 if f.steps is None else len(f.steps) for f in found) >= 40
    assert all(size_of(each) < RECORD_BYTES_MAX for each in found)


# --- records of routers


def crowded(keys: int) -> tuple[ObjectColumns, tuple[str, ...]]:
    """Returns an object of the greatest size, with many tracked members."""
    names = tuple(f"k{i:04}" for i in range(keys))
    attributes = "{" + ",".join(f'"{name}":{i}' for i, name in enumerate(names)) + "}"
    text = " ".join(np.base_repr(i + 1296, 36) for i in range(13_000))
    rows = ObjectColumnsBuilder()
    rows.add(
        ObjectRow(id=1, name="", lon=1.0, lat=2.0, ts=0, text=text, attributes=attributes.encode())
    )
    objects = rows.build()
    good, _ = split_valid(objects)
    assert len(good) == 1
    return objects, names


def routed_copies(keys: int) -> Iterator[Routed]:
    objects, names = crowded(keys)
    terms = analyse_batch(objects.text, objects.text_offsets)
    copies = followed(objects, set(names), 1)
    assert copies is not None
    assert copies.further is not None
    assert (len(copies.rows), len(copies.further.rows)) == (1, keys - 1)
    rows = np.concatenate([np.zeros(1, np.int64), copies.rows])
    count = len(rows)
    routed = Routed(
        map_version=1,
        intervals=Intervals.of([(0, 0, 1, 5)]),
        objects=objects.take(rows),
        events=EventColumns(
            np.ones(count, np.uint64), np.ones(count, np.uint64), np.ones(count, np.int64)
        ),
        positions=np.zeros(count, np.int64),
        interval_rows=np.zeros(count, np.uint32),
        terms=take_terms(terms, rows),
    )
    routed = copies.mark(routed, np.arange(count), 1)
    for first, last in record_bounds(routed, 0, count):
        yield piece_of(routed, first, last, routed.intervals, np.zeros(last - first, np.uint32))


def test_copies_of_an_object_stay_within_a_record() -> None:
    for record in routed_copies(900):
        assert size_of(record) < RECORD_BYTES_MAX
        assert record.tracks is not None
        assert record.further is not None
        named = [number for number in record.tracks.tolist() if number]
        named += record.further.tracks.tolist()
        assert {record.track_keys[number - 1] for number in named} == set(record.track_keys)


def test_texts_of_many_terms_are_cut_by_what_their_terms_take() -> None:
    text = " ".join(np.base_repr(i + 1296, 36) for i in range(13_000))
    rows = ObjectColumnsBuilder()
    for i in range(80):
        rows.add(ObjectRow(id=i, name="n" * 256, lon=1.0, lat=2.0, ts=0, text=text, attributes=b""))
    objects = rows.build()
    routed = Routed(
        map_version=1,
        intervals=Intervals.of([(0, 0, 80, 5)]),
        objects=objects,
        events=EventColumns(np.ones(80, np.uint64), np.ones(80, np.uint64), np.ones(80, np.int64)),
        positions=np.arange(80),
        interval_rows=np.zeros(80, np.uint32),
        terms=analyse_batch(objects.text, objects.text_offsets),
    )
    bounds = record_bounds(routed, 0, 80)
    assert [end for _, end in bounds[:-1]] == [begin for begin, _ in bounds[1:]]
    for first, last in bounds:
        piece = piece_of(routed, first, last, routed.intervals, np.zeros(last - first, np.uint32))
        assert size_of(piece) < RECORD_BYTES_MAX // 2


# --- every kind


def _largest_taken() -> Iterator[IntakeObjects]:
    """Returns the largest part of a publish request, see `publish.REQUEST_BYTES_MAX`."""
    objects, _ = crowded(900)
    yield IntakeObjects(
        session=1,
        first_number=1,
        span=40,
        acknowledged_to=0,
        received_ms=1,
        objects=objects.take(np.zeros(40, np.int64)),
        number_deltas=None,
    )


def _largest_installed() -> Iterator[Installed]:
    for members in KINDS.values():
        query = stored_query(FULL | members | {"where": WIDE})
        if fits(query, "s" * 256):
            yield installed_for(query, "s" * 256)


def _largest_change() -> Iterator[Change]:
    for members in KINDS.values():
        query = stored_query(FULL | members | {"where": WIDE})
        yield Change(
            handle=query_handle(query.id),
            query=query,
            subscriber="s" * 256,
            start_ms=0,
            expected_revision=0,
            digest=1,
            epoch=0,
            past_ms=NO_PAST,
        )


def _reported() -> Iterator[Found]:
    slot = opened()
    slot.take(
        [(1, installed_of(0, [(1, {"id": "q", "kind": "range", "mode": "continuous"}, "s", 0)]))]
    )
    rows = [{"id": i, "lon": 1, "lat": 1, "text": "x" * 60_000} for i in range(90)]
    for _, found in founds(slot.take([(2, routed_of(0, 0, rows, [500] * 90))])):
        yield found


SLOTS = 1 << 16
LARGEST: dict[type, Callable[[], Iterator[Any]]] = {
    IntakeObjects: _largest_taken,
    TrackedMember: lambda: iter([TrackedMember("t" * 256, 1 << 16, 1 << 60)]),
    TrackedMemberSet: lambda: iter(
        [TrackedMemberSet(1 << 16, 1 << 60, ("t" * 256,) * LIMITS.members_max)]
    ),
    Keywords: lambda: iter(
        [
            Keywords(
                partition=0,
                epoch=0,
                terms=np.zeros(127, np.uint64),
                slots=np.zeros((127, SLOTS // 64), np.uint64),
            )
        ]
    ),
    Switch: lambda: iter([Switch(1 << 40)]),
    Prepare: lambda: iter([Prepare(1 << 40)]),
    Retire: lambda: iter([Retire(1 << 40, 1 << 60)]),
    Change: _largest_change,
    Routed: lambda: routed_copies(900),
    Installed: _largest_installed,
    Found: _reported,
    Delivered: lambda: deliveries(list(_reported())),
    Progress: lambda: iter(
        [
            Progress(
                1,
                np.arange(SLOTS, dtype=np.uint32),
                np.full(SLOTS, 1 << 62, np.int64),
                np.full(SLOTS, 1 << 42, np.int64),
            )
        ]
    ),
    LeaderElected: lambda: iter([LeaderElected("m" * 256)]),
    Granted: lambda: iter([Granted(1, "slots", 1, "m" * 256)]),
    MapActivated: lambda: iter([MapActivated(1, 1, b"m" * MAP_BYTES_MAX)]),
    MapPrepared: lambda: iter([MapPrepared(1, 1, b"m" * MAP_BYTES_MAX)]),
    MapCopied: lambda: iter([MapCopied(1, 1, 1)]),
    MapSwitched: lambda: iter([MapSwitched(1, 1)]),
    CheckpointTaken: lambda: iter([CheckpointTaken("slots", 1, 1, 1 << 60, "n" * 256)]),
    Attempted: lambda: iter([Attempted("slots", 1, 1, 1, 1 << 60)]),
    Skipped: lambda: iter([Skipped("slots", 1, 1 << 60)]),
}


def test_every_kind_of_record_is_looked_at() -> None:
    assert LARGEST.keys() == HOPS.keys()


@pytest.mark.parametrize("kind", LARGEST, ids=lambda kind: kind.__name__)
def test_the_largest_of_a_kind_fits_a_record(kind: type) -> None:
    sizes = [size_of(message) for message in LARGEST[kind]()]
    assert sizes
    assert max(sizes) < RECORD_BYTES_MAX


def test_a_row_too_large_for_a_record_still_advances_positions() -> None:
    (routed, *_) = routed_copies(900)
    (found, *_) = _reported()
    for message in (routed, found):
        rest = without_content(message)
        assert isinstance(rest, Routed | Found)
        assert rest.intervals is message.intervals
        assert size_of(rest) < 2 * ROOM
    installs = Installs(0, 0)
    installs.leave([0], 7, 8)
    rest = without_content(
        replace(
            _installed_of_any(),
            removed=installs.installed(0).removed,
            removed_revisions=installs.installed(0).removed_revisions,
        )
    )
    assert isinstance(rest, Installed)
    assert (rest.removed.tolist(), len(rest.names)) == ([7], 0)
    assert without_content(_installed_of_any()) is None
    nothing = np.zeros(0, np.int64)
    assert without_content(Progress(1, np.zeros(0, np.uint32), nothing, nothing)) is None


def _installed_of_any() -> Installed:
    return installed_of(0, [(1, {"id": "q", "kind": "range", "mode": "continuous"}, "s", 0)])
