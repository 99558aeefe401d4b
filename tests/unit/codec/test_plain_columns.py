"""Plain queries read and written as columns, against the codec of single ones."""

from __future__ import annotations

import math
import random
from itertools import islice, product
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from sirocco_api.v1 import query_pb2
from sirocco_api.v1.query_service_pb2 import RegisterQueriesRequest, UnregisterQueriesRequest
from xxhash import xxh3_64_intdigest

from sirocco.codec.change_columns import read_change_columns, write_change_columns
from sirocco.codec.changes import read_change, write_change
from sirocco.codec.plain_queries import read_plain_queries, read_removed_queries
from sirocco.codec.queries import read_query, write_query
from sirocco.index.base.compile import compile_queries
from sirocco.internal_api.v1 import registry_service_pb2 as registry_pb
from sirocco.model.errors import InvalidArgument
from sirocco.model.query import fingerprint_of, query_handle
from sirocco.protocol.contract.effects import ChangeRequest
from sirocco.protocol.contract.plain_queries import PlainChanges, PlainQueries, Removals
from sirocco.protocol.router.queries.pending_changes import digest_of
from tests.support.cpu_time import cpu_ratio

WORDS = ("coffee", "Tea", "a", "b_2", "AND", "and", "Or", "not", "x" * 40, "42", "_")
SIDES = (0.0, -0.0, 1.5, -73.98, 40.75, 1e-7, 1e-300, 89.999999999999, 12.0, 0.1 + 0.2)


def message(query_id: str = "q", **members: Any) -> query_pb2.Query:
    one = query_pb2.Query(id=query_id, subscriber="s", mode=query_pb2.QUERY_MODE_CONTINUOUS)
    one.range.SetInParent()
    for name, value in members.items():
        setattr(one.range if name in {"text", "track"} else one, name, value)
    return one


def with_box(one: query_pb2.Query, *sides: float) -> query_pb2.Query:
    rect = one.range.region.rect
    rect.SetInParent()
    rect.west, rect.south, rect.east, rect.north = sides
    return one


def drawn(dice: random.Random) -> query_pb2.Query:
    """Returns a plain query."""
    query_id = "".join(dice.choices("abcXYZ0189/:-~ !", k=dice.choice([1, 8, 20, 128])))
    one = message(query_id)
    one.subscriber = dice.choice(["s", "another subscriber", "t" * 128])
    if dice.random() < 0.9:
        west, east = sorted(dice.choices(SIDES, k=2))
        south, north = sorted(dice.choices(SIDES, k=2))
        with_box(one, west, south, east, north)
    if dice.random() < 0.9:
        text = dice.choice(["coffee", "Tea"])
        for _ in range(dice.randint(0, 4)):
            text += dice.choice([" ", " AND "]) + dice.choice([w for w in WORDS if w != "AND"])
        one.range.text = text
    return one


def columns(*queries: query_pb2.Query) -> tuple[list[int], PlainQueries] | None:
    request = RegisterQueriesRequest(queries=queries, start_ms=5)
    found = read_plain_queries(request.SerializeToString(), len(queries))
    return None if found is None else (found[0].tolist(), found[1])


def test_columns_hold_what_single_queries_do() -> None:
    dice = random.Random(11)
    queries = [drawn(dice) for _ in range(600)]
    found = columns(*queries)
    assert found is not None
    rows, plain = found
    assert rows == list(range(600))
    values = [read_query(one) for one in queries]
    for row, (query, subscriber) in enumerate(values):
        request = ChangeRequest(
            action="register", id=query.id, query=query, subscriber=subscriber, start_ms=0
        )
        assert plain.query(row) == query
        assert plain.subscriber(row) == subscriber
        assert int(plain.handles[row]) == query_handle(query.id)
        assert int(plain.fingerprints[row]) == fingerprint_of(query.id)
        assert int(plain.digests[row]) == digest_of(request), query
    compiled = compile_queries([query for query, _ in values], [0] * len(values))
    for name in compiled.__slots__:
        wanted, got = getattr(compiled, name), getattr(plain.rows, name)
        assert wanted.dtype == got.dtype, name
        np.testing.assert_array_equal(wanted, got, name)


OTHERS = [
    message(text="a OR b"),
    message(text="a NOT b"),
    message(text="NOT"),
    message(text="ANY"),
    message(text="AND a"),
    message(text="a AND"),
    message(text="a AND AND b"),
    message(text="a  b"),
    message(text=" a"),
    message(text="a "),
    message(text="(a)"),
    message(text='"a b"'),
    message(text="a*"),
    message(text="caffè"),
    message(text="a " * 128 + "a"),
    message(track="bus"),
    message(ttl_ms=5),
    message(window_ms=5),
    message(where='{"a": 1}'),
    message('with"quote'),
    message("with\\backslash"),
    message("with\nline"),
    message("é"),
    message("i" * 129),
    message(""),
    message(subscriber=""),
    message(mode=query_pb2.QUERY_MODE_SNAPSHOT),
    message(mode=query_pb2.QUERY_MODE_UNSPECIFIED),
    with_box(message(), 1, 0, -1, 1),
    with_box(message(), 0, 1, 1, 0),
    with_box(message(), -180, 0, 1, 1),
    with_box(message(), 0, 0, 180, 1),
    with_box(message(), 0, 0, 1, 91),
    with_box(message(), math.nan, 0, 1, 1),
    with_box(message(), 0, 0, 1, math.inf),
    query_pb2.Query(id="q", subscriber="s", mode=query_pb2.QUERY_MODE_CONTINUOUS),
    query_pb2.Query(
        id="q", subscriber="s", mode=query_pb2.QUERY_MODE_CONTINUOUS, knn=query_pb2.KnnKind(k=1)
    ),
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda one: str(one)[:40])
def test_all_others_are_left_to_the_usual_reader(other: query_pb2.Query) -> None:
    found = columns(message("before"), other, message("after"))
    assert found is not None
    rows, plain = found
    assert rows == [0, 2]
    assert [plain.id(0), plain.id(1)] == ["before", "after"]


def test_a_request_of_others_alone_has_no_columns() -> None:
    assert columns(message(text="a OR b")) is None
    assert columns() is None


def changes_of(dice: random.Random, count: int) -> PlainChanges:
    found = columns(*(drawn(dice) for _ in range(count)))
    assert found is not None
    numbers = [0, 1, 127, 128, 1_700_000_000_000, (1 << 53) + 1]
    return PlainChanges(
        queries=found[1],
        starts_ms=np.array([dice.choice([-5, *numbers]) for _ in range(count)], np.int64),
        expected_revisions=np.array([dice.choice([-1, *numbers]) for _ in range(count)], np.int64),
        epochs=np.array(dice.choices(numbers, k=count), np.int64),
        sinces=np.array([dice.choice([-1, *numbers]) for _ in range(count)], np.int64),
        are_starts_given=np.array(dice.choices([True, False], k=count), np.bool_),
    )


def test_records_are_those_of_single_changes() -> None:
    changes = changes_of(random.Random(12), 300)
    values = write_change_columns(changes)
    for row, value in enumerate(values):
        assert value == write_change(changes.change(row)).SerializeToString(deterministic=True)
    ((rows, read),) = read_change_columns(values)
    # The times of a few are beyond what a change may have.
    assert len(rows) > 200
    for place, row in enumerate(rows.tolist()):
        assert read.change(place) == changes.change(row)


def test_only_records_of_plain_queries_are_read_as_columns() -> None:
    changes = changes_of(random.Random(13), 6)
    requests = [write_change(changes.change(row)) for row in range(6)]
    for request in requests:
        request.start_ms = 7
    requests[0].past_ms = 0
    requests[1].restated = True
    requests[2].handle += 1
    requests[3].digest ^= 1
    requests[4].query.ttl_ms = 9
    ((rows, _),) = read_change_columns([request.SerializeToString() for request in requests])
    assert rows.tolist() == [5]
    assert not read_change_columns([request.SerializeToString() for request in requests[:5]])


def removals_of(dice: random.Random, count: int) -> Removals:
    numbers = [0, 1, 127, 128, 1_700_000_000_000, (1 << 53) + 1]
    return Removals(
        handles=np.array([dice.randrange(1, 1 << 64) for _ in range(count)], np.uint64),
        starts_ms=np.array([dice.choice([-5, *numbers[:-1]]) for _ in range(count)], np.int64),
        expected_revisions=np.array([dice.choice([-1, *numbers]) for _ in range(count)], np.int64),
        epochs=np.array(dice.choices(numbers, k=count), np.int64),
    )


def test_records_of_removals_are_those_of_single_ones() -> None:
    removals = removals_of(random.Random(15), 300)
    values = write_change_columns(removals)
    for row, value in enumerate(values):
        assert value == write_change(removals.change(row)).SerializeToString(deterministic=True)
    ((rows, read),) = read_change_columns(values)
    assert rows.tolist() == list(range(300))
    assert [read.change(row) for row in range(300)] == [removals.change(row) for row in range(300)]


def test_other_records_without_a_query_are_no_removals_in_columns() -> None:
    removals = removals_of(random.Random(16), 8)
    requests = [write_change(removals.change(row)) for row in range(8)]
    requests[0].restated = True
    # A probe.
    requests[1].digest = 7
    requests[2].handle = 0
    requests[3].since = 3
    requests[4].locator = b"l"
    requests[5].start_given = True
    requests[6].query.SetInParent()
    ((rows, _),) = read_change_columns([request.SerializeToString() for request in requests])
    assert rows.tolist() == [7]
    times = removals_of(random.Random(16), 2)
    times.starts_ms[:] = 1 << 60
    assert not read_change_columns(write_change_columns(times))


def test_records_of_both_kinds_are_read_together() -> None:
    dice = random.Random(17)
    changes, removals = changes_of(dice, 4), removals_of(dice, 4)
    changes.starts_ms[:] = 7
    pairs = zip(write_change_columns(changes), write_change_columns(removals), strict=True)
    found = read_change_columns([value for pair in pairs for value in pair])
    assert [rows.tolist() for rows, _ in found] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert [type(columns) for _, columns in found] == [PlainChanges, Removals]


def test_ids_that_are_to_be_removed_are_read_as_columns() -> None:
    names = ["a", "", "é" * 64, "é" * 65, "x" * 128, "x" * 129, "b\n"]
    request = UnregisterQueriesRequest(ids=names)
    rows, queries = read_removed_queries(request.SerializeToString(), len(names))
    assert rows.tolist() == [0, 2, 4, 6]
    kept = [names[row] for row in rows.tolist()]
    assert [queries.id(row) for row in range(4)] == kept
    assert queries.handles.tolist() == [query_handle(name) for name in kept]
    assert queries.fingerprints.tolist() == [fingerprint_of(name) for name in kept]
    some = queries.take(np.array([3, 1]))
    assert [some.id(0), some.id(1)] == ["b\n", "é" * 64]


def test_damaged_messages_are_read_as_the_usual_reader_does_or_not_at_all() -> None:
    dice = random.Random(14)
    changes = changes_of(dice, 40)
    read_as_columns = 0
    values = write_change_columns(changes) + write_change_columns(removals_of(dice, 40))
    for value in values * 20:
        damaged = bytearray(value[: dice.choice([len(value), dice.randrange(len(value))])])
        for _ in range(dice.randint(0, 2)):
            if damaged:
                damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        found = read_change_columns([bytes(damaged)])
        if not found:
            continue
        read_as_columns += 1
        try:
            usual = read_change(registry_pb.ChangeRequest.FromString(bytes(damaged)))
        except (DecodeError, InvalidArgument) as error:
            raise AssertionError(f"columns of {damaged.hex()}") from error
        assert found[0][1].change(0) == usual
    assert read_as_columns > 50


def test_a_query_survives_both_writers() -> None:
    found = columns(with_box(message(text="b AND a"), 1, 2, 3, 4))
    assert found is not None
    query = found[1].query(0)
    assert read_query(write_query(query, "s"))[0] == query


def test_words_chosen_for_their_hashes_cost_little_more_than_others() -> None:
    def texts(mask: int) -> list[query_pb2.Query]:
        every = ("".join(each) for each in product("abcdefghijklmnopqrstuvwxyz", repeat=6))
        fitting = (word for word in every if not xxh3_64_intdigest(word.encode()) & mask)
        words = list(islice(fitting, 6_000))
        return [message(text=" ".join(words[i : i + 30])) for i in range(0, len(words), 30)]

    # Without a secret all of them would be next to each other in the table of words.
    chosen, others = texts(0xFF00), texts(0)
    assert cpu_ratio(lambda: columns(*chosen), lambda: columns(*others)) < 4
