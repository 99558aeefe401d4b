"""Calls of clients with values that nobody means, and from where nobody should: typed errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sirocco_client import FailedPrecondition, InvalidArgument, RangeQuery, Tls

from tests.support.fake_cluster import FakeCluster
from tests.support.waiting import eventually

SNAPSHOT = RangeQuery(id="q", subscriber="", mode="snapshot")

CALLS: dict[str, tuple[str, Callable[[Any, Any], object]]] = {
    "get": ("id", lambda client, value: client.get(value)),
    "unregister": ("id", lambda client, value: client.unregister(value)),
    "list": ("subscriber", lambda client, value: list(client.list(value))),
    "subscribe": ("subscriber", lambda client, value: client.subscribe(value)),
    "cursor": ("cursor", lambda client, value: client.subscribe("s", value)),
    "await": ("position_token", lambda client, value: client.await_processed(value)),
    "search": (
        "position_token",
        lambda client, value: client.search(SNAPSHOT, position_token=value),
    ),
}
VALUES = [5, 1.5, True, b"x", ["x"], {"id": "x"}, object(), "\ud800"]


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_is_no_text_is_refused_by_its_name(name: str, value: object, client: Any) -> None:
    field, call = CALLS[name]
    with pytest.raises(InvalidArgument) as caught:
        call(client, value)
    assert caught.value.field == field


@pytest.mark.parametrize("value", [None, 5, "x", object()])
def test_a_map_is_bytes(value: object, client: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.propose_map(value)
    assert caught.value.field == "partition_map"


@pytest.mark.parametrize("router", [None, 5, ["h:1"], "h\ud800:1"])
def test_a_router_is_text(router: object, connect: Callable[..., Any]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        connect(router)
    assert caught.value.field == "router"


@pytest.mark.parametrize(
    "token",
    ["", "a\nb", "a b", "\ufefftoken", "ü", "\0", "\ud800", "x" * 20_000, 5, b"token"],
    ids=lambda token: repr(token)[:12],
)
def test_a_token_that_cannot_be_sent_is_refused_at_once(
    token: object, cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    """It said that the router could not be reached, and tried again for the whole time limit."""
    with pytest.raises(InvalidArgument) as caught:
        connect(cluster.router, token=token)
    assert caught.value.field == "token"


@pytest.mark.parametrize("pem", [b"", b"\xff\xfe", b"no certificate", "text"])
def test_roots_that_are_none_are_refused_at_once(
    pem: Any, cluster: FakeCluster, connect: Callable[..., Any]
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        connect(cluster.router, tls=Tls(root_certificates=pem))
    assert caught.value.field == "tls.root_certificates"


def is_read(subscription: Any) -> bool:
    """Returns whether a thread or task waits for a batch."""
    one = getattr(subscription, "inner", subscription)
    return bool(one._is_reading if hasattr(one, "_is_reading") else one._reading.locked())


def test_one_subscription_has_one_reader(cluster: FakeCluster, client: Any) -> None:
    """Two readers got an internal error of gRPC, or took turns by chance."""
    subscription = client.subscribe("s")
    subscription.open()
    found: list[Any] = []
    reader = threading.Thread(target=lambda: found.append(subscription.next_batch()))
    reader.start()
    eventually(lambda: is_read(subscription))
    with pytest.raises(FailedPrecondition):
        subscription.next_batch()
    cluster.deliver(("q", 1))
    reader.join(120.0)
    assert len(found[0]) == 1
    # Another thread may go on where the first one stopped.
    cluster.deliver(("q", 2))
    assert len(subscription.next_batch()) == 1
    subscription.close()
