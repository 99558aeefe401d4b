"""What is done after each answer of a receiver."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from sirocco.services.connector.sinks.retries import (
    Answered,
    Delivered,
    Failed,
    GiveUp,
    Gone,
    Outcome,
    RetryPolicy,
    Tries,
    TryAgain,
    pause_s,
    retry_after_s,
)

POLICY = RetryPolicy(attempts=3, outage_s=100.0, first_s=1.0, longest_s=20.0)


def tries(random: float = 0.0) -> Tries:
    return Tries(POLICY, 0.0, lambda: random)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_success_is_one(status: int) -> None:
    assert tries().after(Answered(status), 0.0, 0.0) == Delivered()


def test_gone_is_gone() -> None:
    assert tries().after(Answered(410), 0.0, 0.0) == Gone()


@pytest.mark.parametrize("status", [100, 301, 302, 307, 400, 401, 403, 404, 413, 422])
def test_refusals_have_a_limit(status: int) -> None:
    made = tries()
    found = [made.after(Answered(status), 0.0, 0.0) for _ in range(3)]
    assert found == [TryAgain(1.0, str(status)), TryAgain(2.0, str(status)), GiveUp(str(status))]


@pytest.mark.parametrize(
    "outcome", [Answered(500), Answered(503), Answered(429), Failed("timeout")]
)
def test_outages_last_as_long_as_they_may(outcome: Outcome) -> None:
    made, now_s, pauses = tries(), 0.0, []
    while isinstance(found := made.after(outcome, now_s, 0.0), TryAgain):
        pauses.append(found.pause_s)
        now_s += found.pause_s
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0, 20.0]
    assert isinstance(found, GiveUp)


def test_the_pause_that_is_asked_for_is_the_least_one_up_to_the_longest() -> None:
    assert tries().after(Answered(429, "7"), 0.0, 0.0) == TryAgain(7.0, "429")
    assert tries().after(Answered(503, "9999999999999"), 0.0, 0.0) == TryAgain(20.0, "503")
    assert tries().after(Answered(503, "0"), 0.0, 0.0) == TryAgain(1.0, "503")
    # A refusal does not ask.
    assert tries().after(Answered(400, "7"), 0.0, 0.0) == TryAgain(1.0, "400")


def test_pauses_are_partly_random() -> None:
    assert pause_s(3, 1.0, 60.0, lambda: 0.999) < pause_s(3, 1.0, 60.0, lambda: 0.0)
    assert pause_s(3, 1.0, 60.0, lambda: 0.999, 10.0) > 10.0
    assert pause_s(10**9, 1.0, 60.0, lambda: 0.0) == 60.0


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0.0),
        ("", 0.0),
        ("12", 12.0),
        (" 12 ", 12.0),
        ("-1", 0.0),
        ("1.5", 0.0),
        ("soon", 0.0),
        ("٣", 0.0),
        ("9" * 400, 9_999_999_999.0),
        (format_datetime(datetime.fromtimestamp(1_030, UTC), usegmt=True), 30.0),
        (format_datetime(datetime.fromtimestamp(900, UTC), usegmt=True), 0.0),
        ("Wed, 99 Foo 2026 99:99:99 GMT", 0.0),
    ],
)
def test_what_a_receiver_asks_for(header: str | None, seconds: float) -> None:
    assert retry_after_s(header, 1_000.0) == seconds
