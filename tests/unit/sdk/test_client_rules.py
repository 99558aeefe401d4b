"""Credit, retries, endpoints, durations: each rule by itself."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta

import pytest
from sirocco_client import InvalidArgument, ResourceExhausted, Retry, Unauthenticated, Unavailable
from sirocco_client.base.durations import read_duration_ms
from sirocco_client.connection.endpoints import Endpoints, parse_addresses, preferred_order
from sirocco_client.connection.flow import CreditWindow
from sirocco_client.connection.retry import Backoff

from tests.support.seeds import drawn_seed


def test_credit_never_exceeds_the_window_and_never_dries_up() -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    for _ in range(50):
        size = rng.randrange(1, 50)
        window = CreditWindow(size)
        at_server, in_hand = window.restart(), 0
        for _ in range(500):
            if rng.random() < 0.5 and at_server:
                count = rng.randrange(1, at_server + 1)
                at_server, in_hand = at_server - count, in_hand + count
            elif in_hand:
                count = rng.randrange(1, in_hand + 1)
                in_hand -= count
                at_server += window.consume(count)
            assert at_server + in_hand <= size, f"seed {seed}"
            # With an idle consumer the server may always send something.
            assert at_server > 0 or in_hand > 0, f"seed {seed}"


def test_pauses_grow_to_a_bound_and_begin_again() -> None:
    backoff = Backoff(Retry(attempts=50), lambda: 0.0)
    error = Unavailable("gone")
    pauses = [backoff.pause_s(error) for _ in range(20)]
    assert pauses[:3] == pytest.approx([0.1, 0.15, 0.225])
    assert pauses[-1] == 5.0
    backoff.progressed()
    assert backoff.pause_s(error) == 0.1


def test_pauses_are_spread_and_hints_are_kept() -> None:
    backoff = Backoff(Retry(), lambda: 0.999)
    assert backoff.pause_s(Unavailable("gone")) == pytest.approx(0.05, rel=0.01)
    assert Backoff(Retry(), lambda: 0.0).pause_s(full(700)) == 0.7


def test_callers_with_the_same_retry_time_return_spread_after_it() -> None:
    rng = random.Random(1)
    pauses = [Backoff(Retry(), rng.random).pause_s(full(1_000)) for _ in range(1_000)]
    assert 1.0 <= min(pauses) < 1.01
    assert 1.49 < max(pauses) <= 1.5
    # A long pause is not extended by minutes.
    assert Backoff(Retry(), lambda: 1.0).pause_s(full(600_000)) == 602.5


def full(retry_after_ms: int) -> ResourceExhausted:
    return ResourceExhausted("full", retry_after_ms=retry_after_ms)


def test_tries_come_to_an_end() -> None:
    backoff = Backoff(Retry(attempts=3), random.random)
    error = Unavailable("gone")
    backoff.pause_s(error)
    backoff.pause_s(error)
    with pytest.raises(Unavailable):
        backoff.pause_s(error)
    with pytest.raises(Unauthenticated):
        Backoff(Retry(), random.random).pause_s(Unauthenticated("who"))


@pytest.mark.parametrize(
    "members",
    [{"attempts": 0}, {"initial_ms": 9_000}, {"factor": 0.5}, {"jitter": 1.5}],
    ids=str,
)
def test_retry_settings_are_checked(members: dict[str, float]) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Retry(**members)  # type: ignore[arg-type]
    assert caught.value.field == f"retry.{next(iter(members))}"


def test_preferred_servers_are_spread_and_mostly_stay() -> None:
    servers = [f"10.0.0.{i}:7000" for i in range(5)]
    before = {key: preferred_order(servers, str(key)) for key in range(2_000)}
    first = Counter(order[0] for order in before.values())
    assert min(first.values()) > 300
    for key, order in before.items():
        # Without its first choice a key gets its second, whatever the order of the servers.
        rest = [each for each in reversed(servers) if each != order[0]]
        assert preferred_order(rest, str(key)) == order[1:]


def test_endpoints_turn_round() -> None:
    endpoints = Endpoints(["a", "b"])
    assert endpoints.current == "a"
    assert not endpoints.failed("a")
    assert not endpoints.failed("a")
    assert endpoints.current == "b"
    assert endpoints.failed("b")
    assert endpoints.current == "a"


def test_addresses() -> None:
    assert parse_addresses("a:1, b:2,", "router") == ("a:1", "b:2")
    with pytest.raises(InvalidArgument) as caught:
        parse_addresses(" ,", "router")
    assert caught.value.field == "router"


@pytest.mark.parametrize(
    ("value", "duration_ms"),
    [
        ("0ms", 0),
        ("7ms", 7),
        ("90s", 90_000),
        ("2m", 120_000),
        ("72h", 259_200_000),
        ("30d", 2_592_000_000),
        (timedelta(seconds=1.5), 1_500),
        (timedelta(0), 0),
    ],
)
def test_durations(value: object, duration_ms: int) -> None:
    assert read_duration_ms(value, "ttl") == duration_ms


@pytest.mark.parametrize(
    "value",
    [
        *("", "5", "h", "-1h", "1.5h", "1 h", "1H", "９h", 5, None),
        *("9" * 18 + "d", "1" * 40 + "ms", timedelta(seconds=-1), timedelta(microseconds=1_500)),
    ],
    ids=repr,
)
def test_bad_durations(value: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_duration_ms(value, "ttl")
    assert caught.value.field == "ttl"
