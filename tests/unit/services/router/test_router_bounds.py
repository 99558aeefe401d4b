"""Hostile page tokens, positions and streams at a router: bounded, with typed errors."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sirocco_api.v1 import query_service_pb2 as query_pb
from sirocco_api.v1.publish_service_pb2 import PublishRequest

from sirocco.internal_api.v1.owner_service_pb2 import WantedChange
from sirocco.runtime.grpc.shares import Shares
from sirocco.services.embedded import EmbeddedCluster
from sirocco.services.router.limits import FrontTimes
from sirocco.services.router.owners import REQUEST_BYTES_MAX, parts
from sirocco.services.router.service import RouterService
from tests.support.plain_client import (
    DEADLINE_S,
    PlainClient,
    new_session,
    publish_request,
    query_message,
    refused,
)

GOOD = {"id": 1, "lon": 1.0, "lat": 1.0, "text": "stranger"}


def router(cluster: EmbeddedCluster) -> RouterService:
    return next(each for each in cluster.services if isinstance(each, RouterService))


@contextmanager
def only(shares: Shares, places: int) -> Iterator[None]:
    """Limits each caller to some places."""
    before, shares.part_max = shares.part_max, places
    try:
        yield
    finally:
        shares.part_max = before


@pytest.mark.parametrize(
    "token",
    [
        *("x", ".", "0", "0.", "0.0.0", "-1.0", "0.-1", "2.0", "99999999999.0", "0.1e3", "0.0x1"),
        f"0.{2**63}",
        f"0.{2**64}",
        "0." + "9" * 5_000,
        "9" * 5_000 + ".0",
        "0.١\0",
    ],
    ids=lambda token: token[:12],
)
def test_page_tokens_of_strangers_are_refused(token: str, plain: PlainClient) -> None:
    status, details = refused(lambda: plain.list(page_token=token))
    assert (status, details.field) == ("INVALID_ARGUMENT", "page_token")


def test_a_page_token_beyond_the_end_of_its_part_continues_after_it(
    plain: PlainClient,
) -> None:
    plain.register(query_message("page-token", "s-page-token", text="stranger"))
    found = plain.list(page_token=f"0.{(1 << 43) - 1}", subscriber="s-page-token")
    again = plain.list(page_token="1.0", subscriber="s-page-token")
    assert found.registered_queries == again.registered_queries
    assert not found.next_page_token
    plain.unregister("page-token")


@pytest.mark.parametrize("offset", [10**6, (1 << 43) - 1, 1 << 43, 1 << 64, -1])
def test_a_wait_for_a_missing_position_is_refused(offset: int, plain: PlainClient) -> None:
    status, details = refused(lambda: plain.processed(f"0.{offset}"))
    assert (status, details.field) == ("INVALID_ARGUMENT", "position_token")


def test_waits_and_lists_of_one_caller_are_bounded(
    cluster: EmbeddedCluster, plain: PlainClient
) -> None:
    service = router(cluster)
    (answer,) = plain.publish(publish_request(new_session(), 1, [GOOD]))
    calls: dict[Any, Callable[[], Any]] = {
        service._cluster._waiting: lambda: plain.processed(answer.position_token),
        service._queries._lists: plain.list,
    }
    for shares, call in calls.items():
        call()
        # Another caller has all places.
        shares.take("other", shares.whole_max)
        try:
            status, details = refused(call)
        finally:
            shares.give_back("other", shares.whole_max)
        assert status == "RESOURCE_EXHAUSTED"
        assert details.retry_after_ms > 0
        call()


class Held:
    """A publisher's stream that stays open."""

    def __init__(self, plain: PlainClient) -> None:
        self.requests: queue.SimpleQueue[PublishRequest | None] = queue.SimpleQueue()
        self.requests.put(publish_request(new_session(), 1, [GOOD]))
        publisher = plain.publishers[0]
        self.call: Any = publisher.Publish(iter(self.requests.get, None), timeout=DEADLINE_S)

    def close(self) -> None:
        self.requests.put(None)
        list(self.call)


def test_streams_of_one_publisher_are_bounded(cluster: EmbeddedCluster, plain: PlainClient) -> None:
    with only(router(cluster)._publish._streams, 3):
        held = [Held(plain) for _ in range(3)]
        for each in held:
            assert next(each.call).acknowledged_to == 1
        status, details = refused(lambda: plain.publish(publish_request(new_session(), 1, [GOOD])))
        assert status == "RESOURCE_EXHAUSTED"
        assert details.retry_after_ms > 0
        for each in held:
            each.close()
        assert plain.publish(publish_request(new_session(), 1, [GOOD]))[0].acknowledged_to == 1


def test_a_publish_stream_that_never_begins_ends(
    cluster: EmbeddedCluster, plain: PlainClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router(cluster)._publish, "_times", FrontTimes(begin_s=0.2))
    begun = Held(plain)
    assert next(begun.call).acknowledged_to == 1
    requests: queue.SimpleQueue[PublishRequest | None] = queue.SimpleQueue()
    call: Any = plain.publishers[0].Publish(iter(requests.get, None), timeout=DEADLINE_S)
    status, details = refused(lambda: next(call))
    assert status == "DEADLINE_EXCEEDED"
    assert "first request" in details.message
    requests.put(None)
    # One that has begun may be silent for any time: it was for longer than the other.
    assert begun.call.is_active()
    begun.close()


@pytest.mark.parametrize("method", ["RegisterQueries", "UpdateQueries", "UnregisterQueries"])
def test_bulk_calls_of_one_caller_are_bounded(
    method: str, cluster: EmbeddedCluster, plain: PlainClient
) -> None:
    stub = getattr(plain.queries[0], method)
    answered = {
        "RegisterQueries": query_pb.RegisterQueriesRequest,
        "UpdateQueries": query_pb.UpdateQueriesRequest,
        "UnregisterQueries": query_pb.UnregisterQueriesRequest,
    }[method]()
    shares = router(cluster)._queries._streams
    with only(shares, 3):
        held = []
        for _ in range(3):
            requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
            requests.put(answered)
            held.append((requests, stub(iter(requests.get, None), timeout=DEADLINE_S)))
            assert not next(held[-1][1]).results
        status, details = refused(lambda: stub(iter([answered]), timeout=DEADLINE_S))
        assert status == "RESOURCE_EXHAUSTED"
        assert details.retry_after_ms > 0
        for requests, call in held:
            requests.put(None)
            assert not list(call)
        assert len(list(stub(iter([answered]), timeout=DEADLINE_S))) == 1
    assert shares.held == 0


def test_requests_without_objects_are_refused(plain: PlainClient) -> None:
    status, details = refused(lambda: plain.publish(PublishRequest(session=1, first_number=1)))
    assert (status, details.field) == ("INVALID_ARGUMENT", "objects")


def test_changes_travel_to_their_owner_in_parts() -> None:
    small, large = WantedChange(), WantedChange()
    large.query.where = "x" * (REQUEST_BYTES_MAX - 100)
    changes = [small, large, small, large, large, small]
    found = list(parts(changes))
    assert [change for part in found for change in part] == changes
    assert [len(part) for part in found] == [3, 1, 2]
    assert list(parts([])) == []
