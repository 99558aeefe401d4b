"""ReceiveService and ClusterService on running clusters: cursors, credit, retention."""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from sirocco_api.v1 import cluster_service_pb2 as cluster_pb
from sirocco_api.v1.receive_service_pb2 import Credit, Open, ReceiveRequest

from sirocco.protocol.contract.messages import DELIVERIES
from sirocco.runtime.limits import ProcessLimits
from sirocco.runtime.loop.limits import LoopLimits
from sirocco.runtime.settings import ClusterSettings
from sirocco.services.embedded import EmbeddedCluster
from tests.support.plain_client import (
    DEADLINE_S,
    PlainClient,
    new_session,
    partition,
    publish_request,
    query_message,
    refused,
)
from tests.support.waiting import eventually


def publish(plain: PlainClient, word: str, numbers: range, step: int = 1) -> str:
    """Publishes objects with a word, `step` in each request; returns the position token."""
    session = new_session()
    requests = [
        publish_request(
            session,
            begin - numbers.start + 1,
            [
                {"id": i, "lon": 1.0, "lat": 1.0, "text": word}
                for i in range(begin, min(begin + step, numbers.stop))
            ],
        )
        for begin in range(numbers.start, numbers.stop, step)
    ]
    token: str = plain.publish(*requests)[-1].position_token
    return token


def test_a_stream_resumes_after_its_cursor(plain: PlainClient) -> None:
    plain.register(query_message("cur", "s-cur", text="cur"))
    cursors = plain.processed(publish(plain, "cur", range(10)))
    stream = plain.receive("s-cur")
    assert len(stream.upto(cursors)) == 10
    stream.close()
    more = plain.processed(publish(plain, "cur", range(10, 15)))
    numbers = [n for _, n in plain.found("s-cur", more, cursor=stream.cursor)]
    assert numbers == list(range(10, 15))
    # The same cursor gives the same again.
    assert plain.found("s-cur", more, cursor=stream.cursor) == [("cur", n) for n in numbers]
    assert plain.found("s-cur", more, cursor=cursors[partition("s-cur")]) == [
        ("cur", n) for n in numbers
    ]


def test_a_stream_that_is_behind_gets_records_together_if_it_asks(plain: PlainClient) -> None:
    # init: records of one match each, all there before the streams begin
    plain.register(query_message("joined", "s-joined", text="joined"))
    for number in range(6):
        cursors = plain.processed(publish(plain, "joined", range(number, number + 1)))

    # test
    apart, together = (plain.receive("s-joined", joined=joined) for joined in (False, True))
    found, places = [], []
    for stream in (apart, together):
        parts: list[list[tuple[str, int]]] = []
        while sum(map(len, parts)) < 6:
            parts.append(next(stream.matches()))
        found.append(parts)
        places.append(stream.cursor)
        stream.close()

    # check: the same order and the same end; the log is read in stretches
    assert found[0] == [[("joined", n)] for n in range(6)]
    assert [one for part in found[1] for one in part] == [("joined", n) for n in range(6)]
    assert len(found[1]) < 6
    assert places[0] == places[1]
    assert plain.found("s-joined", cursors, cursor=places[1]) == []


def test_without_a_cursor_a_stream_begins_now(plain: PlainClient) -> None:
    plain.register(query_message("now", "s-now", text="now"))
    plain.processed(publish(plain, "now", range(3)))
    stream = plain.receive("s-now", earliest=False)
    assert stream.next().cursor
    cursors = plain.processed(publish(plain, "now", range(3, 5)))
    found = []
    for pairs in stream.matches():
        found += pairs
        if len(found) == 2:
            break
    stream.close()
    assert found == [("now", 3), ("now", 4)]
    assert cursors


def test_subscribers_get_their_own_matches_alone(plain: PlainClient) -> None:
    for name in ("own-a", "own-b", "own-c"):
        plain.register(query_message(name, f"s-{name}", text="own"))
    cursors = plain.processed(publish(plain, "own", range(5)))
    for name in ("own-a", "own-b", "own-c"):
        assert plain.found(f"s-{name}", cursors) == [(name, i) for i in range(5)]


def test_credit_that_ends_stops_the_stream_and_more_resumes_it(plain: PlainClient) -> None:
    # init: each request is processed by itself, so that it gives a record of its own.
    plain.register(query_message("credit", "s-credit", text="credit"))
    for i in range(4):
        cursors = plain.processed(publish(plain, "credit", range(i, i + 1)))

    # test: without credit only the cursor is sent; each unit brings one record.
    stream = plain.receive("s-credit", matches=0)
    begin = stream.next()
    assert not begin.matches.objects
    responses = stream.matches()
    found: list[Any] = []
    for _ in range(4):
        sent_before = len(found)
        stream.credit(1)
        found += next(responses)
        assert len(found) == sent_before + 1
    stream.close()

    # check
    assert found == [("credit", i) for i in range(4)]
    assert cursors


def test_a_slow_subscriber_delays_only_itself(plain: PlainClient) -> None:
    for name in ("slow", "fast"):
        plain.register(query_message(name, f"s-{name}", text="speed"))
    slow = plain.receive("s-slow", matches=0)
    slow.next()
    cursors = plain.processed(publish(plain, "speed", range(20)))
    assert len(plain.found("s-fast", cursors)) == 20
    slow.credit(100)
    assert len(next(slow.matches())) > 0
    slow.close()


BAD_OPENINGS = {
    "no subscriber": (ReceiveRequest(open=Open(matches=1)), "open.subscriber"),
    "credit first": (ReceiveRequest(credit=Credit(matches=1)), "open"),
    "nothing first": (ReceiveRequest(), "open"),
    "cursor is no cursor": (ReceiveRequest(open=Open(subscriber="x", cursor="abc")), "open.cursor"),
    "cursor of other digits": (
        ReceiveRequest(open=Open(subscriber="x", cursor="0.1_0")),
        "open.cursor",
    ),
    "cursor of digits of elsewhere": (
        ReceiveRequest(open=Open(subscriber="x", cursor="0.\uff11")),
        "open.cursor",
    ),
    "name of megabytes": (ReceiveRequest(open=Open(subscriber="x" * 257)), "open.subscriber"),
    "credit below none": (ReceiveRequest(open=Open(subscriber="x", matches=-1)), "open.matches"),
    "cursor with three parts": (
        ReceiveRequest(open=Open(subscriber="x", cursor="0.1.2")),
        "open.cursor",
    ),
    "cursor of another partition": (
        ReceiveRequest(open=Open(subscriber="x", cursor=f"{1 - partition('x')}.0")),
        "open.cursor",
    ),
    "cursor beyond the end": (
        ReceiveRequest(open=Open(subscriber="x", cursor=f"{partition('x')}.99999999")),
        "open.cursor",
    ),
    "negative cursor": (
        ReceiveRequest(open=Open(subscriber="x", cursor=f"{partition('x')}.-1")),
        "open.cursor",
    ),
}


@pytest.mark.parametrize("name", BAD_OPENINGS)
def test_a_bad_opening_is_refused_with_its_field(name: str, plain: PlainClient) -> None:
    request, field = BAD_OPENINGS[name]
    call = plain.receiver.Receive(iter([request]), timeout=DEADLINE_S)
    status, details = refused(lambda: call)
    assert (status, details.code, details.field) == ("INVALID_ARGUMENT",) * 2 + (field,)


def test_an_empty_stream_is_refused(plain: PlainClient) -> None:
    call = plain.receiver.Receive(iter([]), timeout=DEADLINE_S)
    assert refused(lambda: call)[1].field == "open"


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (ReceiveRequest(credit=Credit(matches=0)), "credit.matches"),
        (ReceiveRequest(credit=Credit(matches=-4)), "credit.matches"),
        (ReceiveRequest(open=Open(subscriber="again")), "open"),
    ],
)
def test_a_bad_later_request_ends_the_stream(
    request_: ReceiveRequest, field: str, plain: PlainClient
) -> None:
    plain.register(query_message("later", "s-later", text="later"))
    plain.processed(publish(plain, "later", range(2)))
    stream = plain.receive("s-later", matches=0)
    stream.next()
    stream.send(request_)
    status, details = refused(lambda: stream.call)
    assert (status, details.field) == ("INVALID_ARGUMENT", field)


@pytest.mark.parametrize("token", ["", "x", "0", "7.0", "-1.4", "0.-4", "0.1,"])
def test_a_token_of_no_publish_is_refused(token: str, plain: PlainClient) -> None:
    for router in (0, 1):
        status, details = refused(lambda r=router: plain.processed(token, r))
        assert (status, details.field) == ("INVALID_ARGUMENT", "position_token")


def test_the_cluster_describes_itself(cluster: EmbeddedCluster, plain: PlainClient) -> None:
    plain.processed(publish(plain, "described", range(3)))
    for stub in plain.clusters:
        request = cluster_pb.DescribeClusterRequest(leaves=True)
        answer = stub.DescribeCluster(request, timeout=DEADLINE_S)
        assert (answer.scheme, answer.leaf_count, answer.slot_count) == ("uniform-grid", 8, 4)
        assert answer.map_version == 1
        assert sorted(member.service for member in answer.members) == sorted(
            service.name for service in cluster.services
        )
        assert len(answer.ownerships) == 2 + 2 + 4 + 2
        assert {owner.member for owner in answer.ownerships} <= {m.id for m in answer.members}
        assert len(answer.leaves) == 8
        assert {leaf.slot for leaf in answer.leaves} == set(range(4))


def test_an_expired_cursor_is_refused_with_the_earliest_that_works() -> None:
    # init: a cluster that keeps very little, and a stream that lags.
    limits = ProcessLimits(loop=LoopLimits(truncate_interval_ms=0))
    settings = ClusterSettings(
        slots=1,
        leaves=1,
        intake_partitions=1,
        registry_partitions=1,
        partials_partitions=2,
        scheme="uniform-grid",
        retained_bytes_max=6_000,
    )
    with EmbeddedCluster(settings, limits=limits) as cluster, PlainClient(cluster) as plain:
        plain.register(query_message("q", "late", text="word"))
        stream = plain.receive("late")
        first = stream.next().cursor
        stream.close()
        for i in range(5):
            numbers = range(60 * i, 60 * i + 60)
            cursors = plain.processed(publish(plain, "word", numbers, step=60))
        log_begin = begin_once_truncated(cluster)

        # test
        call = plain.receive("late", cursor=first).call
        status, details = refused(lambda: call)

        # check
        assert (status, details.code) == ("OUT_OF_RANGE", "OUT_OF_RANGE")
        assert details.field == "open.cursor"
        assert details.earliest_cursor == f"{partition('late')}.{log_begin}"
        found = [n for _, n in plain.found("late", cursors, cursor=details.earliest_cursor)]
        assert found == list(range(found[0], 300))
        assert 0 < found[0] < 299


def begin_once_truncated(cluster: EmbeddedCluster) -> int:
    """Returns the begin of the subscriber's partition, once it has been truncated."""
    begin: int = eventually(
        lambda: cluster.log.bounds(DELIVERIES, partition("late"))[0], "the log was not truncated"
    )
    return begin


def test_a_call_with_an_unknown_method_is_refused(plain: PlainClient) -> None:
    call = plain._channels[0].unary_unary("/sirocco.v1.PublishService/Nothing")
    with pytest.raises(grpc.RpcError) as caught:
        call(b"", timeout=DEADLINE_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
