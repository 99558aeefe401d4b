"""The bucket of a tenant's rate: the amount that passes in any time, and the waits of others."""

from __future__ import annotations

import random

import pytest

from sirocco.model.quotas.quota import Bucket, SharedRate


def test_a_second_passes_at_once_and_then_the_rate() -> None:
    bucket = Bucket(100, 0)
    for _ in range(10):
        assert bucket.wait_ms(0) == 0
        bucket.take(10, 0)
    wait_ms = bucket.wait_ms(0)
    assert 0 < wait_ms <= 2
    assert bucket.wait_ms(wait_ms) == 0
    # Unused amounts do not add up beyond a second.
    bucket.take(100, 60_000)
    assert bucket.wait_ms(60_000) > 0


def test_what_is_greater_than_the_bucket_passes_and_is_paid_for() -> None:
    bucket = Bucket(100, 0)
    bucket.take(1_000, 0)
    assert 9_000 <= bucket.wait_ms(0) <= 9_001
    assert bucket.wait_ms(bucket.wait_ms(0)) == 0


def test_another_rate_counts_from_now_on() -> None:
    bucket = Bucket(100, 0)
    bucket.take(300, 0)
    bucket.change(1_000, 0)
    assert 200 <= bucket.wait_ms(0) <= 201
    bucket.change(10, 10_000)
    bucket.take(10, 10_000)
    assert bucket.wait_ms(10_000) > 0


def test_what_is_given_back_fills_no_more_than_the_bucket() -> None:
    bucket = Bucket(100, 0)
    bucket.take(300, 0)
    bucket.give_back(250)
    assert bucket.wait_ms(0) == 0
    bucket.give_back(1_000)
    bucket.take(100, 0)
    assert bucket.wait_ms(0) > 0


@pytest.mark.parametrize("seed", range(20))
def test_over_any_time_no_more_than_the_rate(seed: int) -> None:
    """Repeat with `-k over_any_time` and the seed in brackets."""
    chance = random.Random(seed)
    rate = chance.choice([0.5, 7, 1_000])
    bucket, now_ms = Bucket(rate, 0), 0
    taken: list[tuple[int, float]] = []
    for _ in range(300):
        now_ms += chance.choice([0, 1, 10, 1_000])
        wait_ms = bucket.wait_ms(now_ms)
        if wait_ms and chance.random() < 0.5:
            now_ms += wait_ms
            wait_ms = bucket.wait_ms(now_ms)
            assert wait_ms == 0
        if not wait_ms:
            amount = chance.uniform(0, 3 * rate)
            bucket.take(amount, now_ms)
            taken.append((now_ms, amount))
    for i, (begin_ms, _) in enumerate(taken):
        total = 0.0
        for end_ms, amount in taken[i:]:
            # One second's worth, and the last one, which overdraws.
            allowed = rate * (1 + (end_ms - begin_ms) / 1_000)
            assert total < allowed + 1e-6
            total += amount


@pytest.mark.parametrize("hosts", [1, 2, 5])
def test_hosts_that_ask_without_end_share_a_rate_and_leave_some(hosts: int) -> None:
    rate = SharedRate(100, 1_000)
    taken = dict.fromkeys(range(hosts), 0)
    for now_ms in range(10_000):
        for host in taken:
            if not rate.wait_ms(str(host), now_ms):
                rate.take(str(host), now_ms)
                taken[host] += 1
    assert 700 * 3 * hosts / (3 * hosts + 1) < sum(taken.values()) <= 1_100
    assert max(taken.values()) <= 1.1 * min(taken.values())
    # One that has taken nothing finds its part.
    own = 0
    while not rate.wait_ms("new", 10_000):
        rate.take("new", 10_000)
        own += 1
    assert own >= 100 / (3 * hosts + 1) / 2
    wait_ms = rate.wait_ms("new", 10_000)
    assert rate.wait_ms("new", 10_000 + wait_ms - 2)
    assert not rate.wait_ms("new", 10_000 + wait_ms)


def test_a_shared_rate_remembers_a_bounded_number_of_hosts() -> None:
    rate = SharedRate(100, 8)
    for host in range(50):
        rate.take(str(host), 0)
    assert len(rate._taken) == 8
