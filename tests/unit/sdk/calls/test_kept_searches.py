"""When clients keep streams for searches, and what becomes of these streams; on both clients."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from sirocco_api.v1 import search_service_pb2 as pb
from sirocco_api.v1.errors_pb2 import Error
from sirocco_client import (
    Client,
    ConnectionChange,
    FailedPrecondition,
    InvalidArgument,
    RangeQuery,
    Unauthenticated,
)
from sirocco_client.calls.kept_searches import (
    REST_S,
    STREAMS_MAX,
    WARM_S,
    BrokenStream,
    Numbered,
    StreamRules,
)
from sirocco_client.calls.searching import Searching

from tests.support.drivers import DRIVERS
from tests.support.fake_cluster import Failure
from tests.support.fake_merger import FakeMerger, Plan, end_response, objects_response
from tests.support.search_ways import STREAMS, take
from tests.support.waiting import eventually

EVERYWHERE = RangeQuery(id="r", subscriber="", mode="snapshot")
FOUND = Plan([objects_response([2, 1]), end_response()])


@pytest.fixture
def merger() -> Iterator[FakeMerger]:
    found = FakeMerger(deque([FOUND]), has_streams=True)
    yield found
    found.stop()


@pytest.fixture
def client(merger: FakeMerger, connect: Callable[..., Any]) -> Any:
    return connect("127.0.0.1:1", mergers=[merger.address])


def test_a_stream_is_opened_by_a_search_that_follows_closely() -> None:
    rules = StreamRules()
    assert not rules.begins(0.0)
    assert rules.begins(WARM_S / 2)
    assert not rules.begins(2 * WARM_S)


def test_no_stream_is_opened_beyond_the_bound_or_soon_after_one_broke() -> None:
    rules = StreamRules()
    assert rules.may_open("a", STREAMS_MAX - 1, 0.0)
    assert not rules.may_open("a", STREAMS_MAX, 0.0)
    rules.broke("a", 5.0)
    assert not rules.may_open("a", 0, 5.0 + REST_S / 2)
    assert rules.may_open("b", 0, 5.0)
    assert rules.may_open("a", 0, 5.0 + REST_S)


def test_an_answer_to_another_search_is_not_taken() -> None:
    numbered = Numbered()
    state = Searching(EVERYWHERE, None, None, False)
    first, second = (numbered.request(state.request(1.0)) for _ in range(2))
    assert (first.kept, second.kept) == (True, False)
    late = pb.NumberedResponse(number=first.searches[0].number, response=FOUND.responses[0])
    with pytest.raises(BrokenStream):
        numbered.received(pb.SearchManyResponse(responses=[late]), state)
    assert not state.answer().ids


def test_searches_that_follow_one_another_share_a_stream(merger: FakeMerger, client: Any) -> None:
    for _ in range(6):
        assert client.search(EVERYWHERE).ids == [1, 2]
    assert merger.streams == 1
    assert len(merger.requests) == 6


def test_an_error_leaves_the_stream_to_the_next_search(
    merger: FakeMerger, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(STREAMS, monkeypatch)
    error = Error(code="INVALID_ARGUMENT", message="is no region", field="region")
    merger.plans.appendleft(Plan(failure=Failure(grpc.StatusCode.INVALID_ARGUMENT, error)))
    with pytest.raises(InvalidArgument, match="is no region"):
        client.search(EVERYWHERE)
    assert client.search(EVERYWHERE).ids == [1, 2]
    assert merger.streams == 1


def test_a_stream_that_is_refused_or_breaks_is_no_failure_of_a_search(
    merger: FakeMerger, connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    take(STREAMS, monkeypatch)
    changes: list[ConnectionChange] = []
    client = connect("127.0.0.1:1", mergers=[merger.address], on_connection=changes.append)
    merger.plans.appendleft(Plan([objects_response([9])], Failure()))
    for _ in range(3):
        assert client.search(EVERYWHERE).ids == [1, 2]
    # The first search was sent again, in a call, and those after it were not tried on a stream.
    assert merger.streams == 1
    assert len(merger.requests) == 4
    assert changes == []


def test_what_a_call_is_refused_for_is_told(
    merger: FakeMerger, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(STREAMS, monkeypatch)
    error = Error(code="UNAUTHENTICATED", message="who")
    merger.plans.extendleft([Plan(failure=Failure(grpc.StatusCode.UNAUTHENTICATED, error))])
    merger.plans.extendleft([Plan(failure=Failure(grpc.StatusCode.UNAUTHENTICATED))])
    with pytest.raises(Unauthenticated, match="who"):
        client.search(EVERYWHERE)


def test_idle_streams_are_closed(
    merger: FakeMerger, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(STREAMS, monkeypatch)
    getattr(client, "client", client)._searches._kept._idle_s = 0.01
    assert client.search(EVERYWHERE).ids == [1, 2]
    assert eventually(lambda: merger.open_streams == 0 and merger.streams == 1)
    assert eventually(lambda: "sirocco-streams" not in [one.name for one in threading.enumerate()])
    assert client.search(EVERYWHERE).ids == [1, 2]
    assert merger.streams == 2


def test_searches_at_the_same_time_have_a_stream_each_or_are_calls(
    merger: FakeMerger, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(STREAMS, monkeypatch)
    count = STREAMS_MAX + 3
    merger.gate = threading.Barrier(count)
    found: list[list[int | str]] = []
    with Client("127.0.0.1:1", mergers=[merger.address]) as client:
        threads = [
            threading.Thread(target=lambda: found.append(client.search(EVERYWHERE).ids))
            for _ in range(count)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert found == [[1, 2]] * count
        assert merger.streams == STREAMS_MAX


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_a_client_that_is_closed_ends_its_searches_and_streams(
    driver: str, merger: FakeMerger, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(STREAMS, monkeypatch)
    client = DRIVERS[driver]("127.0.0.1:1", mergers=[merger.address])
    assert client.search(EVERYWHERE).ids == [1, 2]
    merger.gate = threading.Barrier(2)
    errors: list[Exception] = []

    def search() -> None:
        try:
            client.search(EVERYWHERE)
        except FailedPrecondition as error:
            errors.append(error)

    waiting = threading.Thread(target=search)
    waiting.start()
    assert eventually(lambda: merger.gate is not None and merger.gate.n_waiting)
    client.close()
    waiting.join(60)
    assert [str(error) for error in errors] == ["the client is closed"]
    merger.gate.abort()
    assert eventually(lambda: merger.open_streams == 0)
    with pytest.raises(FailedPrecondition):
        client.search(EVERYWHERE)
    client.__exit__(None, None, None)


def test_a_forked_process_has_streams_of_its_own(
    merger: FakeMerger, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(STREAMS, monkeypatch)
    with Client("127.0.0.1:1", mergers=[merger.address]) as client:
        client.search(EVERYWHERE)
        parents = client._searches._kept
        assert len(parents._streams) == 1
        child = os.getpid() + 1
        with monkeypatch.context() as forked, parents._changed:
            # As if the parent's lock was held when it forked.
            forked.setattr(os, "getpid", lambda: child)
            assert client.search(EVERYWHERE).ids == [1, 2]
        assert merger.streams == 2
