"""A process reads its own changes of queries back without parsing, with the same result."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from sirocco.codec import changes
from sirocco.codec.changes import WRITTEN_MAX, WrittenQueries, read_change, write_change
from sirocco.index.standing.locators import HOME, Alternative, write_locator
from sirocco.model.errors import InvalidArgument
from sirocco.model.query import Query, parse_query, query_handle
from sirocco.protocol.contract.messages import NO_PAST, Change
from tests.support.random_messages import random_query


@pytest.mark.parametrize("seed", range(100))
def test_a_change_is_the_same_taken_back_and_parsed(seed: int) -> None:
    query = random_query(np.random.default_rng(seed))
    request = write_change(
        Change(
            handle=query_handle(query.id),
            query=query,
            subscriber="sub",
            start_ms=5,
            expected_revision=7,
            digest=9,
        )
    )
    taken = read_change(request)
    parsed = read_change(request)
    assert taken.query is query, f"seed={seed}"
    assert parsed.query is not query, f"seed={seed}"
    assert parsed == taken, f"seed={seed}"


def small(number: int) -> Query:
    return parse_query({"id": f"q{number}", "kind": "range", "mode": "continuous"})


@pytest.mark.parametrize("past_ms", [0, 5, (1 << 63) - 1])
def test_how_far_back_to_answer_travels_and_is_never_negative(past_ms: int) -> None:
    change = Change(
        handle=query_handle("q1"),
        query=small(1),
        subscriber="s",
        start_ms=5,
        expected_revision=7,
        digest=9,
        past_ms=past_ms,
    )
    request = write_change(change)
    assert read_change(request) == change
    assert not write_change(replace(change, past_ms=NO_PAST)).HasField("past_ms")
    request.past_ms = -1
    with pytest.raises(InvalidArgument) as caught:
        read_change(request)
    assert caught.value.field == "past_ms"


def test_a_locator_travels_and_is_sound() -> None:
    locator = write_locator([Alternative(7, (5, 7), (9,)), HOME])
    change = Change(
        handle=query_handle("q1"),
        query=small(1),
        subscriber="s",
        start_ms=5,
        expected_revision=7,
        digest=9,
        locator=locator,
    )
    assert read_change(write_change(change)) == change
    wrong = replace(change, locator=write_locator([Alternative(7, (5,))]))
    with pytest.raises(InvalidArgument) as caught:
        read_change(write_change(wrong))
    assert caught.value.field == "locator"


def test_the_oldest_make_room() -> None:
    written = WrittenQueries()
    query = small(0)
    for number in range(WRITTEN_MAX + 10):
        written.keep(b"%d" % number, query, "s")
    assert len(written) == WRITTEN_MAX
    assert written.take(b"9") is None
    assert written.take(b"10") == (query, "s")
    assert written.take(b"10") is None
    assert len(written) == WRITTEN_MAX - 1


@pytest.mark.parametrize(
    "members",
    [
        {"text": "ANY(" + " ".join("abcdefghi") + ")"},
        {"text": "a " * 500},
        {"region": {"polygon": [[[x / 100, x % 7] for x in range(100)]]}},
    ],
)
def test_large_queries_are_not_kept(
    members: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "_written", WrittenQueries())
    query = parse_query({"id": "q", "kind": "range", "mode": "continuous"} | members)
    request = write_change(
        Change(
            handle=query_handle("q"),
            query=query,
            subscriber="s",
            start_ms=0,
            expected_revision=-1,
            digest=1,
        )
    )
    assert len(changes._written) == 0
    assert read_change(request).query == query


def test_threads_share_what_was_written() -> None:
    written = WrittenQueries()
    query = small(1)
    taken: list[int] = []

    def run(thread: int) -> None:
        for number in range(5_000):
            key = b"%d/%d" % (thread, number)
            written.keep(key, query, "s")
            taken.append(written.take(key) is not None)

    threads = [threading.Thread(target=run, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(taken) == 20_000
    assert len(written) == 0
