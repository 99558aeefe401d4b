"""Searches on the wire: requests, parts of answers, and detected damage."""

from __future__ import annotations

import random
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from sirocco_api.v1 import search_service_pb2 as pb

from sirocco.codec.queries import write_query
from sirocco.codec.search import (
    MESSAGE_BYTES_MAX,
    put_question,
    read_part,
    read_question,
    row_chunks,
    sum_chunks,
    write_answer,
    write_failure,
    write_part,
)
from sirocco.codec.tokens import read_position_token
from sirocco.internal_api.v1 import slot_search_service_pb2 as slot_pb
from sirocco.model.errors import InvalidArgument, ResourceExhausted
from sirocco.model.objects import ObjectColumns, pack_bytes
from sirocco.model.query import parse_query
from sirocco.protocol.contract.columns import EventColumns
from sirocco.protocol.search.messages import (
    DONE,
    MORE,
    MOVED,
    AnswerRows,
    Leftovers,
    Part,
    Question,
    Ranking,
    TermSums,
)
from sirocco.protocol.search.term_merge import TermCounts
from tests.support.seeds import drawn_seed
from tests.support.values import columns_of

QUERIES = [
    {"kind": "range", "text": "fire AND NOT drill", "window": "3h"},
    {"kind": "knn", "point": {"lon": 1.5, "lat": -2.5}, "k": 7, "where": {"size": {"gte": 3}}},
    {"kind": "terms", "k": 5, "region": {"circle": {"lon": 1.0, "lat": 2.0, "radius_m": 9.0}}},
    {
        "kind": "ranked",
        "point": {"lon": 1.5, "lat": -2.5},
        "radius_m": 100.0,
        "k": 7,
        "keywords": ["light", "triangle"],
        "half_life": "3d",
    },
]


def objects_of(count: int, text: str = "a") -> tuple[ObjectColumns, EventColumns]:
    objects = columns_of([{"id": i, "lon": 1.0, "lat": 2.0, "text": text} for i in range(count)])
    numbers = np.arange(count, dtype=np.uint64)
    return objects, EventColumns(numbers + np.uint64(9), numbers, numbers.astype(np.int64))


def same(ours: Any, theirs: Any) -> bool:
    """Returns whether two values are equal, arrays by content and type."""
    if isinstance(ours, np.ndarray):
        return ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    if is_dataclass(ours):
        names = [each.name for each in fields(ours) if each.compare]
        return all(same(getattr(ours, name), getattr(theirs, name)) for name in names)
    if isinstance(ours, tuple) and ours and is_dataclass(ours[0]):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return bool(ours == theirs)


@pytest.mark.parametrize("members", QUERIES, ids=lambda members: members["kind"])
def test_questions_travel(members: dict[str, Any]) -> None:
    query = parse_query({"id": "q", "mode": "snapshot", **members})
    for radius_m in (None, 0.0, 12.5):
        question = Question(
            query=query,
            slots=(1, 5, 9),
            now_ms=7,
            from_ms=-(1 << 63) + 1,
            upto_ms=8,
            position_token="1.2",
            timeout_ms=500,
            radius_m=radius_m,
            answers=3,
            parts=4,
            nearby=(0, 2),
            leftovers_of=12,
        )
        message = slot_pb.SlotQuestion()
        put_question(message, question, write_query(query, ""))
        again = slot_pb.SlotQuestion.FromString(message.SerializeToString())
        assert read_question(again) == question


def test_a_standing_query_is_no_question() -> None:
    query = parse_query({"id": "q", "kind": "range", "mode": "continuous"})
    message = slot_pb.SlotQuestion(query=write_query(query, "s"))
    with pytest.raises(InvalidArgument) as caught:
        read_question(message)
    assert caught.value.field == "mode"


def a_part() -> Part:
    objects, events = objects_of(3)
    return Part(
        slots=np.array([4, 6, 7], np.uint32),
        states=np.array([DONE, MORE, MOVED], np.uint8),
        row_ends=np.array([1, 3, 3], np.int64),
        objects=objects,
        events=events,
        distances_m=np.array([0.0, 1.5, 2.25]),
        terms=TermSums(
            np.array([9, 1 << 63, 5], np.uint64),
            np.array([3, 2, 1], np.uint64),
            *pack_bytes(["ö".encode(), b"z"]),
        ),
        ranking=Ranking(
            8,
            90,
            np.array([5, 0], np.uint64),
            np.array([4, 5, 6], np.uint32),
            np.array([[1, 0], [2, 0], [65_535, 1]], np.uint16),
        ),
        is_last=True,
        is_waiting=True,
        map_version=3,
        leftovers=(leftovers_of([7, 70_000], -3), leftovers_of([], None)),
    )


def leftovers_of(leaves: list[int], archived_upto_ms: int | None) -> Leftovers:
    return Leftovers(
        slot=6,
        epoch=1 << 40,
        version=3,
        leaves=np.array(leaves, np.int32),
        archived_upto_ms=archived_upto_ms,
    )


def test_parts_travel() -> None:
    for part in (a_part(), Part(), Part(is_last=True)):
        raw = write_part(7, part).SerializeToString()
        message = slot_pb.SearchSlotsResponse.FromString(raw)
        assert message.question == 7
        again = read_part(message)
        assert same(part, again)


def test_failures_travel() -> None:
    message = write_failure(7, ResourceExhausted("full", retry_after_ms=70))
    again = read_part(slot_pb.SearchSlotsResponse.FromString(message.SerializeToString()))
    assert isinstance(again, ResourceExhausted)
    assert (again.message, again.retry_after_ms, message.is_last) == ("full", 70, True)


DAMAGE = {
    "slots": "slots",
    "states": "states",
    "row_ends": "row_ends",
    "distances_m": "distances_m",
    "objects.ids": "objects.ids",
    "events.numbers": "events.numbers",
    "terms.counts": "terms.counts",
    "terms.text_offsets": "terms.text_offsets",
    "terms.texts": "terms.text_offsets",
    "ranked.frequencies": "ranked.frequencies",
    "ranked.token_counts": "ranked.token_counts",
    "ranked.holders": "ranked.holders",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_parts_are_reported(damage: str) -> None:
    message = write_part(7, a_part())
    holder, _, name = damage.rpartition(".")
    part = getattr(message, holder) if holder else message
    setattr(part, name, getattr(part, name)[:-1])
    with pytest.raises(InvalidArgument) as caught:
        read_part(message)
    assert caught.value.field == DAMAGE[damage]


@pytest.mark.parametrize("row_ends", [[2, 1, 3], [1, 2, 2], [1, 2, 4]])
def test_rows_of_no_slot_are_reported(row_ends: list[int]) -> None:
    message = write_part(7, a_part())
    message.row_ends = np.array(row_ends, "<u4").tobytes()
    with pytest.raises(InvalidArgument) as caught:
        read_part(message)
    assert caught.value.field == "row_ends"


def test_more_texts_than_terms_are_reported() -> None:
    message = write_part(7, a_part())
    message.terms.text_offsets = np.array([0, 1, 2, 3, 3], "<u4").tobytes()
    with pytest.raises(InvalidArgument) as caught:
        read_part(message)
    assert caught.value.field == "terms.text_offsets"


def test_large_answers_go_in_pieces_that_make_the_whole() -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    lengths = [rng.choice([0, 10, 5_000, 60_000]) for _ in range(300)]
    objects = columns_of(
        [
            {"id": i, "lon": 1.0, "lat": 2.0, "text": "x" * length}
            for i, length in enumerate(lengths)
        ]
    )
    _, events = objects_of(len(objects))
    answer = AnswerRows(objects, events, np.arange(float(len(objects))))
    responses = list(write_answer(answer))
    assert len(responses) > 3, f"seed {seed}"
    assert all(len(one.SerializeToString()) <= MESSAGE_BYTES_MAX for one in responses)
    ids = b"".join(one.objects.ids for one in responses)
    assert np.array_equal(np.frombuffer(ids, np.uint64), objects.ids), f"seed {seed}"
    assert b"".join(one.objects.text for one in responses) == objects.text.tobytes()
    values = np.frombuffer(b"".join(one.values for one in responses))
    assert np.array_equal(values, answer.values)
    runs = list(row_chunks(objects, 1))
    assert runs == [(i, i + 1) for i in range(len(objects))]


def test_no_rows_make_no_message() -> None:
    assert list(write_answer(AnswerRows())) == []
    assert list(row_chunks(objects_of(0)[0])) == []


def test_many_terms_go_in_pieces_that_make_the_whole() -> None:
    count = 150_000
    texts, offsets = pack_bytes([f"term{i}".encode() for i in range(count)])
    counts = np.arange(count, dtype=np.uint64)
    responses = list(write_answer(AnswerRows(terms=TermCounts(texts, offsets, counts))))
    assert len(responses) > 2
    assert b"".join(one.terms.terms for one in responses) == texts.tobytes()
    assert all(len(one.SerializeToString()) <= MESSAGE_BYTES_MAX for one in responses)
    named = pack_bytes([f"term{i}".encode() for i in range(70_000)])
    sums = TermSums(counts, counts, *named)
    parts = list(sum_chunks(sums))
    assert len(parts) > 2
    assert np.array_equal(np.concatenate([part.hashes for part in parts]), counts)
    assert b"".join(part.texts.tobytes() for part in parts) == named[0].tobytes()
    assert sum(len(part.text_offsets) - 1 for part in parts) == 70_000
    assert all(part.text_offsets[0] == 0 for part in parts)
    for part in parts:
        again = read_part(write_part(1, Part(terms=part)))
        assert isinstance(again, Part)
        assert same(again.terms, part)


def test_position_tokens() -> None:
    assert read_position_token("", 4) == {}
    assert read_position_token("0.7,3.0", 4) == {0: 7, 3: 0}
    for bad in ("x", "0", "4.7", "-1.4", "0.-4", "0.1,", "0.1.2", "0.1;1.2"):
        with pytest.raises(InvalidArgument) as caught:
            read_position_token(bad, 4)
        assert caught.value.field == "position_token"


def test_states_are_those_of_the_contract() -> None:
    assert (MORE, DONE, MOVED) == (
        slot_pb.SLOT_STATE_MORE,
        slot_pb.SLOT_STATE_DONE,
        slot_pb.SLOT_STATE_MOVED,
    )
    assert pb.SearchEnd(missing_slots=[1]).missing_slots == [1]


def test_events_without_their_objects_are_damage() -> None:
    message = write_part(7, Part(is_last=True))
    assert not message.HasField("objects")
    read = read_part(message)
    assert isinstance(read, Part)
    assert (len(read.objects), len(read.events), read.is_last) == (0, 0, True)
    message.events.sessions = bytes(8)
    with pytest.raises(InvalidArgument) as caught:
        read_part(message)
    assert caught.value.field is not None
    assert caught.value.field.startswith("events.")
