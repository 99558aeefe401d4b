"""Tokens that are renewed while a client uses them, on calls and on streams."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import pytest
from sirocco_client import (
    InvalidArgument,
    PublishFailed,
    RangeQuery,
    Rectangle,
    TokenFile,
    Unauthenticated,
)

from tests.support.fake_cluster import Failure, FakeCluster, PublishPlan, ReceivePlan

QUERY = RangeQuery(id="q", subscriber="s", region=Rectangle(0, 0, 1, 1))
REFUSED = Failure(grpc.StatusCode.UNAUTHENTICATED)


class Renewing:
    """Returns another token each time."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> str:
        self.count += 1
        return f"t{self.count}"


def test_each_call_has_the_present_token(cluster: FakeCluster, connect: Callable[..., Any]) -> None:
    token = Renewing()
    client = connect(cluster.router, token=token)
    for _ in range(3):
        client.describe()
    assert token.count == 3


def test_a_call_refused_for_its_token_is_sent_once_more(
    cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    cluster.unary_failures.append(REFUSED)
    token = Renewing()
    connect(cluster.router, token=token).register(QUERY)
    assert token.count == 2
    cluster.unary_failures += [REFUSED] * 3
    with pytest.raises(Unauthenticated):
        connect(cluster.router, token=token).register(QUERY)
    assert len(cluster.unary_failures) == 1


def test_a_fixed_token_is_sent_once(cluster: FakeCluster, connect: Callable[..., Any]) -> None:
    cluster.unary_failures += [REFUSED] * 2
    with pytest.raises(Unauthenticated):
        connect(cluster.router, token="fixed").register(QUERY)
    assert len(cluster.unary_failures) == 1


def test_notifications_go_on_when_the_streams_token_ends(
    cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    cluster.receive_plans += [ReceivePlan(5, REFUSED), *[ReceivePlan(3, REFUSED)] * 2]
    client = connect(cluster.router, token=Renewing())
    matches = [("q", number) for number in range(40)]
    with client.subscribe("s", from_earliest=True) as subscription:
        cluster.deliver(*matches)
        found = list(islice(subscription, len(matches)))
    assert [(each.query, each.object.id) for each in found] == matches
    assert not cluster.receive_plans


def test_publishing_goes_on_when_the_streams_token_ends(
    cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    # The answer is lost with the stream.
    cluster.publish_plans.append(PublishPlan(requests=1, answered=0, failure=REFUSED))
    client = connect(cluster.router, token=Renewing())
    with client.publisher() as publisher:
        for number in range(2):
            publisher.publish({"id": number, "lon": 0, "lat": 0})
            publisher.flush()
    tokens = [each["authorization"] for each in cluster.publish_metadata]
    assert len(set(tokens)) == len(tokens) == 2
    assert [each for _, _, each in cluster.log] == [0, 1]


def test_a_publisher_whose_new_token_is_refused_too_gives_up(
    cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    cluster.publish_plans += [PublishPlan(requests=0, failure=REFUSED)] * 12
    publisher = connect(cluster.router, token=Renewing()).publisher()
    publisher.publish({"id": 1, "lon": 0, "lat": 0})
    with pytest.raises(PublishFailed) as failed:
        publisher.flush()
    assert isinstance(failed.value.cause, Unauthenticated)
    # At the second refusal. Where a stream ends while it is written to, gRPC's asyncio reports an
    # internal error instead, once in twenty times, and the publisher tries again.
    assert 6 <= len(cluster.publish_plans) <= 10


@pytest.mark.parametrize("token", ["", "a\nb", "ä", None, 7])
def test_a_function_that_returns_no_token_is_named(
    token: object, cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    client = connect(cluster.router, token=lambda: token)
    if token is None:
        # No token for now.
        client.describe()
        return
    with pytest.raises(InvalidArgument) as refused:
        client.describe()
    assert refused.value.field == "token"


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    token = TokenFile(path)
    assert token() == "first"
    path.write_text("second\n")
    assert token() == "second"
    # As a volume of Kubernetes is renewed.
    newer = tmp_path / "newer"
    newer.write_bytes(b"\xef\xbb\xbfnewest")
    os.utime(newer, ns=(0, path.stat().st_mtime_ns))
    newer.replace(path)
    assert token() == "newest"


def test_the_last_token_stays_while_the_file_is_away_or_broken(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    token = TokenFile(path)
    for broken in (b"", b"a b", b"\xff\xfe", b"x" * 10_000):
        path.write_bytes(broken)
        assert token() == "first"
    path.unlink()
    assert token() == "first"
    path.write_text("back")
    assert token() == "back"


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("piped\n",))
    writer.start()
    token = TokenFile(path)
    writer.join()
    assert [token(), token()] == ["piped", "piped"]


@pytest.mark.parametrize("content", [None, b"", b"two\nlines", b"\xff\xfe", b"x" * 20_000])
def test_a_file_without_a_token_is_refused(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=str(path)) as refused:
        TokenFile(path)
    assert refused.value.field == "token"
