"""Throttling: at most n of a query a period, a digest of the rest, bounded state."""

from __future__ import annotations

import random

import pytest

from sirocco.services.connector.sinks.rows import Place, Row
from sirocco.services.connector.sinks.throttle import Digest, Throttle, ThrottleLimit
from tests.support import seeds

LIMIT = ThrottleLimit(count=2, period_ms=1_000, queries=3)


def row(number: int, query: str = "q", arrival_ms: int = 5) -> Row:
    return Row(f"1-{number}", query, query, "", b"{}", arrival_ms, Place("1", number))


def test_the_first_n_pass_and_the_rest_is_counted() -> None:
    throttle = Throttle(LIMIT)
    passed = [throttle.admits(row(i, arrival_ms=i), 100 + i) for i in range(5)]
    assert passed == [True, True, False, False, False]
    assert list(throttle.ended(1_099)) == []
    assert throttle.due_ms() == 1_100
    (digest,) = throttle.ended(1_100)
    window = digest.window
    assert (digest.query, digest.id) == ("q", "1-2-digest")
    assert (window.held, window.first, window.last) == (3, "1-2", "1-4")
    assert (window.first_ms, window.last_ms) == (2, 4)
    assert throttle.due_ms() is None
    # A new period.
    assert throttle.admits(row(9), 1_200)


def test_a_period_in_which_all_passed_has_no_digest() -> None:
    throttle = Throttle(LIMIT)
    assert throttle.admits(row(0), 0)
    assert throttle.due_ms() is None
    assert list(throttle.ended(5_000)) == []
    assert throttle.snapshot() == {}


def test_queries_beyond_the_limit_share_one_allowance() -> None:
    throttle = Throttle(LIMIT)
    for query in "abc":
        assert throttle.admits(row(0, query), 0)
    assert [throttle.admits(row(i, f"x{i}"), 0) for i in range(4)] == [True, True, False, False]
    assert len(throttle.snapshot()) == 4
    (digest,) = throttle.ended(1_000)
    assert (digest.query, digest.window.held) == ("", 2)


def test_none_may_pass() -> None:
    throttle = Throttle(ThrottleLimit(count=0, period_ms=1_000))
    assert not throttle.admits(row(0), 0)
    assert [one.window.held for one in throttle.ended(1_000)] == [1]


def test_a_clock_that_is_set_back_ends_periods() -> None:
    throttle = Throttle(LIMIT)
    for i in range(3):
        throttle.admits(row(i), 1_000_000)
    assert [one.window.held for one in throttle.ended(5_000)] == [1]


def test_a_snapshot_continues_the_periods() -> None:
    first = Throttle(LIMIT)
    for i in range(3):
        first.admits(row(i), 0)
    second = Throttle(LIMIT, first.snapshot())
    assert not second.admits(row(3), 10)
    assert second.due_ms() == 1_000
    assert [one.window.held for one in second.ended(1_000)] == [2]


def test_every_notification_passes_or_is_in_one_digest() -> None:
    rng = random.Random(seeds.drawn_seed())
    throttle = Throttle(LIMIT)
    now_ms, total, passed = 0, 2_000, 0
    digests: list[Digest] = []
    for number in range(total):
        now_ms += rng.randrange(120)
        if rng.random() < 0.01:
            now_ms = max(0, now_ms - rng.randrange(3_000))
        digests += throttle.ended(now_ms)
        passed += throttle.admits(row(number, f"q{rng.randrange(6)}"), now_ms)
        assert len(throttle.snapshot()) <= LIMIT.queries + 1
    digests += throttle.ended(now_ms + 10_000)
    assert passed + sum(one.window.held for one in digests) == total
    assert throttle.snapshot() == {}


@pytest.mark.parametrize("seed", range(3))
def test_no_query_of_its_own_passes_more_than_n_in_a_period(seed: int) -> None:
    rng = random.Random(seed)
    throttle = Throttle(ThrottleLimit(count=2, period_ms=1_000, queries=10))
    passes: dict[str, list[int]] = {}
    for number in range(1_000):
        now_ms = number * 37
        list(throttle.ended(now_ms))
        query = f"q{rng.randrange(5)}"
        if throttle.admits(row(number, query), now_ms):
            passes.setdefault(query, []).append(now_ms)
    for times in passes.values():
        # A period begins with the first notification after the one before.
        begin, count = times[0], 0
        for moment in times:
            if moment >= begin + 1_000:
                begin, count = moment, 0
            count += 1
            assert count <= 2
