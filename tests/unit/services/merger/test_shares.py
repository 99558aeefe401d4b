"""Places for streams and searches: bounded, and no caller gets all of them."""

from __future__ import annotations

import random
from contextlib import ExitStack

import pytest

from sirocco.model.errors import ResourceExhausted
from sirocco.runtime.grpc.shares import HOST_SHARE, OTHERS_PART, host_of
from sirocco.services.merger.shares import Places
from tests.support.seeds import drawn_seed

PLACES = 256


class Held:
    """Places that callers hold until the test ends."""

    def __init__(self, places: int = PLACES) -> None:
        self.refusals: list[str] = []
        self.pauses_ms: set[int | None] = set()
        self.places = Places("searches", places, 50, self.refusals.append)
        self._stack = ExitStack()

    def take(self, tenant: str, peer: str, most: int | None = None) -> bool:
        """Takes one more; returns whether there was one."""
        try:
            self._stack.enter_context(self.places.one(tenant, most, peer))
        except ResourceExhausted as refused:
            self.pauses_ms.add(refused.retry_after_ms)
            return False
        return True

    def take_all(self, tenant: str, peer: str) -> int:
        """Takes as many as a caller can get; returns how many."""
        count = 0
        while self.take(tenant, peer):
            count += 1
        return count

    def release(self) -> None:
        self._stack.close()


def test_a_tenant_alone_gets_half_and_the_next_always_find_places() -> None:
    held = Held()
    first = held.take_all("a", "ipv4:10.0.0.1:1")
    assert first == PLACES // 2
    # Whatever the number of its connections.
    assert not held.take("a", "ipv4:10.0.0.2:1")
    assert held.take_all("b", "ipv4:10.0.0.1:1") == PLACES // 4
    assert held.refusals.count("share") == len(held.refusals)
    assert held.pauses_ms == {50}
    held.release()
    assert held.places.taken == 0
    assert held.take_all("c", "x") == PLACES // 2


def test_a_tenant_has_no_more_than_its_limit() -> None:
    held = Held()
    assert [held.take("a", "x", 3) for _ in range(4)] == [True, True, True, False]
    assert not held.take("b", "x", 0)
    assert held.refusals == ["tenant", "tenant"]
    assert held.take("c", "x")


def test_connections_without_tokens_share_and_one_host_leaves_some_to_others() -> None:
    held = Held()
    assert held.take_all("", "ipv4:10.0.0.1:1") == PLACES // 2
    for port in range(2, 12):
        held.take_all("", f"ipv4:10.0.0.1:{port}")
    taken = held.places.taken
    assert PLACES * HOST_SHARE // (HOST_SHARE + 1) <= taken <= PLACES * 4 // 5
    # Other callers on the same host are served,
    assert held.take("", "ipv4:10.0.0.1:12")
    # and others are, however many connections one caller opens one after the other.
    for port in range(13, 1_000):
        held.take_all("", f"ipv4:10.0.0.1:{port}")
    assert held.places.taken <= PLACES - PLACES // OTHERS_PART
    assert held.take_all("", "ipv4:10.0.0.2:1") >= PLACES // OTHERS_PART // 2


def test_the_process_is_never_over_its_bound_whoever_comes() -> None:
    seed = drawn_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    held = Held(40)
    open_places: list[ExitStack] = []
    for _ in range(5_000):
        if open_places and rng.random() < 0.4:
            open_places.pop(rng.randrange(len(open_places))).close()
            continue
        tenant = rng.choice(["", "", "a", "b", "c"])
        peer = f"ipv4:10.0.0.{rng.randrange(4)}:{rng.randrange(3)}"
        with ExitStack() as stack:
            try:
                stack.enter_context(held.places.one(tenant, rng.choice([None, 2]), peer))
            except ResourceExhausted:
                continue
            open_places.append(stack.pop_all())
        assert held.places.taken == len(open_places) <= 40
    for each in open_places:
        each.close()
    assert held.places.taken == 0
    assert not held.places._held


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:41024", "ipv4:10.0.0.7"),
        ("ipv6:%5B::1%5D:41024", "ipv6:%5B::1%5D"),
        ("unix:", "host unix:"),
    ],
)
def test_the_host_of_a_connection(peer: str, host: str) -> None:
    assert host_of(peer) == host
